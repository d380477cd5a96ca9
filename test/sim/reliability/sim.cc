// The simulator's command line: see usage().
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>

#include "test/sim/reliability/world.hpp"

namespace ft::sim {

namespace {

struct Options {
    std::uint64_t runs = 100'000;
    std::uint64_t first = 1;
    std::optional<std::uint64_t> seed;
    bool trace = false;
    bool patterns = false;
    bool mutants = false;
    bool complete = true; ///< every pair must be reached
    std::string program;
};

[[noreturn]] void usage()
{
    std::printf(
        "usage: sim_reliability [--runs N] [--first SEED] [--no-coverage]\n"
        "       sim_reliability --seed SEED [--trace]      one run\n"
        "       sim_reliability --patterns                 all loss patterns of an exchange\n"
        "       sim_reliability --mutants                  without each mechanism in turn\n");
    std::exit(2);
}

Options parse(int argc, char **argv)
{
    Options o;
    o.program = argv[0];
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const auto number = [&]() -> std::uint64_t {
            if (++i == argc) {
                usage();
            }
            char *end = nullptr;
            const std::uint64_t n = std::strtoull(argv[i], &end, 0);
            if (*argv[i] == '\0' || *end != '\0') {
                usage();
            }
            return n;
        };
        if (word == "--runs") {
            o.runs = number();
        } else if (word == "--first") {
            o.first = number();
        } else if (word == "--seed") {
            o.seed = number();
        } else if (word == "--trace") {
            o.trace = true;
        } else if (word == "--patterns") {
            o.patterns = true;
        } else if (word == "--mutants") {
            o.mutants = true;
        } else if (word == "--no-coverage") {
            o.complete = false;
        } else {
            usage();
        }
    }
    return o;
}

/// What many runs add up to.
struct Sum {
    Pairs pairs;
    std::uint64_t events = 0;
    std::uint64_t packets = 0;
    std::uint64_t vfrags = 0;
    std::uint64_t unreachable = 0;
    base::Duration worst{};
    std::uint64_t worst_seed = 0;
    reliability::Counters counters;
};

std::optional<Violation> run_one(const Plan &plan, Sum &sum, bool trace,
                                 std::optional<std::uint32_t> pattern = {}, unsigned length = 0)
{
    World world(plan, sum.pairs, trace);
    if (pattern) {
        world.set_loss_pattern(*pattern, length);
    }
    std::optional<Violation> violation;
    try {
        world.run();
    } catch (const Violation &caught) {
        violation = caught;
    }
    sum.events += world.events_run;
    sum.packets += world.packets_sent;
    for (const auto &endpoint : world.endpoints) {
        sum.counters += endpoint->peer().counters();
        sum.unreachable += endpoint->peer().unreachable() ? 1U : 0U;
    }
    if (world.slack > sum.worst) {
        sum.worst = world.slack;
        sum.worst_seed = plan.seed;
    }
    return violation;
}

void print_sum(const Sum &sum)
{
    const reliability::Counters &c = sum.counters;
    std::printf("# %" PRIu64 " events, %" PRIu64 " packets, %" PRIu64
                " VFRAGs acknowledged, %" PRIu64 " given back, %" PRIu64 " ends lost their peer\n",
                sum.events, sum.packets, c.vfrags_completed, c.vfrags_failed, sum.unreachable);
    std::printf("# sent again: %" PRIu64 " timeout, %" PRIu64 " watchdog, %" PRIu64 " gap, %" PRIu64
                " tail, %" PRIu64 " NACK, %" PRIu64 " failover; %" PRIu64 " of them needlessly\n",
                c.retransmitted_timeout, c.retransmitted_watchdog, c.retransmitted_gap,
                c.retransmitted_tail, c.retransmitted_nack, c.retransmitted_failover,
                c.retransmitted_spurious);
    std::printf("# found out to have been too early: %" PRIu64 " timeouts\n", c.spurious_timeouts);
    std::printf("# dropped: %" PRIu64 " duplicates, %" PRIu64 " headers and %" PRIu64
                " payloads corrupt, %" PRIu64 " malformed, %" PRIu64 " outside the window\n",
                c.duplicates, c.corrupt_header, c.corrupt_payload, c.malformed, c.outside_window);
    std::printf("# longest time from healing to the last acknowledgement: %.3f s (seed %" PRIu64
                ")\n",
                sum.worst.seconds(), sum.worst_seed);
}

int single(const Options &o)
{
    Sum sum;
    std::printf("1..1\n");
    const auto violation = run_one(make_plan(*o.seed, Mutant::none), sum, o.trace);
    if (violation) {
        std::printf("# %s: %s\n", to_string(violation->breach), violation->text.c_str());
    }
    print_sum(sum);
    std::printf("%sok 1 - seed_%" PRIu64 "\n", violation ? "not " : "", *o.seed);
    return violation ? 1 : 0;
}

int swarm(const Options &o)
{
    constexpr unsigned most_shown = 20;
    Sum sum;
    std::uint64_t failed = 0;
    std::printf("1..%d\n", o.complete ? 2 : 1);
    for (std::uint64_t seed = o.first; seed < o.first + o.runs; ++seed) {
        const auto violation = run_one(make_plan(seed, Mutant::none), sum, false);
        if (violation && ++failed <= most_shown) {
            std::printf("# seed %" PRIu64 ": %s: %s\n#   again: %s --seed %" PRIu64 " --trace\n",
                        seed, to_string(violation->breach), violation->text.c_str(),
                        o.program.c_str(), seed);
            std::fflush(stdout);
        }
    }
    print_sum(sum);
    std::printf("# %" PRIu64 " of %" PRIu64 " runs violate an invariant\n", failed, o.runs);
    std::printf("%sok 1 - %" PRIu64 "_seeded_runs_hold_the_invariants\n", failed ? "not " : "",
                o.runs);
    if (!o.complete) {
        return failed != 0 ? 1 : 0;
    }
    const unsigned wrong = sum.pairs.report(stdout, true);
    unsigned possible = 0;
    unsigned reached = 0;
    sum.pairs.totals(possible, reached);
    std::printf("# %u of %u (state, event) pairs reached; %u pairs are not as the table says\n",
                reached, possible, wrong);
    std::printf("%sok 2 - every_pair_of_state_and_event_is_reached\n", wrong ? "not " : "");
    return failed != 0 || wrong != 0 ? 1 : 0;
}

/// Two processes, a request and its answer and a VFRAG of four fragments, over one or two paths.
Plan exchange(unsigned paths)
{
    using namespace base::literals;
    Plan plan;
    plan.seed = 8; // a multiple of 8: paths must come back too
    plan.config.fragment_bytes = 256;
    plan.config.rto_initial = 5_ms;
    plan.config.rto_min = 1_ms;
    plan.config.rto_max = 40_ms;
    plan.config.give_up = 100_s;
    plan.config.probe_interval = 20_ms;
    plan.config.hold_down = 10_ms;
    plan.processes.resize(2);
    PairPlan pair;
    pair.process = {0, 1};
    pair.first_sequence = ~0U;
    pair.first_order = ~0U;
    pair.first_tx = 0xffffff;
    for (unsigned i = 0; i < paths; ++i) {
        LinkPlan link;
        link.latency = 10_us;
        link.max_fragment_bytes = 256;
        pair.links.push_back(link);
    }
    plan.pairs.push_back(pair);
    const auto message = [&](unsigned from, bool ordered, std::uint64_t length, int reply_to) {
        MessagePlan m;
        m.from = from;
        m.to = 1 - from;
        m.ordered = ordered;
        m.fragment_bytes = 64;
        m.length = length;
        m.reply_to = reply_to;
        plan.messages.push_back(m);
    };
    message(0, true, 20, -1);
    message(1, true, 0, 0);
    message(0, false, 200, 1);
    message(0, true, 64, 1);
    return plan;
}

int patterns(const Options &)
{
    constexpr unsigned length = 12;
    std::printf("1..3\n");
    bool all = true;
    for (unsigned paths = 1; paths <= 3; ++paths) {
        const Plan plan = exchange(paths);
        Sum sum;
        unsigned failed = 0;
        for (std::uint32_t mask = 0; mask < 1U << length; ++mask) {
            const auto violation = run_one(plan, sum, false, mask, length);
            if (violation && ++failed <= 10) {
                std::printf("# pattern %03x over %u paths: %s: %s\n", mask, paths,
                            to_string(violation->breach), violation->text.c_str());
            }
        }
        print_sum(sum);
        std::printf("%sok %u - all_%u_loss_patterns_over_%u_paths\n", failed ? "not " : "", paths,
                    1U << length, paths);
        all = all && failed == 0;
    }
    return all ? 0 : 1;
}

int mutants(const Options &)
{
    struct Case {
        Mutant mutant;
        const char *name;
        std::initializer_list<Breach> expected;
    };
    const Case cases[] = {
        {Mutant::retransmit, "without_retransmission_runs_stall", {Breach::liveness}},
        {Mutant::duplicate,
         "without_duplicate_suppression_fragments_come_twice",
         {Breach::exactly_once}},
        {Mutant::failover, "without_failover_runs_stall", {Breach::liveness}},
        {Mutant::order, "without_ordering_messages_overtake", {Breach::order}},
        {Mutant::checksum_payload, "without_payload_checksum_bytes_are_wrong", {Breach::bytes}},
        {Mutant::checksum_header,
         "without_header_checksum_nonsense_is_believed",
         {Breach::bytes, Breach::exactly_once, Breach::liveness}},
        {Mutant::early_timer,
         "without_a_timer_from_the_first_fragment_runs_stall",
         {Breach::liveness}},
    };
    constexpr std::uint64_t most_runs = 3000;
    std::printf("1..%zu\n", std::size(cases));
    bool all = true;
    unsigned number = 0;
    for (const Case &one : cases) {
        std::map<Breach, unsigned> found;
        std::uint64_t first = 0;
        for (std::uint64_t seed = 1; seed <= most_runs; ++seed) {
            Sum sum;
            const auto violation = run_one(make_plan(seed, one.mutant), sum, false);
            if (violation) {
                ++found[violation->breach];
                const bool wanted = std::find(one.expected.begin(), one.expected.end(),
                                              violation->breach) != one.expected.end();
                if (wanted && first == 0) {
                    first = seed;
                }
            }
        }
        for (const auto &[breach, count] : found) {
            std::printf("#   %s: %u of %" PRIu64 " runs\n", to_string(breach), count, most_runs);
        }
        std::printf("# first seen with seed %" PRIu64 "\n%sok %u - %s\n", first,
                    first == 0 ? "not " : "", ++number, one.name);
        all = all && first != 0;
    }
    return all ? 0 : 1;
}

} // namespace

} // namespace ft::sim

int main(int argc, char **argv)
{
    using namespace ft::sim;
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    const Options o = parse(argc, argv);
    if (o.seed) {
        return single(o);
    }
    if (o.patterns) {
        return patterns(o);
    }
    return o.mutants ? mutants(o) : swarm(o);
}

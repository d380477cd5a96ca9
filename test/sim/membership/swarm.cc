// The swarm: scenarios from seeds, with the real engine. Prints TAP.
//
//   swarm [--first SEED] [--count N] [--mutation NUMBER] [--axis NUMBER (only its runs, of all
//         seeds; 0: only the plain ones)] [--seed SEED (one run, told in full)]

#include "test/sim/membership/scenario.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>

namespace {

/// With so many runs each kind of message and each level of the tree meets its fault.
constexpr std::uint64_t enough_for_each_message = 100000;

/// Who leads a change stands at the top of the view that it changes, or somewhat below, where those
/// with lower ids have failed at the same time.
constexpr unsigned levels_of_leaders = 2;

double cpu_seconds()
{
    return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

struct Row {
    std::uint64_t runs = 0, struck = 0, installs = 0, evictions = 0, failed = 0;
};

/// In how many runs something met its fault.
template <std::size_t n>
struct Tally {
    std::array<std::uint64_t, n> runs{};

    void add(const std::bitset<n> &met)
    {
        for (std::size_t i = 0; i < n; ++i) {
            runs[i] += met.test(i);
        }
    }
};

struct Swarm {
    std::array<Row, sim::family_count> families;
    std::array<Row, sim::axis_count> axes;
    Tally<sim::type_count> struck_at;
    Tally<sim::type_count> lost;       // by axis nth
    Tally<sim::type_count> lost_alone; // by axis one_kind
    Tally<sim::level_count> failed_at;
    Tally<sim::level_count> leader_failed_at;
    std::uint64_t events = 0;
    unsigned shown = 0;
    unsigned tests = 0;
    unsigned failed = 0;

    void add(std::uint64_t seed, sim::Axis axis, const sim::Result &r, unsigned mutation,
             const char *program)
    {
        Row &row = axis == sim::Axis::none ? families[seed % sim::family_count]
                                           : axes[static_cast<unsigned>(axis)];
        ++row.runs;
        row.struck += axis == sim::Axis::none ? r.faults_struck : r.axis_struck;
        row.installs += r.installs;
        row.evictions += r.evictions;
        events += r.events;
        struck_at.add(r.struck_at);
        failed_at.add(r.failed_at);
        leader_failed_at.add(r.leader_failed_at);
        if (axis == sim::Axis::nth) {
            lost.add(r.lost);
        } else if (axis == sim::Axis::one_kind) {
            lost_alone.add(r.lost);
        }
        if (r.violations.empty()) {
            return;
        }
        ++row.failed;
        if (++shown <= 10) {
            std::printf("# seed %llu (%s, %u nodes): %s\n# repeat: %s --mutation %u --axis %u "
                        "--seed %llu\n",
                        static_cast<unsigned long long>(seed), r.kind.c_str(), r.nodes,
                        r.violations.front().c_str(), program, mutation,
                        static_cast<unsigned>(axis), static_cast<unsigned long long>(seed));
        }
    }

    void test(bool good, const char *what)
    {
        failed += !good;
        std::printf("%s %u - %s\n", good ? "ok" : "not ok", ++tests, what);
    }

    void test(const Row &row, const char *what, bool one)
    {
        // A family none of whose faults struck would prove nothing.
        const bool good = row.failed == 0 && (row.runs == 0 || row.struck != 0 || one);
        failed += !good;
        std::printf("%s %u - %s: %llu runs, %llu faults, %llu views, %llu evictions, %llu failed\n",
                    good ? "ok" : "not ok", ++tests, what,
                    static_cast<unsigned long long>(row.runs),
                    static_cast<unsigned long long>(row.struck),
                    static_cast<unsigned long long>(row.installs),
                    static_cast<unsigned long long>(row.evictions),
                    static_cast<unsigned long long>(row.failed));
    }
};

} // namespace

int main(int argc, char **argv)
{
    std::uint64_t first = 1;
    std::uint64_t count = 1000;
    unsigned mutation = 0;
    std::optional<sim::Axis> only;
    bool one = false;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
        if (std::strcmp(argv[i], "--first") == 0) {
            first = value;
        } else if (std::strcmp(argv[i], "--count") == 0) {
            count = value;
        } else if (std::strcmp(argv[i], "--mutation") == 0) {
            mutation = static_cast<unsigned>(value);
        } else if (std::strcmp(argv[i], "--axis") == 0 && value < sim::axis_count) {
            only = static_cast<sim::Axis>(value);
        } else if (std::strcmp(argv[i], "--seed") == 0) {
            first = value;
            count = 1;
            one = true;
        } else {
            std::fprintf(stderr, "swarm: unknown option %s\n", argv[i]);
            return 2;
        }
    }
    if (one && !only) {
        only = sim::Axis::none;
    }
    Swarm swarm;
    const double start = cpu_seconds();
    const auto run = [&](std::uint64_t seed, sim::Axis axis) {
        const auto r =
            sim::run_scenario(seed, static_cast<sim::Mutation>(mutation), one, false, axis);
        swarm.add(seed, axis, r, mutation, argv[0]);
    };
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        if (only) {
            run(seed, *only);
            continue;
        }
        run(seed, sim::Axis::none);
        if (const sim::Axis axis = sim::axis_of(seed); axis != sim::Axis::none) {
            run(seed, axis);
        }
    }
    std::printf("1..%u\n", sim::family_count + sim::axis_count + 2);
    for (unsigned i = 0; i < sim::family_count; ++i) {
        swarm.test(swarm.families[i], sim::family_name(i), one);
    }
    for (unsigned i = 1; i < sim::axis_count; ++i) {
        swarm.test(swarm.axes[i], name(static_cast<sim::Axis>(i)), one);
    }
    // Somebody died or stopped at each kind of message but heartbeats, each kind was lost once, and
    // each was the only one that was lost, where there were runs enough.
    const bool enough = count >= enough_for_each_message && !only;
    bool died = true;
    bool lost = true;
    for (unsigned kind = 1; kind < sim::type_count; ++kind) {
        const auto type = static_cast<sim::Type>(kind);
        died &= type == sim::Type::heartbeat || swarm.struck_at.runs[kind] != 0;
        lost &= swarm.lost.runs[kind] != 0 && swarm.lost_alone.runs[kind] != 0;
        std::printf("# at a %s: %llu runs; the nth lost: %llu; no others lost: %llu\n", name(type),
                    static_cast<unsigned long long>(swarm.struck_at.runs[kind]),
                    static_cast<unsigned long long>(swarm.lost.runs[kind]),
                    static_cast<unsigned long long>(swarm.lost_alone.runs[kind]));
    }
    swarm.test(died || !enough, "a failure struck at each kind of message");
    swarm.test(lost || !enough, "each kind of message was lost without a death");
    bool levels = true;
    for (unsigned level = 0; level < sim::level_count; ++level) {
        levels &= swarm.failed_at.runs[level] != 0 &&
                  (swarm.leader_failed_at.runs[level] != 0 || level >= levels_of_leaders);
        std::printf("# at level %u%s of the tree: %llu runs; of who led a change: %llu\n", level,
                    level + 1 == sim::level_count ? " or below" : "",
                    static_cast<unsigned long long>(swarm.failed_at.runs[level]),
                    static_cast<unsigned long long>(swarm.leader_failed_at.runs[level]));
    }
    swarm.test(levels || !enough, "a failure struck at each level of the tree");
    std::printf("# seeds %llu to %llu, %.1f million events, %.1f s of processor time\n",
                static_cast<unsigned long long>(first),
                static_cast<unsigned long long>(first + count - 1),
                static_cast<double>(swarm.events) / 1e6, cpu_seconds() - start);
    return swarm.failed == 0 ? 0 : 1;
}

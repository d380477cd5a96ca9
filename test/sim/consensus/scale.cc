// Growth from 2 to 1,048,576 processes, and single runs with failures at the large end.
// consensus_scale --csv FOLDER only writes the whole growth to growth.csv.
#include "invariants.hpp"
#include "models.hpp"
#include "tap.hpp"

#include <cstdlib>
#include <cstring>
#include <fstream>

namespace {

using namespace sim;

std::string microseconds(Time t)
{
    char text[32];
    std::snprintf(text, sizeof text, "%.1f us", static_cast<double>(t) / 1000);
    return text;
}

struct Mode {
    Algorithm algorithm;
    Semantics semantics;
    const char *name;
};

constexpr Mode modes[] = {
    {Algorithm::paper, Semantics::strict, "paper, strict"},
    {Algorithm::paper, Semantics::loose, "paper, loose"},
    {Algorithm::fast, Semantics::strict, "fast, strict"},
    {Algorithm::fast, Semantics::loose, "fast, loose"},
};

/// Logarithmic: each doubling adds the same, or less.
void growth(Tap &tap, const Mode &mode, const Costs &costs, unsigned most_bits)
{
    Time last = latency(2, mode.algorithm, mode.semantics, costs);
    const Time first = last;
    Time largest_step = 0;
    for (unsigned bits = 2; bits <= most_bits; ++bits) {
        const Time now = latency(Rank{1} << bits, mode.algorithm, mode.semantics, costs);
        largest_step = std::max(largest_step, now - last);
        last = now;
    }
    // The first step, from one process to two, is what a doubling costs.
    tap.result(largest_step <= first + first / 10, std::string(mode.name) + " grows by at most " +
                                                       microseconds(largest_step) +
                                                       " a doubling, to " + microseconds(last) +
                                                       " at " + std::to_string(1U << most_bits));
}

void large(Tap &tap, const char *what, Rank size, const Mode &mode, const Costs &costs,
           const std::vector<std::pair<Rank, Time>> &deaths)
{
    Settings settings;
    settings.algorithm = mode.algorithm;
    settings.semantics = mode.semantics;
    Plan plan = calm_plan(size, settings);
    plan.costs = costs;
    plan.detection = {20000, 30000, 40000};
    for (const auto &[victim, at] : deaths) {
        plan.members[victim].dies_at = at;
    }
    const Run run = World(plan).run();
    const std::string broken = check(plan, run);
    if (!broken.empty()) {
        tap.note(broken);
    }
    RankSet failed;
    for (Rank rank = size; rank-- > 0;) {
        if (run.fates[rank].has_value) {
            failed = run.fates[rank].value.failed;
            break;
        }
    }
    tap.result(broken.empty(), std::string(what) + " among " + std::to_string(size) + ", " +
                                   mode.name + ": {" + describe(failed) + "} after " +
                                   microseconds(run.last_return) + ", " +
                                   std::to_string(run.messages) + " messages");
}

bool write_growth(const std::string &path, const Costs &costs)
{
    std::ofstream out(path);
    out << "# microseconds, simulated, calibrated to the paper\n"
        << "processes,paper_strict,paper_loose,fast_strict,fast_loose\n";
    for (unsigned bits = 1; bits <= 20; ++bits) {
        out << (Rank{1} << bits);
        for (const Mode &mode : modes) {
            const Time took = latency(Rank{1} << bits, mode.algorithm, mode.semantics, costs);
            out << ',' << static_cast<double>(took) / 1000;
        }
        out << '\n';
    }
    return bool(out.flush());
}

} // namespace

int main(int argc, char **argv)
{
    const bool soak = argc > 1 && std::strcmp(argv[1], "--soak") == 0;
    Tap tap;
    const Costs costs = calibrate();
    if (argc == 3 && std::strcmp(argv[1], "--csv") == 0) {
        tap.result(write_growth(std::string(argv[2]) + "/growth.csv", costs), "wrote growth.csv");
        return tap.done();
    }
    for (const Mode &mode : modes) {
        growth(tap, mode, costs, soak ? 20 : 14);
    }
    const Rank million = Rank{1} << 20;
    // The exchange takes eight times the tree's messages at this size: in check, a smaller group.
    const Rank many_more = soak ? million : Rank{1} << 17;
    large(tap, "nobody dies", million, modes[0], costs, {});
    large(tap, "nobody dies", many_more, modes[2], costs, {});
    large(tap, "the root dies in the ballot", million, modes[0], costs, {{0, 30000}});
    large(tap, "the root and an inner process die in the exchange", many_more, modes[2], costs,
          {{0, 30000}, {many_more / 2, 60000}});
    if (soak) {
        std::vector<std::pair<Rank, Time>> many;
        for (Rank i = 0; i < 64; ++i) {
            many.emplace_back(i * 1021, 1000 + i * 5000);
        }
        large(tap, "64 die one after the other", Rank{1} << 16, modes[0], costs, many);
        large(tap, "64 die one after the other", Rank{1} << 16, modes[2], costs, many);
    }
    return tap.done();
}

// Every crash point of every process in small groups: a process dies after 0, 1, 2, ... of its
// actions (its sends, its return), alone and together with others that do so at every point of
// theirs. And every accuser and victim of one false suspicion, at many moments, with every death
// beside it.
#include "invariants.hpp"
#include "plans.hpp"
#include "tap.hpp"

#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <functional>

namespace {

using namespace sim;

struct Search {
    Plan plan;
    std::uint64_t runs = 0;
    std::string broken;
    Rank spared = no_rank; ///< never dies: the one that reaches everybody

    /// The plan as it stands, then with every death of up to `more` processes from `first` on.
    /// Shows each run to `see`.
    void walk(Rank first, unsigned more, const std::function<void(const Run &)> &see)
    {
        const Run run = World(plan).run();
        ++runs;
        if (const std::string what = check(plan, run); !what.empty() && broken.empty()) {
            broken = what + " [" + describe(plan) + "]";
            Plan again = plan;
            again.watch = true;
            for (const std::string &line : World(again).run().trace) {
                broken += "\n# " + line;
            }
        }
        see(run);
        for (Rank victim = first; more != 0 && victim < plan.members.size(); ++victim) {
            if (victim == spared) {
                continue;
            }
            // Until it has done all it does before this point comes, whatever the others do.
            bool struck = true;
            for (std::uint64_t point = 0; struck && broken.empty(); ++point) {
                struck = false;
                plan.members[victim].dies_after = point;
                walk(victim + 1, more - 1, [&](const Run &inside) {
                    struck = struck || inside.fates[victim].actions >= point;
                    see(inside);
                });
            }
            plan.members[victim].dies_after = never;
        }
    }
};

/// How late a death is noticed, as against 1.2 us for a message: at once, late, by high ranks
/// first, by low ranks first.
const std::vector<std::vector<Time>> &schedules()
{
    static const std::vector<std::vector<Time>> all = {
        {1}, {30000}, {9000, 7000, 5000, 3000, 1000, 1}, {1, 1500, 3000, 4500, 6000, 7500}};
    return all;
}

std::string words(const Settings &s)
{
    return word(s.algorithm) + (s.fan_out == most_fan_out ? " (flat)" : "") +
           (s.semantics == Semantics::strict ? ", strict" : ", loose");
}

template <typename Do>
void each_setting(Do act)
{
    for (const Algorithm algorithm : {Algorithm::paper, Algorithm::fast, Algorithm::tree}) {
        for (const Semantics semantics : {Semantics::strict, Semantics::loose}) {
            Settings settings;
            settings.algorithm = algorithm;
            settings.semantics = semantics;
            settings.fan_out = 2; // so that there are inner processes
            act(settings);
            if (algorithm == Algorithm::tree && semantics == Semantics::strict) {
                settings.fan_out = most_fan_out; // so that there are two ends
                act(settings);
            }
        }
    }
}

void crashes(Tap &tap, Rank size, unsigned deaths, const Settings &settings)
{
    std::uint64_t runs = 0;
    std::string broken;
    std::uint64_t died_after_return = 0;
    for (const auto &schedule : schedules()) {
        Search search;
        search.plan = calm_plan(size, settings);
        search.plan.detection = schedule;
        search.plan.event_limit = 100000;
        search.walk(0, deaths, [&](const Run &run) {
            for (const Fate &fate : run.fates) {
                died_after_return += fate.dead && fate.has_value ? 1 : 0;
            }
        });
        runs += search.runs;
        broken = broken.empty() ? search.broken : broken;
    }
    if (!broken.empty()) {
        tap.note(broken);
    }
    // A search that never kills after a return has not looked at strict semantics.
    const bool looked = deaths == 0 || size < 2 || died_after_return > 0;
    tap.result(broken.empty() && looked, std::to_string(size) + " processes, " + words(settings) +
                                             ", every crash point of up to " +
                                             std::to_string(deaths) + ": " + std::to_string(runs) +
                                             " runs");
}

void wrongs(Tap &tap, Rank size, unsigned deaths, const Settings &settings)
{
    std::uint64_t runs = 0;
    std::uint64_t stopped = 0;
    std::string broken;
    for (Rank accuser = 0; accuser < size; ++accuser) {
        for (Rank victim = 0; victim < size; ++victim) {
            for (Rank neutral = 0; neutral < size; ++neutral) {
                if (accuser == victim || accuser == neutral || victim == neutral) {
                    continue;
                }
                for (Time at = 0; at <= 16000; at += 700) {
                    Search search;
                    search.plan = calm_plan(size, settings);
                    search.plan.event_limit = 100000;
                    search.plan.detection = {2500};
                    search.plan.false_suspicions = {{at, accuser, victim, at % 1400 == 0}};
                    search.spared = neutral;
                    search.walk(0, deaths, [&](const Run &run) {
                        stopped += run.fates[victim].stopped ? 1 : 0;
                    });
                    runs += search.runs;
                    broken = broken.empty() ? search.broken : broken;
                }
            }
        }
    }
    if (!broken.empty()) {
        tap.note(broken);
    }
    tap.result(broken.empty() && stopped > 0,
               std::to_string(size) + " processes, " + words(settings) +
                   ", every false suspicion and up to " + std::to_string(deaths) +
                   " deaths: " + std::to_string(runs) + " runs, the wronged stopped in " +
                   std::to_string(stopped));
}

} // namespace

int main(int argc, char **argv)
{
    const bool soak = argc > 1 && std::strcmp(argv[1], "--soak") == 0;
    Tap tap;
    each_setting([&](const Settings &settings) {
        for (Rank size = 1; size <= 6; ++size) {
            const unsigned all_but_one = size - 1;
            crashes(tap, size, size <= 3 ? all_but_one : (soak ? 3U : (size == 4 ? 3U : 2U)),
                    settings);
        }
        wrongs(tap, 3, 1, settings);
        wrongs(tap, 4, soak ? 2 : 1, settings);
    });
    return tap.done();
}

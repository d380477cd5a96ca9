// Seeded runs: consensus_swarm FIRST COUNT runs so many seeds; consensus_swarm --seed S shows one.
#include "invariants.hpp"
#include "plans.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

int show(std::uint64_t seed, const sim::Swarm &swarm)
{
    sim::Plan plan = sim::plan_of(seed, swarm);
    plan.watch = true;
    plan.event_limit = 20000;
    const sim::Run run = sim::World(plan).run();
    std::printf("# %s\n", describe(plan).c_str());
    for (const auto &line : run.trace) {
        std::printf("# %s\n", line.c_str());
    }
    const std::string broken = check(plan, run);
    std::printf("1..1\n%s - seed %" PRIu64 "\n%s%s\n", broken.empty() ? "ok 1" : "not ok 1", seed,
                broken.empty() ? "" : "# ", broken.c_str());
    return broken.empty() ? 0 : 1;
}

} // namespace

int main(int argc, char **argv)
{
    const sim::Swarm swarm;
    if (argc == 3 && std::strcmp(argv[1], "--seed") == 0) {
        return show(std::strtoull(argv[2], nullptr, 0), swarm);
    }
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s FIRST COUNT | --seed SEED\n", argv[0]);
        return 2;
    }
    const std::uint64_t first = std::strtoull(argv[1], nullptr, 0);
    const std::uint64_t count = std::strtoull(argv[2], nullptr, 0);
    std::uint64_t returned = 0;
    std::uint64_t died = 0;
    std::uint64_t wronged = 0;
    std::uint64_t messages = 0;
    int failures = 0;
    std::printf("1..1\n");
    for (std::uint64_t seed = first; seed < first + count && failures < 5; ++seed) {
        const sim::Plan plan = sim::plan_of(seed, swarm);
        const sim::Run run = sim::World(plan).run();
        const std::string broken = check(plan, run);
        messages += run.messages;
        for (const sim::Fate &fate : run.fates) {
            returned += fate.has_value ? 1 : 0;
            died += fate.dead ? 1 : 0;
            wronged += fate.stopped ? 1 : 0;
        }
        if (!broken.empty()) {
            ++failures;
            std::printf("# seed %" PRIu64
                        ": %s\n#   %s\n#   again, with a trace: %s --seed %" PRIu64 "\n",
                        seed, broken.c_str(), describe(plan).c_str(), argv[0], seed);
        }
    }
    std::printf("# %" PRIu64 " returns, %" PRIu64 " deaths (%" PRIu64 " told to stop), %" PRIu64
                " messages\n",
                returned, died, wronged, messages);
    std::printf("%s - %" PRIu64 " seeds from %" PRIu64
                " keep agreement, validity and termination\n",
                failures == 0 ? "ok 1" : "not ok 1", count, first);
    return failures == 0 ? 0 : 1;
}

// Writes what the real engine does, for test/model/replay.py to hold against the model that spin
// checks: consensus_traces FIRST COUNT. Groups of three, and of four of which one has died before,
// whose trees are flat as the model's are; the paper's algorithm, the exchange, or that along a
// tree, which is a chain or flat; strict and loose; up to two die, between any two of their actions
// or at any time. In one group of three out of three somebody finds no way to somebody who lives.
//
//   trace SEED SIZE paper|fast|tree FAN-OUT strict|loose OLD-DEAD
//   step WHO call SET | hear FROM MESSAGE | sure SET | suspect SET | die
//   send TO MESSAGE
//   return SET
//   stop
//   died
// A set is a decimal mask. A message: kind, round, root, attempt, stage, step, yes, suspects,
// unconfirmed, then the value's set (- for none) and its number.
#include "invariants.hpp"
#include "plans.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace {

using namespace sim;

unsigned mask(const RankSet &set)
{
    unsigned bits = 0;
    for (const Rank rank : set.members()) {
        bits |= 1U << rank;
    }
    return bits;
}

void print(const Message &m)
{
    std::printf("%s %u %u %u %u %u %u %u %u", name(m.kind), m.number.round, m.number.root,
                m.number.attempt, static_cast<unsigned>(m.stage), m.step, m.ok ? 1U : 0U,
                mask(m.suspects), mask(m.unconfirmed));
    if (m.accepted) {
        const Number &number = m.accepted->number;
        std::printf(" %u %u %u %u\n", mask(m.accepted->value.failed), number.round, number.root,
                    number.attempt);
    } else {
        std::printf(" - 0 0 0\n");
    }
}

Plan draw(std::uint64_t seed)
{
    ft::base::Rng rng(seed);
    Settings settings;
    constexpr Algorithm algorithms[] = {Algorithm::paper, Algorithm::fast, Algorithm::tree};
    settings.algorithm = algorithms[rng.below(3)];
    settings.fan_out = rng.chance(0.5) ? 1 : 2;
    settings.semantics = rng.chance(0.5) ? Semantics::strict : Semantics::loose;
    const Rank size = rng.chance(0.3) ? 4 : 3;
    Plan plan = calm_plan(size, settings);
    plan.seed = seed;
    plan.record = true;
    constexpr Time late[] = {1, 3000, 30000};
    for (Time &delay : plan.detection = std::vector<Time>(size)) {
        delay = 1 + rng.below(late[rng.below(3)]);
    }
    for (Member &member : plan.members) {
        member.starts = rng.below(rng.chance(0.5) ? 1 : 8000);
    }
    Rank old = no_rank;
    if (size == 4) {
        old = static_cast<Rank>(rng.below(size));
        plan.members[old].starts = never;
        plan.members[old].dies_at = 0;
        for (Member &member : plan.members) {
            member.brings.suspects.insert(old);
        }
    }
    for (std::uint64_t deaths = rng.below(3); deaths > 0; --deaths) {
        const auto victim = static_cast<Rank>(rng.below(size));
        if (victim == old) {
            continue;
        }
        if (rng.chance(0.7)) {
            plan.members[victim].dies_after = rng.below(12);
        } else {
            plan.members[victim].dies_at = 1 + rng.below(12000);
        }
    }
    if (size == 3 && rng.chance(1.0 / 3)) {
        const auto victim = static_cast<Rank>(rng.below(size));
        const auto accuser = static_cast<Rank>((victim + 1 + rng.below(size - 1)) % size);
        // The model's processes hear nothing before they have called.
        Time all_there = 0;
        for (const Member &member : plan.members) {
            all_there = std::max(all_there, member.starts);
        }
        // Somebody must be left who has a way to everybody.
        Member &third = plan.members[3 - victim - accuser];
        third.dies_after = third.dies_at = never;
        plan.false_suspicions.push_back({all_there + 1 + rng.below(3000), accuser, victim, true});
    }
    return plan;
}

void print(const Plan &plan, const Run &run)
{
    unsigned old = 0;
    for (Rank rank = 0; rank < plan.members.size(); ++rank) {
        old |= plan.members[rank].starts == never ? 1U << rank : 0U;
    }
    std::printf("trace %llu %zu %s %u %s %u\n", static_cast<unsigned long long>(plan.seed),
                plan.members.size(), word(plan.settings.algorithm).c_str(), plan.settings.fan_out,
                plan.settings.semantics == Semantics::strict ? "strict" : "loose", old);
    for (const Step &step : run.steps) {
        std::printf("step %u ", step.who);
        switch (step.input) {
        case Step::Input::calls:
            std::printf("call %u\n", mask(step.whom));
            break;
        case Step::Input::hears:
            std::printf("hear %u ", step.from);
            print(step.message);
            break;
        case Step::Input::suspects:
            std::printf("suspect %u\n", mask(step.whom));
            break;
        case Step::Input::is_sure_of:
            std::printf("sure %u\n", mask(step.whom));
            break;
        case Step::Input::dies:
            std::printf("die\n");
            break;
        }
        for (const Action &action : step.done) {
            if (action.kind == Action::Kind::send) {
                std::printf("send %u ", action.to);
                print(action.message);
            } else if (action.kind == Action::Kind::decide) {
                std::printf("return %u\n", mask(run.fates[step.who].value.failed));
            } else {
                std::printf("stop\n");
            }
        }
        if (step.died) {
            std::printf("died\n");
        }
    }
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) {
        std::fprintf(stderr, "usage: consensus_traces FIRST COUNT\n");
        return 2;
    }
    const std::uint64_t first = std::strtoull(argv[1], nullptr, 10);
    const std::uint64_t count = std::strtoull(argv[2], nullptr, 10);
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        const Plan plan = draw(seed);
        const Run run = World(plan).run();
        const std::string broken = check(plan, run);
        if (!broken.empty()) {
            std::fprintf(stderr, "seed %llu: %s\n", static_cast<unsigned long long>(seed),
                         broken.c_str());
            return 1;
        }
        print(plan, run);
    }
    return 0;
}

#include "plans.hpp"

#include <algorithm>

namespace sim {

namespace {

using ft::base::Rng;

Rank draw_size(Rng &rng, Rank most)
{
    const auto bits = static_cast<Rank>(std::bit_width(most));
    const Rank ceiling = std::min<Rank>(most, Rank{1} << rng.below(bits));
    return static_cast<Rank>(rng.between(1, ceiling));
}

std::vector<Time> draw_detection(Rng &rng)
{
    std::vector<Time> delays(1 + rng.below(7));
    constexpr Time scales[] = {1, 1000, 10000, 200000};
    const Time scale = scales[rng.below(4)];
    for (Time &delay : delays) {
        delay = 1 + rng.below(scale);
    }
    return delays;
}

/// Some are dead before anybody calls, and some of those who call know it.
void draw_old_failures(Rng &rng, Plan &plan)
{
    const auto size = static_cast<Rank>(plan.members.size());
    const Rank dead = static_cast<Rank>(rng.below(size));
    const std::uint64_t knowledge = rng.below(3); // nobody knows it at entry, some, or all
    for (Rank i = 0; i < dead; ++i) {
        const auto victim = static_cast<Rank>(rng.below(size));
        plan.members[victim].dies_at = 0;
        plan.members[victim].starts = never;
        for (Rank rank = 0; rank < size; ++rank) {
            if (rank != victim && (knowledge == 2 || (knowledge == 1 && rng.chance(0.5)))) {
                plan.members[rank].brings.suspects.insert(victim);
                if (rng.chance(0.1)) {
                    plan.members[rank].brings.unconfirmed.insert(victim);
                }
            }
        }
    }
}

void draw_deaths(Rng &rng, Plan &plan)
{
    const auto size = static_cast<Rank>(plan.members.size());
    const bool most = rng.chance(0.1);
    const Rank deaths = static_cast<Rank>(most ? size - 1 : 1 + rng.below(std::min<Rank>(size, 5)));
    for (Rank i = 0; i < deaths; ++i) {
        // Low ranks more often: they are the roots.
        const Rank among = rng.chance(0.5) ? std::min<Rank>(size, 3) : size;
        Member &victim = plan.members[rng.below(among)];
        if (victim.starts == never) {
            continue; // dead before anybody called
        }
        if (rng.chance(0.7)) {
            victim.dies_after = rng.below(24);
        } else {
            victim.dies_at = 1 + rng.below(60000);
        }
    }
}

/// One neutral process lives and reaches everybody; the others may suspect each other wrongly.
void draw_false_suspicions(Rng &rng, Plan &plan)
{
    const auto size = static_cast<Rank>(plan.members.size());
    if (size < 3) {
        return;
    }
    const auto neutral = static_cast<Rank>(rng.below(size));
    plan.members[neutral].dies_after = never;
    plan.members[neutral].dies_at = never;
    for (Member &member : plan.members) {
        member.brings.suspects = member.brings.suspects.minus(RankSet{neutral});
        member.brings.unconfirmed = member.brings.unconfirmed.minus(RankSet{neutral});
    }
    if (plan.members[neutral].starts == never) {
        plan.members[neutral].starts = 0;
    }
    const std::uint64_t count = 1 + rng.below(3);
    for (std::uint64_t i = 0; i < count; ++i) {
        const auto accuser = static_cast<Rank>(rng.below(size));
        const auto victim = static_cast<Rank>(rng.below(size));
        if (accuser == victim || accuser == neutral || victim == neutral) {
            continue;
        }
        plan.false_suspicions.push_back(
            {rng.chance(0.3) ? 0 : rng.below(40000), accuser, victim, rng.chance(0.5)});
        if (rng.chance(0.3)) {
            plan.slow = victim;
            plan.slow_by = rng.below(100000);
        }
    }
}

} // namespace

Plan calm_plan(Rank size, const Settings &settings)
{
    Plan plan;
    plan.settings = settings;
    plan.shape = TreeShape::binomial(size);
    plan.members.resize(size);
    return plan;
}

Plan plan_of(std::uint64_t seed, const Swarm &swarm)
{
    Rng rng(seed);
    const Rank size = draw_size(rng, swarm.most);
    Settings settings;
    constexpr Algorithm algorithms[] = {Algorithm::paper, Algorithm::fast, Algorithm::tree};
    settings.algorithm = algorithms[rng.below(3)];
    settings.fan_out = 1 + static_cast<std::uint32_t>(rng.below(rng.chance(0.7) ? 4 : 31));
    settings.semantics = rng.chance(0.5) ? Semantics::strict : Semantics::loose;
    settings.mutation = swarm.mutation;
    Plan plan = calm_plan(size, settings);
    plan.seed = seed;
    plan.event_limit = 4000000;
    plan.over_bytes = rng.chance(0.25);
    if (rng.chance(0.4)) {
        const std::uint64_t nodes = 1 + rng.below(size);
        const bool by_slot = rng.chance(0.5);
        for (Rank rank = 0; rank < size; ++rank) {
            plan.node_of.push_back(
                static_cast<std::uint32_t>(by_slot ? rank * nodes / size : rng.below(nodes)));
        }
    }
    constexpr Time jitters[] = {0, 500, 5000, 50000};
    plan.costs.jitter = jitters[rng.below(4)];
    plan.detection = draw_detection(rng);
    constexpr Time skews[] = {1, 1000, 30000};
    const Time skew = skews[rng.below(3)];
    for (Member &member : plan.members) {
        member.starts = rng.below(skew);
        member.brings.flags =
            rng.chance(0.7) ? ~std::uint64_t{0} : ~(std::uint64_t{1} << rng.below(64));
    }
    if (rng.chance(0.3)) {
        draw_old_failures(rng, plan);
    }
    if (rng.chance(0.8)) {
        draw_deaths(rng, plan);
    }
    if (swarm.false_suspicions && rng.chance(0.3)) {
        draw_false_suspicions(rng, plan);
    }
    for (Member &member : plan.members) {
        for (const Rank failed : member.brings.suspects.members()) {
            if (rng.chance(0.5)) {
                member.brings.acknowledged.insert(failed);
            }
        }
    }
    return plan;
}

std::string word(Algorithm algorithm)
{
    switch (algorithm) {
    case Algorithm::paper:
        return "paper";
    case Algorithm::fast:
        return "fast";
    case Algorithm::tree:
        return "tree";
    }
    return "?";
}

std::string describe(const Plan &plan)
{
    std::string text = std::to_string(plan.members.size()) + " processes, ";
    text += word(plan.settings.algorithm) + " " + std::to_string(plan.settings.fan_out) + ", ";
    text += plan.settings.semantics == Semantics::strict ? "strict" : "loose";
    text += plan.node_of.empty() ? "" : ", on several nodes";
    for (Rank rank = 0; rank < plan.members.size(); ++rank) {
        const Member &m = plan.members[rank];
        if (m.dies_after != never) {
            text += "; " + std::to_string(rank) + " dies after " + std::to_string(m.dies_after) +
                    " actions";
        }
        if (m.dies_at != never) {
            text += "; " + std::to_string(rank) + " dies at " + std::to_string(m.dies_at);
        }
        if (!m.brings.suspects.empty() && m.starts != never) {
            text += "; " + std::to_string(rank) + " knows " + describe(m.brings.suspects);
        }
    }
    if (plan.slow != no_rank) {
        text += "; " + std::to_string(plan.slow) + " hears late";
    }
    for (const Suspicion &s : plan.false_suspicions) {
        text += "; " + std::to_string(s.accuser) + (s.cut ? " is cut off from " : " wrongs ") +
                std::to_string(s.victim) + " at " + std::to_string(s.at);
    }
    return text;
}

} // namespace sim

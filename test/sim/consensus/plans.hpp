/// Plans for the simulator: what a seed means, and the systematic ones.
#pragma once

#include "world.hpp"

namespace sim {

/// What kinds of trouble a swarm's seeds may draw.
struct Swarm {
    Rank most = 64; ///< group sizes 1 .. most, small ones more often
    bool false_suspicions = true;
    Mutation mutation = Mutation::none;
};

/// The plan that `seed` stands for. Everything is drawn from the seed: size, algorithm, semantics,
/// tree shape, who calls when, who dies when, who knows what at entry, who suspects whom wrongly,
/// how long messages and detectors take.
Plan plan_of(std::uint64_t seed, const Swarm &swarm);

/// `size` processes that call at once, know of nobody's death, and live.
Plan calm_plan(Rank size, const Settings &settings);

/// What golden scripts and traces call it.
std::string word(Algorithm algorithm);

/// A plan in one line.
std::string describe(const Plan &plan);

} // namespace sim

/// A run made from a seed: how many nodes, what weather, which faults at which moments.
#pragma once

#include "test/sim/membership/world.hpp"

#include <bitset>
#include <string>
#include <vector>

namespace sim {

/// What came out of a run.
struct Result {
    std::vector<std::string> violations;
    std::uint64_t events = 0;
    unsigned installs = 0;
    unsigned evictions = 0;
    unsigned faults_struck = 0;        ///< faults that hit a running node
    std::bitset<type_count> struck_at; ///< kinds of messages at which one struck
    Position nodes = 0;
    std::size_t commits = 0;
    std::string kind;
};

/// Families of scenarios; a seed belongs to family seed % family_count.
inline constexpr unsigned family_count = 16;
const char *family_name(unsigned family);

/// Runs scenario `seed` with the engine broken by `mutation`. Somebody forges messages in it, who
/// does not have the key that they are sealed with, or does.
Result run_scenario(std::uint64_t seed, Mutation mutation, bool verbose,
                    bool forger_has_key = false);

} // namespace sim

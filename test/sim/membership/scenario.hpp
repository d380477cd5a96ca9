/// A run made from a seed: how many nodes, what weather, which faults at which moments.
#pragma once

#include "test/sim/membership/world.hpp"

#include <bitset>
#include <string>
#include <vector>

namespace sim {

/// What strikes a run beside the faults of its family.
enum class Axis : std::uint8_t {
    none,
    bursts,     ///< messages are lost in bursts
    nth,        ///< the nth message is lost, or every nth
    one_kind,   ///< messages of one kind alone are lost
    slow,       ///< every way is a hundred times as long, within the timeouts
    too_slow,   ///< every way is a hundred times as long, beyond the timeouts
    one_daemon, ///< a job of one daemon, which others join; instead of the family's faults
    kept        ///< as over TCP: what is sent during a cut arrives when the network heals
};
inline constexpr unsigned axis_count = static_cast<unsigned>(Axis::kept) + 1;
const char *name(Axis axis);
/// With which one seed `seed` runs a second time; none: it does not.
Axis axis_of(std::uint64_t seed);

/// Levels of the tree that are told apart; the last holds all that are deeper.
inline constexpr unsigned level_count = 6;

/// What came out of a run.
struct Result {
    std::vector<std::string> violations;
    std::uint64_t events = 0;
    unsigned installs = 0;
    unsigned evictions = 0;
    unsigned faults_struck = 0;        ///< faults that hit a running node
    std::bitset<type_count> struck_at; ///< kinds of messages at which one struck
    unsigned axis_struck = 0;          ///< times that the axis struck
    std::bitset<type_count> lost;      ///< kinds of messages that the axis lost
    /// Levels of the tree at which a member died or was stopped; those at which it led a change.
    std::bitset<level_count> failed_at;
    std::bitset<level_count> leader_failed_at;
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
                    bool forger_has_key = false, Axis axis = Axis::none);

} // namespace sim

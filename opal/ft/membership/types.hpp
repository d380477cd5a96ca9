/// Small types that every part of the membership engine uses. Plain values, any thread may copy
/// them.
#pragma once

#include <compare>
#include <cstdint>

namespace ft::membership {

/// A node's number: the runtime's daemon number. Lower ids go first (the lowest is the root).
using NodeId = std::uint32_t;
inline constexpr NodeId no_node = 0xffffffffU;

/// Ids are below this: an absurd number from the wire must not become an absurd allocation.
inline constexpr NodeId max_nodes = 1U << 22;

/// Number of a view. Rises with every installed view, not always by one: numbers of abandoned
/// attempts are skipped.
using Epoch = std::uint64_t;

/// A node's place in an order: 0 is the root of the tree that the order spans.
using Position = std::uint32_t;

/// How a node keeps the members of its view; the answers are the same. PROTOCOL.md, "The localised
/// view".
enum class ViewForm : std::uint8_t {
    full,      ///< the linear array and an index by id: 8 bytes for each id, constant time
    localised, ///< the runs of consecutive ids: 8 bytes for each, time with their logarithm
};

/// One life of a node. A restarted or evicted node comes back with a higher incarnation.
struct Identity {
    NodeId id = no_node;
    std::uint32_t incarnation = 0;

    auto operator<=>(const Identity &) const = default;
};

/// What is known about a member that leaves. The order matters: a higher grade replaces a lower
/// one, so that who has a doubt is heard.
enum class Grade : std::uint8_t {
    suspected = 0, ///< it does not answer; it may be alive
    proven = 1,    ///< its process is known to be gone
    doubtful =
        2, ///< that, but whoever says so was out of touch: it may have gone on before it died
    farewell = 3, ///< it said that it leaves, and that it has voted for nothing
};

/// Where a proof of death comes from. All but `rails_gone` give Grade::proven or
/// doubtful.
enum class ProofKind : std::uint8_t {
    reaped,     ///< the process was a child and was waited for
    refused,    ///< its host answers and refuses the connection: nobody listens any more
    rails_gone, ///< no rail of its host answers while its neighbours do: it may just be cut off, so
                ///< it ends the probing at once but keeps its place in the quorum's base
};

} // namespace ft::membership

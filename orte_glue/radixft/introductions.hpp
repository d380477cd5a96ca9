/// How mpirun makes daemons that are to join and the members known to each other.
///
/// Nobody answers this, so it is said again in each tick until a newcomer is a member. However many
/// hosts a spawn adds, a tick costs one message to each member and an invitation, with an address
/// of each member, to each of a few newcomers; those behind them have their turn in the next tick.
/// Knows nothing of the runtime. One thread.
#pragma once

#include "orte_glue/radixft/types.hpp"

#include "opal/ft/base/wire.hpp"

#include <functional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ft::radixft {

/// Daemons and where they are.
using Contacts = std::vector<std::pair<NodeId, std::string>>;

/// Longest contact string that is believed.
inline constexpr std::size_t most_contact = 4096;

Bytes encode_contacts(const Contacts &contacts);
/// What encode_contacts() has written, from the front of what is left; the reader fails when it has
/// not.
Contacts decode_contacts(base::WireReader &in);

class Introductions {
  public:
    /// So many newcomers have their turn in a tick, or this part of all if that is more: they need
    /// two turns each, and all of them have errmgr_radixft_launch_wait for it.
    static constexpr std::size_t most = 64;
    static constexpr std::size_t part = 32;

    struct Ways {
        /// Where a daemon is; empty when that is not known.
        std::function<std::string(NodeId)> contact;
        /// Sends a member the encoded contacts of newcomers.
        std::function<void(NodeId member, const Bytes &contacts)> tell;
        /// Sends a newcomer those of all members.
        std::function<void(NodeId newcomer, const Bytes &contacts)> invite;
    };

    /// One tick. \param newcomers all that are to join and are no members yet
    void tick(const std::set<NodeId> &newcomers, std::span<const NodeId> members, const Ways &ways);

  private:
    NodeId last_ = no_node; ///< whose turn was the last one
};

} // namespace ft::radixft

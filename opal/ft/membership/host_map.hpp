/// Which id a host has: so that a recovered host comes back as who it was.
///
/// Varma et al. 2006, section 3.7: "Recovered nodes may re-join with their original ID by
/// maintaining an association between the host name and the ID of failed nodes. This mapping is
/// maintained by all the nodes in the system." Nodes that feed their maps with the same (the job's
/// hosts at the start, whoever is handed an identity after, and every installed view) give a host
/// that comes back the same identity, whoever is the root then; in the runtime only mpirun can add
/// hosts, and only mpirun's is fed. A host runs one node. Memory grows
/// with the hosts that ever took part. A value; one object belongs to one thread unless const.
#pragma once

#include "opal/ft/membership/view.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ft::membership {

class HostMap {
  public:
    /// `who` runs on `host`, or was told to start there. Of several lives the latest counts. False,
    /// and nothing is remembered: the id is another host's, the host has another id, the id is
    /// out of range, or the name is empty.
    bool remember(std::string_view host, const Identity &who);

    /// Takes over the incarnations of an installed view.
    void follow(const View &view);

    /// As whom a node on `host` joins `view`: under its old id and in a new life, if it had one;
    /// else with the lowest id above all that were ever used, in its first life. Nothing when the
    /// host's node is a member of `view`, or when ids have run out. Who is started so must be
    /// remembered, or the next one would get the same.
    std::optional<Identity> identity_for(std::string_view host, const View &view) const;

    /// Empty when the id has no host.
    const std::string &host_of(NodeId id) const;
    /// The id of a host; no_node when it has none.
    NodeId id_of(std::string_view host) const;

  private:
    struct Entry {
        std::string host; // empty: an id that only a view told of
        std::uint32_t incarnation = 0;
    };
    std::vector<Entry> entries_; // by id
    std::unordered_map<std::string, NodeId> ids_;
};

} // namespace ft::membership

#include "opal/ft/membership/host_map.hpp"

#include <algorithm>

namespace ft::membership {

bool HostMap::remember(std::string_view host, const Identity &who)
{
    if (host.empty() || who.id >= max_nodes) {
        return false;
    }
    const NodeId known = id_of(host);
    const std::string &owner = host_of(who.id);
    if ((known != no_node && known != who.id) || (!owner.empty() && owner != host)) {
        return false;
    }
    if (who.id >= entries_.size()) {
        entries_.resize(who.id + 1);
    }
    Entry &e = entries_[who.id];
    e.host = host;
    e.incarnation = std::max(e.incarnation, who.incarnation);
    ids_.emplace(host, who.id);
    return true;
}

void HostMap::follow(const View &view)
{
    const NodeId highest = view.members().back();
    if (highest >= entries_.size()) {
        entries_.resize(highest + 1);
    }
    for (const Identity &i : view.incarnations()) {
        entries_[i.id].incarnation = std::max(entries_[i.id].incarnation, i.incarnation);
    }
}

std::optional<Identity> HostMap::identity_for(std::string_view host, const View &view) const
{
    const NodeId id = id_of(host);
    if (id != no_node) {
        const std::uint32_t last = entries_[id].incarnation;
        if (view.contains(id) || last == ~std::uint32_t{0}) {
            return std::nullopt;
        }
        return Identity{id, last + 1};
    }
    const NodeId next = std::max(static_cast<NodeId>(entries_.size()), view.members().back() + 1);
    if (host.empty() || next >= max_nodes) {
        return std::nullopt;
    }
    return Identity{next, 0};
}

const std::string &HostMap::host_of(NodeId id) const
{
    static const std::string nobody;
    return id < entries_.size() ? entries_[id].host : nobody;
}

NodeId HostMap::id_of(std::string_view host) const
{
    const auto at = ids_.find(std::string(host));
    return at == ids_.end() ? no_node : at->second;
}

} // namespace ft::membership

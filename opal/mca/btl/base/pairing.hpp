/// \file
/// Which of a peer's addresses a module leads to, so that modules on different networks are
/// different paths.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "opal/mca/btl/base/interfaces.hpp"

namespace ft::btl {

/// The peer's place that a module leads to: one on the same IP network, or, where the peer has none
/// there, the one that takes the same turn among its places.
/// \param modules all of ours, which have network(); \param places the peer's, which have an
/// `address` of IP or none; \param usable whether `mine` can lead to a place at all; \param kin
/// whether a module of ours competes with `mine` for places
template <typename Module, typename Place, typename Usable, typename Kin>
const Place *partner(const Module &mine, const std::vector<std::unique_ptr<Module>> &modules,
                     const std::vector<Place> &places, Usable usable, Kin kin)
{
    std::vector<const Place *> others;
    for (const Place &place : places) {
        if (!usable(place)) {
            continue;
        }
        if (mine.network().same_network(place.address)) {
            return &place;
        }
        // Else it is somebody else's of ours if that one is its neighbour.
        if (std::none_of(modules.begin(), modules.end(), [&](const auto &other) {
                return kin(*other) && other->network().same_network(place.address);
            })) {
            others.push_back(&place);
        }
    }
    std::size_t turn = 0;
    for (const auto &other : modules) {
        if (other.get() == &mine) {
            break;
        }
        turn += kin(*other) ? 1 : 0;
    }
    return turn < others.size() ? others[turn] : nullptr;
}

} // namespace ft::btl

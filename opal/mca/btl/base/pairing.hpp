/// \file
/// Which of a peer's addresses a module leads to, so that modules on different networks are
/// different paths.
#pragma once
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <vector>

#include "opal/mca/btl/base/interfaces.hpp"

namespace ft::btl {

/// The peer's place that a module leads to: one on the same IP network or, where the peer has none
/// there, one that is on no network of ours. Modules that have the same places to choose from take
/// them in turn. On one network who has fewer addresses begins anew, so each module has a place;
/// elsewhere who is left over has none. The peer pairs its modules with ours by the same rule.
/// \param modules all of ours, which have network(); \param places the peer's, which have an
/// `address` of IP or none; \param usable whether `mine` can lead to a place at all; \param kin
/// whether a module of ours competes with `mine` for places; \param same_host whether the peer is
/// on this host: if it is not and has an address of ours, each host has that network for itself, as
/// it has that of its containers and virtual machines, and it leads nowhere.
template <typename Module, typename Place, typename Usable, typename Kin>
const Place *partner(const Module &mine, const std::vector<std::unique_ptr<Module>> &modules,
                     const std::vector<Place> &places, Usable usable, Kin kin, bool same_host)
{
    const auto both_have = [&](const Module &module, const Place &place) {
        return !same_host && !place.address.none() && place.address == module.network().address;
    };
    const auto secluded = [&](const Module &module) {
        return std::any_of(places.begin(), places.end(),
                           [&](const Place &place) { return both_have(module, place); });
    };
    if (secluded(mine)) {
        return nullptr;
    }
    const auto near = [](const Module &module, const Place *place) {
        return module.network().same_network(place->address);
    };
    std::vector<const Place *> all;
    for (const Place &place : places) {
        if (usable(place) && std::none_of(modules.begin(), modules.end(), [&](const auto &module) {
                return both_have(*module, place);
            })) {
            all.push_back(&place);
        }
    }
    std::vector<const Place *> choice;
    std::copy_if(all.begin(), all.end(), std::back_inserter(choice),
                 [&](const Place *place) { return near(mine, place); });
    const bool neighbours = !choice.empty();
    if (!neighbours) {
        std::copy_if(all.begin(), all.end(), std::back_inserter(choice), [&](const Place *place) {
            return std::none_of(modules.begin(), modules.end(), [&](const auto &module) {
                return kin(*module) && near(*module, place);
            });
        });
    }
    const auto chooses_too = [&](const Module &module) {
        const Interface &network = module.network();
        if (!kin(module) || secluded(module)) {
            return false;
        }
        if (neighbours) {
            return mine.network().same_network(network.address);
        }
        return network.address.is_v4() == mine.network().address.is_v4() &&
               network.loopback == mine.network().loopback &&
               std::none_of(all.begin(), all.end(),
                            [&](const Place *place) { return near(module, place); });
    };
    std::size_t turn = 0;
    for (const auto &module : modules) {
        if (module.get() == &mine) {
            break;
        }
        turn += chooses_too(*module) ? 1 : 0;
    }
    turn = neighbours ? turn % choice.size() : turn;
    return turn < choice.size() ? choice[turn] : nullptr;
}

} // namespace ft::btl

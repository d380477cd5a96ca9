#include "opal/ft/membership/quorum.hpp"

#include <algorithm>

namespace ft::membership {

namespace {

const Removed *find(std::span<const Removed> dead, const Identity &who)
{
    const auto at = std::lower_bound(dead.begin(), dead.end(), who.id,
                                     [](const Removed &r, NodeId id) { return r.id < id; });
    return at != dead.end() && at->id == who.id && at->incarnation == who.incarnation ? &*at
                                                                                      : nullptr;
}

/// A witness counts if its vote does: a member of the base, in the same life, that goes on.
bool votes_in_both(NodeId witness, const View &base, const View &target)
{
    return base.contains(witness) &&
           target.contains(Identity{witness, base.incarnation_of(witness)});
}

} // namespace

Quorum quorum_of(const View &base, const View &target, std::span<const Removed> dead)
{
    std::size_t in_base = 0;
    std::size_t with_us = 0;
    bool first_with_us = false;
    bool others_dead = true;
    for (const NodeId id : base.members()) {
        const Identity who{id, base.incarnation_of(id)};
        const bool ours = target.contains(who);
        if (!ours) {
            const Removed *known = find(dead, who);
            others_dead &= known != nullptr && known->grade != Grade::suspected;
            if (known != nullptr &&
                (known->grade == Grade::farewell ||
                 (known->grade == Grade::proven && votes_in_both(known->witness, base, target)))) {
                continue;
            }
        }
        first_with_us |= in_base == 0 && ours;
        ++in_base;
        with_us += ours;
    }
    if (2 * with_us > in_base || (2 * with_us == in_base && first_with_us)) {
        return with_us == 0 ? Quorum::none : Quorum::majority;
    }
    return with_us != 0 && others_dead ? Quorum::all_others_dead : Quorum::none;
}

} // namespace ft::membership

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

/// Counts votes: of those that might vote, in ascending order of their ids, which are ours.
struct Votes {
    std::size_t all = 0;
    std::size_t ours = 0;
    bool first_ours = false;

    void add(bool is_ours)
    {
        first_ours |= all == 0 && is_ours;
        ++all;
        ours += is_ours;
    }
    bool won() const { return ours != 0 && (2 * ours > all || (2 * ours == all && first_ours)); }
};

} // namespace

Quorum quorum_of(const View &base, const View &target, std::span<const Removed> dead)
{
    Votes votes;     // of all but the clean dead
    Votes contested; // of those who live, if all others are dead, and those who may have gone on
    bool others_dead = true;
    for (const NodeId id : base.members()) {
        const Identity who{id, base.incarnation_of(id)};
        const bool ours = target.contains(who);
        const Removed *const known = ours ? nullptr : find(dead, who);
        if (!ours) {
            others_dead &= known != nullptr && known->grade != Grade::suspected;
            if (known != nullptr && known->grade != Grade::suspected &&
                (known->grade == Grade::farewell || votes_in_both(known->witness, base, target))) {
                continue;
            }
        }
        votes.add(ours);
        if (ours || (known != nullptr && known->grade == Grade::doubtful)) {
            contested.add(ours);
        }
    }
    if (votes.won()) {
        return Quorum::majority;
    }
    if (votes.ours == 0 || !others_dead) {
        return Quorum::none;
    }
    return contested.won() ? Quorum::all_others_dead : Quorum::outlived;
}

} // namespace ft::membership

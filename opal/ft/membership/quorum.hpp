/// Which part of a view may go on: the rule that there is never more than one.
///
/// Dynamic voting (Yeger Lotem, Keidar, Dolev, PODC 1997) with proven deaths leaving the base.
/// PROTOCOL.md, "Why there are never two primary views", has the argument. Pure functions.
#pragma once

#include "opal/ft/membership/view.hpp"

#include <span>

namespace ft::membership {

/// Why a part of a view is a quorum of it, or that it is none; the weaker the lower.
enum class Quorum : std::uint8_t {
    none,
    outlived,        ///< nobody else is left, but those who died may have been a quorum before
    all_others_dead, ///< fewer, but nobody else is left, nor can have gone on
    majority,        ///< more than half of the base, or half with the lowest id
};

/// none and outlived may not go on.
constexpr bool may_go_on(Quorum q)
{
    return q >= Quorum::all_others_dead;
}

/// Whether the members of `target` may succeed `base`. `dead` is what is known about members of
/// `base` that are not in `target`, sorted by id. Clean deaths (witnessed by a member of `target`)
/// and farewells leave the base; other proven deaths keep their vote, which they may have cast;
/// silent members keep theirs. When all others are dead, only the doubtful ones do.
Quorum quorum_of(const View &base, const View &target, std::span<const Removed> dead);

} // namespace ft::membership

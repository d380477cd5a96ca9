/// \file
/// What plans are drawn with.
#pragma once
#include <array>
#include <cstdint>

#include "opal/ft/base/rng.hpp"
#include "opal/ft/base/time.hpp"
#include "test/sim/reliability/plan.hpp"

namespace ft::sim {

template <typename T, std::size_t N>
T any_of(base::Rng &rng, const std::array<T, N> &choices)
{
    return choices[rng.below(N)];
}

inline base::Duration between(base::Rng &rng, base::Duration low, base::Duration high)
{
    return base::Duration::from_ns(static_cast<std::int64_t>(
        rng.between(static_cast<std::uint64_t>(low.ns()), static_cast<std::uint64_t>(high.ns()))));
}

/// Makes some plans into what chance alone seldom makes of them: special.cc.
void draw_special(Plan &plan);

} // namespace ft::sim

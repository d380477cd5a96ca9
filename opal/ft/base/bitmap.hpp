/// Helpers for a 64-bit mask: a set of the numbers 0 .. 63.
///
/// Pure functions of plain values.
#pragma once

#include <bit>
#include <cstdint>

namespace ft::base {

/// The mask with the lowest `n` bits set, 0 <= n <= 64.
constexpr std::uint64_t full_mask(unsigned n)
{
    return n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
}

/// The mask with only bit `i` set, 0 <= i < 64.
constexpr std::uint64_t bit(unsigned i)
{
    return std::uint64_t{1} << i;
}

/// The number of the lowest set bit; 64 for the empty mask.
constexpr unsigned lowest(std::uint64_t mask)
{
    return static_cast<unsigned>(std::countr_zero(mask));
}

/// Calls `f(unsigned)` for each set bit, lowest first. `f` sees the mask as it was at the call.
template <typename F>
constexpr void for_each_bit(std::uint64_t mask, F &&f)
{
    for (; mask != 0; mask &= mask - 1) {
        f(lowest(mask));
    }
}

} // namespace ft::base

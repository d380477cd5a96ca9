/// \file
/// Moments as fragments carry and records keep them: 32 bits of 64 ns, which go round in 274.9 s.
///
/// Two of them can be compared only by how long ago they were, since either may be old: a path
/// that nothing was sent by for minutes has its newest acknowledged transmission from then.
#pragma once
#include <cstdint>

#include "opal/ft/base/time.hpp"
#include "opal/ft/reliability/header.hpp"

namespace ft::reliability {

[[nodiscard]] constexpr std::uint32_t stamp_of(base::Time now) noexcept
{
    return static_cast<std::uint32_t>(now.ns() >> stamp_shift);
}

namespace detail {
/// 1 s: a clock that was read before something was sent may be used after that.
inline constexpr std::uint32_t stamp_ahead = 1U << 24;
} // namespace detail

/// How long ago it was, in stamps, and a second more. Right for what is less than 273 s old.
[[nodiscard]] constexpr std::uint32_t stamp_age(std::uint32_t stamp, std::uint32_t now) noexcept
{
    return now + detail::stamp_ahead - stamp;
}

/// Whether a was later than b.
[[nodiscard]] constexpr bool later(std::uint32_t a, std::uint32_t b, std::uint32_t now) noexcept
{
    return stamp_age(a, now) < stamp_age(b, now);
}

/// From one to a later one; zero when that one was a little before.
[[nodiscard]] constexpr base::Duration between(std::uint32_t earlier, std::uint32_t later) noexcept
{
    const std::uint32_t stamps = later - earlier;
    return stamps > ~detail::stamp_ahead
               ? base::Duration{}
               : base::Duration::from_ns(std::int64_t{stamps} << stamp_shift);
}

} // namespace ft::reliability

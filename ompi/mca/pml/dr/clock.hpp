/// \file
/// The present, for the engines that never read a clock.
///
/// Every message reads it at both ends, so on x86-64 it is the processor's cycle counter, scaled to
/// CLOCK_MONOTONIC, when the counter is invariant and the kernel itself keeps time by it; else
/// CLOCK_MONOTONIC. The scale is made anew ten times a second, so a counter that jumps (a virtual
/// machine that was moved) misleads nobody for longer. Never goes back by more than the scale's
/// error, below a microsecond. Any thread.
#pragma once
#include <atomic>
#include <cstdint>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "opal/ft/base/time.hpp"

namespace ft::dr {

namespace detail {

/// How counts become nanoseconds; written by one thread at a time, between two odd `turn`s.
struct ClockScale {
    std::atomic<std::uint32_t> turn{0};
    std::atomic<std::uint64_t> count{0}; ///< of the counter, when it was ...
    std::atomic<std::int64_t> ns{0};     ///< ... this time
    std::atomic<std::uint64_t> rate{0};  ///< ns per count, times 2^32
    std::atomic<std::uint64_t> valid{0}; ///< for so many counts; 0: not at all
};
extern ClockScale clock_scale;

base::Time read_system_clock() noexcept;

} // namespace detail

inline base::Time now() noexcept
{
#if defined(__x86_64__)
    const detail::ClockScale &scale = detail::clock_scale;
    const std::uint32_t turn = scale.turn.load(std::memory_order_acquire);
    const std::uint64_t passed = __rdtsc() - scale.count.load(std::memory_order_acquire);
    const std::int64_t ns = scale.ns.load(std::memory_order_acquire);
    const std::uint64_t rate = scale.rate.load(std::memory_order_acquire);
    if (passed < scale.valid.load(std::memory_order_acquire) &&
        turn == scale.turn.load(std::memory_order_relaxed) && (turn & 1U) == 0) {
        return base::Time::from_ns(ns + static_cast<std::int64_t>(passed * rate >> 32));
    }
#endif
    return detail::read_system_clock();
}

} // namespace ft::dr

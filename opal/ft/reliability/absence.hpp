/// \file
/// How long this process lately was not there to look at what had come: it shares its core, or
/// computes. PROTOCOL.md, "Congestion".
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>

#include "opal/ft/base/time.hpp"

namespace ft::reliability {

/// Any thread; of several that write at once one is lost.
class Absence {
  public:
    /// Less is what a process with a core of its own is away for, too.
    static constexpr auto least = base::Duration::from_ms(1);
    /// So long after an absence the next one is expected to be as long.
    static constexpr auto remembered = base::Duration::from_ms(1000);

    void note(base::Duration gap, base::Time now) noexcept
    {
        if (gap >= least) {
            longest_.store(std::max(gap, lately(now)).ns(), std::memory_order_relaxed);
            until_.store((now + remembered).ns(), std::memory_order_relaxed);
        }
    }
    /// The longest lately; zero when none was noted for a while.
    [[nodiscard]] base::Duration lately(base::Time now) const noexcept
    {
        return now.ns() < until_.load(std::memory_order_relaxed)
                   ? base::Duration::from_ns(longest_.load(std::memory_order_relaxed))
                   : base::Duration::zero();
    }

  private:
    std::atomic<std::int64_t> longest_{0};
    std::atomic<std::int64_t> until_{0};
};

} // namespace ft::reliability

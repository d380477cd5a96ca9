/// \file
/// How much of long messages all peers together may have under way: sent, or copied to be sent, and
/// not acknowledged. Each peer has a window of its own besides (reliability::Sender::has_room).
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <algorithm>
#include <cstdint>

#include "ompi/mca/pml/dr/parameters.hpp"
#include "opal/ft/base/assert.hpp"

namespace ft::dr {

/// Any thread, under any peer's lock. Threads that look at the same time may pass the bound by a
/// VFRAG each.
class ProcessWindow {
  public:
    /// How many of `wanted` bytes may be added, in whole fragments: of what is left, half, for
    /// others want some, too. Nobody wakes a peer that has nothing under way when others get room,
    /// so it always gets a fragment, which an acknowledgement of its own follows.
    [[nodiscard]] std::uint64_t room(std::uint64_t wanted, std::uint64_t fragment,
                                     bool nothing_under_way) const noexcept
    {
        const std::int64_t left = static_cast<std::int64_t>(parameters().process_window) -
                                  __atomic_load_n(&used_, __ATOMIC_RELAXED);
        const std::uint64_t half = left > 0 ? static_cast<std::uint64_t>(left) / 2 : 0;
        if (wanted <= half) [[likely]] {
            return wanted;
        }
        return half >= fragment    ? half / fragment * fragment
               : nothing_under_way ? std::min(wanted, fragment)
                                   : 0;
    }
    void add(std::uint64_t bytes) noexcept
    {
        OPAL_THREAD_ADD_FETCH64(&used_, static_cast<std::int64_t>(bytes));
    }
    void remove(std::uint64_t bytes) noexcept
    {
        const std::int64_t left =
            OPAL_THREAD_ADD_FETCH64(&used_, -static_cast<std::int64_t>(bytes));
        FT_ASSERT(left >= 0);
    }

  private:
    std::int64_t used_ = 0;
};

inline ProcessWindow process_window;

} // namespace ft::dr

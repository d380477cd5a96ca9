/// \file
/// What happens between calls: timers, retransmission, acknowledgements.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include "ompi/mca/pml/dr/clock.hpp"
#include "ompi/mca/pml/dr/lock.hpp"
#include "opal/ft/reliability/absence.hpp"

namespace ft::dr {

namespace detail {
/// A look at the clock that arrivals share, and whether it is of this pass.
struct ArrivalTime {
    base::Time at;
    bool fresh = false;
    bool shared = false; ///< passes tell of their end, so that it may be shared at all
};
extern ArrivalTime arrival;
} // namespace detail

/// When something arrived from a BTL that is asked once in each pass, as shared memory is: looked
/// up once for all that it brings then, where the process has one thread. A burst comes by thirty
/// in a microsecond or two. What the event loop brings may come with no pass between, and asks
/// `now`.
inline base::Time arrival_time() noexcept
{
    detail::ArrivalTime &arrival = detail::arrival;
    if (!arrival.fresh) {
        const base::Time present = now();
        if (!arrival.shared || several_threads()) {
            return present;
        }
        arrival.at = present;
        arrival.fresh = true;
    }
    return arrival.at;
}

/// Makes opal_progress call us, behind the BTLs.
int start_progress() noexcept;
void stop_progress() noexcept;
/// How long no pass came while something was to be done. Lives as long as the process.
[[nodiscard]] const reliability::Absence *absence() noexcept;

} // namespace ft::dr

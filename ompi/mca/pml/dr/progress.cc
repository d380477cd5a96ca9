#include "ompi/mca/pml/dr/progress.hpp"

#include "ompi/mca/pml/dr/clock.hpp"
#include "ompi/mca/pml/dr/errors.hpp"
#include "ompi/mca/pml/dr/parameters.hpp"
#include "ompi/mca/pml/dr/peers.hpp"
#include "ompi/mca/pml/dr/standing.hpp"
#include "ompi/mca/pml/dr/statistics.hpp"
#include "opal/process/standing.hpp"

namespace ft::dr {

namespace {

Turn turn;
bool registered = false;
std::uint64_t news_seen = 0;
base::Time next_report; ///< of the sums so far; by whom has the turn

int progress() noexcept
{
    watch_connections();
    // opal_progress re-enters: completing a request may call MPI, which waits, which comes here.
    const std::uint64_t latest = process::news();
    const bool news = latest != news_seen;
    const bool pings = parameters().keepalive > base::Duration::zero();
    if ((!news && !pings && !peers().any_busy()) || !turn.take()) {
        return 0;
    }
    if (OPAL_UNLIKELY(news)) {
        news_seen = latest;
        take_deaths();
        end_refused();
    }
    const base::Time present = now();
    if (pings) {
        peers().keep_alive(present);
    }
    const int completed = peers().progress(present);
    if (OPAL_UNLIKELY(parameters().stats_interval > base::Duration::zero() &&
                      present >= next_report)) {
        next_report = present + parameters().stats_interval;
        print_statistics_so_far();
    }
    turn.give_back();
    return completed;
}

} // namespace

int start_progress() noexcept
{
    if (registered) {
        return OMPI_SUCCESS;
    }
    registered = true;
    return opal_progress_register(progress);
}

void stop_progress() noexcept
{
    if (registered) {
        opal_progress_unregister(progress);
        registered = false;
    }
}

} // namespace ft::dr

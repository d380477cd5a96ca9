#include "ompi/mca/pml/dr/progress.hpp"

#include "ompi/mca/pml/dr/clock.hpp"
#include "ompi/mca/pml/dr/errors.hpp"
#include "ompi/mca/pml/dr/helper.hpp"
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
    note_progress();
    // opal_progress re-enters: completing a request may call MPI, which waits, which comes here.
    const std::uint64_t latest = process::news();
    const bool news = latest != __atomic_load_n(&news_seen, __ATOMIC_RELAXED);
    const bool pings = parameters().keepalive > base::Duration::zero();
    const bool reports = parameters().stats_interval > base::Duration::zero();
    if (!news && !pings && !peers().any_busy()) {
        return 0;
    }
    const base::Time present = now();
    if ((!news && !pings && !reports && !peers().pass_due(present)) || !turn.take()) {
        return 0;
    }
    if (OPAL_UNLIKELY(news)) {
        __atomic_store_n(&news_seen, latest, __ATOMIC_RELAXED);
        take_deaths();
        end_refused();
    }
    if (pings) {
        peers().keep_alive(present);
    }
    const int completed = peers().pass_due(present) ? peers().progress(present) : 0;
    if (OPAL_UNLIKELY(reports && present >= next_report)) {
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
    const int rc = opal_progress_register(progress);
    return rc == OMPI_SUCCESS && parameters().helper ? start_helper() : rc;
}

void stop_progress() noexcept
{
    stop_helper();
    if (registered) {
        opal_progress_unregister(progress);
        registered = false;
    }
}

} // namespace ft::dr

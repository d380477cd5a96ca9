#include "ompi/mca/pml/dr/progress.hpp"

#include <atomic>

#include "ompi/mca/pml/dr/btl_path.hpp"
#include "ompi/mca/pml/dr/clock.hpp"
#include "ompi/mca/pml/dr/errors.hpp"
#include "ompi/mca/pml/dr/helper.hpp"
#include "ompi/mca/pml/dr/parameters.hpp"
#include "ompi/mca/pml/dr/peers.hpp"
#include "ompi/mca/pml/dr/standing.hpp"
#include "ompi/mca/pml/dr/statistics.hpp"
#include "ompi/mca/pml/dr/windows.hpp"
#include "opal/process/standing.hpp"

namespace ft::dr {

detail::ArrivalTime detail::arrival;

namespace {

Turn turn;
bool registered = false;
std::uint64_t news_seen = 0;
base::Time next_report; ///< of the sums so far; by whom has the turn

/// Who waits for a message comes by ten million times a second, and a look at the clock costs more
/// than all else here. While passes are that frequent, so many of them do without; a timer that
/// runs out meanwhile is seen a few microseconds later.
constexpr std::uint32_t unlooked_passes = 7;
constexpr base::Duration frequent = base::Duration::from_us(8);
std::atomic<std::uint32_t> unlooked{0}; ///< so many more passes need not look
reliability::Absence away;
std::atomic<std::int64_t> looked_at{0}; ///< the last look; 0: nothing was to be looked at then

/// Connections are watched, and the helper is told, at each pass.
bool each_counts() noexcept
{
    return any_watched() || parameters().helper;
}

int look() noexcept
{
    watch_connections();
    note_progress();
    // opal_progress re-enters: completing a request may call MPI, which waits, which comes here.
    const std::uint64_t latest = process::news();
    const bool news = latest != __atomic_load_n(&news_seen, __ATOMIC_RELAXED);
    const bool pings = parameters().keepalive > base::Duration::zero();
    const bool reports = parameters().stats_interval > base::Duration::zero();
    const std::int64_t before = looked_at.load(std::memory_order_relaxed);
    if (!news && !pings && !peers().any_busy()) {
        if (before != 0) {
            looked_at.store(0, std::memory_order_relaxed);
        }
        return 0;
    }
    const base::Time present = now();
    const std::int64_t since = present.ns() - before;
    if (OPAL_UNLIKELY(since >= reliability::Absence::least.ns() && before != 0)) {
        away.note(base::Duration::from_ns(since), present);
    }
    looked_at.store(present.ns(), std::memory_order_relaxed);
    unlooked.store(since < frequent.ns() && !each_counts() ? unlooked_passes : 0,
                   std::memory_order_relaxed);
    if ((!news && !pings && !reports && !peers().pass_due(present)) || !turn.take()) {
        return 0;
    }
    if (OPAL_UNLIKELY(news)) {
        __atomic_store_n(&news_seen, latest, __ATOMIC_RELAXED);
        take_deaths();
        end_refused();
        end_windows();
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

int progress() noexcept
{
    if (OPAL_LIKELY(!several_threads())) {
        detail::arrival.fresh = false;
    }
    // Several threads may take one pass for another's: it does not matter.
    const std::uint32_t more = unlooked.load(std::memory_order_relaxed);
    if (OPAL_LIKELY(more != 0 && !peers().pass_wanted() &&
                    process::news() == __atomic_load_n(&news_seen, __ATOMIC_RELAXED))) {
        unlooked.store(more - 1, std::memory_order_relaxed);
        return 0;
    }
    return look();
}

} // namespace

const reliability::Absence *absence() noexcept
{
    return &away;
}

int start_progress() noexcept
{
    if (registered) {
        return OMPI_SUCCESS;
    }
    registered = true;
    const int rc = opal_progress_register(progress);
    detail::arrival.shared = rc == OMPI_SUCCESS;
    return rc == OMPI_SUCCESS && parameters().helper ? start_helper() : rc;
}

void stop_progress() noexcept
{
    stop_helper();
    detail::arrival = {};
    if (registered) {
        opal_progress_unregister(progress);
        registered = false;
    }
}

} // namespace ft::dr

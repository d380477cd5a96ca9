#include "ompi/mca/pml/dr/progress.hpp"

#include "ompi/mca/pml/dr/clock.hpp"
#include "ompi/mca/pml/dr/errors.hpp"
#include "ompi/mca/pml/dr/parameters.hpp"
#include "ompi/mca/pml/dr/peers.hpp"
#include "ompi/mca/pml/dr/statistics.hpp"
#include "opal/process/deaths.hpp"

namespace ft::dr {

namespace {

Turn turn;
bool registered = false;
std::size_t deaths_seen = 0;
base::Time next_report; ///< of the sums so far; by whom has the turn

int progress() noexcept
{
    // opal_progress re-enters: completing a request may call MPI, which waits, which comes here.
    const bool deaths = process::death_count() != deaths_seen;
    const bool pings = parameters().keepalive > base::Duration::zero();
    if ((!deaths && !pings && !peers().any_busy()) || !turn.take()) {
        return 0;
    }
    if (OPAL_UNLIKELY(deaths)) {
        deaths_seen = process::death_count();
        take_deaths();
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

/// MPI_Finalize deletes the attributes of MPI_COMM_SELF before it does anything else. Behind it
/// comes a fence of the runtime in which everybody still makes progress, so a peer that lacks our
/// last acknowledgement gets it when it asks again; what must not happen is that we leave with data
/// of our own unacknowledged.
int drain(MPI_Comm /*comm*/, int /*key*/, void * /*value*/, void * /*state*/) noexcept
{
    const base::Time limit = now() + parameters().drain;
    peers().flush_acks();
    while (!peers().drained() && now() < limit) {
        opal_progress();
    }
    return MPI_SUCCESS;
}

/// A duplicate of MPI_COMM_SELF does not drain when it is freed.
int no_copy(MPI_Comm /*comm*/, int /*key*/, void * /*state*/, void * /*value*/, void * /*copy*/,
            int *flag, MPI_Comm /*duplicate*/) noexcept
{
    *flag = 0;
    return MPI_SUCCESS;
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

int arrange_drain() noexcept
{
    ompi_attribute_fn_ptr_union_t copy;
    ompi_attribute_fn_ptr_union_t remove;
    copy.attr_communicator_copy_fn = no_copy;
    remove.attr_communicator_delete_fn = drain;
    int key = MPI_KEYVAL_INVALID;
    int rc = ompi_attr_create_keyval(COMM_ATTR, copy, remove, &key, nullptr, 0, nullptr);
    if (rc == OMPI_SUCCESS) {
        rc = ompi_attr_set_c(COMM_ATTR, &ompi_mpi_comm_self, &ompi_mpi_comm_self.comm.c_keyhash,
                             key, nullptr, true);
    }
    return rc;
}

} // namespace ft::dr

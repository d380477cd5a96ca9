#include "ompi/mca/pml/dr/windows.hpp"

#include "ompi/mca/ompi_prelude.hpp"

#include "ompi/mpi_ft/mpi_ft.h"
#include "opal/process/deaths.hpp"
#include "opal/process/standing.hpp"

namespace ft::dr {

namespace {

bool holds_dead(ompi_group_t *group) noexcept
{
    for (int rank = 0; rank < ompi_group_size(group); ++rank) {
        const opal_process_name_t name = ompi_group_get_proc_name(group, rank);
        if (process::is_dead({name.jobid, name.vpid})) {
            return true;
        }
    }
    return false;
}

} // namespace

void end_windows() noexcept
{
    ompi_errhandler_t *const fatal = &ompi_mpi_errors_are_fatal.eh;
    if (process::run_through() || ompi_mpi_comm_world.comm.error_handler != fatal ||
        process::death_count() == 0 || ompi_mpi_state >= OMPI_MPI_STATE_FINALIZE_STARTED) {
        return;
    }
    ompi_win_t *lost = nullptr;
    OPAL_THREAD_LOCK(&ompi_mpi_windows.lock); // else another thread might free one
    for (int i = 0; i < ompi_mpi_windows.size && lost == nullptr; ++i) {
        auto *const window = static_cast<ompi_win_t *>(ompi_mpi_windows.addr[i]);
        if (window != nullptr && window->error_handler == fatal && !ompi_win_invalid(window) &&
            window->w_flavor != MPI_WIN_FLAVOR_SHARED && holds_dead(window->w_group)) {
            lost = window;
        }
    }
    OPAL_THREAD_UNLOCK(&ompi_mpi_windows.lock);
    if (lost != nullptr) {
        ompi_errhandler_invoke(fatal, lost, OMPI_ERRHANDLER_TYPE_WIN, MPI_ERR_RANK_FAIL_STOP,
                               "a window that holds a dead process");
    }
}

} // namespace ft::dr

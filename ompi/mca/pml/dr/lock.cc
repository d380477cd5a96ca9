#include "ompi/mca/pml/dr/lock.hpp"

#include <cstdio>

#include "ompi/mca/pml/dr/parameters.hpp"

// Of ompi/mpi/tool/mpit-internal.h, which is installed and includes what is not.
extern "C" volatile std::uint32_t ompi_mpit_init_count;

namespace ft::dr {

namespace {

/// btl/tcp has a thread of its own for its sockets where btl_tcp_progress_thread is set. No other
/// BTL of Open MPI 4.1 calls back from one.
bool tcp_has_a_thread() noexcept
{
    const int found = mca_base_var_find("opal", "btl", "tcp", "progress_thread");
    const mca_base_var_t *variable = nullptr;
    return found >= 0 && mca_base_var_get(found, &variable) == OPAL_SUCCESS &&
           variable->mbv_storage != nullptr && variable->mbv_storage->intval != 0;
}

/// Whoever has begun MPI_T may read variables in a thread of its own: its level of threads is
/// another one than MPI's.
bool variables_are_read() noexcept
{
    return ompi_mpit_init_count != 0;
}

} // namespace

void decide_on_locks() noexcept
{
    detail::one_thread_at_a_time = (ompi_mpi_thread_provided == MPI_THREAD_FUNNELED ||
                                    ompi_mpi_thread_provided == MPI_THREAD_SERIALIZED) &&
                                   !parameters().helper && !tcp_has_a_thread() &&
                                   !variables_are_read();
    if (parameters().verbose >= 2) {
        std::fprintf(stderr, "pml/dr[rank %u] threads: %s\n", OMPI_PROC_MY_NAME->vpid,
                     several_threads() ? "several, with locks" : "one at a time, without locks");
    }
}

} // namespace ft::dr

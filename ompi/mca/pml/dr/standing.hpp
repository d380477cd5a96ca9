/// \file
/// What failed ranks do to the communicators that hold them, beyond the requests that name them.
///
/// A collective operation waits for ranks that live and have given up because of one that does not.
/// So while a communicator holds a failed rank that it has not recognised
/// (opal/process/standing.hpp), everything with one of Open MPI's own tags ends with an error
/// there, whoever it concerns. That stays so when it has recognised all of them: its collectives
/// run on other communicators then. On the one among these that holds the dead (of neighbours) they
/// are like MPI_PROC_NULL to such tags. A revoked communicator does that to everything. A
/// recognised rank is like MPI_PROC_NULL to the program: what it has sent and nobody has received
/// is dropped, whenever it comes. One that is only acknowledged goes on being received from.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include "ompi/mca/pml/dr/comm.hpp"
#include "ompi/mpi_ft/mpi_ft.h"

namespace ft::dr {

/// What an operation ends with. To a collective, a rank that cannot be reached is one that failed:
/// its algorithm gives the code back as it is.
constexpr int class_for(int tag, int error) noexcept
{
    const bool of_a_program = tag >= 0 || tag == OMPI_ANY_TAG;
    return error == MPIX_ERR_UNREACHABLE && !of_a_program ? MPI_ERR_RANK_FAIL_STOP : error;
}

/// Not an error class: the call ends at once, in success, as with MPI_PROC_NULL.
constexpr int as_proc_null = -1;

/// What an operation meets before it is looked at any closer: MPI_SUCCESS, as_proc_null or an error
/// class. To be asked when any_peer_failed(). The communicator's lock is held.
/// \param peer a rank or OMPI_ANY_SOURCE
int refusal(CommState &comm, int peer, int tag) noexcept;
/// The same, taking the lock.
int refusal_of(ompi_communicator_t *comm, int peer, int tag) noexcept;
/// The same for a request to send.
int refusal_of(const SendRequest &request) noexcept;

/// Whether a message that has come is dropped: see Trouble::ignores. To be asked when
/// any_peer_failed(). The communicator's lock is held.
bool ignored(CommState &comm, int source, int tag) noexcept;

/// The status of a receive from a recognised rank.
void fill_as_proc_null(ompi_status_public_t *status) noexcept;

/// Ends what is pending and would be refused by now, drops what is ignored. One caller at a time,
/// no lock held.
void end_refused() noexcept;

} // namespace ft::dr

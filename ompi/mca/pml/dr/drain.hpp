/// \file
/// What is unacknowledged when processes part: MPI_Finalize and MPI_Comm_disconnect.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

namespace ft::dr {

/// Makes MPI_Finalize wait, within pml_dr_drain_ms, until what this process sent is acknowledged.
/// To be called once MPI_COMM_SELF has its state. \return an OMPI error code
int arrange_drain() noexcept;

/// From here on MPI makes progress while it waits in the runtime, in MPI_Comm_spawn, connect,
/// accept and disconnect, and disconnect first waits until what was sent to those who part is
/// acknowledged.
void progress_beside_runtime() noexcept;
/// The runtime's own calls again.
void leave_runtime_alone() noexcept;

} // namespace ft::dr

/// \file
/// What happens between calls: timers, retransmission, acknowledgements; and the end of it all.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

namespace ft::dr {

/// Makes opal_progress call us, behind the BTLs.
int start_progress() noexcept;
void stop_progress() noexcept;

/// Makes MPI_Finalize wait, at most pml_dr_drain_ms, until all that was sent is acknowledged.
/// \return an OMPI error code
int arrange_drain() noexcept;

} // namespace ft::dr

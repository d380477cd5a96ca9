/// \file
/// A thread that makes progress while the program computes (pml_dr_progress thread).
///
/// While something is unacknowledged or awaited it wakes every pml_dr_rto_min_us, and when nobody
/// has made progress meanwhile, it does: it runs opal_progress, as a second thread of the program
/// would under MPI_THREAD_MULTIPLE. From then on, for as long as the program stays away, it wakes
/// at each deadline that comes sooner, too. Else it sleeps until a peer is marked busy. No ACK
/// timer is nearer than that period, and to look for deadlines alone would cost more than it
/// saves: an acknowledgement that is not read makes the round trip look as long as the timeout, and
/// a window that opened stays closed. The locks of Open MPI are switched on for it before the BTLs
/// are initialised, by bml/dr, which Open MPI opens in time; and once more here, for whoever has no
/// bml/dr.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

namespace ft::dr {

/// Makes Open MPI's locks real. While the process has one thread, and before any traffic.
void allow_helper() noexcept;
/// \return an OMPI error code
int start_helper() noexcept;
/// Returns when the thread has ended. It does not run during MPI_Finalize, where BTLs go away.
void stop_helper() noexcept;

/// A pass of progress is being made, by whomever.
void note_progress() noexcept;
/// A peer has become busy.
void wake_helper() noexcept;

} // namespace ft::dr

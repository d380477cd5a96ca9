/// \file
/// The summary at MPI_Finalize, and before.
#pragma once

namespace ft::dr {

/// Prints what pml_dr_stats asks for to standard error.
void print_statistics() noexcept;
/// Prints this process's sums as they are by now, for pml_dr_stats_interval_ms.
void print_statistics_so_far() noexcept;

} // namespace ft::dr

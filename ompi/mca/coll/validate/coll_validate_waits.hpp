/// \file
/// Waiting for several requests of which some fail.
///
/// Open MPI's MPI_Waitall has every request that is open tell one place on its stack that it is
/// complete. An error wakes it at once, whoever else is about to tell that place; and where a
/// request has failed before the call it waits, with threads on, for a word that nobody says. Both
/// it and MPI_Testall keep a persistent request's error for themselves when there are statuses, and
/// MPI_Testall any error as long as another request is open, perhaps for ever. Here the places
/// outlive all calls, and every error is told.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

namespace ft::coll::waits {

/// As of ompi_request_fns_t. It is over when all are complete, or one has failed.
int wait_all(std::size_t count, ompi_request_t **requests, ompi_status_public_t *statuses) noexcept;
int test_all(std::size_t count, ompi_request_t **requests, int *flag,
             ompi_status_public_t *statuses) noexcept;

/// Until one is complete, or none is active.
void until_one(std::size_t count, ompi_request_t **requests) noexcept;

} // namespace ft::coll::waits

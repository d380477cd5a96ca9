/// \file
/// Requests that have failed, between a function on requests and the error handler.
///
/// When such a function gives an error back, Open MPI (ompi_errhandler_request_invoke) takes the
/// first request of the array that has one, frees it and all others that have one, and reads in
/// that first one's communicator which error handler to call. If the program has freed the
/// communicator, the request was the last that held it. And MPI_Waitany or MPI_Testany has told of
/// one request: the others are freed without a word.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

namespace ft::coll::failed {

/// The communicators of those that have failed are there until this thread calls such a function
/// again, or has ended and another one does, or MPI_Finalize begins: Open MPI does not expect one
/// that was freed there.
void keep_communicators(std::size_t count, ompi_request_t **requests) noexcept;
/// They need not be any longer that this thread has kept.
void let_own_communicators_go() noexcept;
/// They need not be any longer, whatever thread has kept them.
void let_communicators_go() noexcept;
/// Arranges that when MPI_Finalize begins. \return an OMPI error code
int let_go_at_finalize() noexcept;

/// The error handler is not to see those that have failed, but for this one.
void hide_all_but(int told, std::size_t count, ompi_request_t **requests) noexcept;
/// What was hidden is seen again, and what was kept is let go: before anything looks at these
/// requests.
void begin(std::size_t count, ompi_request_t **requests) noexcept;

} // namespace ft::coll::failed

/// \file
/// Sending: the entry points of the module and what a send request goes through.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include "ompi/mca/pml/dr/request.hpp"
#include "opal/ft/base/time.hpp"

namespace ft::dr {

int isend_init(const void *buffer, std::size_t count, ompi_datatype_t *datatype, int destination,
               int tag, mca_pml_base_send_mode_t mode, ompi_communicator_t *comm,
               ompi_request_t **request) noexcept;
int isend(const void *buffer, std::size_t count, ompi_datatype_t *datatype, int destination,
          int tag, mca_pml_base_send_mode_t mode, ompi_communicator_t *comm,
          ompi_request_t **request) noexcept;
int send(const void *buffer, std::size_t count, ompi_datatype_t *datatype, int destination, int tag,
         mca_pml_base_send_mode_t mode, ompi_communicator_t *comm) noexcept;
/// MPI_Start and MPI_Startall, sends and receives.
int start_requests(std::size_t count, ompi_request_t **requests) noexcept;

/// Gives a request's match or rts to the engine. Peer's lock held.
/// \return false when the window has no room (or there is no memory): try again later
bool start_on_wire(SendRequest &request, base::Time now) noexcept;
/// Everything of it was acknowledged, or failed with `error`. Peer's lock held.
void finish(SendRequest &request, int error, Completions &done) noexcept;

/// Bytes [offset, offset + length) of the message, packed, into `out`: for messages to this
/// process. Calls for one request go on where the last one ended.
std::size_t pack(SendRequest &request, std::byte *out, std::size_t length) noexcept;

} // namespace ft::dr

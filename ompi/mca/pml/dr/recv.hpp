/// \file
/// Receiving: the entry points of the module and what a receive request goes through.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include "ompi/mca/pml/dr/comm.hpp"
#include "ompi/mca/pml/dr/request.hpp"
#include "opal/ft/base/time.hpp"

namespace ft::dr {

int irecv_init(void *buffer, std::size_t count, ompi_datatype_t *datatype, int source, int tag,
               ompi_communicator_t *comm, ompi_request_t **request) noexcept;
int irecv(void *buffer, std::size_t count, ompi_datatype_t *datatype, int source, int tag,
          ompi_communicator_t *comm, ompi_request_t **request) noexcept;
int recv(void *buffer, std::size_t count, ompi_datatype_t *datatype, int source, int tag,
         ompi_communicator_t *comm, ompi_status_public_t *status) noexcept;
int imrecv(void *buffer, std::size_t count, ompi_datatype_t *datatype, ompi_message_t **message,
           ompi_request_t **request) noexcept;
int mrecv(void *buffer, std::size_t count, ompi_datatype_t *datatype, ompi_message_t **message,
          ompi_status_public_t *status) noexcept;
int cancel_recv(ompi_request_t *request, int flag) noexcept;

/// Posts a receive, or ends it at once with what waits for it. No lock held.
int start_recv(RecvRequest &request) noexcept;
/// A receive met its message. \param peer_locked whether the lock of `arrival.peer` is held
/// \return true when there is something to send to it, which is left to the caller who holds it
bool receive(RecvRequest &request, const Arrival &arrival, bool peer_locked, Completions &done,
             base::Time now) noexcept;
/// The same for a whole message that came unasked, peer's lock held.
bool receive_eager(RecvRequest &request, PeerState &peer, int source, int tag,
                   std::span<const std::byte> payload, Completions &done, base::Time now) noexcept;
/// Bytes that came for it from `offset` on. Peer's lock held. \return false when they are not
/// wanted
bool receive_data(RecvRequest &request, std::uint64_t offset, std::span<const std::byte> bytes,
                  Completions &done) noexcept;
/// Where `bytes` of them from `offset` on lie in the user's buffer, for who copies them himself and
/// then says `received_in_place`; nullptr when they are not wanted, or the type has gaps. Peer's
/// lock held.
std::byte *place_of(const RecvRequest &request, std::uint64_t offset, std::size_t bytes) noexcept;
void received_in_place(RecvRequest &request, std::size_t bytes, Completions &done) noexcept;
/// It ends without its message.
void fail(RecvRequest &request, int error, Completions &done) noexcept;

/// A message to this process itself.
int send_to_self(SendRequest &request) noexcept;

} // namespace ft::dr

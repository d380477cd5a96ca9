/// \file
/// Error classes, and what happens to requests when a peer is lost.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

namespace ft::dr {

class PeerState;

namespace detail {
[[gnu::visibility("hidden")]] extern bool some_failed;
} // namespace detail

/// True once any peer has failed or a communicator was revoked: spares everyone else the checks.
inline bool any_peer_failed() noexcept
{
    return __atomic_load_n(&detail::some_failed, __ATOMIC_ACQUIRE);
}
/// The error class that a receive from this source meets, MPI_SUCCESS when it may still be served.
/// \param source a rank or OMPI_ANY_SOURCE
int receive_error(ompi_communicator_t *comm, int source) noexcept;

/// Everything to and from this peer ends with `error`: its requests, and wildcard receives that
/// nobody else can match. No lock held. Only the first call for a peer does anything.
void fail_peer(PeerState &peer, int error) noexcept;

/// MPI_ERR_RANK_FAIL_STOP when the runtime has declared this process dead, else MPI_SUCCESS.
int death_error(const opal_process_name_t &name) noexcept;
/// Something is new in opal/process/standing.hpp: fails what concerns processes that the runtime
/// has declared dead since the last call. One caller at a time, no lock held.
void take_deaths() noexcept;

} // namespace ft::dr

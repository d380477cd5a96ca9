/// \file
/// Probes, plain and matched.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

namespace ft::dr {

int iprobe(int source, int tag, ompi_communicator_t *comm, int *matched,
           ompi_status_public_t *status) noexcept;
int probe(int source, int tag, ompi_communicator_t *comm, ompi_status_public_t *status) noexcept;
int improbe(int source, int tag, ompi_communicator_t *comm, int *matched, ompi_message_t **message,
            ompi_status_public_t *status) noexcept;
int mprobe(int source, int tag, ompi_communicator_t *comm, ompi_message_t **message,
           ompi_status_public_t *status) noexcept;

} // namespace ft::dr

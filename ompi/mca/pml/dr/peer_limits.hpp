/// \file
/// How large the fragments are that a peer can take, per BTL.
///
/// btl/tcp receives into buffers of its own btl_tcp_max_send_size and does not compare: a fragment
/// from a process in which that is larger runs over their end. So each process publishes what its
/// BTLs can carry (through the modex, before anybody can send to it), and a path carries what both
/// ends can.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include "ompi/mca/pml/dr/btl_limits.hpp"

namespace ft::dr {

/// Publishes what this process's BTLs can carry. While the PML is initialised; the BTLs must be.
/// Where that fails it says so, and peers send what everybody can take.
void publish_limits() noexcept;

/// What one peer has published: BtlLimits::unsaid for every BTL when that is nothing, or nothing
/// that can be read.
BtlLimits limits_of(const opal_process_name_t &peer);

} // namespace ft::dr

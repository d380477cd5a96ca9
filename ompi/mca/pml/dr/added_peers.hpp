/// \file
/// Keeps BTLs from ending the process while a peer is added.
#pragma once

namespace ft::dr {

/// btl/ofi calls exit(1) when libfabric refuses the address of a peer, or when the peer has none;
/// btl/vader when the peer is in another user namespace and cma was asked for. From here on they
/// are left instead, and the peer counts as one that they do not reach.
void survive_added_peers() noexcept;

/// Undoes it. To be called before the BTLs or this component are unloaded.
void die_of_added_peers_again() noexcept;

/// Where a BTL would end the process: leaves it, and does not return, if this thread has it add a
/// peer.
void leave_added_peer() noexcept;

} // namespace ft::dr

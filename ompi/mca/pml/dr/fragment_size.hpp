/// \file
/// How large fragments are, bytes: what pml/dr and the component that prepares btl/tcp for it must
/// agree on.
#pragma once
#include <cstddef>

#include "ompi/mca/pml/dr/upper_header.hpp"
#include "opal/ft/reliability/header.hpp"

namespace ft::dr {

/// Of payload. Over TCP each fragment costs the receiver some 5 us beside its bytes (system calls,
/// a turn of the event loop), and no byte of it is used before the last one is there; the buffers
/// of more than this no longer stay in a core's second-level cache.
inline constexpr std::size_t default_fragment_bytes = std::size_t{512} * 1024;
/// Most bytes of header in front of the payload.
inline constexpr std::size_t fragment_overhead = reliability::header_bytes + largest_upper_bytes;
/// The same of a long message's fragments: 16 bytes of a datagram of 1472 are worth having.
inline constexpr std::size_t data_overhead = reliability::header_bytes + data_bytes;

} // namespace ft::dr

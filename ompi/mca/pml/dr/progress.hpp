/// \file
/// What happens between calls: timers, retransmission, acknowledgements.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

namespace ft::dr {

/// Makes opal_progress call us, behind the BTLs.
int start_progress() noexcept;
void stop_progress() noexcept;

} // namespace ft::dr

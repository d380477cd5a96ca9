/// Attempts of the runtime's channel (oob/tcp) to open a connection, which it makes from an event
/// of their own and without a look whether the peer has opened one meanwhile.
#pragma once

#include "orte_glue/orte_prelude.hpp"

namespace ft::radixft {

/// Drops the attempts to connect to `peer` that have not begun yet, and returns whether there were
/// any. To be called on the thread of the runtime's events.
bool drop_attempts(const orte_process_name_t &peer) noexcept;

} // namespace ft::radixft

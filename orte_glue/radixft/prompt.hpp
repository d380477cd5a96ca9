/// \file
/// Has TCP send at once what the PMIx server of this daemon tells its ranks.
#pragma once

namespace ft::radixft {

/// Switches Nagle's algorithm (RFC 896) off for every TCP connection of this process. PMIx 4.2
/// leaves it on: a death told right after something else waited until the rank's kernel
/// acknowledged that, which a busy rank's does by a timer, some 20 to 40 ms later. What is held
/// back already leaves at once. Costs a few system calls for each open file. Any thread.
void send_promptly() noexcept;

} // namespace ft::radixft

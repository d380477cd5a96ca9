/// \file
/// What a daemon, and the helping threads of a rank, do so as not to wait: for TCP, and for a core;
/// and so that nobody waits for a process that is dead.
#pragma once

#include <cstdint>

namespace ft::radixft {

/// Switches Nagle's algorithm (RFC 896) off for every TCP connection of this process. PMIx 4.2
/// leaves it on: a death told right after something else waited until the rank's kernel
/// acknowledged that, which a busy rank's does by a timer, some 20 to 40 ms later. What is held
/// back already leaves at once. Costs a few system calls for each open file. Any thread.
void send_promptly() noexcept;

/// Bytes that have come over this process's connections and that it has not read. Any thread.
std::uint64_t unread_bytes() noexcept;

/// Asks the kernel to let the calling thread run soon after it wakes, also while other processes
/// compute on every core: with half the time slice that it has. Linux 6.12 and later (EEVDF) lets
/// who wakes with a shorter slice interrupt who runs with a longer one, which otherwise keeps its
/// core until the next tick of the clock, some milliseconds later. A much shorter slice would end
/// before the thread has done what it woke for. It gets no larger share of the processor, and what
/// it starts inherits nothing. Without effect on an older kernel, on a thread whose policy somebody
/// has chosen, and a second time.
void run_promptly() noexcept;

/// run_promptly() for every thread that this process has now.
void run_all_promptly() noexcept;

/// Lets the others go first: every thread of a process of this user, which is dying, gets a third
/// of the share that it had (a niceness of 5 more). There is no way back without privileges. No
/// less than that: one that runs only when nobody else wants to (SCHED_IDLE) takes seconds to die
/// on a machine where others compute, and its daemon, which collects it, may wait for its last
/// thread in the kernel meanwhile, and be evicted (docs/failures.md).
void give_way(int process) noexcept;

} // namespace ft::radixft

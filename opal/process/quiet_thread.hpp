/// Threads of ours in a process that is not ours.
#pragma once

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

namespace ft::process {

/// Starts a thread that takes no signals: they are the program's, and meant for its own threads.
/// \return why there is no thread, the caller's signals being as they were then too. May be called
/// by any thread.
template <class Body>
std::error_code start_quiet_thread(std::thread &thread, Body &&body) noexcept
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); // a thread begins with its maker's mask
    std::error_code failure;
    try {
        thread = std::thread(std::forward<Body>(body));
    } catch (const std::system_error &e) {
        failure = e.code();
    } catch (...) {
        failure = std::make_error_code(std::errc::not_enough_memory);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return failure;
}

} // namespace ft::process

#include "orte_glue/radixft/prompt.hpp"

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ft::radixft {

namespace {

/// Calls `act` for every entry of a folder whose name is a number.
template <class Act>
void for_numbers(const char *folder, Act act)
{
    const std::unique_ptr<DIR, int (*)(DIR *)> entries(opendir(folder), closedir);
    while (const dirent *entry = entries == nullptr ? nullptr : readdir(entries.get())) {
        int number = -1;
        const char *const end = entry->d_name + std::strlen(entry->d_name);
        if (std::from_chars(entry->d_name, end, number).ptr == end) {
            act(number);
        }
    }
}

/// The kernel's struct sched_attr, for which Debian 12's C library has no name.
struct SchedulingAttributes {
    std::uint32_t size = sizeof(SchedulingAttributes);
    std::uint32_t policy = 0;
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t runtime = 0; ///< the slice, nanoseconds
    std::uint64_t deadline = 0;
    std::uint64_t period = 0;
};
constexpr std::uint64_t not_inherited = 1; // SCHED_FLAG_RESET_ON_FORK
/// A third of the weight, sched(7).
constexpr int way_given = 5;

void shorten_slice(int thread)
{
    SchedulingAttributes now;
    // A kernel without slices says 0. What is not inherited has been shortened before.
    if (syscall(SYS_sched_getattr, thread, &now, sizeof now, 0U) == 0 &&
        now.policy == SCHED_OTHER && (now.flags & not_inherited) == 0 && now.runtime != 0) {
        now.flags |= not_inherited;
        now.runtime /= 2;
        (void)syscall(SYS_sched_setattr, thread, &now, 0U);
    }
}

} // namespace

void send_promptly() noexcept
{
    for_numbers("/proc/self/fd", [](int file) {
        int protocol = 0;
        socklen_t size = sizeof protocol;
        if (getsockopt(file, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
            protocol == IPPROTO_TCP) {
            const int on = 1;
            (void)setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        }
    });
}

std::uint64_t unread_bytes() noexcept
{
    std::uint64_t all = 0;
    for_numbers("/proc/self/fd", [&all](int file) {
        int type = 0;
        int bytes = 0;
        socklen_t size = sizeof type;
        if (getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM &&
            ioctl(file, FIONREAD, &bytes) == 0 && bytes > 0) {
            all += static_cast<std::uint64_t>(bytes);
        }
    });
    return all;
}

void run_promptly() noexcept
{
    shorten_slice(0);
}

void run_all_promptly() noexcept
{
    for_numbers("/proc/self/task", shorten_slice);
}

void give_way(int process) noexcept
try {
    for_numbers(("/proc/" + std::to_string(process) + "/task").c_str(), [](int thread) {
        const auto id = static_cast<id_t>(thread);
        errno = 0;
        if (const int nice = getpriority(PRIO_PROCESS, id); errno == 0) {
            // The kernel looks at once who is to run, and a wait for the core ends in bounded time.
            (void)setpriority(PRIO_PROCESS, id, nice + way_given);
        }
    });
} catch (const std::bad_alloc &) {
    // It takes the core from others.
}

} // namespace ft::radixft

/* Preloaded into the ranks of a job over btl/tcp: the rank that FT_TURNED_DOWN names always loses
 * the race of two that connect to each other. It connects only when the other's connection waits to
 * be accepted, and accepts none before its own was turned down, as often as FT_TURNED_DOWN_TIMES
 * says.
 */
#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int deadline_ms = 20000;

std::atomic<int> listening{-1};
std::atomic<int> turned_down{0}; // so often

bool is_meant()
{
    const char *rank = std::getenv("OMPI_COMM_WORLD_RANK");
    const char *meant = std::getenv("FT_TURNED_DOWN");
    return rank != nullptr && meant != nullptr && std::strcmp(rank, meant) == 0;
}

bool often_enough()
{
    static const char *const times = std::getenv("FT_TURNED_DOWN_TIMES");
    return turned_down >= (times == nullptr ? 1 : std::atoi(times));
}

template <typename Function>
Function *real(const char *name)
{
    return reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name));
}

} // namespace

extern "C" {

int listen(int socket, int backlog)
{
    sockaddr address{};
    socklen_t length = sizeof address;
    if (is_meant() && getsockname(socket, &address, &length) == 0 && address.sa_family == AF_INET) {
        listening = socket;
    }
    return real<decltype(listen)>("listen")(socket, backlog);
}

int connect(int socket, const sockaddr *address, socklen_t length)
{
    if (listening >= 0 && address->sa_family == AF_INET && !often_enough()) {
        pollfd other{listening, POLLIN, 0};
        (void)poll(&other, 1, deadline_ms);
    }
    return real<decltype(connect)>("connect")(socket, address, length);
}

int accept(int socket, sockaddr *address, socklen_t *length)
{
    if (socket == listening && !often_enough()) {
        errno = EAGAIN;
        return -1;
    }
    return real<decltype(accept)>("accept")(socket, address, length);
}

ssize_t recv(int socket, void *room, std::size_t bytes, int flags)
{
    const ssize_t got = real<decltype(recv)>("recv")(socket, room, bytes, flags);
    if (got == 0 && bytes != 0 && listening >= 0 && !often_enough()) {
        ++turned_down;
        std::fprintf(stderr, "rank %s was turned down\n", std::getenv("OMPI_COMM_WORLD_RANK"));
    }
    return got;
}

} // extern "C"

#include "opal/mca/btl/ucx/descriptors.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

namespace ft::ucx {

namespace {

/// What tcp waits by. A set that another thread makes at that moment is taken for it: programs that
/// are started have no use for one.
bool is_event_set(int fd)
{
    std::array<char, 64> what{};
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    return readlink(path.c_str(), what.data(), what.size() - 1) > 0 &&
           std::string_view(what.data()) == "anon_inode:[eventpoll]";
}

int option(int fd, int name)
{
    int value = 0;
    socklen_t length = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : 0;
}

/// Where shared memory is woken up: a datagram socket with a name that the kernel has chosen, five
/// digits behind a zero.
bool is_wake_up(int fd)
{
    sockaddr_un bound{};
    socklen_t length = sizeof bound;
    return option(fd, SO_DOMAIN) == AF_UNIX && option(fd, SO_TYPE) == SOCK_DGRAM &&
           getsockname(fd, reinterpret_cast<sockaddr *>(&bound), &length) == 0 &&
           length == offsetof(sockaddr_un, sun_path) + 6 && bound.sun_path[0] == '\0';
}

/// Whether connections to the port of that address of UCX's come there: the address has the port's
/// two bytes somewhere.
bool takes_for(int fd, const Bytes &address)
{
    sockaddr_in6 bound{}; // one of IPv4 has the port in the same place
    socklen_t length = sizeof bound;
    if (option(fd, SO_PROTOCOL) != IPPROTO_TCP || option(fd, SO_ACCEPTCONN) == 0 ||
        getsockname(fd, reinterpret_cast<sockaddr *>(&bound), &length) != 0) {
        return false;
    }
    const auto bytes = std::bit_cast<std::array<std::byte, sizeof(in_port_t)>>(bound.sin6_port);
    return std::search(address.begin(), address.end(), bytes.begin(), bytes.end()) != address.end();
}

} // namespace

MarksWhatOpens::MarksWhatOpens(int some, std::size_t most) noexcept
{
    if (some < 0) {
        return;
    }
    try {
        next_.reserve(most);
    } catch (...) {
        return; // none is free, then
    }
    // The kernel gives the lowest number that is free. One is held at a time, for other threads
    // open files.
    while (next_.size() < most) {
        const int copy = fcntl(some, F_DUPFD_CLOEXEC, next_.empty() ? 0 : next_.back() + 1);
        if (copy < 0) {
            break;
        }
        close(copy);
        next_.push_back(copy);
    }
    all_ = next_.size() == most;
}

MarksWhatOpens::~MarksWhatOpens()
{
    for (const int fd : next_) {
        // Another thread may have opened it meanwhile, for a program that it starts: then it is
        // spared, unless it is a connection as well.
        if (option(fd, SO_PROTOCOL) == IPPROTO_TCP) {
            fcntl(fd, F_SETFD, FD_CLOEXEC);
        }
    }
}

std::vector<int> Listeners::all()
{
    std::vector<int> found;
    DIR *const folder = opendir("/proc/self/fd");
    if (folder == nullptr) {
        return found;
    }
    while (const dirent *entry = readdir(folder)) {
        char *end = nullptr;
        const long number = std::strtol(entry->d_name, &end, 10);
        if (end != entry->d_name && number != dirfd(folder)) {
            found.push_back(static_cast<int>(number));
        }
    }
    closedir(folder);
    return found;
}

void Listeners::note(const std::vector<int> &before)
{
    for (const int fd : all()) {
        if (std::find(before.begin(), before.end(), fd) != before.end()) {
            continue;
        }
        // What other threads open meanwhile is theirs. Whose a listening socket is shows the
        // address that UCX makes of it.
        if (is_event_set(fd) || is_wake_up(fd)) {
            fcntl(fd, F_SETFD, FD_CLOEXEC);
        } else if (option(fd, SO_ACCEPTCONN) != 0) {
            opened_.push_back(fd);
        }
    }
}

void Listeners::adopt(const Bytes &address)
{
    for (const int fd : opened_) {
        struct stat found {};
        if (takes_for(fd, address) && fstat(fd, &found) == 0) {
            fcntl(fd, F_SETFD, FD_CLOEXEC);
            listening_.push_back({fd, found.st_dev, found.st_ino});
        }
    }
}

bool Listeners::Listener::there() const noexcept
{
    struct stat found {};
    return fstat(fd, &found) == 0 && found.st_dev == device && found.st_ino == inode;
}

int Listeners::any() noexcept
{
    while (!none() && !listening_.front().there()) {
        listening_.erase(listening_.begin());
    }
    return none() ? -1 : listening_.front().fd;
}

std::size_t Listeners::waiting() noexcept
{
    std::size_t connections = 0;
    for (auto at = listening_.begin(); at != listening_.end();) {
        pollfd look{at->fd, POLLIN, 0};
        if (poll(&look, 1, 0) <= 0) {
            ++at;
            continue;
        }
        if (!at->there()) {
            at = listening_.erase(at);
            continue;
        }
        tcp_info info{};
        socklen_t length = sizeof info;
        // Of a socket that listens it is the number of connections that nobody has taken yet.
        connections += getsockopt(at->fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0
                           ? std::max<std::size_t>(info.tcpi_unacked, 1)
                           : 1;
        ++at;
    }
    return connections;
}

} // namespace ft::ucx

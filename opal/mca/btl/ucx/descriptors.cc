#include "opal/mca/btl/ucx/descriptors.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace ft::ucx {

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
    // The kernel gives the lowest number that is free.
    while (next_.size() < most) {
        const int copy = fcntl(some, F_DUPFD_CLOEXEC, 0);
        if (copy < 0) {
            break;
        }
        next_.push_back(copy);
    }
    for (const int copy : next_) {
        close(copy);
    }
    all_ = next_.size() == most;
}

MarksWhatOpens::~MarksWhatOpens()
{
    for (const int fd : next_) {
        // Another thread may have opened it meanwhile, for a program that it starts.
        int protocol = 0;
        socklen_t length = sizeof protocol;
        if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 &&
            protocol == IPPROTO_TCP) {
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
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        int listens = 0;
        socklen_t length = sizeof listens;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0) {
            listening_.push_back(fd);
        }
    }
}

std::size_t Listeners::waiting() const noexcept
{
    std::size_t connections = 0;
    for (const int fd : listening_) {
        pollfd look{fd, POLLIN, 0};
        if (poll(&look, 1, 0) <= 0) {
            continue;
        }
        tcp_info info{};
        socklen_t length = sizeof info;
        // Of a socket that listens it is the number of connections that nobody has taken yet.
        connections += getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0
                           ? std::max<std::size_t>(info.tcpi_unacked, 1)
                           : 1;
    }
    return connections;
}

} // namespace ft::ucx

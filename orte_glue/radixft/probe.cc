#include "orte_glue/radixft/probe.hpp"

#include <algorithm>

#include <fcntl.h>

namespace ft::radixft {

namespace {

bool parse_address(const std::string &host, int port, sockaddr_storage &out)
{
    std::memset(&out, 0, sizeof out);
    auto *v4 = reinterpret_cast<sockaddr_in *>(&out);
    auto *v6 = reinterpret_cast<sockaddr_in6 *>(&out);
    if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(static_cast<std::uint16_t>(port));
        return true;
    }
    if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(static_cast<std::uint16_t>(port));
        return true;
    }
    return false;
}

/// This host lacks what it takes to ask.
bool out_of_sockets(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

struct Knocking;

struct Door {
    Knocking *owner = nullptr;
    int fd = -1;
    Knock answer = Knock::silent;
    opal_event_t event;
};

/// One call of knock() or knock_at_each(); deletes itself when it is over.
struct Knocking {
    std::vector<std::unique_ptr<Door>> doors;
    std::size_t waiting = 0;
    bool one_is_enough = false; ///< that accepts
    opal_event_t timer;
    std::function<void(std::vector<Knock>)> done;

    void close_door(Door &door)
    {
        if (door.fd >= 0) {
            opal_event_del(&door.event);
            ::close(door.fd);
            door.fd = -1;
            --waiting;
        }
    }

    void finish()
    {
        std::vector<Knock> answers;
        for (const auto &door : doors) {
            close_door(*door);
            answers.push_back(door->answer);
        }
        opal_event_evtimer_del(&timer);
        const auto tell = std::move(done);
        delete this;
        tell(std::move(answers));
    }

    void answered(Door &door, int error)
    {
        door.answer = answer_of(error);
        close_door(door);
        if (waiting == 0 || (one_is_enough && door.answer == Knock::accepted)) {
            finish();
        }
    }

    static Knock answer_of(int error)
    {
        return error == 0              ? Knock::accepted
               : error == ECONNREFUSED ? Knock::refused
                                       : Knock::silent;
    }
};

void on_writable(int fd, short, void *data)
{
    auto *door = static_cast<Door *>(data);
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        error = errno;
    }
    door->owner->answered(*door, error);
}

void on_timeout(int, short, void *data)
{
    static_cast<Knocking *>(data)->finish();
}

void start(const std::vector<sockaddr_storage> &addresses, base::Duration patience,
           bool one_is_enough, std::function<void(std::vector<Knock>)> done)
{
    auto *k = new Knocking;
    k->done = std::move(done);
    k->one_is_enough = one_is_enough;
    for (const sockaddr_storage &address : addresses) {
        k->doors.push_back(std::make_unique<Door>());
        Door &door = *k->doors.back();
        door.owner = k;
        const int fd = ::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            door.answer = out_of_sockets(errno) ? Knock::unasked : Knock::silent;
            continue;
        }
        const socklen_t size =
            address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        if (::connect(fd, reinterpret_cast<const sockaddr *>(&address), size) != 0 &&
            errno != EINPROGRESS) {
            door.answer = Knocking::answer_of(errno);
            ::close(fd);
            continue;
        }
        door.fd = fd;
        opal_event_set(orte_event_base, &door.event, fd, OPAL_EV_WRITE, on_writable, &door);
        opal_event_add(&door.event, nullptr);
        ++k->waiting;
    }
    // With no door left the answer comes through the timer all the same, so never from inside this
    // call.
    const std::int64_t us = k->waiting == 0 ? 0 : patience.us();
    timeval tv{.tv_sec = us / 1000000, .tv_usec = us % 1000000};
    opal_event_evtimer_set(orte_event_base, &k->timer, on_timeout, k);
    opal_event_evtimer_add(&k->timer, &tv);
}

} // namespace

std::vector<sockaddr_storage> addresses_in(const std::string &uri)
{
    std::vector<sockaddr_storage> found;
    std::size_t at = 0;
    while (at < uri.size()) {
        const std::size_t end = std::min(uri.find(';', at), uri.size());
        const std::string part = uri.substr(at, end - at);
        at = end + 1;
        const bool v6 = part.starts_with("tcp6://");
        if (!v6 && !part.starts_with("tcp://")) {
            continue;
        }
        const std::size_t first = part.find("://") + 3;
        const std::size_t colon = part.rfind(':');
        if (colon == std::string::npos || colon < first) {
            continue;
        }
        const int port = std::atoi(part.c_str() + colon + 1);
        std::string hosts = part.substr(first, colon - first);
        std::erase_if(hosts, [](char c) { return c == '[' || c == ']'; });
        for (std::size_t h = 0; h < hosts.size() && port > 0 && port < 65536;) {
            const std::size_t comma = std::min(hosts.find(',', h), hosts.size());
            sockaddr_storage address;
            if (parse_address(hosts.substr(h, comma - h), port, address)) {
                found.push_back(address);
            }
            h = comma + 1;
        }
    }
    return found;
}

bool same_host(const sockaddr_storage &a, const sockaddr_storage &b)
{
    if (a.ss_family != b.ss_family) {
        return false;
    }
    if (a.ss_family == AF_INET) {
        return reinterpret_cast<const sockaddr_in &>(a).sin_addr.s_addr ==
               reinterpret_cast<const sockaddr_in &>(b).sin_addr.s_addr;
    }
    return IN6_ARE_ADDR_EQUAL(&reinterpret_cast<const sockaddr_in6 &>(a).sin6_addr,
                              &reinterpret_cast<const sockaddr_in6 &>(b).sin6_addr);
}

std::vector<sockaddr_storage> elsewhere(std::vector<sockaddr_storage> addresses,
                                        std::span<const sockaddr_storage> own)
{
    std::erase_if(addresses, [own](const sockaddr_storage &address) {
        return std::any_of(own.begin(), own.end(), [&address](const sockaddr_storage &here) {
            return same_host(here, address);
        });
    });
    return addresses;
}

void knock(const std::vector<sockaddr_storage> &addresses, base::Duration patience,
           std::function<void(Knock)> done)
{
    start(addresses, patience, true, [done = std::move(done)](const std::vector<Knock> &answers) {
        Knock sum = Knock::silent;
        for (const Knock answer : answers) {
            sum = std::min(sum, answer);
        }
        done(sum);
    });
}

void knock_at_each(const std::vector<sockaddr_storage> &addresses, base::Duration patience,
                   std::function<void(std::vector<Knock>)> done)
{
    start(addresses, patience, false, std::move(done));
}

} // namespace ft::radixft

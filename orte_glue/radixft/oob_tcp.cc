#include "orte_glue/radixft/oob_tcp.hpp"

#include "orte_glue/radixft/oob_tcp_objects.hpp"
#include "orte_glue/radixft/probe.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <vector>

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace ft::radixft {

namespace {

/// Of Linux 6.15; Debian 12's headers do not have it.
constexpr int tcp_rto_max_ms = 44;

std::uint32_t port_of(const sockaddr_storage &address)
{
    return ntohs(address.ss_family == AF_INET
                     ? reinterpret_cast<const sockaddr_in &>(address).sin_port
                     : reinterpret_cast<const sockaddr_in6 &>(address).sin6_port);
}

std::uint64_t behind_greeting(std::uint64_t bytes)
{
    return bytes - std::min(bytes, oob_greeting_bytes);
}

std::optional<tcp_info> info_of(int socket)
{
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
        return std::nullopt;
    }
    return info;
}

bool listens_at(OobPeerObject &peer, std::uint32_t port)
{
    for (opal_list_item_t *item = opal_list_get_first(&peer.addresses);
         item != opal_list_get_end(&peer.addresses); item = opal_list_get_next(item)) {
        if (port_of(reinterpret_cast<OobAddress *>(item)->where) == port) {
            return true;
        }
    }
    return false;
}

struct Search {
    const OobTcp &tcp;
    const OobPeerObject *peer;
    std::vector<OobAttempt *> found;
};

int look_at(const struct event_base *, const struct event *event, void *data) noexcept
{
    auto &search = *static_cast<Search *>(data);
    if (event_get_callback(event) != search.tcp.try_connect) {
        return 0;
    }
    auto *const attempt = static_cast<OobAttempt *>(event_get_callback_arg(event));
    if (attempt != nullptr && &attempt->event == event &&
        attempt->super.obj_class == search.tcp.attempt_class && attempt->peer == search.peer) {
        search.found.push_back(attempt);
    }
    return 0;
}

} // namespace

FileDescriptor::~FileDescriptor()
{
    if (number_ >= 0) {
        ::close(number_);
    }
}

std::optional<OobPeer> OobPeer::find(NodeId id) noexcept
{
    const OobTcp *const tcp = OobTcp::known();
    if (tcp == nullptr) {
        return std::nullopt;
    }
    orte_process_name_t name = *ORTE_PROC_MY_NAME;
    name.vpid = id;
    OobPeerObject *const peer = tcp->lookup(&name);
    if (peer == nullptr || peer->super.super.obj_class != tcp->peer_class ||
        peer->name.jobid != name.jobid || peer->name.vpid != name.vpid ||
        peer->state < OobState::unconnected || peer->state > OobState::accepting) {
        return std::nullopt;
    }
    OobPeer found(*peer, *tcp);
    if ((found.open() || found.opening()) &&
        (peer->socket < 0 || event_get_fd(&peer->send_event) != peer->socket ||
         event_get_fd(&peer->receive_event) != peer->socket ||
         event_get_callback_arg(&peer->receive_event) != peer)) {
        return std::nullopt;
    }
    return found;
}

bool OobPeer::open() const noexcept
{
    return peer_->state == OobState::connected || peer_->state == OobState::greeting;
}

bool OobPeer::opening() const noexcept
{
    // Without this event it has only decided to connect, and may have closed its last socket.
    return peer_->state == OobState::connecting && peer_->sends && peer_->socket >= 0 &&
           peer_->used != nullptr;
}

std::optional<Progress> OobPeer::progress() const noexcept
{
    if (opening()) {
        return Progress{.waits = true, .mark = reinterpret_cast<std::uintptr_t>(peer_->used)};
    }
    int waiting = 0;
    if (!open() || ioctl(peer_->socket, SIOCOUTQ, &waiting) != 0) {
        return std::nullopt;
    }
    const bool greeting = peer_->state == OobState::greeting;
    if (waiting == 0 && !greeting) {
        return Progress{};
    }
    const auto info = info_of(peer_->socket);
    if (!info) {
        return std::nullopt;
    }
    return Progress{.waits = true,
                    .mark = info->tcpi_bytes_acked,
                    .resends = info->tcpi_retransmits != 0,
                    .greeting = greeting && waiting == 0};
}

std::optional<Traffic> OobPeer::traffic(const Ports &ports) const noexcept
{
    // One that is being greeted may be the next one already.
    if (peer_->state != OobState::connected) {
        return std::nullopt;
    }
    int waiting = 0;
    int waiting_then = 0;
    if (ioctl(peer_->socket, SIOCOUTQ, &waiting) != 0) {
        return std::nullopt;
    }
    const auto info = info_of(peer_->socket);
    if (!info || ioctl(peer_->socket, SIOCOUTQ, &waiting_then) != 0) {
        return std::nullopt;
    }
    std::uint64_t unfinished = 0;
    if (const OobSending *const s = peer_->sending; s != nullptr) {
        const std::uint64_t text = s->header_sent ? ntohl(s->header.bytes) : 0;
        unfinished = sizeof(OobHeader) + text - s->left;
    }
    Traffic found;
    const auto on_their_way = static_cast<std::uint64_t>(waiting);
    found.on_their_way = on_their_way - std::min(unfinished, on_their_way);
    if (waiting == waiting_then) {
        // The kernel counts the SYN of who has opened the connection.
        const std::uint64_t not_text = unfinished + (listens_at(*peer_, ports.there) ? 1 : 0);
        const std::uint64_t all = behind_greeting(info->tcpi_bytes_acked + on_their_way);
        found.written = all - std::min(not_text, all);
    }
    return found;
}

Ports OobPeer::ports() const noexcept
{
    sockaddr_storage here{};
    sockaddr_storage there{};
    socklen_t size = sizeof here;
    if (peer_->state != OobState::connected ||
        getsockname(peer_->socket, reinterpret_cast<sockaddr *>(&here), &size) != 0 ||
        getpeername(peer_->socket, reinterpret_cast<sockaddr *>(&there), &(size = sizeof there)) !=
            0) {
        return {};
    }
    return {.here = port_of(here), .there = port_of(there)};
}

FileDescriptor OobPeer::socket() const noexcept
{
    return FileDescriptor(
        peer_->state == OobState::connected ? fcntl(peer_->socket, F_DUPFD_CLOEXEC, 0) : -1);
}

std::uint64_t OobPeer::bytes_of(const opal_buffer_t &message) noexcept
{
    return sizeof(OobHeader) + message.bytes_used;
}

bool OobPeer::uses(const sockaddr_storage &address) const noexcept
{
    if (opening()) {
        return same_host(peer_->used->where, address);
    }
    sockaddr_storage other{};
    socklen_t size = sizeof other;
    return open() && getpeername(peer_->socket, reinterpret_cast<sockaddr *>(&other), &size) == 0 &&
           same_host(other, address);
}

void OobPeer::prefer(const sockaddr_storage &address) noexcept
{
    OobAddress *first = nullptr;
    opal_list_item_t *item = nullptr;
    for (item = opal_list_get_first(&peer_->addresses);
         item != opal_list_get_end(&peer_->addresses); item = opal_list_get_next(item)) {
        auto *const known = reinterpret_cast<OobAddress *>(item);
        if (same_host(known->where, address)) {
            first = known;
            break;
        }
    }
    if (first != nullptr) {
        opal_list_remove_item(&peer_->addresses, &first->super);
    } else {
        first = reinterpret_cast<OobAddress *>(opal_obj_new(tcp_->address_class));
        if (first == nullptr) {
            return;
        }
        first->where = address;
    }
    first->tries = 0;
    first->state = OobState::unconnected;
    opal_list_prepend(&peer_->addresses, &first->super);
}

bool OobPeer::give_up() noexcept
{
    if (opening()) {
        return shutdown(peer_->socket, SHUT_RDWR) == 0;
    }
    // Nothing is to come any more, or what this end has had would not be settled: all packets are
    // dropped.
    sock_filter none = BPF_STMT(BPF_RET | BPF_K, 0);
    const sock_fprog filter{.len = 1, .filter = &none};
    // It is to read its end and no more: it may be about to write, and takes an error there for one
    // from which it knows no way out.
    return open() &&
           setsockopt(peer_->socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0 &&
           shutdown(peer_->socket, SHUT_RD) == 0;
}

bool OobPeer::break_off_stalled() noexcept
{
    const auto info = open() ? info_of(peer_->socket) : std::nullopt;
    if (!info || info->tcpi_retransmits == 0) {
        return false;
    }
    // When the channel closes it: what nobody has acknowledged goes with it.
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(peer_->socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    return give_up();
}

bool OobPeer::keep_trying() noexcept
{
    const int between = 1000;
    // What the kernel's default comes to, tcp_retries2 of 15. It would count the shorter pauses
    // just the same, and take the connection for lost after a quarter of a minute.
    const int in_all = 924'600;
    return open() &&
           setsockopt(peer_->socket, IPPROTO_TCP, tcp_rto_max_ms, &between, sizeof between) == 0 &&
           setsockopt(peer_->socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &in_all, sizeof in_all) == 0;
}

bool OobPeer::drop_attempts() noexcept
try {
    Search search{.tcp = *tcp_, .peer = peer_, .found = {}};
    event_base_foreach_event(orte_event_base, look_at, &search);
    for (OobAttempt *attempt : search.found) {
        opal_event_del(&attempt->event);
        OBJ_RELEASE(attempt);
    }
    return !search.found.empty();
} catch (const std::exception &) {
    return false;
}

std::uint64_t OobPeer::take_rest(int old) noexcept
{
    // The channel reads from whatever descriptor it finds in its peer. That of the old connection
    // would tell it the end, which it would take for that of the new one. A pipe does not.
    std::array<int, 2> ends{};
    if (peer_->state == OobState::connected && pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0) {
        const int socket = std::exchange(peer_->socket, ends[0]);
        std::array<char, 4096> bytes{}; // for which there is room in every pipe
        ssize_t some = 0;
        while ((some = recv(old, bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0 &&
               write(ends[1], bytes.data(), static_cast<std::size_t>(some)) == some) {
            int left = static_cast<int>(some);
            for (int before = left + 1; left > 0 && left < before;) {
                before = left;
                tcp_->receive(ends[0], OPAL_EV_READ, peer_);
                if (ioctl(ends[0], FIONREAD, &left) != 0) {
                    break;
                }
            }
        }
        peer_->socket = socket;
        ::close(ends[0]);
        ::close(ends[1]);
    }
    int unread = 0;
    const auto info = info_of(old);
    (void)ioctl(old, SIOCINQ, &unread);
    const std::uint64_t all = info ? behind_greeting(info->tcpi_bytes_received) : 0;
    return all - std::min(static_cast<std::uint64_t>(unread), all);
}

void OobPeer::begin_anew() noexcept
{
    if (peer_->receiving != nullptr) {
        if (peer_->receiving->header_there) { // before, it is not even null
            std::free(peer_->receiving->data);
        }
        OBJ_RELEASE(peer_->receiving);
        peer_->receiving = nullptr;
    }
    if (OobSending *const s = peer_->sending; s != nullptr) {
        s->header_sent = false;
        s->part = 0;
        s->next = reinterpret_cast<char *>(&s->header);
        s->left = sizeof s->header;
    }
}

} // namespace ft::radixft

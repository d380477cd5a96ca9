#include "opal/mca/btl/dgram/transport_udp.hpp"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "opal/mca/btl/dgram/udp_channel.hpp"
#include "opal/mca/btl/dgram/udp_socket.hpp"

namespace ft::dgram {

namespace {

constexpr std::size_t received_at_once = 8;
constexpr int rounds_at_once = 4;
constexpr std::size_t room_bytes = 65536;

/// As recvfrom, but no point at which a thread ends that is cancelled: it would leave the module's
/// turn behind, and to see to it takes libc as many instructions as all else of a look.
ssize_t receive_plainly(int fd, void *room, std::size_t bytes, int flags, sockaddr_storage *from,
                        socklen_t *length) noexcept
{
    return syscall(SYS_recvfrom, fd, room, bytes, flags, from, length);
}

class UdpTransport final : public Transport {
  public:
    bool open(const Interface &interface, const UdpSettings &settings, std::string &why)
    {
        settings_ = settings;
        local_ = interface.address;
        const std::size_t headers = udp_headers(local_);
        largest_ = std::min<std::size_t>(interface.mtu > headers ? interface.mtu - headers : 0,
                                         most_datagram_bytes);
        if (settings.largest != 0) {
            largest_ = std::min<std::size_t>(settings.largest, most_datagram_bytes);
        }
        const Place here{local_, 0};
        const Socket &socket = common_.socket;
        if (!common_.socket.open(here.family())) {
            why = said("socket", errno);
            return false;
        }
        room_ = prepare(socket);
        if (!socket.bind_to(here)) {
            why = said("bind", errno);
            return false;
        }
        name_length_ = sizeof name_;
        if (getsockname(socket.fd(), reinterpret_cast<sockaddr *>(&name_), &name_length_) != 0) {
            why = said("getsockname", errno);
            return false;
        }
        // The port is at the same place in both families' addresses.
        static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
        std::memcpy(address_.bytes.data(), local_.bytes.data(), local_.bytes.size());
        std::memcpy(address_.bytes.data() + local_.bytes.size(),
                    reinterpret_cast<const char *>(&name_) + offsetof(sockaddr_in, sin_port),
                    sizeof(in_port_t));
        address_.length = Place::bytes;
        rooms_.resize(received_at_once * room_bytes);
        for (std::size_t i = 0; i < received_at_once; ++i) {
            pieces_[i] = {rooms_.data() + i * room_bytes, room_bytes};
            messages_[i].msg_hdr.msg_iov = &pieces_[i];
            messages_[i].msg_hdr.msg_iovlen = 1;
        }
        return true;
    }

    [[nodiscard]] const std::string &provider() const noexcept override { return udp_provider(); }
    [[nodiscard]] const Address &address() const noexcept override { return address_; }
    [[nodiscard]] std::size_t largest() const noexcept override { return largest_; }
    [[nodiscard]] std::size_t in_one_piece() const noexcept override
    {
        return settings_.offload
                   ? std::clamp<std::size_t>(most_datagram_bytes / largest_, 1, most_segments)
                   : 1;
    }
    [[nodiscard]] std::size_t receive_room() const noexcept override { return room_; }
    [[nodiscard]] const TransportCounters &counters() const noexcept override { return counters_; }
    [[nodiscard]] const std::string &trouble() const noexcept override { return trouble_; }

    [[nodiscard]] std::unique_ptr<Channel> connect(const Address &peer,
                                                   std::string &why) noexcept override
    try {
        if (peer.length != Place::bytes) {
            why = "the peer's address is none of UDP";
            return nullptr;
        }
        Place to;
        std::memcpy(to.address.bytes.data(), peer.bytes.data(), to.address.bytes.size());
        std::memcpy(&to.port, peer.bytes.data() + to.address.bytes.size(), sizeof to.port);
        return open_udp_channel(counters_, local_, to, settings_, why);
    } catch (...) {
        return nullptr;
    }

    int receive(Sink &sink) noexcept override
    {
        if (!near_) {
            const int datagrams = receive_from(common_, sink);
            return turns_near_ ? datagrams + come_near(sink) : datagrams;
        }
        int datagrams = receive_from(*near_, sink);
        if (++passes_ % others_interval == 0) {
            if (const int others = receive_from(common_, sink); others != 0) [[unlikely]] {
                datagrams += others + leave_near(sink);
            }
        }
        return datagrams;
    }

  private:
    /// While one peer sends all that comes there is a socket for it alone: the kernel then looks up
    /// neither the socket nor the route of a datagram, which is a twentieth of its way. That of all
    /// others is looked at once in so many passes, until something comes by it.
    static constexpr unsigned others_interval = 8;

    /// \return how much waits there unread at most
    [[nodiscard]] std::size_t prepare(const Socket &socket) const noexcept
    {
        if (settings_.offload) {
            socket.set(IPPROTO_UDP, UDP_GRO, 1);
        }
        return socket.buffer(SO_RCVBUFFORCE, SO_RCVBUF, settings_.receive_buffer);
    }
    int come_near(Sink &sink) noexcept
    {
        turns_near_ = false;
        // Not before it was bound: the kernel would have given it a port that another has.
        common_.socket.set(SOL_SOCKET, SO_REUSEPORT, 1);
        near_.emplace();
        const Socket &socket = near_->socket;
        if (!near_->socket.open(name_.ss_family)) {
            near_.reset();
        } else {
            socket.set(SOL_SOCKET, SO_REUSEPORT, 1);
            static_cast<void>(prepare(socket));
            if (!socket.bind_to(name_, name_length_) ||
                !socket.connect_to(sender_.from(), sender_.length())) {
                turn_away();
                near_.reset();
            }
        }
        sender_.begin_anew();
        return near_ ? empty(common_, sink) : 0; // in its order, before what comes from now on
    }
    int leave_near(Sink &sink) noexcept
    {
        turn_away();
        const int datagrams = empty(*near_, sink);
        near_.reset(); // what may still come there is lost, as datagrams are
        return datagrams;
    }
    /// A child that was forked meanwhile keeps a copy of the socket, which stays what it is when it
    /// is closed here: the kernel would go on giving it all that comes from the peer. Nobody sends
    /// from the place to which it leads now.
    void turn_away() const noexcept
    {
        static_cast<void>(near_->socket.connect_to(name_, name_length_));
    }
    /// All that waits there, but not for ever.
    int empty(Inlet &inlet, Sink &sink) noexcept
    {
        int datagrams = 0;
        for (unsigned rounds = 0; rounds < 64; ++rounds) {
            const int more = receive_stream(inlet, sink);
            datagrams += more;
            if (more == 0) {
                break;
            }
        }
        return datagrams;
    }

    int receive_from(Inlet &inlet, Sink &sink) noexcept
    {
        if (inlet.streaming) {
            return receive_stream(inlet, sink);
        }
        // recvmmsg looks once more than it finds, a tenth of a short message's way; it pays where
        // each pass finds several, or each of two in a row something.
        const int got = receive_one(inlet);
        if (got < 0) [[likely]] {
            inlet.found = false;
            if (errno != EAGAIN) [[unlikely]] {
                note_error(errno);
            }
            return 0;
        }
        ++counters_.calls_receive;
        inlet.streaming = inlet.found;
        inlet.found = true;
        return hand_on(0, sink);
    }
    int receive_stream(Inlet &inlet, Sink &sink) noexcept
    {
        int datagrams = 0;
        int messages = 0;
        for (int round = 0; round < rounds_at_once; ++round) {
            const int got = recvmmsg(inlet.socket.fd(), messages_.data(), received_at_once,
                                     MSG_DONTWAIT | MSG_TRUNC, nullptr);
            if (got <= 0) {
                note_error(got < 0 ? errno : EAGAIN);
                break;
            }
            ++counters_.calls_receive;
            messages += got;
            for (int i = 0; i < got; ++i) {
                datagrams += hand_on(static_cast<std::size_t>(i), sink);
            }
            if (got < static_cast<int>(received_at_once)) {
                break;
            }
        }
        inlet.streaming = messages > 1;
        inlet.found = messages != 0;
        return datagrams;
    }
    /// As recvmmsg: how many messages came, or -1 and errno. The kernel could tell how a piece
    /// was joined, but a look is cheaper without: recv instead of recvmsg, and no control data.
    int receive_one(const Inlet &inlet) noexcept
    {
        const bool learns = !near_;
        const bool asks = learns && sender_.asks();
        const ssize_t bytes = receive_plainly(
            inlet.socket.fd(), rooms_.data(), room_bytes, MSG_DONTWAIT | MSG_TRUNC,
            asks ? sender_.latest() : nullptr, asks ? sender_.latest_length() : nullptr);
        if (bytes < 0) {
            return -1;
        }
        messages_[0].msg_len = static_cast<unsigned>(bytes);
        turns_near_ = learns && sender_.note();
        return 1;
    }
    /// Nothing has come, or an earlier datagram's error, or the socket is of no use any more.
    void note_error(int error) noexcept
    {
        if (!transient(error) && trouble_.empty()) {
            trouble_ = said("receive", error);
        }
    }
    int hand_on(std::size_t i, Sink &sink) noexcept
    {
        const std::size_t bytes = messages_[i].msg_len; // of the datagram, as MSG_TRUNC asks for
        if (bytes > room_bytes) {
            ++counters_.truncated;
            return 0;
        }
        const int datagrams = sink.take_stretch({rooms_.data() + i * room_bytes, bytes});
        counters_.datagrams_received += static_cast<std::uint64_t>(datagrams);
        return datagrams;
    }

    Inlet common_;              ///< what all may send to
    std::optional<Inlet> near_; ///< of the one peer that sends all
    Sender sender_;
    bool turns_near_ = false;
    unsigned passes_ = 0;
    sockaddr_storage name_{}; ///< of common_
    socklen_t name_length_ = 0;
    UdpSettings settings_;
    TransportCounters counters_;
    std::string trouble_;
    Address address_;
    btl::IpAddress local_;
    std::size_t largest_ = 0;
    std::size_t room_ = 0;
    std::vector<std::byte> rooms_;
    std::array<mmsghdr, received_at_once> messages_{};
    std::array<iovec, received_at_once> pieces_{};
};

} // namespace

std::unique_ptr<Transport> open_udp(const Interface &interface, const UdpSettings &settings,
                                    std::string &why) noexcept
try {
    auto transport = std::make_unique<UdpTransport>();
    return transport->open(interface, settings, why) ? std::move(transport) : nullptr;
} catch (...) {
    return nullptr;
}

const std::string &udp_provider() noexcept
{
    static const std::string name = "udp";
    return name;
}

} // namespace ft::dgram

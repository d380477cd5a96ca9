#include "opal/mca/btl/dgram/udp_channel.hpp"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "opal/ft/base/time.hpp"
#include "opal/mca/clock.hpp"

namespace ft::dgram {

namespace {

constexpr std::size_t most_messages = 16; ///< in one sendmmsg
/// Between attempts to open a channel.
constexpr base::Duration open_interval = base::Duration::from_s(1);
/// Until the kernel is asked again to cut messages apart that it would not cut.
constexpr base::Duration offload_interval = base::Duration::from_s(10);

/// As send, but no point at which a thread ends that is cancelled: it would leave the module's lock
/// behind.
ssize_t send_plainly(int fd, const void *datagram, std::size_t bytes, int flags) noexcept
{
    return syscall(SYS_sendto, fd, datagram, bytes, flags, nullptr, 0);
}

/// As transient, but what a call says about a way out: a route of the kind that swallows packets is
/// EINVAL.
bool no_way_now(int error) noexcept
{
    return error == EINVAL || transient(error);
}

const void *end_of(const iovec &piece) noexcept
{
    return static_cast<const std::byte *>(piece.iov_base) + piece.iov_len;
}

class UdpChannel final : public Channel {
  public:
    UdpChannel(TransportCounters &counters, const btl::IpAddress &local, const Place &peer,
               const UdpSettings &settings) noexcept
        : counters_(counters),
          local_(local),
          peer_(peer),
          send_buffer_(settings.send_buffer),
          may_offload_(settings.offload),
          offload_(settings.offload)
    {
    }

    /// \param why it is not open now \return false if it never will be
    bool open(std::string &why)
    {
        const char *failed = nullptr;
        if (connect(failed)) {
            return true;
        }
        const int error = errno;
        socket_.shut();
        next_attempt_ = mca::now() + open_interval;
        why = said(failed, error);
        return no_way_now(error);
    }

    SendResult send(std::span<const Outgoing> datagrams, std::size_t &taken) noexcept override
    {
        if (socket_.fd() < 0) [[unlikely]] {
            if (mca::now() >= next_attempt_ && !open(trouble_)) {
                taken = 0;
                return SendResult::broken;
            }
            trouble_.clear();
            if (socket_.fd() < 0) {
                counters_.refused += datagrams.size();
                taken = datagrams.size();
                return SendResult::ok;
            }
        }
        if (datagrams.size() == 1 && send_one(datagrams.front()) > 0) [[likely]] {
            ++counters_.calls_send;
            ++counters_.datagrams_sent;
            taken = 1;
            return SendResult::ok;
        }
        return send_all(datagrams, taken, datagrams.size() == 1);
    }

    [[nodiscard]] std::string trouble() const override { return trouble_; }
    /// Nobody sends to this socket, and nobody but the peer's own sampling looks where it is.
    void rest() noexcept override { socket_.shut(); }

  private:
    /// \return false, which call failed, and errno
    bool connect(const char *&failed) noexcept
    {
        failed = "socket";
        if (!socket_.open(peer_.family())) {
            return false;
        }
        // Nothing is read here; what comes in reply is an error of the network, if anything.
        static_cast<void>(socket_.buffer(SO_SNDBUFFORCE, SO_SNDBUF, send_buffer_));
        socket_.set(SOL_SOCKET, SO_RCVBUF, 0);
        // A network that has become narrower than it was announced may fragment.
        if (peer_.family() == AF_INET) {
            socket_.set(IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT);
        } else {
            socket_.set(IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DONT);
        }
        failed = "bind";
        if (!socket_.bind_to({local_, 0})) {
            return false;
        }
        failed = "connect";
        sockaddr_storage to{};
        const socklen_t length = peer_.to(to);
        return socket_.connect_to(to, length);
    }

    /// \param failed the first has been tried, and errno says why it did not go
    SendResult send_all(std::span<const Outgoing> datagrams, std::size_t &taken,
                        bool failed) noexcept
    {
        taken = 0;
        bool again = false;
        while (taken < datagrams.size()) {
            const std::span<const Outgoing> rest = datagrams.subspan(taken);
            const int sent = std::exchange(failed, false) ? -1
                             : rest.size() == 1           ? send_one(rest.front())
                                                          : send_several(rest);
            ++counters_.calls_send;
            if (sent > 0) {
                for (std::size_t i = 0; i < static_cast<std::size_t>(sent); ++i) {
                    taken += held_[i];
                    counters_.datagrams_sent += held_[i];
                }
                again = false;
                continue;
            }
            switch (errno) {
            case EINTR:
                continue;
            case EAGAIN:
            case ENOBUFS:
            case ENOMEM:
                return SendResult::full;
            case EMSGSIZE:
            case EINVAL:
            case EIO: // no checksum offload on the way out
                if (held_[0] > 1) {
                    // One by one then; the kernel may fragment them. Routes change, and so do the
                    // sizes that are sent.
                    offload_ = false;
                    offload_again_ = mca::now() + offload_interval;
                    continue;
                }
                if (errno == EMSGSIZE) {
                    return SendResult::too_large;
                }
                break;
            default:
                break;
            }
            if (!no_way_now(errno)) {
                trouble_ = said("send", errno);
                return SendResult::broken;
            }
            // The error may be an earlier datagram's, and this one may pass.
            if (again) {
                counters_.refused += held_[0];
                taken += held_[0];
            }
            again = !again;
        }
        return SendResult::ok;
    }

    /// Both as sendmmsg: how many messages were taken, or -1 and errno. A single datagram goes the
    /// shortest way into the kernel, for it is what somebody waits for.
    int send_one(const Outgoing &datagram) noexcept
    {
        held_[0] = 1;
        if (datagram.pieces[1].iov_len == 0) {
            return send_plainly(socket_.fd(), datagram.pieces[0].iov_base,
                                datagram.pieces[0].iov_len, MSG_NOSIGNAL) < 0
                       ? -1
                       : 1;
        }
        msghdr header{};
        header.msg_iov = const_cast<iovec *>(datagram.pieces);
        header.msg_iovlen = std::size(datagram.pieces);
        return sendmsg(socket_.fd(), &header, MSG_NOSIGNAL) < 0 ? -1 : 1;
    }
    int send_several(std::span<const Outgoing> datagrams) noexcept
    {
        if (!offload_ && may_offload_ && mca::now() >= offload_again_) [[unlikely]] {
            offload_ = true;
        }
        const std::size_t messages = fill(datagrams);
        return sendmmsg(socket_.fd(), messages_.data(), static_cast<unsigned>(messages),
                        MSG_NOSIGNAL);
    }
    /// Messages out of runs of datagrams of one length (the last one of a run may be shorter).
    /// \return how many
    std::size_t fill(std::span<const Outgoing> datagrams) noexcept
    {
        std::size_t message = 0;
        std::size_t pieces = 0;
        std::size_t next = 0;
        while (next < datagrams.size() && message < most_messages) {
            const std::size_t first = next;
            const std::size_t segment = datagrams[first].bytes();
            std::size_t bytes = 0;
            msghdr &header = messages_[message].msg_hdr;
            header = msghdr{};
            header.msg_iov = &pieces_[pieces];
            const std::size_t own = pieces;
            const auto add = [&](const iovec &piece) {
                if (pieces != own && end_of(pieces_[pieces - 1]) == piece.iov_base) {
                    pieces_[pieces - 1].iov_len += piece.iov_len; // one stretch of memory
                } else {
                    pieces_[pieces++] = piece;
                }
            };
            std::size_t latest = segment;
            for (bool more = true; more;) {
                add(datagrams[next].pieces[0]);
                if (datagrams[next].pieces[1].iov_len != 0) {
                    add(datagrams[next].pieces[1]);
                }
                bytes += latest;
                ++next;
                more = offload_ && latest == segment && next < datagrams.size() &&
                       next - first < most_segments;
                if (more) {
                    latest = datagrams[next].bytes();
                    more = latest <= segment && bytes + latest <= most_datagram_bytes;
                }
            }
            header.msg_iovlen = static_cast<std::size_t>(&pieces_[pieces] - header.msg_iov);
            held_[message] = next - first;
            if (held_[message] > 1) {
                Control &control = controls_[message];
                header.msg_control = control.bytes;
                header.msg_controllen = sizeof control.bytes;
                cmsghdr *c = CMSG_FIRSTHDR(&header);
                c->cmsg_level = IPPROTO_UDP;
                c->cmsg_type = UDP_SEGMENT;
                c->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
                const auto value = static_cast<std::uint16_t>(segment);
                std::memcpy(CMSG_DATA(c), &value, sizeof value);
            }
            ++message;
            if (pieces + 2 * most_segments > pieces_.size()) {
                break;
            }
        }
        return message;
    }

    struct Control {
        alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(std::uint16_t))] = {};
    };
    Socket socket_;
    TransportCounters &counters_;
    const btl::IpAddress local_;
    const Place peer_;
    const std::uint32_t send_buffer_;
    const bool may_offload_;
    bool offload_; ///< at present
    base::Time offload_again_;
    base::Time next_attempt_; ///< to open it
    std::string trouble_;
    std::array<mmsghdr, most_messages> messages_{};
    std::array<std::size_t, most_messages> held_{};
    std::array<Control, most_messages> controls_{};
    std::array<iovec, 4 * most_segments> pieces_{};
};

} // namespace

bool transient(int error) noexcept
{
    // What a device, a firewall or a tunnel makes of a datagram may be any number; what is wrong
    // with the socket itself is one of these.
    switch (error) {
    case EBADF:
    case ENOTSOCK:
    case EFAULT:
    case EINVAL:
    case EPIPE:
    case ENOSYS:
    case EOPNOTSUPP:
    case EAFNOSUPPORT:
    case EPROTONOSUPPORT:
    case ESOCKTNOSUPPORT:
        return false;
    default:
        return true;
    }
}

std::string said(const char *call, int error)
{
    return std::string(call) + ": " + std::strerror(error);
}

std::unique_ptr<Channel> open_udp_channel(TransportCounters &counters, const btl::IpAddress &local,
                                          const Place &peer, const UdpSettings &settings,
                                          std::string &why)
{
    auto channel = std::make_unique<UdpChannel>(counters, local, peer, settings);
    return channel->open(why) ? std::move(channel) : nullptr;
}

} // namespace ft::dgram

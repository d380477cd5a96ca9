/// \file
/// What btl/dgram asks of something that carries datagrams. A Transport belongs to one address of
/// this process; a Channel is the way from it to one address of a peer. Datagrams may be lost,
/// doubled, overtaken and spoiled; nobody is told.
///
/// The module's lock is held around every call but receive(), which one thread at a time calls,
/// while another may be in any of the rest. No exception leaves.
#pragma once
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "opal/mca/btl/base/interfaces.hpp"

namespace ft::dgram {

using btl::Interface;
using btl::printed;

/// No datagram of any transport is longer: the most that UDP over IPv4 carries;
/// over IPv6 it is twenty bytes more.
inline constexpr std::size_t most_datagram_bytes = 65507;
/// Datagrams that are given to a transport together, at most.
inline constexpr std::size_t most_batch = 128;

/// Header bytes of UDP, and of IP without options.
[[nodiscard]] inline std::size_t udp_headers(const btl::IpAddress &address) noexcept
{
    return address.is_v4() ? 28 : 48;
}

/// A transport's own address, as its peers need it. Opaque to everybody else.
struct Address {
    static constexpr std::size_t most_bytes = 48;
    std::array<std::byte, most_bytes> bytes{};
    std::uint8_t length = 0;
};

/// One datagram to be sent: header and body, which need not lie together. Read during the call
/// only.
struct Outgoing {
    iovec pieces[2]{};
    [[nodiscard]] std::size_t bytes() const noexcept
    {
        return pieces[0].iov_len + pieces[1].iov_len;
    }
};

enum class SendResult : std::uint8_t {
    ok,        ///< all taken; some may have been lost at once, which is counted
    full,      ///< no room for the rest now: try again later
    too_large, ///< the next one is longer than what the way carries at present
    broken     ///< this channel will not carry anything any more
};

/// Counted by transports; each only grows.
struct TransportCounters {
    std::uint64_t calls_send = 0;         ///< system calls, or calls into the provider
    std::uint64_t calls_receive = 0;      ///< of those that received something
    std::uint64_t datagrams_sent = 0;     ///< taken by the network
    std::uint64_t datagrams_received = 0; ///< handed on
    std::uint64_t refused = 0;   ///< lost at once: the network is down, or the peer's end is closed
    std::uint64_t truncated = 0; ///< longer than any datagram of ours: dropped
};

class Channel {
  public:
    Channel() = default;
    Channel(const Channel &) = delete;
    Channel &operator=(const Channel &) = delete;
    virtual ~Channel() = default;

    /// Sends from the front of `datagrams`. \param taken how many are dealt with
    virtual SendResult send(std::span<const Outgoing> datagrams, std::size_t &taken) noexcept = 0;
    /// What broke it, for a message. Empty while it works.
    [[nodiscard]] virtual std::string trouble() const = 0;
    /// Nothing was sent for a while, and perhaps nothing ever will be: gives back what the process
    /// has few of, and takes it again with the next send.
    virtual void rest() noexcept {}
};

/// Who takes what has come.
class Sink {
  public:
    Sink() = default;
    Sink(const Sink &) = delete;
    Sink &operator=(const Sink &) = delete;
    virtual ~Sink() = default;
    /// One datagram, readable during the call.
    virtual void take(std::span<const std::byte> datagram) noexcept = 0;
    /// How long the first datagram is of several that came in one stretch, all of one length but
    /// the last, which may be shorter; the whole if it is one.
    [[nodiscard]] virtual std::size_t
    length_of_first(std::span<const std::byte> stretch) const noexcept = 0;
    /// Takes each datagram of a stretch. \return how many
    virtual int take_stretch(std::span<const std::byte> stretch) noexcept
    {
        return take_each(*this, stretch);
    }

  protected:
    /// Where the class of the sink is known none of its calls is a virtual one.
    template <class Known>
    static int take_each(Known &sink, std::span<const std::byte> stretch) noexcept
    {
        const std::size_t each = std::max<std::size_t>(sink.length_of_first(stretch), 1);
        if (each >= stretch.size()) [[likely]] { // an empty datagram is one, too
            sink.take(stretch);
            return 1;
        }
        constexpr std::size_t cache_line = 64;
        int datagrams = 0;
        for (std::size_t at = 0; at < stretch.size(); at += each, ++datagrams) {
            const std::size_t length = std::min(each, stretch.size() - at);
            if (const std::size_t next = at + length; next + cache_line < stretch.size()) {
                // All that is done with a datagram waits for its headers.
                __builtin_prefetch(stretch.data() + next);
                __builtin_prefetch(stretch.data() + next + cache_line);
            }
            sink.take(stretch.subspan(at, length));
        }
        return datagrams;
    }
};

class Transport {
  public:
    Transport() = default;
    Transport(const Transport &) = delete;
    Transport &operator=(const Transport &) = delete;
    virtual ~Transport() = default;

    /// Who carries the datagrams, as the parameter provider names it: peers with another one cannot
    /// be reached.
    [[nodiscard]] virtual const std::string &provider() const noexcept = 0;
    [[nodiscard]] virtual const Address &address() const noexcept = 0;
    /// Bytes of the longest datagram that the network at this end carries.
    [[nodiscard]] virtual std::size_t largest() const noexcept = 0;
    /// How many of these go out in one piece, and cost little more than one.
    [[nodiscard]] virtual std::size_t in_one_piece() const noexcept { return 1; }
    /// Bytes that wait here unread at most before datagrams are dropped.
    [[nodiscard]] virtual std::size_t receive_room() const noexcept = 0;
    /// \return nullptr, and why, when no way will ever lead there. A channel, and why, when none
    /// does yet: what is sent is lost until there is one
    [[nodiscard]] virtual std::unique_ptr<Channel> connect(const Address &peer,
                                                           std::string &why) noexcept = 0;
    /// Hands on what has come, a bounded number. \return how many datagrams
    virtual int receive(Sink &sink) noexcept = 0;
    /// To be called now and then: sees to what was sent and is not done with.
    virtual void tend() noexcept {}
    [[nodiscard]] virtual const TransportCounters &counters() const noexcept = 0;
    /// Why nothing will be received any more. Empty while it works. For who calls receive().
    [[nodiscard]] virtual const std::string &trouble() const noexcept = 0;
};

/// How many datagrams to gather where `wanted` are asked for: whole pieces, at least one, if as
/// many are wanted; a rest costs as much as a piece.
[[nodiscard]] inline std::size_t batch_for(const Transport &transport, std::size_t wanted) noexcept
{
    const std::size_t piece = transport.in_one_piece();
    if (wanted < piece) {
        return wanted;
    }
    return std::min((wanted + piece - 1) / piece, most_batch / piece) * piece;
}

} // namespace ft::dgram

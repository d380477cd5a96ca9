/// What the runtime's channel does not tell and cannot be told through its interface: where its
/// connection to another daemon leads, whether anything gets through, and where to open the next.
///
/// For this it looks into what oob/tcp keeps (oob_tcp_objects.hpp). Where that is not as it is
/// known there is no OobPeer, and the channel is left alone. To be used in the thread of the event
/// base, and not to be kept.
#pragma once

#include "orte_glue/orte_prelude.hpp"

#include "orte_glue/radixft/stalls.hpp"
#include "orte_glue/radixft/types.hpp"

#include <optional>
#include <utility>

namespace ft::radixft {

struct OobPeerObject;
struct OobTcp;

class FileDescriptor {
  public:
    FileDescriptor() = default;
    explicit FileDescriptor(int number) : number_(number) {}
    FileDescriptor(FileDescriptor &&other) noexcept : number_(std::exchange(other.number_, -1)) {}
    FileDescriptor &operator=(FileDescriptor &&other) noexcept
    {
        std::swap(number_, other.number_);
        return *this;
    }
    FileDescriptor(const FileDescriptor &) = delete;
    FileDescriptor &operator=(const FileDescriptor &) = delete;
    ~FileDescriptor();

    int number() const { return number_; }

  private:
    int number_ = -1;
};

/// Of a connection, at this end and the other: together they name it, as long as it is not old.
struct Ports {
    std::uint32_t here = 0;
    std::uint32_t there = 0;

    bool operator==(const Ports &) const = default;
};

/// Bytes that were sent over an open connection, without the greeting.
struct Traffic {
    std::uint64_t on_their_way = 0; ///< written and not acknowledged, of whole messages
    /// All that was written, of whole messages; nothing when the kernel was just changing it.
    std::optional<std::uint64_t> written;
};

class OobPeer {
  public:
    /// What the channel has of a daemon; nothing when it has nothing, or is not understood.
    static std::optional<OobPeer> find(NodeId id) noexcept;

    /// It has a connection, with or without the greetings.
    bool open() const noexcept;
    /// A connect() is under way.
    bool opening() const noexcept;
    /// Of the connection; of one that is being opened all that is known is that it waits.
    std::optional<Progress> progress() const noexcept;
    /// Empty without a connection, as the next two.
    std::optional<Traffic> traffic(const Ports &ports) const noexcept;
    Ports ports() const noexcept;
    /// Another descriptor of its socket, by which it stays, and is not ended for the other daemon,
    /// when the channel has closed its own.
    FileDescriptor socket() const noexcept;
    /// What a message takes of a connection.
    static std::uint64_t bytes_of(const opal_buffer_t &message) noexcept;
    /// Whether the connection leads to this address. The port does not count: the other daemon may
    /// have opened it.
    bool uses(const sockaddr_storage &address) const noexcept;
    /// The next connection is opened to this address, the others follow.
    void prefer(const sockaddr_storage &address) noexcept;
    /// The channel finds the connection ended, and nothing comes over it any more; of one that is
    /// being opened, that it has failed, upon which it tries the next address. False if not.
    bool give_up() noexcept;
    /// The same of a connection on which TCP gets no answer, and the other end notices too, if it
    /// is reached: for when it is known to answer again, of which TCP would take notice after a
    /// pause as long as it did not, up to two minutes. False if there is no such connection.
    bool break_off_stalled() noexcept;
    /// Has TCP, while it gets no answer, try again each second at least: else it would do so ever
    /// more seldom, and a network that has come back would be of no use for as long again as it was
    /// away, up to two minutes. When TCP takes the connection for lost stays as it is by default.
    /// Linux 6.15 and later; false on an earlier one, and nothing changed.
    bool keep_trying() noexcept;
    /// Drops the channel's decisions to open a connection, and returns whether there were any. It
    /// carries them out in an event of their own without a look whether the other end has opened
    /// one meanwhile.
    bool drop_attempts() noexcept;
    /// On a new connection: the channel takes what has come over the old one, of which this is a
    /// descriptor, and is not read yet. Returns how many bytes have come over that in all.
    std::uint64_t take_rest(int old) noexcept;
    /// On a new connection every message begins with its first byte. The channel would go on in the
    /// middle of that which was being written when the last one broke, and take the first bytes
    /// that come for the rest of what was being read.
    void begin_anew() noexcept;

  private:
    OobPeer(OobPeerObject &peer, const OobTcp &tcp) : peer_(&peer), tcp_(&tcp) {}

    OobPeerObject *peer_;
    const OobTcp *tcp_;
};

} // namespace ft::radixft

/// Sealing of messages with a MAC under a key that the members of a job share.
///
/// SipHash-2-4 (Aumasson, Bernstein: "SipHash: a fast short-input PRF", INDOCRYPT 2012): made for
/// short messages, 8 bytes of tag, about a cycle a byte. The runtime's channel authenticates
/// nothing, and a forged EVICTED would end a daemon. The key is handed out with the launch; a
/// replay is stopped by sequence numbers and incarnations, not here. Plain values; any thread.
#pragma once

#include "opal/ft/membership/messages.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ft::membership {

using Key = std::array<std::byte, 16>;

/// SipHash-2-4 of `data` under `key`.
std::uint64_t siphash24(const Key &key, std::span<const std::byte> data);

/// Turns messages to bytes and back, under one key.
class Sealer {
  public:
    static constexpr std::size_t tag_size = 8;

    explicit Sealer(const Key &key) : key_(key) {}

    /// encode() and the tag behind it.
    std::vector<std::byte> seal(const Message &m) const;

    /// Why open() gave nothing, for the counters.
    enum class Fault : std::uint8_t { none, too_short, bad_tag, malformed };

    /// The message, if the tag is right and it is well formed (see decode). Compares the tag in
    /// constant time.
    std::optional<Message> open(std::span<const std::byte> sealed, Fault *fault = nullptr,
                                NodeId most_ids = max_nodes) const;

  private:
    Key key_;
};

} // namespace ft::membership

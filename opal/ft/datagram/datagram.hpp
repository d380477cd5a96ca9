/// \file
/// What stands in front of every datagram of btl/dgram. Little-endian, bounds-checked; nothing here
/// keeps state, any thread may call it.
///
/// | bytes | field | meaning |
/// |---|---|---|
/// | 0 | magic | 0xD6 |
/// | 1 | version and kind | high four bits 1; low four: 1 whole, 2 part, 3 size probe, 4 size reply
/// | | 2 | tag | of the active message; 0 in probes and replies | | 3 | reserved | 0 | | 4 | sender
/// | low half of the sender's cookie: whom a size reply goes to, whose part this is | | 8 | key |
/// the receiver's cookie | | 16 | number | part: of the fragment, counted by the sender; probe and
/// reply: nonce | | 20 | total | part: bytes of the whole fragment; reply: bytes of the datagram
/// that it answers | | 24 | offset | part: where its bytes belong |
///
/// `whole` ends after 16 bytes and the rest is the fragment. A cookie is 64 random bits that a
/// process draws at its start and tells the processes of its job through the modex: who does not
/// know it is a stranger, and so is a replay of what was sent to a process of an earlier job.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "opal/ft/base/wire.hpp"

namespace ft::dgram {

enum class Kind : std::uint8_t { whole = 1, part = 2, size_probe = 3, size_reply = 4 };

inline constexpr std::size_t whole_bytes = 16; ///< in front of a fragment in one datagram
inline constexpr std::size_t long_bytes = 28;  ///< in front of everything else
/// No fragment is longer; what claims more is malformed.
inline constexpr std::size_t most_fragment_bytes = 65536;

struct Header {
    Kind kind = Kind::whole;
    std::uint8_t tag = 0;
    std::uint32_t sender = 0;
    std::uint64_t key = 0;
    std::uint32_t number = 0;
    std::uint32_t total = 0;
    std::uint32_t offset = 0;
};

enum class Parse : std::uint8_t {
    ok,
    malformed, ///< too short, or impossible in some field
    stranger   ///< well formed, but not for this process of this job
};

namespace detail {

inline constexpr std::uint8_t magic = 0xd6;
inline constexpr std::uint8_t version = 1;

} // namespace detail

/// The header of a `whole`, which every fragment has: as write_header, in two words.
inline void write_whole(std::uint8_t tag, std::uint32_t sender, std::uint64_t key,
                        std::span<std::byte, whole_bytes> out) noexcept
{
    constexpr unsigned kind = detail::version << 4U | static_cast<unsigned>(Kind::whole);
    base::WireWriter writer(out);
    writer.u64(detail::magic | std::uint64_t{kind} << 8 | std::uint64_t{tag} << 16 |
               std::uint64_t{sender} << 32);
    writer.u64(key);
}

/// \return bytes written; `out` must hold long_bytes (whole_bytes for a `whole`)
std::size_t write_header(const Header &header, std::span<std::byte> out) noexcept;

/// \param key this process's cookie \param payload set to what follows the header; for a part it is
/// not empty and lies within `total`
[[nodiscard]] Parse parse_datagram(std::span<const std::byte> datagram, std::uint64_t key,
                                   Header &header, std::span<const std::byte> &payload) noexcept;

} // namespace ft::dgram

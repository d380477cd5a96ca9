/// \file
/// What stands in front of every datagram of btl/dgram. Little-endian, bounds-checked; nothing here
/// keeps state, any thread may call it.
///
///
/// - 0: mark, high four bits 0xD; low four: 1 whole, 2 part, 3 size probe, 4 size reply
/// - 1: tag of the active message; 0 in probes and replies
/// - 2, 3: length of the datagram
/// - 4: key, the receiver's cookie
/// - 12: sender, low half of the sender's cookie: whom a size reply goes to, whose part this is
/// - 16: number: of a part's fragment, counted by the sender's process; the nonce of a probe and
/// its reply
/// - 20: total: bytes of a part's whole fragment; reply: bytes of the datagram that it answers
/// - 24: offset: where a part's bytes belong
///
/// `whole` ends after 12 bytes and the rest is the fragment. A cookie is 64 random bits that a
/// process draws at its start and tells the processes of its job through the modex: who does not
/// know it is a stranger, and so is a replay of what was sent to a process of an earlier job.
///
/// The length is there for kernels that hand over several datagrams as one stretch of bytes, all of
/// one length but a shorter last one: it says where to cut, so that nobody has to ask the kernel.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "opal/ft/base/wire.hpp"

namespace ft::dgram {

enum class Kind : std::uint8_t { whole = 1, part = 2, size_probe = 3, size_reply = 4 };

inline constexpr std::size_t whole_bytes = 12; ///< in front of a fragment in one datagram
inline constexpr std::size_t long_bytes = 28;  ///< in front of everything else
/// No fragment is longer; what claims more is malformed.
inline constexpr std::size_t most_fragment_bytes = 65536;

struct Header {
    Kind kind = Kind::whole;
    std::uint8_t tag = 0;
    std::uint64_t key = 0;
    std::uint32_t sender = 0; ///< this and what follows: not of a whole
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

inline constexpr unsigned mark = 0xd0;
inline constexpr unsigned mark_mask = 0xf0;

} // namespace detail

/// The header of a `whole`, which every fragment has. \param length of the datagram, header
/// included
inline void write_whole(std::uint8_t tag, std::size_t length, std::uint64_t key,
                        std::span<std::byte, whole_bytes> out) noexcept
{
    constexpr unsigned first = detail::mark | static_cast<unsigned>(Kind::whole);
    base::WireWriter writer(out);
    writer.u32(first | std::uint32_t{tag} << 8 | static_cast<std::uint32_t>(length) << 16);
    writer.u64(key);
}

/// \param length of the datagram \return bytes written; `out` must hold long_bytes (whole_bytes for
/// a `whole`)
std::size_t write_header(const Header &header, std::size_t length,
                         std::span<std::byte> out) noexcept;

/// What nearly every datagram is: a `whole` for the process with this key. \return false when it is
/// not, or too long: parse_datagram tells what it is. Else tag and payload are set
[[nodiscard]] inline bool parse_whole(std::span<const std::byte> datagram, std::uint64_t key,
                                      std::uint8_t &tag,
                                      std::span<const std::byte> &payload) noexcept
{
    if (datagram.size() < whole_bytes || datagram.size() - whole_bytes > most_fragment_bytes) {
        return false;
    }
    base::WireReader reader(datagram.first<whole_bytes>());
    const std::uint32_t first = reader.u32();
    tag = static_cast<std::uint8_t>(first >> 8);
    payload = datagram.subspan(whole_bytes);
    return (first & 0xff) == (detail::mark | static_cast<unsigned>(Kind::whole)) &&
           first >> 16 == datagram.size() && reader.u64() == key;
}

/// Bytes of the first datagram of what came in one stretch, by its own word; all of it where that
/// makes no sense, and parse_datagram will say so.
[[nodiscard]] inline std::size_t length_of_first(std::span<const std::byte> stretch) noexcept
{
    base::WireReader reader(stretch);
    const std::size_t length = reader.u32() >> 16;
    return reader.ok() && length >= whole_bytes && length <= stretch.size() ? length
                                                                            : stretch.size();
}

/// \param key this process's cookie \param payload set to what follows the header; for a part it is
/// not empty and lies within `total`
[[nodiscard]] Parse parse_datagram(std::span<const std::byte> datagram, std::uint64_t key,
                                   Header &header, std::span<const std::byte> &payload) noexcept;

} // namespace ft::dgram

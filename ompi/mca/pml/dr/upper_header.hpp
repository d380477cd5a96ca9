/// \file
/// What pml/dr itself writes behind the engine's header. Little-endian, bounds-checked; any thread.
///
/// - match, 16 bytes: kind, 3 zero, context, source rank in the communicator, tag; the payload is
///   the message
/// - rts, 32: the same, length of the message, sender's request; the payload is its beginning
/// - cts, 28: kind, 3 zero, sender's request, receiver's request (0: none), where to end
/// - data, 16: kind and, in the other 7 bytes of the word, place of the payload in the message;
///   receiver's request
/// - credit, 12: kind, 3 zero, what the eager messages that have met their receive cost in all
/// - ping, 4: kind, 3 zero
/// - in the brief form of a fragment, which is always a match, 8: context and source in 16 bits
///   each, tag
///
/// All but data travel as ordered VFRAGs, so that matching needs no sequence of its own.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "opal/ft/base/wire.hpp"

namespace ft::dr {

enum class MessageKind : std::uint8_t {
    match = 1,
    rts = 2,
    cts = 3,
    data = 4,
    ping = 5,
    credit = 6
};

inline constexpr std::size_t match_bytes = 16;
inline constexpr std::size_t rts_bytes = 32;
inline constexpr std::size_t cts_bytes = 28;
inline constexpr std::size_t data_bytes = 16;
inline constexpr std::size_t largest_upper_bytes = rts_bytes;

struct UpperHeader {
    MessageKind kind = MessageKind::match;
    std::uint32_t context = 0;
    std::int32_t source = 0;
    std::int32_t tag = 0;
    std::uint64_t length = 0;           ///< rts: of the whole message; cts: where the sender stops
    std::uint64_t sender_request = 0;   ///< rts, cts
    std::uint64_t receiver_request = 0; ///< cts, data
    std::uint64_t offset = 0;           ///< data
    std::uint64_t consumed = 0;         ///< credit: of all eager messages so far
};

/// The upper header of a match, by far the most frequent one. In words, since the checksum reads
/// it back at once in such.
inline void write_match(std::uint32_t context, std::int32_t source, std::int32_t tag,
                        std::span<std::byte, match_bytes> out) noexcept
{
    const auto words = [](std::uint32_t first, std::uint32_t second) {
        return first | std::uint64_t{second} << 32;
    };
    base::WireWriter writer(out);
    writer.u64(words(static_cast<std::uint8_t>(MessageKind::match), context));
    writer.u64(words(static_cast<std::uint32_t>(source), static_cast<std::uint32_t>(tag)));
}

/// A match in the 8 bytes that the brief form of a fragment has room for: context and source in 16
/// bits each, and the tag.
[[nodiscard]] constexpr bool fits_brief(std::uint32_t context, std::int32_t source) noexcept
{
    return (context | static_cast<std::uint32_t>(source)) <= UINT16_MAX;
}
[[nodiscard]] constexpr std::uint64_t pack_brief(std::uint32_t context, std::int32_t source,
                                                 std::int32_t tag) noexcept
{
    return context | std::uint64_t{static_cast<std::uint32_t>(source)} << 16 |
           std::uint64_t{static_cast<std::uint32_t>(tag)} << 32;
}
[[nodiscard]] constexpr UpperHeader unpack_brief(std::uint64_t word) noexcept
{
    UpperHeader upper;
    upper.context = word & UINT16_MAX;
    upper.source = static_cast<std::int32_t>(word >> 16 & UINT16_MAX);
    upper.tag = static_cast<std::int32_t>(word >> 32);
    return upper;
}

/// The upper header of data, of which long messages have one for each fragment.
inline void write_data(std::uint64_t receiver_request, std::uint64_t offset,
                       std::span<std::byte, data_bytes> out) noexcept
{
    base::WireWriter writer(out);
    writer.u64(static_cast<std::uint8_t>(MessageKind::data) | offset << 8);
    writer.u64(receiver_request);
}

/// \return bytes written; `out` must hold `largest_upper_bytes`
inline std::size_t write_upper(const UpperHeader &header, std::span<std::byte> out) noexcept
{
    if (header.kind == MessageKind::data) {
        write_data(header.receiver_request, header.offset, out.first<data_bytes>());
        return data_bytes;
    }
    base::WireWriter writer(out);
    writer.u8(static_cast<std::uint8_t>(header.kind));
    writer.zeros(3);
    switch (header.kind) {
    case MessageKind::match:
    case MessageKind::rts:
        writer.u32(header.context);
        writer.u32(static_cast<std::uint32_t>(header.source));
        writer.u32(static_cast<std::uint32_t>(header.tag));
        if (header.kind == MessageKind::rts) {
            writer.u64(header.length);
            writer.u64(header.sender_request);
        }
        break;
    case MessageKind::cts:
        writer.u64(header.sender_request);
        writer.u64(header.receiver_request);
        writer.u64(header.length);
        break;
    case MessageKind::data: // above
        break;
    case MessageKind::credit:
        writer.u64(header.consumed);
        break;
    case MessageKind::ping:
        break;
    }
    return writer.position();
}

/// \return false when it is not a match, which may be something else
[[nodiscard]] inline bool parse_match(std::span<const std::byte> in, UpperHeader &header) noexcept
{
    if (in.size() != match_bytes) {
        return false;
    }
    // The length is known from here on, so that no read needs a check of its own.
    base::WireReader reader(in.first<match_bytes>());
    const std::uint64_t first = reader.u64();
    const std::uint64_t second = reader.u64();
    header.kind = MessageKind::match;
    header.context = static_cast<std::uint32_t>(first >> 32);
    header.source = static_cast<std::int32_t>(static_cast<std::uint32_t>(second));
    header.tag = static_cast<std::int32_t>(second >> 32);
    return (first & 0xff) == static_cast<std::uint8_t>(MessageKind::match);
}

/// \return false when it is truncated, too long or of no known kind
[[nodiscard]] inline bool parse_upper(std::span<const std::byte> in, UpperHeader &header) noexcept
{
    base::WireReader reader(in);
    const std::uint32_t first = reader.u32();
    const auto kind = static_cast<std::uint8_t>(first);
    if (kind < static_cast<std::uint8_t>(MessageKind::match) ||
        kind > static_cast<std::uint8_t>(MessageKind::credit)) {
        return false;
    }
    header.kind = static_cast<MessageKind>(kind);
    switch (header.kind) {
    case MessageKind::match:
    case MessageKind::rts:
        header.context = reader.u32();
        header.source = static_cast<std::int32_t>(reader.u32());
        header.tag = static_cast<std::int32_t>(reader.u32());
        if (header.kind == MessageKind::rts) {
            header.length = reader.u64();
            header.sender_request = reader.u64();
        }
        break;
    case MessageKind::cts:
        header.sender_request = reader.u64();
        header.receiver_request = reader.u64();
        header.length = reader.u64();
        break;
    case MessageKind::data:
        header.offset = first >> 8 | std::uint64_t{reader.u32()} << 24;
        header.receiver_request = reader.u64();
        break;
    case MessageKind::credit:
        header.consumed = reader.u64();
        break;
    case MessageKind::ping:
        break;
    }
    return reader.complete();
}

} // namespace ft::dr

/// \file
/// The fixed header of every fragment and the body of an acknowledgement: see PROTOCOL.md, "A
/// fragment on the wire". Little-endian, bounds-checked. Nothing here keeps state; all functions
/// may be called from any thread.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/crc32c.hpp"
#include "opal/ft/base/wire.hpp"
#include "opal/ft/reliability/config.hpp"

namespace ft::reliability {

enum class Kind : std::uint8_t { ordered = 1, data = 2, ack = 3, probe = 4, probe_reply = 5 };

inline constexpr std::uint8_t flag_payload_checksummed = 1;
inline constexpr std::uint8_t flag_retransmission = 2;
inline constexpr std::uint8_t flag_ack = 4;
inline constexpr std::uint8_t flag_echo = 8;
inline constexpr std::uint8_t flag_header_checksummed = 16;
inline constexpr std::uint8_t flag_ack_wanted = 32; ///< acknowledge at once
/// In an ack: a path that was not acknowledged broke.
inline constexpr std::uint8_t flag_broken = flag_retransmission;

inline constexpr std::size_t header_bytes = 52;    ///< fixed part
inline constexpr std::size_t max_upper_bytes = 64; ///< upper header that may follow it
inline constexpr std::uint32_t tx_mask = 0xffffff; ///< tx numbers are 24 bits
inline constexpr std::uint16_t no_delay = 0xffff;  ///< echo delay: too long ago to be a sample
inline constexpr unsigned stamp_shift = 6;         ///< timestamps count 2^6 ns

/// The name of a process: what the runtime calls job and rank.
struct Name {
    std::uint32_t job = 0;
    std::uint32_t rank = 0;
    friend bool operator==(const Name &, const Name &) = default;
};

/// How a header is written. In the compressed form it has no timestamp, and its numbers follow from
/// those of the newest brief one: compressed.hpp.
enum class Form : std::uint8_t { full, brief, compressed };

/// One parsed (or to be written) fixed header. Field meanings: PROTOCOL.md.
struct FragHeader {
    Kind kind = Kind::ordered;
    std::uint8_t flags = 0;
    std::uint8_t index = 0;
    std::uint8_t count = 1; ///< 1 to 64 (the wire has count - 1)
    Name source;
    std::uint32_t sequence = 0;
    std::uint8_t path = 0;
    std::uint32_t tx = 0;
    std::uint32_t timestamp = 0;
    std::uint32_t order = 0;
    std::uint32_t cumulative = 0;
    std::uint32_t echo_timestamp = 0;
    std::uint8_t echo_path = 0;
    std::uint8_t upper_bytes = 0;
    std::uint16_t echo_delay_us = no_delay;
    std::uint32_t payload_bytes = 0;
    std::uint32_t payload_crc = 0;
    Form form = Form::full; ///< not on the wire: which form it came in, or may go out in

    [[nodiscard]] bool has(std::uint8_t flag) const noexcept { return (flags & flag) != 0; }
};

enum class ParseStatus : std::uint8_t {
    ok,
    truncated,   ///< fewer bytes than the header says
    malformed,   ///< a field is impossible
    bad_checksum ///< the header's CRC32C is wrong: nothing in it can be believed
};

namespace detail {

inline constexpr std::size_t crc_offset = 48;

/// The checksum of the fixed part without its own field, and of the upper header.
[[nodiscard]] std::uint32_t header_crc(std::span<const std::byte> fragment,
                                       std::size_t upper) noexcept;
inline constexpr std::uint8_t known_flags = flag_payload_checksummed | flag_retransmission |
                                            flag_ack | flag_echo | flag_header_checksummed |
                                            flag_ack_wanted;
/// False when a field is impossible.
[[nodiscard]] inline bool plausible(const FragHeader &h) noexcept
{
    if (h.kind < Kind::ordered || h.kind > Kind::probe_reply || (h.flags & ~known_flags) != 0) {
        return false;
    }
    if (h.count > max_fragments || h.index >= h.count || h.path >= max_paths ||
        h.echo_path >= max_paths || h.upper_bytes > max_upper_bytes) {
        return false;
    }
    return h.kind == Kind::data || h.count == 1;
}

/// Two neighbouring 32-bit fields as one little-endian word.
constexpr std::uint64_t pack(std::uint32_t first, std::uint32_t second)
{
    return first | std::uint64_t{second} << 32;
}

constexpr std::uint32_t low_half(std::uint64_t word)
{
    return static_cast<std::uint32_t>(word);
}
constexpr std::uint32_t high_half(std::uint64_t word)
{
    return static_cast<std::uint32_t>(word >> 32);
}

} // namespace detail

/// Writes the fixed header into `out` (at least `header_bytes`), with a zero header checksum. Call
/// `seal` once the upper header stands behind it.
[[gnu::always_inline]] inline void write_header(const FragHeader &h,
                                                std::span<std::byte> out) noexcept
{
    FT_ASSERT(out.size() >= header_bytes && h.count >= 1);
    // Eight bytes at a time: the checksum reads them back at once in such words, and a processor
    // forwards a store only to a load that it holds whole.
    base::WireWriter w(out.first<header_bytes>()); // its length checked once for all fields
    w.u64(detail::pack(std::uint32_t{static_cast<std::uint8_t>(h.kind)} |
                           std::uint32_t{h.flags} << 8 | std::uint32_t{h.index} << 16 |
                           (h.count - 1U) << 24,
                       h.source.job));
    w.u64(detail::pack(h.source.rank, h.sequence));
    w.u64(detail::pack(std::uint32_t{h.path} << 24 | (h.tx & tx_mask), h.timestamp));
    w.u64(detail::pack(h.order, h.cumulative));
    w.u64(detail::pack(h.echo_timestamp, std::uint32_t{h.echo_path} |
                                             std::uint32_t{h.upper_bytes} << 8 |
                                             std::uint32_t{h.echo_delay_us} << 16));
    w.u64(detail::pack(h.payload_bytes, h.payload_crc));
    w.u32(0);
    FT_ASSERT(w.ok() && w.position() == header_bytes);
}

/// Computes the header checksum over the fixed part and the `upper_bytes` behind it, and stores it.
/// `fragment` starts at the fixed header. Cheaper with `flag_header_checksummed` in the header
/// already: a flag that is added now waits for the store of the word around it.
void seal(std::span<std::byte> fragment) noexcept;

/// The same as `write_header` and `seal`, for a header with `flag_header_checksummed`, whose upper
/// header stands behind it already.
[[gnu::always_inline]] inline void write_sealed(const FragHeader &h,
                                                std::span<std::byte> fragment) noexcept
{
    FT_ASSERT(h.has(flag_header_checksummed) && fragment.size() >= header_bytes + h.upper_bytes);
    write_header(h, fragment);
    base::WireWriter w(fragment.subspan<detail::crc_offset, sizeof(std::uint32_t)>());
    w.u32(base::crc32c(fragment.first<40>(), detail::pack(h.payload_bytes, h.payload_crc),
                       fragment.subspan(header_bytes, h.upper_bytes)));
}

/// Reads and checks a header at the start of `fragment`, which may be longer than what the header
/// describes (transports pad), never shorter. \param require_checksum when true a header that does
/// not claim to be checksummed is malformed (a flipped flag bit must not switch the check off)
[[nodiscard, gnu::always_inline]] inline ParseStatus
parse_header(std::span<const std::byte> fragment, bool require_checksum, FragHeader &h) noexcept
{
    if (fragment.size() < header_bytes) {
        return ParseStatus::truncated;
    }
    // Checked once for all fields, and read in the words in which they were written.
    base::WireReader r(fragment.first<header_bytes>());
    const std::uint64_t place = r.u64();
    h.kind = static_cast<Kind>(place & 0xff);
    h.flags = static_cast<std::uint8_t>(place >> 8);
    h.index = static_cast<std::uint8_t>(place >> 16);
    const unsigned count = static_cast<unsigned>(place >> 24 & 0xff) + 1U;
    h.source.job = detail::high_half(place);
    const std::uint64_t name = r.u64();
    h.source.rank = detail::low_half(name);
    h.sequence = detail::high_half(name);
    const std::uint64_t sent = r.u64();
    h.path = static_cast<std::uint8_t>(sent >> 24);
    h.tx = detail::low_half(sent) & tx_mask;
    h.timestamp = detail::high_half(sent);
    const std::uint64_t numbers = r.u64();
    h.order = detail::low_half(numbers);
    h.cumulative = detail::high_half(numbers);
    const std::uint64_t echo = r.u64();
    h.echo_timestamp = detail::low_half(echo);
    h.echo_path = static_cast<std::uint8_t>(echo >> 32);
    h.upper_bytes = static_cast<std::uint8_t>(echo >> 40);
    h.echo_delay_us = static_cast<std::uint16_t>(echo >> 48);
    const std::uint64_t payload = r.u64();
    h.payload_bytes = detail::low_half(payload);
    h.payload_crc = detail::high_half(payload);
    const std::uint32_t crc = r.u32();
    const std::size_t rest = fragment.size() - header_bytes;
    if (rest < h.upper_bytes) {
        return ParseStatus::truncated;
    }
    // The checksum first: a broken header's other fields mean nothing.
    if (h.has(flag_header_checksummed) || require_checksum) {
        if (crc != detail::header_crc(fragment, h.upper_bytes) || !h.has(flag_header_checksummed)) {
            return ParseStatus::bad_checksum;
        }
    }
    if (count > max_fragments) {
        return ParseStatus::malformed;
    }
    h.count = static_cast<std::uint8_t>(count);
    if (!detail::plausible(h)) {
        return ParseStatus::malformed;
    }
    return rest - h.upper_bytes < h.payload_bytes ? ParseStatus::truncated : ParseStatus::ok;
}

/// The upper header and the payload of a fragment that `parse_header` found ok.
[[nodiscard]] inline std::span<const std::byte>
upper_of(const FragHeader &header, std::span<const std::byte> fragment) noexcept
{
    return fragment.subspan(header_bytes, header.upper_bytes);
}
[[nodiscard]] inline std::span<const std::byte>
payload_of(const FragHeader &header, std::span<const std::byte> fragment) noexcept
{
    return fragment.subspan(header_bytes + header.upper_bytes, header.payload_bytes);
}

/// True when the payload is not checksummed or its CRC32C is right.
[[nodiscard]] bool payload_is_whole(const FragHeader &header,
                                    std::span<const std::byte> payload) noexcept;

/// What an ack says beyond the fixed header.
struct AckBody {
    static constexpr unsigned max_words = 16;    ///< 16 x 64 VFRAGs = max_window
    static constexpr unsigned max_partials = 16; ///< incomplete VFRAGs described in one ack
    struct Partial {
        std::uint16_t offset = 0;   ///< VFRAG number - cumulative
        std::uint64_t received = 0; ///< bit per fragment that arrived whole
        std::uint64_t broken = 0;   ///< bit per fragment whose payload arrived broken (NACK)
    };
    std::uint32_t spurious = 0; ///< duplicates of retransmissions seen so far, wraps
    std::uint8_t words = 0;
    std::uint8_t partials = 0;
    std::array<std::uint64_t, max_words>
        whole{}; ///< bit i of word w: VFRAG cumulative + 64 w + i is whole
    std::array<Partial, max_partials> partial{};
};

/// Most bytes an ack's payload takes.
inline constexpr std::size_t max_ack_bytes =
    4 + 2 + AckBody::max_words * 8 + AckBody::max_partials * 18;
/// Bytes that hold any control fragment (ack, probe, probe reply) whole.
inline constexpr std::size_t max_control_bytes = header_bytes + max_ack_bytes;

/// \return bytes written; `out` must hold max_ack_bytes.
std::size_t write_ack(const AckBody &body, std::span<std::byte> out) noexcept;
/// \return false when truncated or impossible; never reads outside `in`.
[[nodiscard]] bool parse_ack(std::span<const std::byte> in, AckBody &body) noexcept;

/// Serial number arithmetic (RFC 1982): a - b for numbers that are less than 2^31 apart.
[[nodiscard]] constexpr std::int32_t serial_diff(std::uint32_t a, std::uint32_t b) noexcept
{
    return static_cast<std::int32_t>(a - b);
}
/// The same for 24-bit tx numbers.
[[nodiscard]] constexpr std::int32_t tx_diff(std::uint32_t a, std::uint32_t b) noexcept
{
    const std::uint32_t d = (a - b) & tx_mask;
    return d < 0x800000 ? static_cast<std::int32_t>(d) : static_cast<std::int32_t>(d) - 0x1000000;
}

} // namespace ft::reliability

/// \file
/// The brief form of an ordered fragment with a short payload, between two processes of one job
/// over memory that they share: PROTOCOL.md, "The brief form". Another way to write the same
/// header: what is parsed is a FragHeader like any other. Nothing here keeps state; any thread.
#pragma once
#include <cstring>

#include "opal/ft/base/crc32c.hpp"
#include "opal/ft/reliability/header.hpp"

namespace ft::reliability {

/// The first byte of a brief fragment. It stands where Kind stands, and is none of these.
inline constexpr std::byte brief_mark{6};
inline constexpr std::size_t brief_bytes = 48;       ///< before the payload
inline constexpr std::size_t brief_upper_place = 32; ///< where the 8 bytes of upper header stand
/// A payload of 8 bytes makes, with the 8 of vader's own header, the size of a cache line, 64. The
/// largest is what transports over shared memory send at once.
inline constexpr std::size_t most_brief_payload = 4096;

[[nodiscard]] inline bool is_brief(std::span<const std::byte> fragment) noexcept
{
    return !fragment.empty() && fragment.front() == brief_mark;
}

/// What it may carry: none of those that ask for something.
inline constexpr std::uint8_t brief_flags =
    flag_payload_checksummed | flag_ack | flag_echo | flag_header_checksummed;

namespace detail {

/// One checksum for header and payload, or for the header alone. \param last the header's last word
/// without it
[[nodiscard, gnu::always_inline]] inline std::uint32_t
brief_crc(std::span<const std::byte> fragment, std::uint64_t last, const FragHeader &h) noexcept
{
    const std::size_t summed = h.has(flag_payload_checksummed) ? h.payload_bytes : 0;
    return base::crc32c(fragment.first<brief_bytes - sizeof last>(), last,
                        fragment.subspan(brief_bytes, summed));
}

/// The words of the wire, with no check of the length at each.
[[gnu::always_inline]] inline std::uint64_t word_at(const std::byte *from) noexcept
{
    std::uint64_t word = 0;
    std::memcpy(&word, from, sizeof word);
    return base::detail::little_endian(word);
}
[[gnu::always_inline]] inline void put_word(std::byte *to, std::uint64_t word) noexcept
{
    word = base::detail::little_endian(word);
    std::memcpy(to, &word, sizeof word);
}

} // namespace detail

namespace detail {

/// Writes all of the header but its last word. \return that word without the checksum
[[gnu::always_inline]] inline std::uint64_t
write_brief_front(const FragHeader &h, std::uint64_t upper, std::span<std::byte> fragment) noexcept
{
    FT_ASSERT(fragment.size() >= brief_bytes && h.payload_bytes <= most_brief_payload);
    std::byte *const out = fragment.data();
    put_word(out, pack(std::to_integer<std::uint32_t>(brief_mark) | std::uint32_t{h.flags} << 8 |
                           h.payload_bytes << 16,
                       h.source.rank));
    put_word(out + 8, pack(h.sequence, std::uint32_t{h.path} << 28 |
                                           std::uint32_t{h.echo_path} << 24 | (h.tx & tx_mask)));
    put_word(out + 16, pack(h.timestamp, h.echo_timestamp));
    put_word(out + 24, pack(h.order, h.cumulative));
    put_word(out + brief_upper_place, upper);
    return h.echo_delay_us;
}

inline constexpr std::size_t brief_last_place = brief_bytes - sizeof(std::uint64_t);

} // namespace detail

/// Writes the header to the beginning of `fragment`, behind which the payload stands already, and
/// seals it as far as its flags say. \param upper the 8 bytes of upper header that it has room for
[[gnu::always_inline]] inline void write_brief(const FragHeader &h, std::uint64_t upper,
                                               std::span<std::byte> fragment) noexcept
{
    std::uint64_t last = detail::write_brief_front(h, upper, fragment);
    if ((h.flags & (flag_payload_checksummed | flag_header_checksummed)) != 0) {
        last |= std::uint64_t{detail::brief_crc(fragment, last, h)} << 32;
    }
    detail::put_word(fragment.data() + detail::brief_last_place, last);
}

/// The same with the payload, which is copied there and, if it is to be, summed meanwhile.
inline void write_brief(const FragHeader &h, std::uint64_t upper,
                        std::span<const std::byte> payload, std::span<std::byte> fragment) noexcept
{
    FT_ASSERT(h.payload_bytes == payload.size());
    const auto place = fragment.subspan(brief_bytes);
    if (!h.has(flag_payload_checksummed) || payload.size() < base::least_in_one_pass) {
        if (!payload.empty()) {
            std::memcpy(place.data(), payload.data(), payload.size());
        }
        write_brief(h, upper, fragment);
        return;
    }
    std::uint64_t last = detail::write_brief_front(h, upper, fragment);
    std::byte *const out = fragment.data() + detail::brief_last_place;
    detail::put_word(out, last);
    const std::uint32_t crc =
        base::Crc32c().update(fragment.first<brief_bytes>()).copy(place, payload).value();
    detail::put_word(out, last | std::uint64_t{crc} << 32);
}

/// Reads and checks a fragment for which `is_brief` holds, longer than what it describes or not,
/// its payload included. \param own_job its sender's, too, since no other job writes this form
/// \param require_checksum as for parse_header
[[nodiscard, gnu::always_inline]] inline ParseStatus
parse_brief(std::span<const std::byte> fragment, std::uint32_t own_job, bool require_checksum,
            FragHeader &h, std::uint64_t &upper) noexcept
{
    if (fragment.size() < brief_bytes) {
        return ParseStatus::truncated;
    }
    const std::byte *const in = fragment.data();
    const std::uint64_t what = detail::word_at(in);
    const std::uint64_t numbers = detail::word_at(in + 8);
    const std::uint64_t stamps = detail::word_at(in + 16);
    const std::uint64_t places = detail::word_at(in + 24);
    const std::uint64_t last = detail::word_at(in + 40);
    h.kind = Kind::ordered;
    h.form = Form::brief;
    h.flags = static_cast<std::uint8_t>(what >> 8);
    h.index = 0;
    h.count = 1;
    h.payload_bytes = static_cast<std::uint16_t>(what >> 16);
    h.source = {own_job, detail::high_half(what)};
    h.sequence = detail::low_half(numbers);
    h.path = static_cast<std::uint8_t>(numbers >> 60);
    h.echo_path = static_cast<std::uint8_t>(numbers >> 56 & 0xf);
    h.tx = detail::high_half(numbers) & tx_mask;
    h.timestamp = detail::low_half(stamps);
    h.echo_timestamp = detail::high_half(stamps);
    h.order = detail::low_half(places);
    h.cumulative = detail::high_half(places);
    h.upper_bytes = sizeof upper;
    upper = detail::word_at(in + brief_upper_place);
    h.echo_delay_us = static_cast<std::uint16_t>(last);
    h.payload_crc = 0;
    if (h.payload_bytes > fragment.size() - brief_bytes) {
        return ParseStatus::truncated;
    }
    if (require_checksum || (h.flags & (flag_payload_checksummed | flag_header_checksummed)) != 0) {
        if (h.payload_bytes > most_brief_payload ||
            detail::high_half(last) != detail::brief_crc(fragment, detail::low_half(last), h) ||
            (require_checksum && !h.has(flag_header_checksummed))) {
            return ParseStatus::bad_checksum;
        }
    } else if (detail::high_half(last) != 0) {
        return ParseStatus::malformed;
    }
    return (h.flags & ~brief_flags) != 0 || h.payload_bytes > most_brief_payload ||
                   detail::low_half(last) > UINT16_MAX
               ? ParseStatus::malformed
               : ParseStatus::ok;
}

} // namespace ft::reliability

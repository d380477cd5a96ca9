/// \file
/// The compressed form of an ordered fragment: PROTOCOL.md, "The compressed form". What the
/// receiver foretells from the newest fragment in the brief form, the context (RFC 1144, RFC 5795),
/// is left out of the header, and is in its checksum. Nothing here keeps state; any thread.
#pragma once
#include "opal/ft/base/crc32c.hpp"
#include "opal/ft/reliability/brief.hpp"

namespace ft::reliability {

/// What a compressed header leaves out.
struct Numbers {
    std::uint32_t sequence = 0;
    std::uint32_t order = 0;
    std::uint32_t tx = 0;
    std::uint8_t path = 0; ///< the sender's
    bool operator==(const Numbers &) const = default;
};

[[nodiscard]] inline Numbers numbers_of(const FragHeader &h) noexcept
{
    return {h.sequence, h.order, h.tx, h.path};
}

/// The numbers of the newest fragment in the brief form. Those of a compressed one differ from them
/// as if every VFRAG between were ordered, and sent once, over the same path.
struct Context : Numbers {
    bool valid = false; ///< there was one
};

[[nodiscard]] inline Context context_of(const FragHeader &h) noexcept
{
    return {numbers_of(h), true};
}

/// What a receiver foretells.
struct Foretold {
    Context context;
    std::uint32_t next = 0; ///< the number of the VFRAG that everybody waits for
};

/// A bit of the first byte that no kind of the other forms has.
inline constexpr std::byte compressed_mark{0x80};
/// With 8 bytes of payload and the 8 of vader's own header half a cache line, as ob1's.
inline constexpr std::size_t compressed_bytes = 16;
inline constexpr std::size_t compressed_upper_place = 8; ///< where the upper header stands
inline constexpr std::size_t most_compressed_payload = 255;
inline constexpr std::uint32_t most_compressed_rank = 0xffff;

[[nodiscard]] inline bool is_compressed(std::span<const std::byte> fragment) noexcept
{
    return !fragment.empty() && (fragment.front() & compressed_mark) != std::byte{};
}

/// The sender's rank, by which its peer is found, before anything is known to be right.
/// \pre at least compressed_bytes
[[nodiscard]] inline std::uint32_t compressed_rank(std::span<const std::byte> fragment) noexcept
{
    return static_cast<std::uint32_t>(detail::word_at(fragment.data()) >> 16 & 0xffff);
}

namespace detail {

inline constexpr std::uint32_t compressed_summed = 0x40; ///< of the first byte: the payload, too
inline constexpr std::uint32_t number_bits = 6;          ///< of the VFRAG's number, below that
inline constexpr std::uint32_t number_count = 1U << number_bits;

/// One checksum for the header, what is left out of it, and the payload if that is summed. Always
/// there, as it is what tells a context that is out of date.
[[nodiscard, gnu::always_inline]] inline std::uint32_t
compressed_crc(std::uint32_t what, std::uint64_t upper, const Numbers &n,
               std::span<const std::byte> payload) noexcept
{
    return base::crc32c({pack(what, n.sequence),
                         pack(n.order, std::uint32_t{n.path} << 24 | (n.tx & tx_mask)), upper},
                        payload.first((what & compressed_summed) != 0 ? payload.size() : 0));
}

[[gnu::always_inline]] inline void foretell(const Context &context, std::uint32_t sequence,
                                            FragHeader &h) noexcept
{
    const std::uint32_t ahead = sequence - context.sequence;
    h.sequence = sequence;
    h.order = context.order + ahead;
    h.tx = (context.tx + ahead) & tx_mask;
    h.path = context.path;
}

} // namespace detail

/// Writes the header to the beginning of `fragment`, behind which the payload, all the rest of it,
/// stands already.
/// \param rank the sender's, at most most_compressed_rank \param summed the payload, too
/// \pre the receiver can foretell the numbers (Peer::express_header, Peer::lane_takes)
[[gnu::always_inline]] inline void write_compressed(const Numbers &numbers, std::uint32_t rank,
                                                    bool summed, std::uint64_t upper,
                                                    std::span<std::byte> fragment) noexcept
{
    FT_ASSERT(fragment.size() - compressed_bytes <= most_compressed_payload);
    const auto payload = fragment.subspan(compressed_bytes);
    const std::uint32_t what = std::to_integer<std::uint32_t>(compressed_mark) |
                               (summed ? detail::compressed_summed : 0U) |
                               (numbers.sequence & (detail::number_count - 1)) |
                               static_cast<std::uint32_t>(payload.size()) << 8 | rank << 16;
    const std::uint32_t crc = detail::compressed_crc(what, upper, numbers, payload);
    detail::put_word(fragment.data(), detail::pack(what, crc));
    detail::put_word(fragment.data() + compressed_upper_place, upper);
}

/// The same for a header that has no flags but that of the payload's checksum. `fragment` may be
/// longer.
[[gnu::always_inline]] inline void write_compressed(const FragHeader &h, std::uint64_t upper,
                                                    std::span<std::byte> fragment) noexcept
{
    FT_ASSERT(h.source.rank <= most_compressed_rank);
    write_compressed(numbers_of(h), h.source.rank, h.has(flag_payload_checksummed), upper,
                     fragment.first(compressed_bytes + h.payload_bytes));
}

/// What is in a compressed fragment with the numbers that its receiver waits for.
struct Awaited {
    std::uint64_t upper = 0;
    std::span<const std::byte> payload;
    bool whole = false; ///< it is that, and whole; if not, parse_compressed tells what it is
};

/// Reads a fragment for which `is_compressed` holds, as nearly all of them are: the next of all.
/// \pre at least compressed_bytes
[[nodiscard, gnu::always_inline]] inline Awaited read_awaited(std::span<const std::byte> fragment,
                                                              const Numbers &numbers) noexcept
{
    const std::uint64_t first = detail::word_at(fragment.data());
    const std::uint32_t what = detail::low_half(first);
    Awaited it;
    it.upper = detail::word_at(fragment.data() + compressed_upper_place);
    const std::size_t bytes = what >> 8 & 0xff;
    if (bytes > fragment.size() - compressed_bytes ||
        ((what ^ numbers.sequence) & (detail::number_count - 1)) != 0) [[unlikely]] {
        return it;
    }
    it.payload = fragment.subspan(compressed_bytes, bytes);
    it.whole =
        detail::compressed_crc(what, it.upper, numbers, it.payload) == detail::high_half(first);
    return it;
}

/// Reads and checks a fragment for which `is_compressed` holds, longer than what it describes or
/// not. \param own_job its sender's, too \return bad_checksum also when what was foretold is wrong
[[nodiscard, gnu::always_inline]] inline ParseStatus
parse_compressed(std::span<const std::byte> fragment, const Foretold &foretold,
                 std::uint32_t own_job, FragHeader &h, std::uint64_t &upper) noexcept
{
    if (fragment.size() < compressed_bytes) {
        return ParseStatus::truncated;
    }
    const std::uint64_t first = detail::word_at(fragment.data());
    const std::uint32_t what = detail::low_half(first);
    upper = detail::word_at(fragment.data() + compressed_upper_place);
    h = FragHeader{};
    h.form = Form::compressed;
    h.flags = static_cast<std::uint8_t>(
        flag_header_checksummed |
        ((what & detail::compressed_summed) != 0 ? flag_payload_checksummed : 0U));
    h.payload_bytes = what >> 8 & 0xff;
    h.source = {own_job, what >> 16};
    h.upper_bytes = sizeof upper;
    if (h.payload_bytes > fragment.size() - compressed_bytes) {
        return ParseStatus::truncated;
    }
    if (!foretold.context.valid) {
        return ParseStatus::bad_checksum;
    }
    // The number is the next one with these last bits, or, of what came before, the last.
    const auto payload = fragment.subspan(compressed_bytes, h.payload_bytes);
    const std::uint32_t ahead = (what - foretold.next) & (detail::number_count - 1);
    detail::foretell(foretold.context, foretold.next + ahead, h);
    if (detail::compressed_crc(what, upper, numbers_of(h), payload) == detail::high_half(first))
        [[likely]] {
        return ParseStatus::ok;
    }
    detail::foretell(foretold.context, foretold.next + ahead - detail::number_count, h);
    return detail::compressed_crc(what, upper, numbers_of(h), payload) == detail::high_half(first)
               ? ParseStatus::ok
               : ParseStatus::bad_checksum;
}

} // namespace ft::reliability

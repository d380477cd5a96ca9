#include "opal/ft/reliability/header.hpp"

#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/bitmap.hpp"
#include "opal/ft/base/crc32c.hpp"
#include "opal/ft/base/wire.hpp"
#include "opal/ft/reliability/config.hpp"

namespace ft::reliability {

namespace {

constexpr std::size_t crc_offset = 48;
constexpr std::uint8_t known_flags = flag_payload_checksummed | flag_retransmission | flag_ack |
                                     flag_echo | flag_header_checksummed | flag_ack_wanted;

/// The checksum of the fixed part without its own field, and of the upper header.
std::uint32_t header_crc(std::span<const std::byte> fragment, std::size_t upper)
{
    base::Crc32c crc;
    crc.update(fragment.first(crc_offset));
    if (upper != 0) {
        crc.update(fragment.subspan(header_bytes, upper));
    }
    return crc.value();
}

/// Two neighbouring 32-bit fields as one little-endian word.
constexpr std::uint64_t pack(std::uint32_t first, std::uint32_t second)
{
    return first | std::uint64_t{second} << 32;
}

bool plausible(const FragHeader &h)
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

} // namespace

void write_header(const FragHeader &h, std::span<std::byte> out) noexcept
{
    FT_ASSERT(out.size() >= header_bytes && h.count >= 1);
    // Eight bytes at a time: the checksum reads them back at once in such words, and a processor
    // forwards a store only to a load that it holds whole.
    base::WireWriter w(out);
    w.u64(pack(std::uint32_t{static_cast<std::uint8_t>(h.kind)} | std::uint32_t{h.flags} << 8 |
                   std::uint32_t{h.index} << 16 | (h.count - 1U) << 24,
               h.source.job));
    w.u64(pack(h.source.rank, h.sequence));
    w.u64(pack(std::uint32_t{h.path} << 24 | (h.tx & tx_mask), h.timestamp));
    w.u64(pack(h.order, h.cumulative));
    w.u64(pack(h.echo_timestamp, std::uint32_t{h.echo_path} | std::uint32_t{h.upper_bytes} << 8 |
                                     std::uint32_t{h.echo_delay_us} << 16));
    w.u64(pack(h.payload_bytes, h.payload_crc));
    w.u32(0);
    FT_ASSERT(w.ok() && w.position() == header_bytes);
}

void seal(std::span<std::byte> fragment) noexcept
{
    FT_ASSERT(fragment.size() >= header_bytes);
    const auto upper = std::to_integer<std::size_t>(fragment[37]);
    FT_ASSERT(fragment.size() >= header_bytes + upper);
    fragment[1] |= std::byte{flag_header_checksummed};
    base::WireWriter w(fragment.subspan(crc_offset, 4));
    w.u32(header_crc(fragment, upper));
}

ParseStatus parse_header(std::span<const std::byte> fragment, bool require_checksum,
                         FragHeader &h) noexcept
{
    base::WireReader r(fragment);
    h.kind = static_cast<Kind>(r.u8());
    h.flags = r.u8();
    h.index = r.u8();
    const unsigned count = r.u8() + 1U;
    h.source.job = r.u32();
    h.source.rank = r.u32();
    h.sequence = r.u32();
    const std::uint32_t path_tx = r.u32();
    h.path = static_cast<std::uint8_t>(path_tx >> 24);
    h.tx = path_tx & tx_mask;
    h.timestamp = r.u32();
    h.order = r.u32();
    h.cumulative = r.u32();
    h.echo_timestamp = r.u32();
    h.echo_path = r.u8();
    h.upper_bytes = r.u8();
    h.echo_delay_us = r.u16();
    h.payload_bytes = r.u32();
    h.payload_crc = r.u32();
    const std::uint32_t crc = r.u32();
    if (!r.ok()) {
        return ParseStatus::truncated;
    }
    if (r.remaining() < h.upper_bytes) {
        return ParseStatus::truncated;
    }
    // The checksum first: a broken header's other fields mean nothing.
    if (h.has(flag_header_checksummed) || require_checksum) {
        if (crc != header_crc(fragment, h.upper_bytes) || !h.has(flag_header_checksummed)) {
            return ParseStatus::bad_checksum;
        }
    }
    if (count > max_fragments) {
        return ParseStatus::malformed;
    }
    h.count = static_cast<std::uint8_t>(count);
    if (!plausible(h)) {
        return ParseStatus::malformed;
    }
    return r.remaining() - h.upper_bytes < h.payload_bytes ? ParseStatus::truncated
                                                           : ParseStatus::ok;
}

bool payload_is_whole(const FragHeader &header, std::span<const std::byte> payload) noexcept
{
    return !header.has(flag_payload_checksummed) || base::crc32c(payload) == header.payload_crc;
}

std::size_t write_ack(const AckBody &body, std::span<std::byte> out) noexcept
{
    base::WireWriter w(out);
    w.u32(body.spurious);
    w.u8(body.words);
    w.u8(body.partials);
    for (unsigned i = 0; i < body.words; ++i) {
        w.u64(body.whole[i]);
    }
    for (unsigned i = 0; i < body.partials; ++i) {
        w.u16(body.partial[i].offset);
        w.u64(body.partial[i].received);
        w.u64(body.partial[i].broken);
    }
    FT_ASSERT(w.ok());
    return w.position();
}

bool parse_ack(std::span<const std::byte> in, AckBody &body) noexcept
{
    base::WireReader r(in);
    body.spurious = r.u32();
    body.words = r.u8();
    body.partials = r.u8();
    if (!r.ok() || body.words > AckBody::max_words || body.partials > AckBody::max_partials) {
        return false;
    }
    for (unsigned i = 0; i < body.words; ++i) {
        body.whole[i] = r.u64();
    }
    for (unsigned i = 0; i < body.partials; ++i) {
        body.partial[i].offset = r.u16();
        body.partial[i].received = r.u64();
        body.partial[i].broken = r.u64();
        if (body.partial[i].offset >= max_window) {
            return false;
        }
    }
    return r.complete();
}

} // namespace ft::reliability

#include "opal/ft/reliability/header.hpp"

#include <cstring>

#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/bitmap.hpp"
#include "opal/ft/base/crc32c.hpp"
#include "opal/ft/base/wire.hpp"
#include "opal/ft/reliability/config.hpp"

namespace ft::reliability {

std::uint32_t detail::header_crc(std::span<const std::byte> fragment, std::size_t upper) noexcept
{
    constexpr std::size_t front = 40;
    static_assert(detail::crc_offset == front + sizeof(std::uint64_t));
    std::uint64_t last = 0;
    std::memcpy(&last, fragment.data() + front, sizeof last);
    return base::crc32c(fragment.first<front>(), base::detail::little_endian(last),
                        fragment.subspan(header_bytes, upper));
}

void seal(std::span<std::byte> fragment) noexcept
{
    FT_ASSERT(fragment.size() >= header_bytes);
    const auto upper = std::to_integer<std::size_t>(fragment[37]);
    FT_ASSERT(fragment.size() >= header_bytes + upper);
    if ((fragment[1] & std::byte{flag_header_checksummed}) == std::byte{}) {
        fragment[1] |= std::byte{flag_header_checksummed};
    }
    base::WireWriter w(fragment.subspan(detail::crc_offset, 4));
    w.u32(detail::header_crc(fragment, upper));
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

#include "opal/ft/datagram/datagram.hpp"

namespace ft::dgram {

std::size_t write_header(const Header &header, std::size_t length,
                         std::span<std::byte> out) noexcept
{
    base::WireWriter writer(out);
    writer.u8(static_cast<std::uint8_t>(detail::mark | static_cast<unsigned>(header.kind)));
    writer.u8(header.tag);
    writer.u16(static_cast<std::uint16_t>(length));
    writer.u64(header.key);
    if (header.kind != Kind::whole) {
        writer.u32(header.sender);
        writer.u32(header.number);
        writer.u32(header.total);
        writer.u32(header.offset);
    }
    return writer.position();
}

Parse parse_datagram(std::span<const std::byte> datagram, std::uint64_t key, Header &header,
                     std::span<const std::byte> &payload) noexcept
{
    base::WireReader reader(datagram);
    const unsigned mark = reader.u8();
    header = Header{};
    header.tag = reader.u8();
    const std::size_t length = reader.u16();
    header.key = reader.u64();
    const unsigned kind = mark & ~detail::mark_mask;
    if (!reader.ok() || (mark & detail::mark_mask) != detail::mark || length != datagram.size() ||
        kind < static_cast<unsigned>(Kind::whole) ||
        kind > static_cast<unsigned>(Kind::size_reply)) {
        return Parse::malformed;
    }
    header.kind = static_cast<Kind>(kind);
    if (header.kind != Kind::whole) {
        header.sender = reader.u32();
        header.number = reader.u32();
        header.total = reader.u32();
        header.offset = reader.u32();
    }
    payload = reader.rest();
    if (!reader.ok()) {
        return Parse::malformed;
    }
    if (header.key != key) {
        return Parse::stranger;
    }
    switch (header.kind) {
    case Kind::whole:
        return payload.size() <= most_fragment_bytes ? Parse::ok : Parse::malformed;
    case Kind::part:
        return header.total <= most_fragment_bytes && !payload.empty() &&
                       header.offset < header.total &&
                       payload.size() <= header.total - header.offset
                   ? Parse::ok
                   : Parse::malformed;
    case Kind::size_probe:
    case Kind::size_reply:
        return header.tag == 0 && header.offset == 0 ? Parse::ok : Parse::malformed;
    }
    return Parse::malformed;
}

} // namespace ft::dgram

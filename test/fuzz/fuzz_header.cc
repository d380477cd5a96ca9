/// The header of a fragment and the body of an acknowledgement, parsed from random bytes.
///
/// The first byte chooses: bit 0, whether the receiver insists on a header checksum; bit 1, whether
/// the checksum is made right first, without which nearly every input would end there. What parses
/// is written again and must parse to the same.
#include "opal/ft/reliability/compressed.hpp"
#include "opal/ft/reliability/header.hpp"
#include "test/fuzz/fuzz_require.hpp"

#include <array>
#include <vector>

using namespace ft::reliability;

namespace {

bool same(const FragHeader &a, const FragHeader &b)
{
    return a.kind == b.kind && a.flags == b.flags && a.index == b.index && a.count == b.count &&
           a.source == b.source && a.sequence == b.sequence && a.path == b.path && a.tx == b.tx &&
           a.timestamp == b.timestamp && a.order == b.order && a.cumulative == b.cumulative &&
           a.echo_timestamp == b.echo_timestamp && a.echo_path == b.echo_path &&
           a.upper_bytes == b.upper_bytes && a.echo_delay_us == b.echo_delay_us &&
           a.payload_bytes == b.payload_bytes && a.payload_crc == b.payload_crc;
}

void ack(std::span<const std::byte> in)
{
    AckBody body;
    if (!parse_ack(in, body)) {
        return;
    }
    FUZZ_REQUIRE(body.words <= AckBody::max_words && body.partials <= AckBody::max_partials);
    std::array<std::byte, max_ack_bytes> out{};
    const std::size_t length = write_ack(body, out);
    FUZZ_REQUIRE(length == in.size());
    FUZZ_REQUIRE(std::equal(in.begin(), in.end(), out.begin()));
}

void fragment(std::span<const std::byte> bytes, bool require_checksum)
{
    FragHeader header;
    if (parse_header(bytes, require_checksum, header) != ParseStatus::ok) {
        return;
    }
    const auto upper = upper_of(header, bytes);
    const auto payload = payload_of(header, bytes);
    FUZZ_REQUIRE(header_bytes + upper.size() + payload.size() <= bytes.size());
    FUZZ_REQUIRE(header.index < header.count && header.count <= 64);
    static_cast<void>(payload_is_whole(header, payload));
    if (header.has(flag_ack) || header.kind == Kind::ack) {
        ack(payload);
    }
    std::vector<std::byte> again(bytes.begin(), bytes.end());
    write_header(header, again);
    if (header.has(flag_header_checksummed)) {
        seal(again);
    }
    FragHeader second;
    FUZZ_REQUIRE(parse_header(again, require_checksum, second) == ParseStatus::ok);
    FUZZ_REQUIRE(same(header, second));
}

/// The brief form of the same, with its checksum made right first or not.
void brief(std::vector<std::byte> bytes, bool sealed, bool require_checksum)
{
    constexpr std::uint32_t job = 7;
    if (bytes.empty()) {
        return;
    }
    bytes.front() = brief_mark;
    FUZZ_REQUIRE(is_brief(bytes));
    FragHeader header;
    std::uint64_t upper = 0;
    if (sealed && bytes.size() >= brief_bytes) {
        bytes[1] &= ~std::byte{flag_header_checksummed | flag_payload_checksummed};
        std::fill(bytes.begin() + brief_bytes - 4, bytes.begin() + brief_bytes, std::byte{});
        if (parse_brief(bytes, job, false, header, upper) == ParseStatus::ok) {
            header.flags |= flag_header_checksummed | flag_payload_checksummed;
            write_brief(header, upper, std::span(bytes).first(brief_bytes + header.payload_bytes));
        }
    }
    if (parse_brief(bytes, job, require_checksum, header, upper) != ParseStatus::ok) {
        return;
    }
    FUZZ_REQUIRE(header.payload_bytes <= bytes.size() - brief_bytes &&
                 header.payload_bytes <= most_brief_payload && header.source.job == job);
    std::vector<std::byte> again(bytes.begin(), bytes.begin() + brief_bytes + header.payload_bytes);
    write_brief(header, upper, again);
    FUZZ_REQUIRE(std::equal(again.begin(), again.end(), bytes.begin()));
}

/// The compressed form of the same: behind its header, what its receiver foretells.
void compressed(std::vector<std::byte> bytes, bool sealed)
{
    constexpr std::uint32_t job = 7;
    if (bytes.size() < compressed_bytes) {
        bytes.resize(bytes.size() / 2 + 1);
    }
    bytes.front() |= compressed_mark;
    FUZZ_REQUIRE(is_compressed(bytes) && !is_brief(bytes));
    ft::base::WireReader in(bytes);
    in.skip(std::min<std::size_t>(compressed_bytes, bytes.size()));
    Foretold foretold;
    foretold.next = in.u32();
    foretold.context = {foretold.next - in.u8(), in.u32(), in.u32() & tx_mask,
                        static_cast<std::uint8_t>(in.u8() % max_paths), in.u8() % 4 != 0};
    FragHeader header;
    std::uint64_t upper = 0;
    if (sealed && foretold.context.valid && bytes.size() >= compressed_bytes) {
        const std::uint32_t ahead = in.u8() % 128U - 64U;
        header.payload_bytes = static_cast<std::uint32_t>(
            std::min(bytes.size() - compressed_bytes, most_compressed_payload));
        header.source = {job, compressed_rank(bytes)};
        header.flags = (bytes[1] & std::byte{1}) != std::byte{} ? flag_payload_checksummed : 0;
        header.sequence = foretold.next + ahead;
        const std::uint32_t since = header.sequence - foretold.context.sequence;
        header.order = foretold.context.order + since;
        header.tx = (foretold.context.tx + since) & tx_mask;
        header.path = foretold.context.path;
        write_compressed(header, 77, bytes);
        FragHeader again;
        const bool read = parse_compressed(bytes, foretold, job, again, upper) == ParseStatus::ok;
        FUZZ_REQUIRE(read && upper == 77);
        again.flags &= static_cast<std::uint8_t>(~flag_header_checksummed);
        header.upper_bytes = again.upper_bytes;
        FUZZ_REQUIRE(same(header, again));
        return;
    }
    if (parse_compressed(bytes, foretold, job, header, upper) != ParseStatus::ok) {
        return;
    }
    FUZZ_REQUIRE(foretold.context.valid && header.source.job == job &&
                 header.payload_bytes <= bytes.size() - compressed_bytes);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    if (size == 0) {
        return 0;
    }
    const auto input = std::as_bytes(std::span(data + 1, size - 1));
    ack(input);
    std::vector<std::byte> bytes(input.begin(), input.end());
    constexpr std::size_t upper_offset = 37;
    const bool can_seal =
        bytes.size() >= header_bytes &&
        bytes.size() >= header_bytes + std::to_integer<std::size_t>(bytes[upper_offset]);
    if ((data[0] & 2) != 0 && can_seal) {
        seal(bytes);
    }
    fragment(bytes, (data[0] & 1) != 0);
    brief(bytes, (data[0] & 2) != 0, (data[0] & 1) != 0);
    compressed(bytes, (data[0] & 2) != 0);
    return 0;
}

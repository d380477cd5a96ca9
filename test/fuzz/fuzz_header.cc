/// The header of a fragment and the body of an acknowledgement, parsed from random bytes.
///
/// The first byte chooses: bit 0, whether the receiver insists on a header checksum; bit 1, whether
/// the checksum is made right first, without which nearly every input would end there. What parses
/// is written again and must parse to the same.
#include "opal/ft/reliability/brief.hpp"
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
    return 0;
}

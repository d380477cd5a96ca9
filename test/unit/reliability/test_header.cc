#include "opal/ft/reliability/header.hpp"
#include "test/unit/cmocka.hpp"

#include "opal/ft/base/crc32c.hpp"
#include "opal/ft/reliability/brief.hpp"
#include "opal/ft/reliability/config.hpp"

#include <array>
#include <cstring>
#include <vector>

using namespace ft::reliability;

namespace {

constexpr std::size_t upper = 24;
constexpr std::size_t payload = 40;
constexpr std::size_t total = header_bytes + upper + payload;
using Buffer = std::array<std::byte, total>;

FragHeader sample()
{
    FragHeader h;
    h.kind = Kind::data;
    h.flags = flag_payload_checksummed | flag_ack | flag_echo;
    h.index = 5;
    h.count = 64;
    h.source = {0x01020304, 0x05060708};
    h.sequence = 0xfffffffe;
    h.path = 15;
    h.tx = 0xabcdef;
    h.timestamp = 0x11223344;
    h.order = 7;
    h.cumulative = 0x99aabbcc;
    h.echo_timestamp = 0x55667788;
    h.echo_path = 3;
    h.upper_bytes = upper;
    h.echo_delay_us = 0x1234;
    h.payload_bytes = payload;
    return h;
}

Buffer fragment(FragHeader h, bool sealed = true)
{
    Buffer b{};
    for (std::size_t i = header_bytes; i < total; ++i) {
        b[i] = static_cast<std::byte>(i * 37);
    }
    h.payload_crc = ft::base::crc32c(std::span(b).last(payload));
    write_header(h, b);
    if (sealed) {
        seal(b);
    }
    return b;
}

void written_and_sealed_at_once_is_the_same(void **)
{
    FragHeader h = sample();
    const Buffer apart = fragment(h);
    Buffer at_once = apart;
    std::fill_n(at_once.begin(), header_bytes, std::byte{0xff});
    h.flags |= flag_header_checksummed;
    h.payload_crc = ft::base::crc32c(std::span(at_once).last(payload));
    write_sealed(h, at_once);
    assert_true(at_once == apart);
}

void what_was_written_is_parsed(void **)
{
    const Buffer b = fragment(sample());
    FragHeader h;
    assert_int_equal(parse_header(b, true, h), ParseStatus::ok);
    assert_int_equal(h.kind, Kind::data);
    assert_int_equal(h.index, 5);
    assert_int_equal(h.count, 64);
    assert_true(h.source == (Name{0x01020304, 0x05060708}));
    assert_int_equal(h.sequence, 0xfffffffe);
    assert_int_equal(h.path, 15);
    assert_int_equal(h.tx, 0xabcdef);
    assert_int_equal(h.timestamp, 0x11223344);
    assert_int_equal(h.order, 7);
    assert_int_equal(h.cumulative, 0x99aabbcc);
    assert_int_equal(h.echo_timestamp, 0x55667788);
    assert_int_equal(h.echo_path, 3);
    assert_int_equal(h.echo_delay_us, 0x1234);
    assert_int_equal(upper_of(h, b).size(), upper);
    assert_int_equal(payload_of(h, b).size(), payload);
    assert_true(payload_is_whole(h, payload_of(h, b)));
}

// The historic dr's sum of bytes missed seven of ten of these.
void every_flipped_bit_is_caught(void **)
{
    const Buffer good = fragment(sample());
    for (std::size_t bit = 0; bit < total * 8; ++bit) {
        Buffer b = good;
        b[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
        FragHeader h;
        const ParseStatus status = parse_header(b, true, h);
        if (bit < (header_bytes + upper) * 8) {
            // A longer upper length may point behind the end before the checksum is looked at.
            assert_true(status == ParseStatus::bad_checksum || status == ParseStatus::truncated);
        } else {
            assert_int_equal(status, ParseStatus::ok);
            assert_false(payload_is_whole(h, payload_of(h, b)));
        }
    }
}

void every_pair_of_flipped_header_bits_is_caught(void **)
{
    const Buffer good = fragment(sample());
    constexpr std::size_t bits = (header_bytes + upper) * 8;
    for (std::size_t i = 0; i < bits; ++i) {
        for (std::size_t j = i + 1; j < bits; ++j) {
            Buffer b = good;
            b[i / 8] ^= static_cast<std::byte>(1U << i % 8);
            b[j / 8] ^= static_cast<std::byte>(1U << j % 8);
            FragHeader h;
            assert_int_not_equal(parse_header(b, true, h), ParseStatus::ok);
        }
    }
}

void every_truncation_is_noticed(void **)
{
    const Buffer good = fragment(sample());
    for (std::size_t length = 0; length < total; ++length) {
        // A heap block of the exact size: a sanitizer sees a read beyond it.
        auto *cut = new std::byte[length];
        std::memcpy(cut, good.data(), length);
        FragHeader h;
        const ParseStatus status = parse_header({cut, length}, true, h);
        delete[] cut;
        assert_int_equal(status, ParseStatus::truncated);
    }
}

void padding_behind_the_payload_is_borne(void **)
{
    std::array<std::byte, total + 9> padded{};
    const Buffer good = fragment(sample());
    std::memcpy(padded.data(), good.data(), total);
    FragHeader h;
    assert_int_equal(parse_header(padded, true, h), ParseStatus::ok);
    assert_true(payload_is_whole(h, payload_of(h, padded)));
}

void no_flag_turns_the_check_off(void **)
{
    const Buffer b = fragment(sample(), false);
    FragHeader h;
    assert_int_equal(parse_header(b, true, h), ParseStatus::bad_checksum);
    assert_int_equal(parse_header(b, false, h), ParseStatus::ok);
}

void impossible_fields_are_malformed(void **)
{
    const auto status_of = [](std::size_t offset, unsigned value) {
        Buffer b = fragment(sample());
        b[offset] = static_cast<std::byte>(value);
        seal(b); // the checksum is right, the sender is mad
        FragHeader h;
        return parse_header(b, true, h);
    };
    assert_int_equal(status_of(0, 0), ParseStatus::malformed); // kind
    assert_int_equal(status_of(0, 6), ParseStatus::malformed);
    assert_int_equal(status_of(0, 255), ParseStatus::malformed);
    assert_int_equal(status_of(0, 1), ParseStatus::malformed);    // ordered, of 64 fragments
    assert_int_equal(status_of(0, 3), ParseStatus::malformed);    // ack, of 64 fragments
    assert_int_equal(status_of(1, 0x40), ParseStatus::malformed); // an unknown flag
    assert_int_equal(status_of(2, 64), ParseStatus::malformed);   // index beyond the count
    assert_int_equal(status_of(3, 4), ParseStatus::malformed);
    assert_int_equal(status_of(3, 64), ParseStatus::malformed); // 65 fragments
    assert_int_equal(status_of(3, 255), ParseStatus::malformed);
    assert_int_equal(status_of(19, 16), ParseStatus::malformed); // path
    assert_int_equal(status_of(36, 16), ParseStatus::malformed); // echo path
    assert_int_equal(status_of(40, payload + 1), ParseStatus::truncated);
    assert_int_equal(status_of(43, 0xff), ParseStatus::truncated);
    assert_int_equal(status_of(2, 63), ParseStatus::ok);
}

AckBody full_ack()
{
    AckBody body;
    body.spurious = 0xdeadbeef;
    body.words = AckBody::max_words;
    body.partials = AckBody::max_partials;
    for (unsigned i = 0; i < AckBody::max_words; ++i) {
        body.whole[i] = 0x0123456789abcdefULL * (i + 1);
        body.partial[i] = {static_cast<std::uint16_t>(1023 - i), ~std::uint64_t{0} << i, i};
    }
    return body;
}

void an_ack_is_read_as_written(void **)
{
    const AckBody body = full_ack();
    std::array<std::byte, max_ack_bytes> out;
    assert_int_equal(write_ack(body, out), max_ack_bytes);
    AckBody again;
    assert_true(parse_ack(out, again));
    assert_int_equal(again.spurious, body.spurious);
    for (unsigned i = 0; i < AckBody::max_words; ++i) {
        assert_true(again.whole[i] == body.whole[i]);
        assert_int_equal(again.partial[i].offset, body.partial[i].offset);
        assert_true(again.partial[i].received == body.partial[i].received);
        assert_true(again.partial[i].broken == body.partial[i].broken);
    }
    for (std::size_t length = 0; length < max_ack_bytes; ++length) {
        assert_false(parse_ack(std::span(out).first(length), again));
    }
}

void an_impossible_ack_is_refused(void **)
{
    std::array<std::byte, max_ack_bytes + 64> out{};
    AckBody again;
    AckBody small;
    const std::size_t length = write_ack(small, out);
    assert_true(parse_ack(std::span(out).first(length), again));
    assert_false(parse_ack(std::span(out).first(length + 1), again)); // something follows
    out[4] = std::byte{AckBody::max_words + 1};
    assert_false(parse_ack(out, again));
    out[4] = std::byte{0};
    out[5] = std::byte{AckBody::max_partials + 1};
    assert_false(parse_ack(out, again));
    small.partials = 1;
    small.partial[0].offset = max_window - 1;
    assert_true(parse_ack(std::span(out).first(write_ack(small, out)), again));
    small.partial[0].offset = max_window;
    assert_false(parse_ack(std::span(out).first(write_ack(small, out)), again));
}

constexpr std::uint64_t brief_upper = 0x8877665544332211ULL;

FragHeader brief_sample(std::size_t bytes)
{
    FragHeader h = sample();
    h.kind = Kind::ordered;
    h.flags = flag_ack | flag_echo | flag_header_checksummed | flag_payload_checksummed;
    h.index = 0;
    h.count = 1;
    h.upper_bytes = 8;
    h.payload_bytes = static_cast<std::uint32_t>(bytes);
    return h;
}

std::vector<std::byte> brief_fragment(const FragHeader &h)
{
    std::vector<std::byte> b(brief_bytes + h.payload_bytes);
    for (std::size_t i = brief_bytes; i < b.size(); ++i) {
        b[i] = static_cast<std::byte>(i * 37);
    }
    write_brief(h, brief_upper, b);
    return b;
}

ParseStatus parse(std::span<const std::byte> b, FragHeader &h, bool require = true)
{
    std::uint64_t word = 0;
    const ParseStatus status = parse_brief(b, 0x01020304, require, h, word);
    return status == ParseStatus::ok && word != brief_upper ? ParseStatus::malformed : status;
}

void the_brief_form_says_the_same(void **)
{
    for (const std::size_t bytes : {0U, 1U, 8U, 9U, 16U, 71U, 72U, 256U, 4095U, 4096U}) {
        const FragHeader h = brief_sample(bytes);
        std::vector<std::byte> b = brief_fragment(h);
        assert_true(is_brief(b));
        b.resize(b.size() + 9); // padded by the BTL
        FragHeader again;
        assert_int_equal(parse(b, again), ParseStatus::ok);
        assert_int_equal(again.kind, h.kind);
        assert_int_equal(again.flags, h.flags);
        assert_int_equal(again.index, 0);
        assert_int_equal(again.count, 1);
        assert_true(again.source == h.source);
        assert_int_equal(again.sequence, h.sequence);
        assert_int_equal(again.path, h.path);
        assert_int_equal(again.tx, h.tx);
        assert_int_equal(again.timestamp, h.timestamp);
        assert_int_equal(again.order, h.order);
        assert_int_equal(again.cumulative, h.cumulative);
        assert_int_equal(again.echo_timestamp, h.echo_timestamp);
        assert_int_equal(again.echo_path, h.echo_path);
        assert_int_equal(again.upper_bytes, h.upper_bytes);
        assert_int_equal(again.echo_delay_us, h.echo_delay_us);
        assert_int_equal(again.payload_bytes, bytes);
    }
}

void a_brief_one_written_with_its_payload_is_the_same(void **)
{
    constexpr std::uint8_t both = flag_payload_checksummed | flag_header_checksummed;
    for (const std::uint8_t unset : {std::uint8_t{0}, flag_payload_checksummed, both}) {
        for (const std::size_t bytes : {0U, 8U, 255U, 256U, 257U, 4096U}) {
            FragHeader h = brief_sample(bytes);
            h.flags &= static_cast<std::uint8_t>(~unset);
            const std::vector<std::byte> b = brief_fragment(h);
            std::vector<std::byte> again(b.size(), std::byte{0x5a});
            write_brief(h, brief_upper, std::span(b).subspan(brief_bytes), again);
            assert_true(again == b);
        }
    }
}

void every_flipped_bit_of_a_brief_one_is_caught(void **)
{
    for (const std::size_t bytes : {0U, 8U, 13U, 72U, 600U}) {
        const std::vector<std::byte> good = brief_fragment(brief_sample(bytes));
        FragHeader h;
        for (std::size_t bit = 8; bit < good.size() * 8; ++bit) { // the mark is another matter
            std::vector<std::byte> b = good;
            b[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
            const ParseStatus status = parse(b, h);
            assert_true(status == ParseStatus::bad_checksum || status == ParseStatus::truncated);
        }
        for (std::size_t length = 1; length < good.size(); ++length) {
            assert_int_equal(parse(std::span(good).first(length), h), ParseStatus::truncated);
        }
    }
}

void a_brief_one_is_summed_as_far_as_it_says(void **)
{
    FragHeader h = brief_sample(8);
    h.flags = flag_header_checksummed;
    std::vector<std::byte> b = brief_fragment(h);
    b.back() ^= std::byte{1};
    FragHeader again;
    assert_int_equal(parse(b, again), ParseStatus::ok); // the payload was not to be summed
    b[9] ^= std::byte{1};
    assert_int_equal(parse(b, again, false), ParseStatus::bad_checksum);
    h.flags = 0;
    b = brief_fragment(h);
    assert_int_equal(parse(b, again), ParseStatus::bad_checksum);
    assert_int_equal(parse(b, again, false), ParseStatus::ok);
    b[47] = std::byte{1}; // where the checksum would stand
    assert_int_equal(parse(b, again, false), ParseStatus::malformed);
    b = brief_fragment(h);
    b[1] = std::byte{flag_ack_wanted};
    assert_int_equal(parse(b, again, false), ParseStatus::malformed);
    b.resize(brief_bytes + most_brief_payload + 100);
    b[1] = std::byte{0};
    b[2] = std::byte{(most_brief_payload + 1) & 0xff};
    b[3] = std::byte{(most_brief_payload + 1) >> 8};
    assert_int_equal(parse(b, again, false), ParseStatus::malformed);
    b[1] = std::byte{flag_payload_checksummed};
    assert_int_equal(parse(b, again, false), ParseStatus::bad_checksum);
    assert_false(is_brief({}));
}

void serial_numbers_wrap(void **)
{
    assert_int_equal(serial_diff(0, 0xffffffffU), 1);
    assert_int_equal(serial_diff(0xffffffffU, 0), -1);
    assert_int_equal(serial_diff(5, 5), 0);
    assert_int_equal(tx_diff(0, 0xffffff), 1);
    assert_int_equal(tx_diff(0xffffff, 0), -1);
    assert_int_equal(tx_diff(0x7fffff, 0), 0x7fffff);
    assert_int_equal(tx_diff(0x800000, 0), -0x800000);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_parsed),
        cmocka_unit_test(written_and_sealed_at_once_is_the_same),
        cmocka_unit_test(every_flipped_bit_is_caught),
        cmocka_unit_test(every_pair_of_flipped_header_bits_is_caught),
        cmocka_unit_test(every_truncation_is_noticed),
        cmocka_unit_test(padding_behind_the_payload_is_borne),
        cmocka_unit_test(no_flag_turns_the_check_off),
        cmocka_unit_test(impossible_fields_are_malformed),
        cmocka_unit_test(an_ack_is_read_as_written),
        cmocka_unit_test(an_impossible_ack_is_refused),
        cmocka_unit_test(the_brief_form_says_the_same),
        cmocka_unit_test(a_brief_one_written_with_its_payload_is_the_same),
        cmocka_unit_test(every_flipped_bit_of_a_brief_one_is_caught),
        cmocka_unit_test(a_brief_one_is_summed_as_far_as_it_says),
        cmocka_unit_test(serial_numbers_wrap),
    };
    return cmocka_run_group_tests_name("header", tests, nullptr, nullptr);
}

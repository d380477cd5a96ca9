#include "opal/ft/datagram/datagram.hpp"
#include "test/unit/cmocka.hpp"

#include <array>
#include <vector>

using namespace ft::dgram;

namespace {

constexpr std::uint64_t key = 0x1122334455667788;

std::vector<std::byte> datagram(const Header &header, std::size_t payload)
{
    const std::size_t front = header.kind == Kind::whole ? whole_bytes : long_bytes;
    std::vector<std::byte> bytes(front + payload, std::byte{0x5a});
    assert_int_equal(write_header(header, bytes.size(), bytes), front);
    return bytes;
}

Header part(std::uint32_t total, std::uint32_t offset)
{
    Header header;
    header.kind = Kind::part;
    header.key = key;
    header.total = total;
    header.offset = offset;
    return header;
}

Parse parse(const std::vector<std::byte> &bytes, std::uint64_t own = key)
{
    Header header;
    std::span<const std::byte> payload;
    return parse_datagram(bytes, own, header, payload);
}

void what_is_written_is_read(void **)
{
    bool good = true;
    for (const Kind kind : {Kind::whole, Kind::part, Kind::size_probe, Kind::size_reply}) {
        Header out;
        out.kind = kind;
        out.tag = kind == Kind::whole || kind == Kind::part ? 0x4e : 0;
        out.key = key;
        if (kind != Kind::whole) {
            out.sender = 0xdeadbeef;
            out.number = 77;
            out.total = 1000;
        }
        out.offset = kind == Kind::part ? 300 : 0;
        const auto bytes = datagram(out, 100);
        Header in;
        std::span<const std::byte> payload;
        good = good && parse_datagram(bytes, key, in, payload) == Parse::ok && in.kind == kind &&
               in.tag == out.tag && in.sender == out.sender && in.number == out.number &&
               in.total == out.total && in.offset == out.offset && payload.size() == 100;
        good = good && bytes.size() == 100 + (kind == Kind::whole ? whole_bytes : long_bytes);
    }
    assert_true(good);
}

void who_does_not_know_the_key_is_a_stranger(void **)
{
    Header header;
    header.key = key;
    const auto bytes = datagram(header, 10);
    bool all = true;
    for (unsigned bit = 0; bit < 64; ++bit) {
        all = all && parse(bytes, key ^ (std::uint64_t{1} << bit)) == Parse::stranger;
    }
    assert_true(all);
}

void every_truncation_is_malformed(void **)
{
    const auto bytes = datagram(part(100, 0), 10);
    bool all = true;
    for (std::size_t length = 0; length <= long_bytes; ++length) {
        all = all && parse({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length)}) ==
                         Parse::malformed;
    }
    assert_true(all);
}

void a_part_stays_within_its_fragment(void **)
{
    assert_true(parse(datagram(part(100, 90), 10)) == Parse::ok);
    assert_true(parse(datagram(part(100, 91), 10)) == Parse::malformed);
    assert_true(parse(datagram(part(100, 100), 1)) == Parse::malformed);
    assert_true(parse(datagram(part(100, 0xffffffff), 10)) == Parse::malformed);
    assert_true(parse(datagram(part(65537, 0), 10)) == Parse::malformed);
    assert_true(parse(datagram(part(0, 0), 0)) == Parse::malformed);
    assert_true(parse(datagram(part(100, 0), 0)) == Parse::malformed);
}

void other_kinds_are_malformed(void **)
{
    Header header;
    header.key = key;
    bool all = true;
    for (unsigned value = 0; value < 256; ++value) {
        auto bytes = datagram(header, 64);
        bytes[0] = static_cast<std::byte>(value);
        const bool known = value >= 0xd1 && value <= 0xd4;
        all = all && (known || parse(bytes) == Parse::malformed);
    }
    assert_true(all);
}

void the_length_is_the_datagrams_own(void **)
{
    Header header;
    header.key = key;
    auto bytes = datagram(header, 64);
    bool all = parse(bytes) == Parse::ok && length_of_first(bytes) == bytes.size();
    bytes.push_back(std::byte{}); // something came behind it
    all = all && parse(bytes) == Parse::malformed && length_of_first(bytes) == bytes.size() - 1;
    bytes.pop_back();
    bytes.pop_back();
    all = all && parse(bytes) == Parse::malformed && length_of_first(bytes) == bytes.size();
    assert_true(all);
}

/// The look for what nearly every datagram is says the same as the parser of all.
void a_whole_is_known_at_first_sight(void **)
{
    bool all = true;
    for (const Kind kind : {Kind::whole, Kind::part, Kind::size_probe, Kind::size_reply}) {
        Header header;
        header.kind = kind;
        header.tag = kind <= Kind::part ? 77 : 0;
        header.key = key;
        header.total = 64;
        const auto bytes = datagram(header, 64);
        std::uint8_t tag = 0;
        std::span<const std::byte> payload;
        const bool whole = parse_whole(bytes, key, tag, payload);
        all = all && parse(bytes) == Parse::ok && whole == (kind == Kind::whole) &&
              (!whole ||
               (tag == 77 && payload.data() == bytes.data() + whole_bytes && payload.size() == 64));
        // Each bit of its header: most make it something else, or nothing.
        for (std::size_t bit = 0; bit < 8 * whole_bytes; ++bit) {
            auto other = bytes;
            other[bit / 8] ^= std::byte{1} << bit % 8;
            Header said;
            const bool other_whole =
                parse_datagram(other, key, said, payload) == Parse::ok && said.kind == Kind::whole;
            all = all && parse_whole(other, key, tag, payload) == other_whole &&
                  (!other_whole || tag == said.tag);
        }
        for (std::size_t length = 0; length < bytes.size(); ++length) {
            all = all && !parse_whole(std::span(bytes).first(length), key, tag, payload);
        }
    }
    assert_true(all);
}

/// Several that the kernel has joined are cut by what the first says of itself.
void a_stretch_is_cut_by_its_first_datagram(void **)
{
    Header header;
    header.key = key;
    auto stretch = datagram(header, 100);
    const std::size_t one = stretch.size();
    const auto last = datagram(header, 7);
    stretch.insert(stretch.end(), stretch.begin(), stretch.end());
    stretch.insert(stretch.end(), last.begin(), last.end());
    bool all = length_of_first(stretch) == one;
    // What is too short for a header, or says nonsense, is one datagram.
    for (std::size_t length = 0; length < whole_bytes; ++length) {
        all = all && length_of_first(std::span(stretch).first(length)) == length;
        stretch[2] = static_cast<std::byte>(length);
        stretch[3] = std::byte{};
        all = all && length_of_first(stretch) == stretch.size();
    }
    assert_true(all);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(who_does_not_know_the_key_is_a_stranger),
        cmocka_unit_test(every_truncation_is_malformed),
        cmocka_unit_test(a_part_stays_within_its_fragment),
        cmocka_unit_test(other_kinds_are_malformed),
        cmocka_unit_test(the_length_is_the_datagrams_own),
        cmocka_unit_test(a_whole_is_known_at_first_sight),
        cmocka_unit_test(a_stretch_is_cut_by_its_first_datagram),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

#include "opal/ft/base/wire.hpp"
#include "test/unit/cmocka.hpp"

#include <array>
#include <limits>

using namespace ft::base;

namespace {

/// The message of these tests: every kind of field once.
constexpr std::size_t message_size = 1 + 2 + 4 + 8 + 3 + 2;

struct Fields {
    std::uint8_t a = 0;
    std::uint16_t b = 0;
    std::uint32_t c = 0;
    std::uint64_t d = 0;
    std::array<std::byte, 3> e{};

    bool operator==(const Fields &) const = default;
};

constexpr Fields sample{0x01,
                        0x0203,
                        0x04050607,
                        0x08090a0b0c0d0e0f,
                        {std::byte{0x10}, std::byte{0x11}, std::byte{0x12}}};

void write_fields(WireWriter &w, const Fields &f)
{
    w.u8(f.a);
    w.u16(f.b);
    w.u32(f.c);
    w.u64(f.d);
    w.bytes(f.e);
    w.zeros(2);
}

Fields read_fields(WireReader &r)
{
    Fields f;
    f.a = r.u8();
    f.b = r.u16();
    f.c = r.u32();
    f.d = r.u64();
    const auto e = r.bytes(f.e.size());
    if (e.size() == f.e.size()) {
        std::memcpy(f.e.data(), e.data(), e.size());
    }
    r.skip(2);
    return f;
}

void bytes_have_the_order_of_the_wire(void **)
{
    std::array<std::byte, message_size> buffer;
    buffer.fill(std::byte{0xff});
    WireWriter w(buffer);
    write_fields(w, sample);
    const std::array<std::uint8_t, message_size> expected{0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04,
                                                          0x0f, 0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x09,
                                                          0x08, 0x10, 0x11, 0x12, 0x00, 0x00};
    assert_true(w.ok());
    assert_int_equal(w.position(), message_size);
    assert_int_equal(w.remaining(), 0);
    assert_memory_equal(buffer.data(), expected.data(), message_size);
}

void what_was_written_is_read(void **)
{
    std::array<std::byte, message_size> buffer;
    WireWriter w(buffer);
    write_fields(w, sample);
    WireReader r(w.written());
    const Fields f = read_fields(r);
    assert_true(f == sample);
    assert_true(r.complete());
    assert_int_equal(r.remaining(), 0);
    assert_int_equal(r.position(), message_size);
}

void every_truncation_is_an_error(void **)
{
    std::array<std::byte, message_size> buffer;
    WireWriter w(buffer);
    write_fields(w, sample);
    for (std::size_t length = 0; length < message_size; ++length) {
        // A heap block of the exact size: a sanitizer sees a read beyond it.
        auto *cut = new std::byte[length];
        std::memcpy(cut, buffer.data(), length);
        WireReader r({cut, length});
        const Fields f = read_fields(r);
        const bool ok = r.ok();
        const bool complete = r.complete();
        const std::size_t left = r.remaining();
        const std::uint64_t after = r.u64();
        delete[] cut;
        assert_false(ok);
        assert_false(complete);
        assert_int_equal(left, 0);
        assert_int_equal(after, 0);
        // Fields before the cut were read; the first one beyond gives zero and so do all others.
        assert_int_equal(f.a, length >= 1 ? sample.a : 0);
        assert_int_equal(f.b, length >= 3 ? sample.b : 0);
        assert_int_equal(f.c, length >= 7 ? sample.c : 0);
        assert_true(f.d == (length >= 15 ? sample.d : 0));
        assert_true((f.e == sample.e) == (length >= 18));
    }
}

void every_short_buffer_stops_the_writer(void **)
{
    for (std::size_t length = 0; length < message_size; ++length) {
        auto *cut = new std::byte[length];
        WireWriter w({cut, length});
        write_fields(w, sample);
        const bool ok = w.ok();
        const std::size_t left = w.remaining();
        const std::size_t position = w.position();
        w.u8(1);
        const bool still = !w.ok() && w.position() == position;
        delete[] cut;
        assert_false(ok);
        assert_int_equal(left, 0);
        assert_true(position <= length);
        assert_true(still);
    }
}

void trailing_bytes_are_not_complete(void **)
{
    std::array<std::byte, 5> buffer{};
    WireReader r(buffer);
    r.u32();
    assert_true(r.ok());
    assert_false(r.complete());
    assert_int_equal(r.remaining(), 1);
    assert_int_equal(r.rest().size(), 1);
    assert_true(r.complete());
    assert_int_equal(r.rest().size(), 0);
    assert_true(r.complete());
}

void a_huge_count_does_not_wrap(void **)
{
    std::array<std::byte, 8> buffer{};
    const std::size_t huge = std::numeric_limits<std::size_t>::max();
    for (const std::size_t count : {huge, huge - 1, huge - 7, huge / 2, std::size_t{9}}) {
        WireReader r(buffer);
        r.u8();
        const auto got = r.bytes(count);
        assert_false(r.ok());
        assert_int_equal(got.size(), 0);
        WireReader s(buffer);
        s.u8();
        s.skip(count);
        assert_false(s.ok());
        WireWriter w(buffer);
        w.u8(0);
        w.zeros(count);
        assert_false(w.ok());
    }
}

void a_parser_can_fail_by_itself(void **)
{
    std::array<std::byte, 8> buffer{};
    WireReader r(buffer);
    r.fail();
    assert_false(r.ok());
    assert_int_equal(r.u32(), 0);
    assert_int_equal(r.rest().size(), 0);
    assert_int_equal(r.position(), 0);
}

void an_empty_buffer_is_a_buffer(void **)
{
    WireReader r({});
    assert_true(r.complete());
    assert_int_equal(r.bytes(0).size(), 0);
    assert_true(r.ok());
    assert_int_equal(r.u8(), 0);
    assert_false(r.ok());
    WireWriter w({});
    w.bytes({});
    assert_true(w.ok());
    w.u8(1);
    assert_false(w.ok());
}

void patches_stay_inside_what_was_written(void **)
{
    std::array<std::byte, 16> buffer{};
    WireWriter w(buffer);
    w.u32(0);
    w.u32(0xaabbccdd);
    w.patch_u32(0, 0x11223344);
    w.patch_u16(6, 0x5566);
    assert_true(w.ok());
    WireReader r(w.written());
    assert_int_equal(r.u32(), 0x11223344);
    assert_int_equal(r.u32(), 0x5566ccdd);
    for (const std::size_t offset : {std::size_t{5}, std::size_t{8}, ~std::size_t{0}}) {
        WireWriter v(buffer);
        v.u64(0);
        v.patch_u32(offset, 1);
        assert_false(v.ok());
    }
    WireWriter empty(buffer);
    empty.patch_u16(0, 1);
    assert_false(empty.ok());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(bytes_have_the_order_of_the_wire),
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(every_truncation_is_an_error),
        cmocka_unit_test(every_short_buffer_stops_the_writer),
        cmocka_unit_test(trailing_bytes_are_not_complete),
        cmocka_unit_test(a_huge_count_does_not_wrap),
        cmocka_unit_test(a_parser_can_fail_by_itself),
        cmocka_unit_test(an_empty_buffer_is_a_buffer),
        cmocka_unit_test(patches_stay_inside_what_was_written),
    };
    return cmocka_run_group_tests_name("wire", tests, nullptr, nullptr);
}

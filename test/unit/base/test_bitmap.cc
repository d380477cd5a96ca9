#include "opal/ft/base/bitmap.hpp"
#include "test/unit/cmocka.hpp"

#include <bit>

using namespace ft::base;

namespace {

void masks_have_the_bits_they_should(void **)
{
    assert_true(full_mask(0) == 0);
    assert_true(full_mask(1) == 1);
    assert_true(full_mask(63) == 0x7fffffffffffffffU);
    assert_true(full_mask(64) == 0xffffffffffffffffU);
    for (unsigned n = 0; n <= 64; ++n) {
        assert_int_equal(std::popcount(full_mask(n)), n);
        assert_int_equal(std::bit_width(full_mask(n)), n);
        assert_int_equal(lowest(~full_mask(n)), n);
    }
    for (unsigned i = 0; i < 64; ++i) {
        assert_int_equal(std::popcount(bit(i)), 1);
        assert_int_equal(lowest(bit(i)), i);
    }
    assert_int_equal(lowest(0), 64);
}

void bits_are_visited_in_order(void **)
{
    const std::uint64_t mask = bit(0) | bit(1) | bit(31) | bit(32) | bit(63);
    unsigned visited = 0;
    std::uint64_t seen = 0;
    for_each_bit(mask, [&](unsigned b) {
        assert_true((seen >> b) == 0);
        seen |= bit(b);
        ++visited;
    });
    assert_true(seen == mask);
    assert_int_equal(visited, 5);
    for_each_bit(0, [](unsigned) { fail_test("called for an empty mask"); });
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(masks_have_the_bits_they_should),
        cmocka_unit_test(bits_are_visited_in_order),
    };
    return cmocka_run_group_tests_name("bitmap", tests, nullptr, nullptr);
}

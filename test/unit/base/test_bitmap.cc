#include "opal/ft/base/bitmap.hpp"
#include "opal/ft/base/rng.hpp"
#include "test/unit/cmocka.hpp"

#include <set>

using namespace ft::base;

namespace {

void masks_have_the_bits_they_should(void **)
{
    assert_true(full_mask(0) == 0);
    assert_true(full_mask(1) == 1);
    assert_true(full_mask(63) == 0x7fffffffffffffffU);
    assert_true(full_mask(64) == 0xffffffffffffffffU);
    for (unsigned n = 0; n <= 64; ++n) {
        assert_int_equal(popcount(full_mask(n)), n);
        assert_int_equal(width(full_mask(n)), n);
        assert_int_equal(lowest(~full_mask(n)), n);
    }
    for (unsigned i = 0; i < 64; ++i) {
        assert_int_equal(popcount(bit(i)), 1);
        assert_int_equal(lowest(bit(i)), i);
        assert_int_equal(width(bit(i)), i + 1);
    }
    assert_int_equal(lowest(0), 64);
    assert_int_equal(width(0), 0);
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

/// Compares a bitmap with a std::set of the same members.
bool same(const DynamicBitmap &map, const std::set<std::size_t> &set)
{
    if (map.count() != set.size() || map.any() != !set.empty() || map.none() != set.empty()) {
        return false;
    }
    std::set<std::size_t> walked;
    map.for_each([&](std::size_t i) { walked.insert(walked.end(), i); });
    if (walked != set) {
        return false;
    }
    for (std::size_t i = 0; i < map.size(); ++i) {
        const auto member = set.lower_bound(i);
        if (map.test(i) != (set.count(i) == 1) ||
            map.find_first(i) != (member == set.end() ? DynamicBitmap::npos : *member)) {
            return false;
        }
        std::size_t hole = i;
        while (hole < map.size() && set.count(hole) == 1) {
            ++hole;
        }
        if (map.find_first_unset(i) != (hole < map.size() ? hole : DynamicBitmap::npos)) {
            return false;
        }
    }
    return map.all() == (set.size() == map.size());
}

bool random_walk(std::size_t size)
{
    Rng rng(size);
    DynamicBitmap map(size);
    std::set<std::size_t> set;
    for (int step = 0; step < 300; ++step) {
        const std::size_t i = rng.below(size);
        if (rng.chance(step < 150 ? 0.9 : 0.4)) {
            map.set(i);
            set.insert(i);
        } else {
            map.reset(i);
            set.erase(i);
        }
        if (step % 20 == 0 && !same(map, set)) {
            return false;
        }
    }
    map.set_all();
    bool good = map.all() && map.count() == size;
    map.reset_all();
    good = good && map.none();
    return good;
}

void it_behaves_like_a_set(void **)
{
    for (const std::size_t size : {1, 2, 63, 64, 65, 127, 128, 129, 200}) {
        assert_true(random_walk(size));
    }
}

void operators_work_word_by_word(void **)
{
    bool good = true;
    {
        DynamicBitmap a(130);
        DynamicBitmap b(130);
        a.set(0);
        a.set(64);
        a.set(129);
        b.set(64);
        b.set(128);
        good = good && (a | b).count() == 4 && (a & b).count() == 1 && (a & b).test(64);
        good = good && (a - b).count() == 2 && !(a - b).test(64);
        good = good && !a.contains(b) && (a | b).contains(a) && (a | b).contains(b);
        good = good && a.contains(DynamicBitmap(130)) && a.contains(a);
        good = good && a != b && (a | b) == (b | a);
    }
    assert_true(good);
}

void growing_and_cutting_keep_the_rest_clean(void **)
{
    bool good = true;
    {
        DynamicBitmap map(70);
        map.set_all();
        map.resize(65);
        good = good && map.count() == 65;
        map.resize(200);
        good = good && map.count() == 65 && map.find_first_unset() == 65 && !map.test(66);
        map.resize(0);
        good = good && map.size() == 0 && map.none() && map.all();
        good = good && map.find_first() == DynamicBitmap::npos;
        good = good && map.find_first_unset() == DynamicBitmap::npos;
        map.resize(64);
        map.set_all();
        good = good && map.count() == 64 && map.all();
    }
    assert_true(good);
}

void words_from_the_wire_are_trimmed(void **)
{
    bool good = true;
    {
        DynamicBitmap map(66);
        map.set_word(1, ~std::uint64_t{0});
        good = map.count() == 2 && map.words().size() == 2 && map.words()[1] == 3;
    }
    assert_true(good);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(masks_have_the_bits_they_should),
        cmocka_unit_test(bits_are_visited_in_order),
        cmocka_unit_test(it_behaves_like_a_set),
        cmocka_unit_test(operators_work_word_by_word),
        cmocka_unit_test(growing_and_cutting_keep_the_rest_clean),
        cmocka_unit_test(words_from_the_wire_are_trimmed),
    };
    return cmocka_run_group_tests_name("bitmap", tests, nullptr, nullptr);
}

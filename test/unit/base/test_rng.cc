#include "opal/ft/base/rng.hpp"
#include "test/unit/cmocka.hpp"

#include <array>

using namespace ft::base;

namespace {

void splitmix_gives_the_published_numbers(void **)
{
    // The reference implementation's first outputs for seed 1234567.
    std::uint64_t state = 1234567;
    assert_true(splitmix64(state) == 6457827717110365317U);
    assert_true(splitmix64(state) == 3203168211198807973U);
    assert_true(splitmix64(state) == 9817491932198370423U);
}

/// xoshiro256**, written down a second time from the paper's pseudo code.
struct Reference {
    std::array<std::uint64_t, 4> s{};

    static std::uint64_t rotl(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

    std::uint64_t next()
    {
        const std::uint64_t result = rotl(s[1] * 5, 7) * 9;
        const std::array<std::uint64_t, 4> old = s;
        s[0] = old[0] ^ old[1] ^ old[3];
        s[1] = old[0] ^ old[1] ^ old[2];
        s[2] = old[2] ^ old[0] ^ (old[1] << 17);
        s[3] = rotl(old[1] ^ old[3], 45);
        return result;
    }
};

void the_stream_follows_the_paper(void **)
{
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{42}, ~std::uint64_t{0}}) {
        Rng rng(seed);
        Reference reference;
        std::uint64_t state = seed;
        for (auto &word : reference.s) {
            word = splitmix64(state);
        }
        for (int i = 0; i < 1000; ++i) {
            assert_true(rng.next() == reference.next());
        }
        assert_true(rng.seed() == seed);
    }
}

void below_is_in_range_and_even(void **)
{
    Rng rng(7);
    for (const std::uint64_t bound : {1, 2, 3, 10, 1000}) {
        for (int i = 0; i < 1000; ++i) {
            assert_true(rng.below(bound) < bound);
        }
    }
    // A bound of 3/4 of the range: four inputs for three outputs. Without rejection every third
    // output would come twice as often as the others.
    const std::uint64_t bound = std::uint64_t{3} << 62;
    int low = 0;
    int third = 0;
    for (int i = 0; i < 30000; ++i) {
        const std::uint64_t v = rng.below(bound);
        assert_true(v < bound);
        low += v < bound / 3 ? 1 : 0;
        third += v % 3 == 0 ? 1 : 0;
    }
    assert_in_range(low, 9600, 10400);
    assert_in_range(third, 9600, 10400);
    std::array<int, 6> counts{};
    for (int i = 0; i < 60000; ++i) {
        ++counts.at(rng.below(6));
    }
    for (const int c : counts) {
        assert_in_range(c, 9600, 10400);
    }
}

void between_includes_both_ends(void **)
{
    Rng rng(8);
    bool low = false;
    bool high = false;
    for (int i = 0; i < 1000; ++i) {
        const std::uint64_t v = rng.between(5, 8);
        assert_in_range(v, 5, 8);
        low = low || v == 5;
        high = high || v == 8;
    }
    assert_true(low && high);
    assert_int_equal(rng.between(9, 9), 9);
    Rng a(1);
    Rng b(1);
    assert_true(a.between(0, ~std::uint64_t{0}) == b.next());
}

void chance_has_the_right_odds(void **)
{
    Rng rng(9);
    int hits = 0;
    for (int i = 0; i < 100000; ++i) {
        hits += rng.chance(0.01) ? 1 : 0;
        assert_false(rng.chance(0.0));
        assert_false(rng.chance(-1.0));
        assert_true(rng.chance(1.0));
        assert_true(rng.chance(2.0));
        const double u = rng.uniform();
        assert_true(u >= 0.0 && u < 1.0);
    }
    assert_in_range(hits, 850, 1150);
}

void forks_differ_and_do_not_depend_on_draws(void **)
{
    Rng rng(10);
    Rng first = rng.fork(1);
    const std::uint64_t before = first.next();
    for (int i = 0; i < 100; ++i) {
        rng.next();
    }
    assert_true(rng.fork(1).next() == before);
    assert_true(rng.fork(2).next() != before);
    assert_true(Rng(11).fork(1).next() != before);
    Rng plain(10);
    plain.fork(3);
    Rng untouched(10);
    assert_true(plain.next() == untouched.next());
    // Forks of forks differ too: no collision in a few thousand.
    std::uint64_t collisions = 0;
    std::array<std::uint64_t, 64 * 64> firsts{};
    for (std::uint64_t i = 0; i < 64; ++i) {
        for (std::uint64_t j = 0; j < 64; ++j) {
            firsts.at(i * 64 + j) = rng.fork(i).fork(j).next();
        }
    }
    for (std::size_t i = 0; i < firsts.size(); ++i) {
        for (std::size_t j = i + 1; j < firsts.size(); ++j) {
            collisions += firsts.at(i) == firsts.at(j) ? 1 : 0;
        }
    }
    assert_int_equal(collisions, 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(splitmix_gives_the_published_numbers),
        cmocka_unit_test(the_stream_follows_the_paper),
        cmocka_unit_test(below_is_in_range_and_even),
        cmocka_unit_test(between_includes_both_ends),
        cmocka_unit_test(chance_has_the_right_odds),
        cmocka_unit_test(forks_differ_and_do_not_depend_on_draws),
    };
    return cmocka_run_group_tests_name("rng", tests, nullptr, nullptr);
}

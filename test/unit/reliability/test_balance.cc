// Where the load goes when the rates of two paths change, in closed loop with a model of the links:
// told by the bytes each path was given.
#include "test/unit/cmocka.hpp"
#include "test/unit/reliability/path_fixture.hpp"
#include "test/unit/reliability/rails.hpp"

using namespace ft::test;

namespace {

Load load_of(const Sizes &sizes = {})
{
    Config c;
    c.fragment_bytes = sizes.fragment;
    c.window_bytes = sizes.window;
    return Load(sizes, c, 0.1);
}

void load_follows_a_change_within_a_second(void **)
{
    double before = 0;
    double after = 0;
    double one_slow = 0;
    double rate = 0;
    std::uint64_t down = 1;
    {
        Load load = load_of();
        load.run_until(load.t.now + 700_ms);
        before = load.share_for(300_ms);
        std::swap(load.link[0].rate, load.link[1].rate);
        load.run_until(load.t.now + 700_ms);
        const std::uint64_t finished = load.finished;
        after = load.share_for(300_ms);
        rate = static_cast<double>(load.finished - finished) / 300e6;
        // To a fortieth of what it was.
        load.set_rates(0.001, 0.04);
        load.run_until(load.t.now + 700_ms);
        one_slow = load.share_for(300_ms);
        down = load.t.a.peer.counters().path_down;
    }
    // In proportion it were 0.8, 0.2 and 0.024.
    assert_true(before > 0.6 && before < 0.95);
    assert_true(after > 0.05 && after < 0.4);
    assert_true(one_slow < 0.15);
    assert_true(rate > 0.7 * 0.05);
    assert_int_equal(down, 0);
}

/// The window holds a third of a second of both links: what lies before the slow one stays there,
/// so no more may be given to it than is soon sent.
void a_long_queue_does_not_hold_the_load_back(void **)
{
    std::array<double, 3> share{};
    std::uint64_t down = 1;
    {
        Load load = load_of({.fragment = 512 * 1024, .fragments = 4, .window = 16 << 20});
        load.set_rates(0.05, 0.0125); // 400 and 100 Mbit/s
        load.run_until(load.t.now + 2_s);
        share[0] = load.share_for(500_ms);
        std::swap(load.link[0].rate, load.link[1].rate);
        load.run_until(load.t.now + 100_ms);
        share[1] = load.share_for(200_ms);
        share[2] = load.share_for(700_ms);
        down = load.t.a.peer.counters().path_down;
    }
    assert_true(share[0] > 0.7 && share[0] < 0.9);
    assert_true(share[1] < 0.3);
    assert_true(share[2] > 0.05 && share[2] < 0.3);
    assert_int_equal(down, 0);
}

/// What the transport says of itself is eight times what the slower link carries: it must not be
/// believed for as long as it takes to measure.
void unlike_links_are_loaded_in_proportion_from_the_start(void **)
{
    double first = 0;
    double next = 0;
    std::uint64_t finished = 0;
    {
        Load load = load_of({.fragment = 512 * 1024, .fragments = 4, .window = 16 << 20});
        load.set_rates(0.05, 0.0125);
        first = load.share_for(300_ms);
        next = load.share_for(300_ms);
        finished = load.finished;
    }
    assert_true(first > 0.7 && first < 0.9);
    assert_true(next > 0.7 && next < 0.9);
    assert_true(static_cast<double>(finished) > 0.8 * 600e6 * 0.0625);
}

/// Its queue takes ten times as long as its answers took: it is late, and not dead.
void a_path_that_falls_to_a_tenth_is_not_taken_down(void **)
{
    std::uint64_t down = 0;
    std::uint64_t suspect = 0;
    for (unsigned when = 100; when < 900; when += 97) {
        Load load = load_of();
        load.run_until(load.t.now + Duration::from_ms(when));
        load.link[when % 2].rate /= 10;
        load.run_until(load.t.now + 1_s);
        down += load.t.a.peer.counters().path_down;
        suspect += load.t.a.peer.counters().path_suspect;
    }
    assert_true(suspect != 0);
    assert_int_equal(down, 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(load_follows_a_change_within_a_second),
        cmocka_unit_test(a_long_queue_does_not_hold_the_load_back),
        cmocka_unit_test(unlike_links_are_loaded_in_proportion_from_the_start),
        cmocka_unit_test(a_path_that_falls_to_a_tenth_is_not_taken_down),
    };
    return cmocka_run_group_tests_name("balance", tests, nullptr, nullptr);
}

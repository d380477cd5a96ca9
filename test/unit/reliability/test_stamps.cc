// Moments of 32 bits, which go round in 274.9 s. PROTOCOL.md, "Round trips".
#include "test/unit/reliability/ends.hpp"

#include "test/unit/cmocka.hpp"

using namespace ft::test;

namespace {

constexpr Duration second = Duration::from_ms(1000);

void they_are_compared_by_age(void **)
{
    for (const std::uint32_t now : {0U, 5U, 0x7fffffffU, 0x80000000U, 0xfffffff0U}) {
        for (const std::uint32_t age : {1U, 1000U, 0x7fffffffU, 0x80000001U, 0xfe000000U}) {
            assert_true(later(now, now - age, now));
            assert_false(later(now - age, now, now));
            assert_true(later(now - age + 1, now - age, now));
        }
        assert_true(later(now + 3, now, now)); // the clock was read before
        assert_int_equal(between(now - 5, now).ns(), 5 * 64);
        assert_int_equal(between(now + 3, now).ns(), 0);
    }
}

/// A message of forty fragments after a pause, of which one may be lost on its way.
struct AfterPause : Two {
    explicit AfterPause(std::int64_t seconds, bool loses)
    {
        (void)a.submit(true, 8, 8, now);
        settle();
        now += second * seconds;
        (void)a.submit(false, 40 * 64, 64, now);
        auto frames = a.pump(now);
        if (loses) {
            frames.erase(frames.begin() + 3);
        }
        // The first half comes, and is acknowledged, before the rest.
        for (const std::size_t half : {std::size_t{20}, frames.size()}) {
            now += 100_us;
            b.take_all({frames.begin() + (half == 20 ? 0 : 20),
                        frames.begin() + static_cast<std::ptrdiff_t>(half)},
                       now);
            b.peer.flush_acks();
            now += 100_us;
            a.take_all(b.pump(now), now);
        }
        again = a.pump(now).size();
        lost = a.peer.counters().declared_lost;
    }
    std::size_t again = 0;
    std::uint64_t lost = 0;
};

void a_pause_loses_nothing(void **)
{
    for (const std::int64_t seconds : {1, 100, 140, 150, 200, 273, 276, 300, 420, 1000}) {
        for (const bool loses : {false, true}) {
            const AfterPause t(seconds, loses);
            assert_int_equal(t.lost, loses ? 1 : 0);
            assert_int_equal(t.again, loses ? 1 : 0);
        }
    }
}

void an_answer_from_before_the_clock_is_quick(void **)
{
    Duration before;
    Duration after;
    {
        Two t;
        (void)t.a.submit(true, 8, 8, t.now);
        t.settle();
        before = t.a.peer.paths()[0].rtt.smoothed();
        t.now += 1_ms;
        (void)t.a.submit(true, 8, 8, t.now);
        t.b.take_all(t.a.pump(t.now + 1_us), t.now); // sent after the clock was read
        t.b.peer.flush_acks();
        t.a.take_all(t.b.pump(t.now), t.now);
        after = t.a.peer.paths()[0].rtt.smoothed();
    }
    assert_true(before.ns() > 0);
    assert_true(after <= before);
}

/// One thread reads the clock, another one takes a fragment, then the first one answers it: no
/// round trip is measured by that, least of all one of nothing, which would stay the shortest.
void an_acknowledgement_with_an_old_clock_measures_nothing(void **)
{
    Duration before;
    Duration after;
    unsigned delay = 0;
    {
        Two t;
        for (int i = 0; i < 5; ++i) {
            (void)t.a.submit(true, 8, 8, t.now);
            t.settle(4, 25_us);
            t.now += 1_ms;
        }
        before = t.a.peer.paths()[0].rtt.minimum();
        (void)t.a.submit(true, 8, 8, t.now);
        const std::vector<Frame> frames = t.a.pump(t.now);
        const Time old = t.now + 25_us;
        t.now += 30_us;
        t.b.take_all(frames, t.now);
        t.b.peer.flush_acks();
        const std::vector<Frame> answer = t.b.pump(old);
        FragHeader h;
        (void)parse_header(answer.front().bytes, true, h);
        delay = h.echo_delay_us;
        t.now += 25_us;
        t.a.take_all(answer, t.now);
        after = t.a.peer.paths()[0].rtt.minimum();
    }
    assert_true(before.ns() > 0);
    assert_int_equal(delay, 0);
    assert_int_equal(after.ns(), before.ns());
}

/// Nor by an answer to what was sent after the clock was read.
void an_answer_from_before_the_clock_measures_nothing(void **)
{
    Duration before;
    Duration after;
    {
        Two t;
        for (int i = 0; i < 5; ++i) {
            (void)t.a.submit(true, 8, 8, t.now);
            t.settle(4, 25_us);
            t.now += 1_ms;
        }
        before = t.a.peer.paths()[0].rtt.minimum();
        (void)t.a.submit(true, 8, 8, t.now);
        t.b.take_all(t.a.pump(t.now + 1_us), t.now);
        t.b.peer.flush_acks();
        t.a.take_all(t.b.pump(t.now), t.now);
        after = t.a.peer.paths()[0].rtt.minimum();
    }
    assert_true(before.ns() > 0);
    assert_int_equal(after.ns(), before.ns());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(they_are_compared_by_age),
        cmocka_unit_test(a_pause_loses_nothing),
        cmocka_unit_test(an_answer_from_before_the_clock_is_quick),
        cmocka_unit_test(an_acknowledgement_with_an_old_clock_measures_nothing),
        cmocka_unit_test(an_answer_from_before_the_clock_measures_nothing),
    };
    return cmocka_run_group_tests_name("stamps", tests, nullptr, nullptr);
}

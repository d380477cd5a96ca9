#include "opal/ft/base/rng.hpp"
#include "opal/ft/base/timer_wheel.hpp"
#include "test/unit/cmocka.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

using namespace ft::base;

namespace {

constexpr Duration tick = TimerWheel::default_tick;

Time at(std::int64_t ticks)
{
    return Time::zero() + tick * ticks;
}

/// Fires what is due and says how many.
std::size_t fire(TimerWheel &wheel, Time now)
{
    return wheel.advance(now, [](Timer &) {});
}

void an_empty_wheel_has_no_deadline(void **)
{
    TimerWheel wheel(Time::zero());
    assert_true(wheel.empty());
    assert_true(wheel.next_deadline().is_never());
    assert_int_equal(fire(wheel, at(1'000'000'000)), 0);
}

void it_never_fires_early_and_at_most_a_tick_late(void **)
{
    // Distances around every boundary between levels, with deadlines on and off the tick.
    std::vector<std::int64_t> distances{1, 2, 3};
    for (int level = 1; level <= 6; ++level) {
        const std::int64_t edge = std::int64_t{1} << (6 * level);
        for (const std::int64_t d : {edge - 1, edge, edge + 1, 2 * edge - 1, 2 * edge}) {
            distances.push_back(d);
        }
    }
    bool good = true;
    for (const std::int64_t begin : {0, 1, 63, 64, 4095, 262'143}) {
        for (const std::int64_t distance : distances) {
            for (const Duration off : {0_ns, 1_ns, 15'999_ns}) {
                TimerWheel wheel(Time::zero());
                fire(wheel, at(begin));
                Timer timer;
                const Time deadline = at(begin + distance) + off;
                const Time due = at(begin + distance + (off > 0_ns ? 1 : 0));
                wheel.arm(timer, deadline);
                good = good && wheel.next_deadline() <= due && timer.deadline() == deadline;
                good = good && fire(wheel, due - 1_ns) == 0 && timer.armed();
                good = good && wheel.next_deadline() == due;
                good = good && fire(wheel, due) == 1 && !timer.armed() && wheel.empty();
            }
        }
    }
    distances = {};
    assert_true(good);
}

void following_next_deadline_reaches_every_timer(void **)
{
    TimerWheel wheel(Time::zero());
    Timer timer;
    wheel.arm(timer, at(3'000'000'000)); // beyond the highest level, which ends at 2^30
    Time now = Time::zero();
    int steps = 0;
    while (timer.armed() && steps < 100) {
        const Time next = wheel.next_deadline();
        assert_true(next > now && next <= at(3'000'000'000));
        now = next;
        fire(wheel, now);
        ++steps;
    }
    assert_true(now == at(3'000'000'000));
    assert_in_range(steps, 1, 8);
}

void past_and_present_fire_at_the_next_advance(void **)
{
    TimerWheel wheel(at(100));
    Timer past;
    Timer present;
    wheel.arm(past, Time::zero());
    wheel.arm(present, at(100));
    assert_true(wheel.next_deadline() <= at(100));
    assert_int_equal(fire(wheel, at(100)), 2);
    wheel.arm(past, at(50));
    wheel.arm(present, at(250));
    assert_int_equal(fire(wheel, at(200)), 1);
    // A clock that goes back is a clock that stands still.
    wheel.arm(past, at(150));
    assert_int_equal(fire(wheel, at(100)), 1);
    wheel.arm(past, at(150));
    assert_int_equal(fire(wheel, at(100)), 1);
    assert_int_equal(fire(wheel, at(249)), 0);
    assert_int_equal(fire(wheel, at(250)), 1);
    assert_true(wheel.empty());
}

void never_means_never(void **)
{
    TimerWheel wheel(Time::zero());
    Timer timer;
    wheel.arm(timer, Time::never());
    assert_true(timer.armed());
    assert_true(wheel.next_deadline().is_never());
    assert_int_equal(fire(wheel, Time::from_ns(Time::never().ns() - 1)), 0);
    wheel.cancel(timer);
    assert_true(wheel.empty());
}

void extreme_times_do_not_overflow(void **)
{
    const Time beginning = Time::from_ns(std::numeric_limits<std::int64_t>::min());
    TimerWheel wheel(beginning, 1_ns);
    Timer late;
    Timer soon;
    wheel.arm(late, Time::from_ns(Time::never().ns() - 1));
    wheel.arm(soon, beginning + 10_ns);
    assert_true(wheel.next_deadline() == beginning + 10_ns);
    assert_int_equal(fire(wheel, beginning + 10_ns), 1);
    assert_true(late.armed());
    wheel.cancel(late);
}

void cancelling_and_moving(void **)
{
    TimerWheel wheel(Time::zero());
    Timer a;
    Timer b;
    Timer c;
    wheel.arm(a, at(10));
    wheel.arm(b, at(10));
    wheel.arm(c, at(10));
    wheel.cancel(b);
    wheel.cancel(b);
    assert_false(b.armed());
    assert_int_equal(wheel.size(), 2);
    wheel.arm(a, at(5000));
    assert_int_equal(wheel.size(), 2);
    assert_int_equal(fire(wheel, at(10)), 1);
    assert_false(c.armed());
    wheel.arm(a, at(20));
    assert_true(wheel.next_deadline() == at(20));
    assert_int_equal(fire(wheel, at(20)), 1);
    assert_true(wheel.empty());
}

void either_may_die_first(void **)
{
    auto wheel = std::make_unique<TimerWheel>(Time::zero());
    auto timer = std::make_unique<Timer>();
    wheel->arm(*timer, at(10));
    timer.reset();
    const bool left = wheel->empty();
    Timer far;
    Timer overdue;
    Timer never;
    wheel->arm(far, at(std::int64_t{1} << 40));
    wheel->arm(overdue, Time::zero());
    wheel->arm(never, Time::never());
    wheel.reset();
    assert_true(left);
    assert_false(far.armed() || overdue.armed() || never.armed());
}

struct Named : Timer {
    int name = 0;
};

void one_tick_fires_in_the_order_of_arming(void **)
{
    // All for one tick, armed from far away, from nearer, and from next to it: each of the later
    // ones starts at a lower level than those that have to move down.
    TimerWheel wheel(Time::zero());
    std::array<Named, 6> timers;
    const std::int64_t target = 300'000;
    int armed = 0;
    for (const std::int64_t now : {0, 262'144, 299'100, 299'990}) {
        fire(wheel, at(now));
        timers.at(static_cast<std::size_t>(armed)).name = armed;
        wheel.arm(timers.at(static_cast<std::size_t>(armed)), at(target));
        ++armed;
    }
    int expected = 0;
    bool in_order = true;
    wheel.advance(at(target), [&](Timer &t) {
        in_order = in_order && static_cast<Named &>(t).name == expected;
        ++expected;
    });
    assert_int_equal(expected, armed);
    assert_true(in_order);
}

void callbacks_may_do_anything(void **)
{
    TimerWheel wheel(Time::zero());
    auto victim = std::make_unique<Timer>();
    Timer periodic;
    Timer cancelled;
    Timer killer;
    std::vector<Time> ticks;
    wheel.arm(killer, at(5));
    wheel.arm(*victim, at(5));
    wheel.arm(cancelled, at(5));
    wheel.arm(periodic, at(10));
    std::size_t unexpected = 0;
    const std::size_t fired = wheel.advance(at(100), [&](Timer &t) {
        if (&t == &killer) {
            victim.reset();
            wheel.cancel(cancelled);
        } else if (&t == &periodic) {
            ticks.push_back(t.deadline());
            wheel.arm(periodic, t.deadline() + tick * 10);
        } else {
            ++unexpected;
        }
    });
    const bool every_period = ticks.size() == 10 && ticks.back() == at(100);
    const bool armed = periodic.armed() && wheel.size() == 1;
    ticks = {};
    assert_int_equal(unexpected, 0);
    assert_int_equal(fired, 11);
    assert_true(every_period);
    assert_true(armed);
}

void a_callback_that_arms_for_now_does_not_hold_the_call(void **)
{
    TimerWheel wheel(Time::zero());
    Timer greedy;
    wheel.arm(greedy, at(1));
    int fired = 0;
    const auto again = [&](Timer &t) {
        ++fired;
        wheel.arm(t, at(7));
    };
    wheel.advance(at(7), again);
    assert_int_equal(fired, 2); // at 1, at 7; the third one is for the next call
    assert_true(greedy.armed());
    assert_true(wheel.next_deadline() <= at(7));
    wheel.advance(at(7), again);
    assert_int_equal(fired, 3);
    wheel.cancel(greedy);
}

void a_timer_may_free_itself(void **)
{
    TimerWheel wheel(Time::zero());
    auto *self = new Timer;
    wheel.arm(*self, at(3));
    wheel.advance(at(3), [](Timer &t) { delete &t; });
    assert_true(wheel.empty());
}

/// Random operations against a plain map of deadlines. Returns an empty string or what went wrong.
const char *against_reference(std::uint64_t seed)
{
    Rng rng(seed);
    const Duration size = Duration::from_ns(static_cast<std::int64_t>(rng.between(1, 40'000)));
    const Time start = Time::from_ns(static_cast<std::int64_t>(rng.below(1'000'000)));
    TimerWheel wheel(start, size);
    std::vector<Named> timers(64);
    std::map<int, Time> reference;
    Time now = start;
    const auto random_distance = [&] {
        const auto magnitude = static_cast<int>(rng.below(46));
        return Duration::from_ns(
            static_cast<std::int64_t>(rng.below(std::uint64_t{1} << magnitude)));
    };
    // The tick boundary at which a deadline is due.
    const auto due = [&](Time deadline) {
        const std::int64_t ns = std::max<std::int64_t>(0, (deadline - start).ns());
        return start + size * ((ns + size.ns() - 1) / size.ns());
    };
    const auto arm_some = [&] {
        const auto i = static_cast<int>(rng.below(timers.size()));
        const Time deadline = rng.chance(0.1) ? now - random_distance() : now + random_distance();
        timers[static_cast<std::size_t>(i)].name = i;
        wheel.arm(timers[static_cast<std::size_t>(i)], deadline);
        reference[i] = deadline;
    };
    const auto cancel_some = [&] {
        const auto i = static_cast<int>(rng.below(timers.size()));
        wheel.cancel(timers[static_cast<std::size_t>(i)]);
        reference.erase(i);
    };
    for (int step = 0; step < 400; ++step) {
        for (std::uint64_t n = rng.below(4); n > 0; --n) {
            arm_some();
        }
        if (rng.chance(0.3)) {
            cancel_some();
        }
        Time earliest = Time::never();
        for (const auto &[name, deadline] : reference) {
            earliest = std::min(earliest, std::max(due(deadline), start));
        }
        const Time next = wheel.next_deadline();
        if (reference.empty() ? !next.is_never() : next > std::max(earliest, now)) {
            return "next_deadline is too late";
        }
        const Time before = now;
        now = rng.chance(0.5) && !next.is_never() ? std::max(now, next) : now + random_distance();
        Time last = Time::zero();
        const char *wrong = nullptr;
        wheel.advance(now, [&](Timer &t) {
            const int name = static_cast<Named &>(t).name;
            const auto entry = reference.find(name);
            if (entry == reference.end() || entry->second != t.deadline()) {
                wrong = "fired without being armed";
                return;
            }
            const Time fire_time = due(entry->second);
            if (fire_time > now) {
                wrong = "fired early";
            }
            // By tick; what was overdue when it was armed comes before all else.
            if (fire_time > before && fire_time < last) {
                wrong = "fired out of order";
            }
            last = std::max(last, fire_time);
            reference.erase(entry);
            if (rng.chance(0.2)) {
                arm_some();
            }
            if (rng.chance(0.2)) {
                cancel_some();
            }
        });
        if (wrong != nullptr) {
            return wrong;
        }
        // Whatever is left must not have been due before this call, unless armed inside it.
        if (wheel.size() != reference.size()) {
            return "size is wrong";
        }
        wheel.advance(now, [&](Timer &t) { reference.erase(static_cast<Named &>(t).name); });
        for (const auto &[name, deadline] : reference) {
            if (due(deadline) <= now) {
                return "did not fire in time";
            }
        }
    }
    return nullptr;
}

void it_agrees_with_a_brute_force_reference(void **)
{
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        const char *wrong = against_reference(seed);
        if (wrong != nullptr) {
            fail_test("seed %llu: %s", static_cast<unsigned long long>(seed), wrong);
        }
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_wheel_has_no_deadline),
        cmocka_unit_test(it_never_fires_early_and_at_most_a_tick_late),
        cmocka_unit_test(following_next_deadline_reaches_every_timer),
        cmocka_unit_test(past_and_present_fire_at_the_next_advance),
        cmocka_unit_test(never_means_never),
        cmocka_unit_test(extreme_times_do_not_overflow),
        cmocka_unit_test(cancelling_and_moving),
        cmocka_unit_test(either_may_die_first),
        cmocka_unit_test(one_tick_fires_in_the_order_of_arming),
        cmocka_unit_test(callbacks_may_do_anything),
        cmocka_unit_test(a_callback_that_arms_for_now_does_not_hold_the_call),
        cmocka_unit_test(a_timer_may_free_itself),
        cmocka_unit_test(it_agrees_with_a_brute_force_reference),
    };
    return cmocka_run_group_tests_name("timer_wheel", tests, nullptr, nullptr);
}

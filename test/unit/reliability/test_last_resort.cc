// Data never waits while a path could carry it.
#include <algorithm>
#include <set>

#include "test/unit/cmocka.hpp"
#include "test/unit/reliability/path_fixture.hpp"

using namespace ft::test;

namespace {

/// Nothing is up: what answers probes is taken before what is in doubt, however long it would be
/// held down; it stays held down, and is left again as soon as it does not answer.
void a_hold_down_keeps_no_data_waiting(void **)
{
    std::array<PathId, 5> picked{};
    PathId control = no_path;
    PathState held = PathState::up;
    PathState left = PathState::up;
    PathId asked = no_path;
    {
        Config c = quick_config();
        c.hold_down = 10_s;
        Fixture f(3, c);
        f.set.on_error(2, f.now); // takes no part
        f.take_down(0, 1);
        picked[0] = f.set.pick(100, no_path); // 1 is up
        f.now += 1_us;
        f.answer(0, f.probe(0), 10_us);
        picked[1] = f.set.pick(100, no_path);
        f.time_out(1);
        picked[2] = f.set.pick(100, no_path);
        control = f.set.pick_control(2, 0);
        f.set.on_alive(0, f.now += 1_us);
        held = f.set[0].state;
        f.set.on_unanswered(0, f.now);
        left = f.set[0].state;
        picked[3] = f.set.pick(100, no_path);
        f.set.use(1).probe_due = false;
        asked = f.set.probe_wanted();
        f.now += 1_us;
        f.answer(0, f.probe(0), 10_us);
        picked[4] = f.set.pick(100, no_path);
    }
    assert_int_equal(picked[0], 1);
    assert_int_equal(picked[1], 1);
    assert_int_equal(picked[2], 0);
    assert_int_equal(control, 0);
    assert_int_equal(held, PathState::probing);
    assert_int_equal(left, PathState::down);
    assert_int_equal(picked[3], 1);
    assert_int_equal(asked, 0);
    assert_int_equal(picked[4], 0);
}

/// What is down is not left alone until its next probe when the last path that is up comes into
/// doubt, or goes: it may be back, and nobody knows.
void what_is_down_is_asked_when_nothing_is_ready(void **)
{
    std::array<PathId, 4> asked{};
    {
        Fixture f(2);
        f.take_down(0, 1);
        asked[0] = f.set.probe_wanted();
        f.time_out(1);
        f.set.use(1).probe_due = false;
        asked[1] = f.set.probe_wanted();
    }
    {
        Fixture f(2);
        f.take_down(0, 1);
        asked[2] = f.set.probe_wanted();
        f.set.on_error(1, f.now);
        asked[3] = f.set.probe_wanted();
    }
    assert_int_equal(asked[0], no_path);
    assert_int_equal(asked[1], 0);
    assert_int_equal(asked[2], no_path);
    assert_int_equal(asked[3], 0);
}

/// Its answers take long, and it is down again: it is asked as often as a suspect path while
/// nothing else is ready, and at its own pace while something is.
void what_is_slow_and_down_is_asked_often_when_nothing_is_ready(void **)
{
    Duration pace[2];
    Duration most{};
    for (const bool ready : {false, true}) {
        Fixture f(2);
        most = f.config.rto_max;
        f.take_down(0, 1);
        const std::uint32_t first = f.probe(0);
        for (int i = 0; i < 5; ++i) {
            f.now += most;
            (void)f.probe(0);
        }
        f.answer(0, first, 1_us);
        f.set.on_unanswered(0, f.now);
        if (!ready) {
            f.time_out(1);
        }
        (void)f.probe(0);
        pace[ready] = f.set[0].next_probe - f.now;
    }
    assert_true(pace[false] <= most);
    assert_true(pace[true] >= most * 9);
}

/// One path is held down for an hour, the other goes silent: a message takes a timer and a way.
void a_message_takes_the_path_in_its_hold_down(void **)
{
    Duration took{};
    PathState held = PathState::up;
    bool was_down = false;
    Duration bound{};
    {
        Config c = quick_config();
        c.hold_down = 3600_s;
        Two two(2, c);
        bound = (c.rto_min + c.ack_delay) * 2;
        std::array<bool, 2> passes{true, true};
        const auto say = [&](Duration step) {
            for (auto *from : {&two.a, &two.b}) {
                auto frames = from->pump(two.now);
                std::erase_if(frames, [&](const Frame &frame) { return !passes[frame.path]; });
                two.now += step;
                (from == &two.a ? two.b : two.a).take_all(frames, two.now);
            }
        };
        const auto exchange = [&](Duration span) {
            for (const Time end = two.now + span; two.now < end;) {
                (void)two.a.submit(true, 8, 1024, two.now);
                say(10_us);
                say(10_us);
            }
        };
        exchange(1_ms);
        passes[0] = false;
        exchange(80_ms);
        was_down = two.a.peer.paths()[0].state == PathState::down;
        passes[0] = true;
        exchange(80_ms);
        held = two.a.peer.paths()[0].state;
        passes[1] = false;
        const std::size_t before = two.a.done.size();
        const Time start = two.now;
        (void)two.a.submit(true, 8, 1024, two.now);
        while (two.a.done.size() == before && two.now - start < 1_s) {
            say(10_us);
        }
        took = two.now - start;
    }
    assert_true(was_down);
    assert_int_equal(held, PathState::probing);
    assert_true(took < bound);
}

/// What a VFRAG sent over eight paths is lost, and messages pass over one of them. One timer finds
/// the first, the next all the others: they are as old as that.
void what_is_overdue_costs_no_timer_for_each_path(void **)
{
    constexpr unsigned paths = 8;
    std::set<PathId> first;
    std::set<std::int64_t> moments;
    bool done = false;
    {
        Two two(paths);
        for (unsigned i = 0; i < 4 * paths; ++i) {
            (void)two.a.submit(false, std::uint64_t{paths} * 1024, 1024, two.now);
            two.settle(4);
        }
        two.a.done.clear();
        Vfrag &lost = two.a.submit(false, std::uint64_t{paths} * 1024, 1024, two.now);
        for (const Frame &frame : two.a.pump(two.now)) {
            first.insert(frame.path);
        }
        const auto is_done = [&] {
            return std::ranges::find(two.a.done, &lost) != two.a.done.end();
        };
        for (const Time end = two.now + 1_s; two.now < end && !is_done(); two.now += 50_us) {
            (void)two.a.submit(true, 8, 8, two.now);
            two.a.peer.on_time(two.now);
            const auto frames = two.a.pump(two.now);
            for (const Frame &frame : frames) {
                if (frame.vfrag == &lost && frame.path != 0) {
                    moments.insert(two.now.ns());
                }
            }
            two.b.take_all(frames, two.now += 10_us);
            two.b.peer.flush_acks();
            two.a.take_all(two.b.pump(two.now), two.now += 10_us);
        }
        done = is_done();
    }
    assert_int_equal(first.size(), paths);
    assert_true(done);
    assert_in_range(moments.size(), 1, 4); // by a timer for each: 8
}

} // namespace

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hold_down_keeps_no_data_waiting),
        cmocka_unit_test(what_is_down_is_asked_when_nothing_is_ready),
        cmocka_unit_test(what_is_slow_and_down_is_asked_often_when_nothing_is_ready),
        cmocka_unit_test(a_message_takes_the_path_in_its_hold_down),
        cmocka_unit_test(what_is_overdue_costs_no_timer_for_each_path),
    };
    return cmocka_run_group_tests_name("last_resort", tests, nullptr, nullptr);
}

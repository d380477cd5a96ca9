// The short way of a short message: what goes it is protected, ordered and kept as all else is.
#include <algorithm>

#include "test/unit/cmocka.hpp"
#include "test/unit/reliability/ends.hpp"

using namespace ft::test;

namespace {

// What goes the short way is protected like all else, and never overtakes.
void the_short_way_is_taken_only_when_nothing_waits(void **)
{
    bool behind_unsent = true;
    bool behind_lost = true;
    bool behind_ack = true;
    std::size_t first = 0;
    std::size_t delivered = 9;
    bool in_order = false;
    std::size_t done = 0;
    std::uint64_t by_timer = 0;
    std::uint64_t piggybacked = 0;
    {
        Two t;
        (void)t.a.submit(true, 8, 8, t.now);
        behind_unsent = !t.a.express(8, t.now).empty();
        auto early = t.a.pump(t.now);
        const auto lost = t.a.express(8, t.now); // forgotten: as if the network had
        first = lost.size();
        auto late = t.a.express(8, t.now);
        late.front().bytes.back() ^= std::byte{1};
        t.b.take_all(early, t.now);
        delivered = t.b.delivered.size();
        t.b.take_all(late, t.now); // broken, and one before it is missing
        behind_ack = !t.b.express(8, t.now).empty();
        t.a.take_all(t.b.pump(t.now), t.now);
        behind_lost = !t.a.express(8, t.now).empty();
        for (int i = 0; i < 4; ++i) { // nothing but the timer tells of the first one's loss
            t.settle();
            t.now += 20_ms;
        }
        in_order = t.b.delivered == std::vector<std::uint32_t>{0, 1, 2};
        done = t.a.done.size();
        by_timer = t.a.peer.counters().retransmitted_timeout;
    }
    {
        Two t;
        t.b.take_all(t.a.express(8, t.now), t.now);
        t.a.take_all(t.b.express(8, t.now), t.now);
        (void)t.a.pump(t.now);
        done += t.a.done.size();
        t.b.take_all(t.a.express(8, t.now), t.now);
        t.now += 20_us;
        t.a.take_all(t.b.express(8, t.now), t.now);
        (void)t.a.pump(t.now);
        piggybacked = t.b.peer.counters().acks_piggybacked;
        done += t.a.done.size();
    }
    assert_false(behind_unsent);
    assert_int_equal(first, 1);
    assert_int_equal(delivered, 1);
    assert_false(behind_ack);
    assert_false(behind_lost);
    assert_true(in_order);
    assert_true(by_timer <= 1);
    assert_int_equal(piggybacked, 1);
    assert_int_equal(done, 3 + 2); // nothing of the first in the second, and both at last
}

// A BTL that queues what goes the short way has it for as long as it says so: it is not handed back
// before, and when it does not move it is given up for another copy.
void what_a_btl_keeps_on_the_short_way_is_waited_for(void **)
{
    std::size_t done_while_held = 9;
    std::size_t done = 0;
    bool again = false;
    bool told_in_time = true;
    std::size_t held_then = 9;
    std::size_t held_after = 9;
    std::uint64_t by_timer = 0;
    {
        Two t;
        const auto frames = t.a.express(8, t.now);
        Vfrag &held = *frames.front().vfrag;
        const Time by = t.a.peer.kept(held, 0, t.now);
        told_in_time = by >= t.a.peer.next_deadline();
        held_then = t.a.peer.paths()[0].held;
        t.b.take_all(frames, t.now);
        t.now += 20_us;
        t.a.take_all(t.b.express(8, t.now), t.now); // which acknowledges it
        (void)t.a.pump(t.now);
        done_while_held = t.a.done.size();
        t.a.peer.locally_complete(held, 0, 0, t.now, t.now + 3_us);
        (void)t.a.pump(t.now + 3_us);
        done = t.a.done.size();
        held_after = t.a.peer.paths()[0].held;
    }
    {
        Two t;
        const auto frames = t.a.express(8, t.now); // it never leaves the BTL
        Vfrag &held = *frames.front().vfrag;
        const Time by = t.a.peer.kept(held, 0, t.now);
        t.now = by;
        for (int i = 0; i < 20 && !again; ++i) {
            const auto more = t.a.pump(t.now);
            again = std::ranges::any_of(more, [](const Frame &f) { return f.again; });
            t.now += 1_ms;
        }
        by_timer = t.a.peer.counters().retransmitted_timeout;
        t.a.peer.locally_complete(held, 0, 0, t.now, t.now);
    }
    assert_int_equal(done_while_held, 0);
    assert_int_equal(done, 1);
    assert_true(again);
    assert_true(by_timer >= 1);
    assert_true(told_in_time);
    assert_int_equal(held_then, 1);
    assert_int_equal(held_after, 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_short_way_is_taken_only_when_nothing_waits),
        cmocka_unit_test(what_a_btl_keeps_on_the_short_way_is_waited_for),
    };
    return cmocka_run_group_tests_name("short_way", tests, nullptr, nullptr);
}

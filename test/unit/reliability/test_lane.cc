// The lane: it sends and takes what the short way would, and is closed by whatever else happens.
// That its answers are those of the short way `ends.hpp` asserts at each message.
#include <functional>

#include "test/unit/reliability/ends.hpp"

#include "test/unit/cmocka.hpp"

using namespace ft::test;

namespace {

/// The next one of a's arrives at b.
void send_one(Two &t, std::uint64_t length = 8)
{
    t.b.take_all(t.a.express(length, t.now, Form::compressed), t.now);
}

/// The lane from a to b is open: a brief one is behind it.
void open(Two &t)
{
    send_one(t);
    send_one(t);
}

void it_opens_behind_a_short_one_and_stays_open(void **)
{
    unsigned on_lane = 0;
    unsigned awaited = 0;
    unsigned acknowledged = 0;
    bool in_order = true;
    {
        Two t;
        for (unsigned i = 0; i < 40; ++i) {
            send_one(t, i % 9 == 0 ? 0 : i);
        }
        on_lane = t.a.on_lane;
        awaited = t.b.awaited;
        for (std::uint32_t i = 0; i < 40; ++i) {
            in_order = in_order && t.b.delivered[i] == i;
        }
        t.settle();
        for (unsigned i = 0; i < 10 && t.a.done.size() < 40; ++i) {
            t.now += 1_ms;
            t.settle();
        }
        acknowledged = static_cast<unsigned>(t.a.done.size());
    }
    assert_int_equal(on_lane, 39);
    assert_int_equal(awaited, 39);
    assert_true(in_order);
    assert_int_equal(acknowledged, 40);
}

// What is full, or too long ago, is not asked for a second time: the short way says no as well.
void it_takes_no_more_than_the_window(void **)
{
    bool before = false;
    bool behind = true;
    bool late = true;
    {
        Two t;
        open(t);
        while (t.a.peer.has_room(8, true)) {
            before = t.a.peer.lane_takes(8, t.now);
            (void)t.a.express(8, t.now, Form::compressed);
        }
        behind = t.a.peer.lane_takes(8, t.now);
    }
    {
        Two t;
        open(t);
        t.now += 17_us;
        late = t.a.peer.lane_takes(8, t.now);
    }
    assert_true(before);
    assert_false(behind);
    assert_false(late);
}

/// Something that happens to the sender.
struct Event {
    const char *name;
    std::function<void(Two &)> happens;
};

void anything_else_closes_it(void **)
{
    const std::vector<Event> events = {
        {"data", [](Two &t) { (void)t.a.submit(false, 64, 64, t.now); }},
        {"one that waits its turn", [](Two &t) { (void)t.a.submit(true, 8, 8, t.now); }},
        {"a timer", [](Two &t) { t.a.peer.on_time(t.now); }},
        {"no room", [](Two &t) { t.a.peer.blocked(0); }},
        {"acknowledgements at once", [](Two &t) { t.a.peer.flush_acks(); }},
        {"another path", [](Two &t) { t.a.add_paths(1, t.now); }},
        {"a fresh transport", [](Two &t) { t.a.peer.path_replaced(0, t.now); }},
        {"no connection", [](Two &t) { t.a.peer.path_not_connected(0, t.now); }},
        {"an error", [](Two &t) { t.a.peer.path_error(0, t.now); }},
        {"a death", [](Two &t) { t.a.peer.declare_dead(); }},
        {"a full one", [](Two &t) { (void)t.a.express(8, t.now); }},
        {"an ack",
         [](Two &t) {
             t.now += 1_us;
             t.b.peer.flush_acks();
             t.a.take_all(t.b.pump(t.now), t.now);
         }},
        {"an answer that acknowledges",
         [](Two &t) {
             t.a.take_all(t.b.express(8, t.now, Form::brief), t.now);
             (void)t.a.pump(t.now);
         }},
    };
    const char *open_still = nullptr;
    for (const Event &event : events) {
        Two t;
        open(t);
        const bool before = t.a.peer.lane_takes(8, t.now);
        event.happens(t);
        if (!before || t.a.peer.lane_takes(8, t.now)) {
            open_still = event.name;
        }
    }
    assert_null(open_still);
}

// A fragment that is not the very one that is awaited is left to the longer way.
void what_is_not_awaited_is_not_taken(void **)
{
    unsigned taken = 0;
    unsigned flipped = 0;
    bool longer = false;
    {
        Two t;
        open(t);
        const std::vector<Frame> one = t.a.express(8, t.now, Form::compressed);
        const std::vector<Frame> two = t.a.express(8, t.now, Form::compressed);
        Numbers numbers;
        (void)t.b.peer.awaits(numbers);
        taken += read_awaited(two[0].bytes, numbers).whole ? 1 : 0;
        for (std::size_t bit = 0; bit < one[0].bytes.size() * 8; ++bit) {
            std::vector<std::byte> b = one[0].bytes;
            b[bit / 8] ^= std::byte{1} << (bit % 8);
            ++flipped;
            taken += read_awaited(b, numbers).whole ? 1 : 0;
        }
        for (std::size_t length = compressed_bytes; length < one[0].bytes.size(); ++length) {
            taken += read_awaited(std::span(one[0].bytes).first(length), numbers).whole ? 1 : 0;
        }
        std::vector<std::byte> more = one[0].bytes;
        more.resize(more.size() + 8);
        longer = read_awaited(more, numbers).whole; // as btl/vader rounds up
    }
    assert_int_equal(taken, 0);
    assert_int_equal(flipped, 8 * 24);
    assert_true(longer);
}

// With a gap before it, or nothing ever heard in the brief form, nothing is awaited.
void nothing_is_awaited_behind_a_gap(void **)
{
    bool at_first = true;
    bool behind_gap = true;
    bool after_all = false;
    {
        Two t;
        Numbers numbers;
        at_first = t.b.peer.awaits(numbers);
        open(t);
        const std::vector<Frame> late = t.a.express(8, t.now, Form::compressed);
        send_one(t);
        behind_gap = t.b.peer.awaits(numbers);
        t.b.take_all(late, t.now);
        t.settle();
        for (unsigned i = 0; i < 8; ++i) {
            send_one(t);
        }
        after_all = t.b.peer.awaits(numbers);
    }
    assert_false(at_first);
    assert_false(behind_gap);
    assert_true(after_all);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(it_opens_behind_a_short_one_and_stays_open),
        cmocka_unit_test(it_takes_no_more_than_the_window),
        cmocka_unit_test(anything_else_closes_it),
        cmocka_unit_test(what_is_not_awaited_is_not_taken),
        cmocka_unit_test(nothing_is_awaited_behind_a_gap),
    };
    return cmocka_run_group_tests_name("lane", tests, nullptr, nullptr);
}

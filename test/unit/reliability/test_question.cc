// The question what has come: asked when nothing told of the newest transmission for longer than an
// answer takes, so that a lost tail is found without a timeout, and a late peer is not taken for
// one.
#include "opal/ft/reliability/peer.hpp"
#include "test/unit/cmocka.hpp"
#include "test/unit/reliability/ends.hpp"

#include <algorithm>

using namespace ft::test;

namespace {

bool is_question(const Frame &frame)
{
    FragHeader h;
    return parse_header(frame.bytes, true, h) == ParseStatus::ok && h.kind == Kind::ack &&
           h.has(flag_ack_wanted);
}

/// A measured pair, and a message from `a` of which nobody has told yet.
struct Asking {
    explicit Asking(bool ordered = true, unsigned fragments = 1, bool complete = true)
    {
        for (int i = 0; i < 30; ++i) {
            (void)t.a.submit(true, 10, 64, t.now);
            t.settle(2);
        }
        acked = t.a.done.size();
        (void)t.a.submit(ordered, std::uint64_t{64} * fragments, 64, t.now);
        first = t.a.pump(t.now, complete);
    }
    /// As time goes by, what `a` sends until something comes, or until then.
    std::vector<Frame> wait(Duration longest = 1_s)
    {
        const Time until = t.now + longest;
        std::vector<Frame> frames;
        while (frames.empty() && t.a.peer.next_deadline() <= until) {
            t.now = std::max(t.now, t.a.peer.next_deadline());
            frames = t.a.pump(t.now);
        }
        return frames;
    }
    void answer(const std::vector<Frame> &frames)
    {
        t.now += 10_us;
        t.b.take_all(frames, t.now);
        const auto back = t.b.pump(t.now);
        t.now += 10_us;
        t.a.take_all(back, t.now);
    }
    [[nodiscard]] Counters counted() const { return t.a.peer.counters(); }

    Two t;
    std::vector<Frame> first;
    std::size_t acked = 0;
};

void a_lost_tail_is_found_by_a_question(void **)
{
    bool asked = false;
    std::size_t again = 0;
    std::uint64_t by_tail = 0;
    std::uint64_t by_time = 1;
    Duration took;
    PathState state{};
    {
        Asking x;
        const Time start = x.t.now;
        const auto question = x.wait();
        asked = question.size() == 1 && is_question(question[0]);
        x.answer(question);
        const auto frames = x.t.a.pump(x.t.now);
        took = x.t.now - start;
        again = static_cast<std::size_t>(
            std::count_if(frames.begin(), frames.end(), [](const Frame &f) { return f.again; }));
        by_tail = x.counted().retransmitted_tail;
        by_time = x.counted().retransmitted_timeout;
        state = x.t.a.peer.paths()[0].state;
    }
    assert_true(asked);
    assert_int_equal(again, 1);
    assert_int_equal(by_tail, 1);
    assert_int_equal(by_time, 0);
    assert_int_equal(state, PathState::up);
    assert_true(took < 500_us); // rto_min is 1 ms
}

void only_what_is_missing_goes_again(void **)
{
    std::vector<unsigned> again;
    {
        Asking x(false, 8);
        x.first.erase(x.first.begin() + 6, x.first.end());
        x.t.b.take_all(x.first, x.t.now);
        (void)x.t.b.pump(x.t.now); // nothing to tell yet, or it is lost
        x.answer(x.wait());
        for (const Frame &frame : x.t.a.pump(x.t.now)) {
            again.push_back(frame.index);
        }
    }
    assert_int_equal(again.size(), 2);
    assert_int_equal(again[0], 6);
    assert_int_equal(again[1], 7);
}

void a_late_peer_gets_nothing_twice(void **)
{
    std::uint64_t sent_before = 0;
    std::uint64_t sent = 0;
    std::size_t done = 0;
    std::uint64_t questions = 0;
    {
        Asking x;
        sent_before = x.counted().fragments_sent;
        const auto question = x.wait();
        x.t.now += 300_us; // it did not run until now
        x.t.b.take_all(x.first, x.t.now);
        x.answer(question);
        (void)x.t.a.pump(x.t.now);
        done = x.t.a.done.size() - x.acked;
        sent = x.counted().fragments_sent;
        questions = x.counted().questions_sent;
    }
    assert_int_equal(done, 1);
    assert_int_equal(sent, sent_before);
    assert_int_equal(questions, 1);
}

/// Who is late each time that he looks asks all the same.
void a_question_is_put_off_once(void **)
{
    bool asked = false;
    std::uint64_t by_time = 1;
    {
        Asking x;
        std::vector<Frame> frames;
        while (frames.empty()) {
            x.t.now = x.t.a.peer.next_deadline() + 200_us; // longer than an eighth of rto_min
            frames = x.t.a.pump(x.t.now);
        }
        asked = frames.size() == 1 && is_question(frames[0]);
        by_time = x.counted().retransmitted_timeout;
    }
    assert_true(asked);
    assert_int_equal(by_time, 0);
}

void a_lost_answer_leaves_it_to_the_timer(void **)
{
    bool again = false;
    std::uint64_t questions = 0;
    std::uint64_t by_time = 0;
    {
        Asking x;
        (void)x.wait(); // lost
        const auto frames = x.wait();
        again = std::any_of(frames.begin(), frames.end(), [](const Frame &f) { return f.again; });
        questions = x.counted().questions_sent;
        by_time = x.counted().retransmitted_timeout;
    }
    assert_true(again);
    assert_int_equal(questions, 1);
    assert_int_equal(by_time, 1);
}

void what_a_transport_holds_is_not_asked_for(void **)
{
    std::uint64_t questions = 1;
    {
        Asking x(true, 1, false);
        (void)x.wait(900_us);
        questions = x.counted().questions_sent;
    }
    assert_int_equal(questions, 0);
}

void what_a_transport_holds_is_not_sent_again_by_the_timer(void **)
{
    std::uint64_t by_time = 1;
    std::size_t done = 0;
    {
        Asking x(true, 1, false);
        (void)x.wait(1200_us); // beyond rto_min and ack_delay
        by_time = x.counted().retransmitted_timeout;
        x.t.a.peer.locally_complete(*x.first[0].vfrag, 0, 0, x.t.now, x.t.now);
        x.t.b.take_all(x.first, x.t.now);
        x.t.b.peer.flush_acks();
        x.t.a.take_all(x.t.b.pump(x.t.now), x.t.now);
        (void)x.t.a.pump(x.t.now);
        done = x.t.a.done.size() - x.acked;
    }
    assert_int_equal(by_time, 0);
    assert_int_equal(done, 1);
}

/// Of a message that a path's window holds back, the last fragment was not sent, and names no path:
/// the newest that was sent tells whose timeout counts.
void what_a_transport_holds_is_timed_by_its_own_path(void **)
{
    std::int64_t again = 0;
    std::int64_t own = 0;
    std::int64_t other = 0;
    unsigned sent = 0;
    bool due = false;
    {
        const Config c = quick_config();
        PeerCounters counters;
        PathSet paths(c);
        paths.counters = &counters;
        PathInfo info;
        info.max_fragment_bytes = 1 << 20;
        (void)paths.add(info);
        info.unreliable = true;
        (void)paths.add(info);
        Time now = Time::from_ns(1'000'000);
        paths.use(0).rtt.sample(10_ms);
        paths.use(1).rtt.sample(100_us);
        paths.on_error(0, now);
        Sender sender(c, paths, counters);
        Box box;
        box.vfrag.ordered = false;
        box.vfrag.length = std::uint64_t{64} * 2048;
        box.vfrag.fragment_bytes = 2048;
        box.vfrag.fragments = std::span(box.records);
        sender.submit(box.vfrag, now);
        for (Choice choice; sender.choose(choice); ++sent) {
            sender.sent(choice, static_cast<std::uint32_t>(now.ns() >> stamp_shift), false, now);
        }
        now = box.vfrag.ack_deadline();
        due = now < box.vfrag.watchdog_deadline();
        sender.on_time(now);
        again = (box.vfrag.ack_deadline() - now).ns();
        own = (paths.rto(1) + c.ack_delay).ns();
        other = (paths.rto(0) + c.ack_delay).ns();
    }
    assert_in_range(sent, 1, 63);
    assert_true(due);
    assert_true(other > own);
    assert_int_equal(again, own);
}

void an_answered_message_is_not_asked_for(void **)
{
    std::uint64_t questions = 1;
    {
        Asking x;
        x.t.b.take_all(x.first, x.t.now);
        x.t.settle(2);
        for (int i = 0; i < 5 && !x.t.a.peer.next_deadline().is_never(); ++i) {
            x.t.now = x.t.a.peer.next_deadline();
            (void)x.t.a.pump(x.t.now);
        }
        questions = x.counted().questions_sent;
    }
    assert_int_equal(questions, 0);
}

/// Paths that carry all that is small, the first `blocked` of them nothing else.
struct Narrow {
    Narrow(unsigned paths, PathId blocked) : t(paths), narrow(blocked)
    {
        for (int i = 0; i < 30; ++i) {
            (void)t.a.submit(true, 10, 64, t.now);
            t.settle(2);
        }
        sent_before = t.a.peer.counters().fragments_sent;
        acked = t.a.done.size();
        (void)t.a.submit(false, std::uint64_t{64} * 64, 64, t.now);
        const Time until = t.now + 1_s;
        while (t.now < until && t.a.done.size() == acked) {
            auto frames = t.a.pump(t.now);
            std::erase_if(frames, [this](const Frame &f) {
                return f.what == Transmit::What::fragment && f.path < narrow;
            });
            t.now += 10_us;
            t.b.take_all(frames, t.now);
            const auto back = t.b.pump(t.now);
            t.now += 10_us;
            t.a.take_all(back, t.now);
            (void)t.a.pump(t.now);
            if (frames.empty() && back.empty()) {
                const Time next = std::min(t.a.peer.next_deadline(), t.b.peer.next_deadline());
                t.now = std::max(t.now, next);
            }
        }
        sent = t.a.peer.counters().fragments_sent - sent_before;
        acked = t.a.done.size() - acked;
    }
    Two t;
    PathId narrow;
    std::uint64_t sent_before = 0;
    std::uint64_t sent = 0;
    std::size_t acked = 0;
};

void a_path_for_small_fragments_only_is_not_flooded(void **)
{
    std::uint64_t sent = 0;
    {
        sent = Narrow(1, 1).sent;
    }
    // All 64 at every answer, one more and more seldom: 1 s has room for a dozen doublings.
    assert_true(sent < std::uint64_t{64} * 20);
}

void what_a_path_never_carries_goes_over_another(void **)
{
    std::uint64_t sent = 0;
    std::size_t acked = 0;
    {
        const Narrow x(2, 1);
        sent = x.sent;
        acked = x.acked;
    }
    assert_int_equal(acked, 1);
    assert_true(sent < std::uint64_t{64} * 5);
}

/// What is acknowledged stays with a BTL that does not move, and nothing more fits there: whether
/// to ask is looked at less and less often.
void a_btl_that_does_not_move_is_not_looked_at_all_the_time(void **)
{
    unsigned looks = 0;
    bool waits = false;
    {
        Config c = quick_config();
        c.path_depth = 1;
        Two t(1, c);
        (void)t.a.submit(true, 8, 8, t.now); // so that a round trip is known
        t.settle(3);
        (void)t.a.submit(true, 8, 8, t.now);
        t.b.take_all(t.a.pump(t.now, false), t.now);
        t.b.peer.flush_acks();
        t.a.take_all(t.b.pump(t.now), t.now += 10_us);
        (void)t.a.submit(true, 8, 8, t.now);
        waits = t.a.pump(t.now).empty();
        for (const Time end = t.now + 1_s; t.now < end; ++looks) {
            t.now = t.a.peer.next_deadline();
            waits = t.a.pump(t.now).empty() && waits;
        }
    }
    assert_true(waits);
    assert_in_range(looks, 2, 100);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_tail_is_found_by_a_question),
        cmocka_unit_test(only_what_is_missing_goes_again),
        cmocka_unit_test(a_late_peer_gets_nothing_twice),
        cmocka_unit_test(a_question_is_put_off_once),
        cmocka_unit_test(a_lost_answer_leaves_it_to_the_timer),
        cmocka_unit_test(what_a_transport_holds_is_not_asked_for),
        cmocka_unit_test(what_a_transport_holds_is_not_sent_again_by_the_timer),
        cmocka_unit_test(what_a_transport_holds_is_timed_by_its_own_path),
        cmocka_unit_test(an_answered_message_is_not_asked_for),
        cmocka_unit_test(a_path_for_small_fragments_only_is_not_flooded),
        cmocka_unit_test(what_a_path_never_carries_goes_over_another),
        cmocka_unit_test(a_btl_that_does_not_move_is_not_looked_at_all_the_time),
    };
    return cmocka_run_group_tests_name("question", tests, nullptr, nullptr);
}

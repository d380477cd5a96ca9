// Paths that are not acknowledged, since their BTL is believed: what it is done with has arrived.
// PROTOCOL.md, "Levels".
#include "test/unit/reliability/believers.hpp"

#include "test/unit/cmocka.hpp"

using namespace ft::test;

namespace {

void nobody_waits_and_nobody_answers(void **)
{
    std::size_t done = 0;
    std::size_t delivered = 0;
    std::size_t answers = 0;
    std::uint64_t sent = 0;
    std::uint64_t acked = 0;
    bool timers = true;
    bool drained = false;
    {
        Believers t;
        for (unsigned i = 0; i < 300; ++i) { // more than a window of them
            (void)t.a.submit(i % 3 != 0, i % 3 != 0 ? 8 : 640, 64, t.now);
            t.b.take_all(t.a.pump(t.now), t.now);
            t.now += 10_us;
        }
        done = t.a.done.size();
        drained = t.a.peer.drained();
        timers = !t.a.peer.next_deadline().is_never() || !t.b.peer.next_deadline().is_never();
        t.now += 50_ms;
        t.b.peer.on_time(t.now);
        t.b.peer.flush_acks();
        answers = t.b.pump(t.now).size();
        delivered = t.b.delivered.size();
        sent = t.a.peer.counters().fragments_sent;
        acked = t.a.peer.counters().fragments_acknowledged;
    }
    assert_int_equal(done, 300);
    assert_true(drained);
    assert_false(timers);
    assert_int_equal(answers, 0);
    assert_int_equal(delivered, 200 + 100 * 10);
    assert_int_equal(sent, acked);
    assert_int_equal(sent, delivered);
}

// The same with acknowledgements, so that the test above would tell if there were none anyway.
void otherwise_it_is_answered(void **)
{
    std::size_t done = 1;
    std::size_t answers = 0;
    {
        Two t;
        (void)t.a.submit(true, 8, 8, t.now);
        t.b.take_all(t.a.pump(t.now), t.now);
        done = t.a.done.size();
        t.now += 50_ms;
        answers = t.b.pump(t.now).size();
    }
    assert_int_equal(done, 0);
    assert_int_equal(answers, 1);
}

void done_when_its_btl_is(void **)
{
    std::size_t before = 1;
    std::size_t failed = 1;
    std::size_t after = 0;
    bool released = false;
    {
        Believers t;
        Vfrag &v = t.a.submit(false, 128, 64, t.now);
        (void)t.a.pump(t.now, false);
        before = t.a.done.size();
        t.a.peer.locally_complete(v, 0, 0, t.now, t.now);
        (void)t.a.pump(t.now);
        before += t.a.done.size();
        t.a.peer.locally_complete(v, 1, 0, t.now, t.now);
        (void)t.a.pump(t.now);
        after = t.a.done.size();
        released = t.a.peer.paths()[0].held == 0 && t.a.peer.paths()[0].in_flight == 0;

        Vfrag &w = t.a.submit(true, 8, 8, t.now);
        (void)t.a.pump(t.now, false);
        t.a.peer.locally_complete(w, 0, 0, t.now, t.now, false);
        t.a.peer.path_error(0, t.now);
        (void)t.a.pump(t.now);
        failed = t.a.failed.size();
    }
    assert_int_equal(before, 0);
    assert_int_equal(after, 1);
    assert_true(released);
    assert_int_equal(failed, 1);
}

void the_lane_stays_open(void **)
{
    unsigned on_lane = 0;
    unsigned awaited = 0;
    bool in_order = true;
    bool idle = false;
    {
        Believers t;
        for (unsigned i = 0; i < 1000; ++i) {
            t.b.take_all(t.a.express(8, t.now, Form::compressed), t.now);
        }
        on_lane = t.a.on_lane;
        awaited = t.b.awaited;
        for (std::uint32_t i = 0; i < 1000; ++i) {
            in_order = in_order && t.b.delivered.at(i) == i;
        }
        idle = t.a.peer.calm() && t.a.peer.quiet() && t.b.peer.quiet();
    }
    assert_int_equal(on_lane, 999);
    assert_int_equal(awaited, 999);
    assert_true(in_order);
    assert_true(idle);
}

// Answers to and fro are compressed, but for one in 16 us: nothing is taken along.
void answers_are_short_too(void **)
{
    unsigned compressed = 0;
    {
        Believers t;
        for (unsigned i = 0; i < 100; ++i) {
            const auto there = t.a.express(8, t.now, Form::compressed);
            t.b.take_all(there, t.now);
            const auto back = t.b.express(8, t.now, Form::compressed);
            t.a.take_all(back, t.now);
            compressed += there[0].form == Form::compressed ? 1 : 0;
            compressed += back[0].form == Form::compressed ? 1 : 0;
        }
    }
    assert_int_equal(compressed, 2 * 100 - 2);
}

// One that the BTL holds is overtaken by so many that its receiver could not tell their numbers.
void who_is_far_behind_gets_whole_numbers(void **)
{
    std::vector<std::uint32_t> delivered;
    unsigned broken = 1;
    {
        Believers t;
        for (unsigned i = 0; i < 4; ++i) {
            t.b.take_all(t.a.express(8, t.now, Form::compressed), t.now);
        }
        (void)t.a.submit(true, 8, 8, t.now);
        const auto late = t.a.pump(t.now, false);
        for (unsigned i = 0; i < 200; ++i) {
            t.b.take_all(t.a.express(8, t.now, Form::compressed), t.now);
        }
        t.b.take_all(late, t.now);
        broken = t.b.broken;
        delivered = t.b.delivered;
    }
    assert_int_equal(broken, 0);
    assert_int_equal(delivered.size(), 205);
    assert_true(std::is_sorted(delivered.begin(), delivered.end()));
}

// A short message over another path overtakes compressed ones in the path that is believed, which
// would be lost for good if their context were not there any more when they come.
void what_overtakes_leaves_the_context_alone(void **)
{
    std::vector<PathId> paths;
    std::size_t compressed = 0;
    std::size_t delivered = 0;
    unsigned broken = 1;
    {
        Two t(0);
        for (End *end : {&t.a, &t.b}) {
            PathInfo info;
            info.max_fragment_bytes = 1 << 20;
            info.latency = 100_ns;
            info.bandwidth = 10;
            info.acknowledged = false;
            (void)end->peer.add_path(info, t.now);
            info.latency = 0_ns; // takes one now and then, until that is acknowledged
            info.bandwidth = 0.1;
            info.acknowledged = true;
            (void)end->peer.add_path(info, t.now);
        }
        std::vector<Frame> inside;
        for (unsigned i = 0; i < 6; ++i) {
            const auto frames = t.a.express(8, t.now, Form::compressed);
            paths.push_back(frames.at(0).path);
            compressed += frames[0].form == Form::compressed ? 1 : 0;
            if (frames[0].path == 0) {
                inside.insert(inside.end(), frames.begin(), frames.end());
                continue;
            }
            t.b.take_all(frames, t.now);
        }
        t.b.peer.flush_acks();
        t.a.take_all(t.b.pump(t.now), t.now);
        (void)t.a.pump(t.now);
        const auto past = t.a.express(8, t.now, Form::compressed);
        paths.push_back(past.at(0).path);
        t.b.take_all(past, t.now);
        t.b.take_all(inside, t.now);
        broken = t.b.broken;
        delivered = t.b.delivered.size();
    }
    const std::vector<PathId> expected{1, 0, 0, 0, 0, 0, 1};
    assert_true(paths == expected);
    assert_int_equal(compressed, 4);
    assert_int_equal(broken, 0);
    assert_int_equal(delivered, 7);
}

// What was overtaken is not missing, and is kept however little room there is for its turn.
void what_is_overtaken_is_kept_and_not_asked_for(void **)
{
    std::size_t answers = 1;
    std::size_t delivered = 0;
    std::uint64_t refused = 1;
    {
        Config c = quick_config();
        c.reorder_bytes = c.fragment_bytes;
        Believers t(0, c);
        std::vector<Frame> frames;
        for (unsigned i = 0; i < 40; ++i) {
            (void)t.a.submit(true, 1000, 1000, t.now);
            const auto one = t.a.pump(t.now);
            frames.insert(frames.end(), one.begin(), one.end());
        }
        std::rotate(frames.begin(), frames.begin() + 1, frames.end()); // the first one is last
        t.b.take_all(frames, t.now);
        t.now += 10_ms;
        answers = t.b.pump(t.now).size();
        delivered = t.b.delivered.size();
        refused = t.b.peer.counters().outside_window;
    }
    assert_int_equal(answers, 0);
    assert_int_equal(delivered, 40);
    assert_int_equal(refused, 0);
}

void beside_others_those_are_acknowledged(void **)
{
    std::array<unsigned, 2> sent{};
    std::size_t before = 1;
    std::size_t after = 0;
    bool idle = false;
    {
        Config c = quick_config();
        c.fragment_bytes = 64 * 1024;
        Believers t(1, c);
        (void)t.a.submit(false, 256 * 1024, 64 * 1024, t.now);
        const auto frames = t.a.pump(t.now, false);
        for (const Frame &frame : frames) {
            ++sent.at(frame.path);
            t.a.peer.locally_complete(*frame.vfrag, frame.index, frame.path, t.now, t.now);
        }
        (void)t.a.pump(t.now);
        before = t.a.done.size();
        t.b.take_all(frames, t.now);
        t.settle(5);
        after = t.a.done.size();
        idle = t.a.peer.quiet() && t.b.peer.quiet();
    }
    assert_true(sent[0] != 0 && sent[1] != 0);
    assert_int_equal(before, 0);
    assert_int_equal(after, 1);
    assert_true(idle);
}

// The peer has not looked yet for what lies in the path that is believed, and acknowledges what
// came over the other one: that is not stale.
void what_is_told_from_behind_counts(void **)
{
    std::size_t done = 0;
    std::size_t repeated = 1;
    std::size_t delivered = 0;
    {
        Believers t(1);
        std::vector<Frame> believed;
        std::vector<Frame> other;
        for (unsigned i = 0; i < 6; ++i) {
            send_past(t.a, i % 2 == 0 ? 1 : 0, i % 2 == 0 ? believed : other, t.now);
        }
        (void)t.a.pump(t.now);
        t.b.take_all(other, t.now);
        t.now += 1_us;
        t.b.peer.flush_acks();
        t.a.take_all(t.b.pump(t.now), t.now);
        (void)t.a.pump(t.now);
        done = t.a.done.size();
        t.now += 100_ms;
        const auto again = t.a.pump(t.now);
        repeated = static_cast<std::size_t>(
            std::count_if(again.begin(), again.end(), [](const Frame &f) { return f.again; }));
        t.b.take_all(believed, t.now);
        delivered = t.b.delivered.size();
    }
    assert_int_equal(done, 6);
    assert_int_equal(repeated, 0);
    assert_int_equal(delivered, 6);
}

// A question over the path that is believed would tell the peer that its sender waits for what goes
// there to be acknowledged: it would be, and what came early would not be kept any more.
void a_question_goes_where_answers_are_due(void **)
{
    bool due = false;
    bool sent_anyway = true;
    PathId answer = no_path;
    std::vector<Frame> frames;
    {
        Believers t(1);
        std::vector<Frame> known;
        send_past(t.a, 0, known, t.now);
        t.b.take_all(known, t.now += 10_us);
        t.b.peer.flush_acks();
        t.a.take_all(t.b.pump(t.now), t.now += 10_us);
        std::vector<Frame> lost;
        send_past(t.a, 0, lost, t.now);
        for (unsigned i = 0; i < 10 && !due; ++i) {
            t.now = t.a.peer.next_deadline();
            t.a.peer.on_time(t.now);
            due = t.a.peer.sender().question_due();
        }
        t.a.peer.blocked(1);
        Transmit what;
        sent_anyway = t.a.peer.next_transmit(what, t.now);
        // What the other end waits for is told all the same.
        (void)t.b.submit(false, 128, 64, t.now);
        t.a.take_all(t.b.pump(t.now), t.now);
        t.a.peer.flush_acks();
        if (t.a.peer.next_transmit(what, t.now) && !what.header.has(flag_ack_wanted)) {
            answer = what.path;
            t.a.peer.sent(what, t.now);
        }
        frames = t.a.pump(t.now);
    }
    assert_true(due);
    assert_false(sent_anyway);
    assert_int_equal(answer, 0);
    assert_int_equal(frames.size(), 1);
    assert_true(is_question(frames[0]));
    assert_int_equal(frames[0].path, 1);
}

// Where the ends are of two opinions it is only slower, and once at that.
void who_asks_is_answered_from_then_on(void **)
{
    std::size_t done = 0;
    std::uint64_t questions = 0;
    std::uint64_t duplicates = 0;
    {
        Two t(0);
        add_path(t.a, true, t.now);
        add_path(t.b, false, t.now);
        for (unsigned i = 0; i < 500; ++i) {
            (void)t.a.submit(true, 8, 8, t.now);
            for (unsigned turns = 0; turns < 4; ++turns) {
                t.b.take_all(t.a.pump(t.now), t.now);
                t.now += 100_us;
                t.a.take_all(t.b.pump(t.now), t.now);
            }
        }
        t.now += 20_ms;
        t.b.take_all(t.a.pump(t.now), t.now);
        t.a.take_all(t.b.pump(t.now), t.now);
        (void)t.a.pump(t.now);
        done = t.a.done.size();
        questions = t.a.peer.counters().questions_sent;
        duplicates = t.b.peer.counters().duplicates;
    }
    assert_int_equal(done, 500);
    assert_in_range(questions, 1, 3);
    assert_in_range(duplicates, 0, 1);
}

void who_wants_a_sign_of_life_gets_one(void **)
{
    std::size_t done = 1;
    std::size_t answers = 0;
    std::size_t answered = 0;
    bool lost = false;
    {
        Believers t;
        const auto ask = [&] {
            Box &box = t.a.boxes.emplace_back();
            box.vfrag.wants_answer = true;
            box.vfrag.fragments = std::span(box.records).first(1);
            t.a.peer.submit(box.vfrag, t.now);
            return t.a.pump(t.now);
        };
        const auto ping = ask();
        done = t.a.done.size();
        t.b.take_all(ping, t.now);
        const auto back = t.b.pump(t.now);
        answers = back.size();
        t.now += 10_us;
        t.a.take_all(back, t.now);
        (void)t.a.pump(t.now);
        answered = t.a.done.size();
        // Nobody is there any more.
        (void)ask();
        for (unsigned i = 0; i < 100 && !t.a.peer.unreachable(); ++i) {
            t.now += 100_ms;
            (void)t.a.pump(t.now);
        }
        lost = t.a.peer.unreachable();
    }
    assert_int_equal(done, 0);
    assert_int_equal(answers, 1);
    assert_int_equal(answered, 1);
    assert_true(lost);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(nobody_waits_and_nobody_answers),
        cmocka_unit_test(otherwise_it_is_answered),
        cmocka_unit_test(done_when_its_btl_is),
        cmocka_unit_test(the_lane_stays_open),
        cmocka_unit_test(answers_are_short_too),
        cmocka_unit_test(who_is_far_behind_gets_whole_numbers),
        cmocka_unit_test(what_overtakes_leaves_the_context_alone),
        cmocka_unit_test(what_is_overtaken_is_kept_and_not_asked_for),
        cmocka_unit_test(beside_others_those_are_acknowledged),
        cmocka_unit_test(what_is_told_from_behind_counts),
        cmocka_unit_test(a_question_goes_where_answers_are_due),
        cmocka_unit_test(who_asks_is_answered_from_then_on),
        cmocka_unit_test(who_wants_a_sign_of_life_gets_one),
    };
    return cmocka_run_group_tests_name("trusted", tests, nullptr, nullptr);
}

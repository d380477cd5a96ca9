// Timeouts of what was not lost but late: found out by what the peer says, answered by longer
// timeouts, and kept from happening where the late one is the process itself.
#include "opal/ft/reliability/peer.hpp"
#include "test/unit/cmocka.hpp"
#include "test/unit/reliability/ends.hpp"

#include <algorithm>

using namespace ft::test;

namespace {

/// A measured pair, a message that is not answered, and the repetition that its timer brings.
struct Late {
    explicit Late(unsigned paths = 1) : t(paths)
    {
        for (int i = 0; i < 30; ++i) {
            (void)t.a.submit(true, 10, 64, t.now);
            t.settle(2);
        }
        rto = t.a.peer.paths().rto(0);
        (void)t.a.submit(true, 10, 64, t.now);
        first = t.a.pump(t.now);
        expire();
    }
    void expire()
    {
        second.clear();
        while (second.empty()) {
            t.now = std::max(t.now, t.a.peer.next_deadline());
            second = t.a.pump(t.now);
            std::erase_if(second, [](const Frame &f) { return !f.again; });
        }
    }
    /// What the peer says now comes to us, after so long.
    void answer(Duration after)
    {
        t.now += after;
        t.b.peer.flush_acks();
        t.a.take_all(t.b.pump(t.now), t.now);
        (void)t.a.pump(t.now);
    }
    [[nodiscard]] std::uint64_t found() const { return t.a.peer.counters().spurious_timeouts; }
    [[nodiscard]] bool longer() const { return t.a.peer.paths().rto(0) > rto; }

    Two t;
    std::vector<Frame> first;
    std::vector<Frame> second;
    Duration rto;
};

void an_answer_to_the_first_transmission_tells(void **)
{
    std::uint64_t found = 0;
    bool longer = false;
    {
        Late late;
        late.t.b.take_all(late.first, late.t.now);
        late.answer(5_us);
        found = late.found();
        longer = late.longer();
    }
    assert_int_equal(found, 1);
    assert_true(longer);
}

void two_copies_at_once_after_a_while_tell(void **)
{
    std::uint64_t found = 0;
    bool longer = false;
    {
        Late late;
        late.t.now += 3_ms; // the peer was not scheduled
        late.t.b.take_all(late.first, late.t.now);
        late.t.b.take_all(late.second, late.t.now);
        late.answer(5_us);
        found = late.found();
        longer = late.longer();
    }
    assert_int_equal(found, 1);
    assert_true(longer);
}

/// Acknowledged first, and told of the second copy later.
void a_second_copy_told_of_later_tells(void **)
{
    std::uint64_t at_first = 1;
    std::uint64_t found = 0;
    {
        Late late(2);
        late.t.now += 3_ms;
        late.t.b.take_all(late.first, late.t.now);
        Frame bare; // the number alone, as it rides on a message
        FragHeader h;
        h.kind = Kind::probe;
        h.source = {1, 1};
        h.flags = flag_ack;
        h.cumulative = late.t.b.peer.receiver().cumulative();
        bare.bytes.resize(header_bytes);
        write_header(h, bare.bytes);
        seal(bare.bytes);
        (void)late.t.a.take(bare, late.t.now);
        at_first = late.found();
        late.t.b.take_all(late.second, late.t.now);
        late.answer(5_us);
        found = late.found();
    }
    assert_int_equal(at_first, 0);
    assert_int_equal(found, 1);
}

void a_lost_acknowledgement_is_not_taken_for_it(void **)
{
    std::uint64_t found = 1;
    std::uint64_t duplicates = 0;
    std::uint64_t needless = 0;
    bool longer = true;
    {
        Late late;
        late.t.b.take_all(late.first, late.t.now - 1_ms);
        late.t.b.peer.flush_acks();
        (void)late.t.b.pump(late.t.now); // lost
        late.t.now += 5_us;
        late.t.b.take_all(late.second, late.t.now);
        late.answer(5_us);
        found = late.found();
        longer = late.longer();
        duplicates = late.t.b.peer.counters().duplicates;
        needless = late.t.a.peer.counters().retransmitted_spurious;
    }
    assert_int_equal(duplicates, 1);
    assert_int_equal(needless, 1);
    assert_int_equal(found, 0);
    assert_false(longer);
}

void a_lost_fragment_is_not_taken_for_it(void **)
{
    std::uint64_t found = 1;
    bool longer = true;
    std::size_t done = 0;
    {
        Late late;
        late.t.now += 5_us;
        late.t.b.take_all(late.second, late.t.now);
        late.answer(5_us);
        found = late.found();
        longer = late.longer();
        done = late.t.a.done.size();
    }
    assert_int_equal(done, 31);
    assert_int_equal(found, 0);
    assert_false(longer);
}

/// Of many timeouts in a row the first transmission's is remembered.
void it_is_found_out_after_many_timeouts(void **)
{
    std::uint64_t found = 0;
    {
        Late late;
        for (int i = 0; i < 5; ++i) {
            late.expire();
        }
        late.t.b.take_all(late.first, late.t.now);
        late.answer(5_us);
        found = late.found();
    }
    assert_int_equal(found, 1);
}

void an_answer_before_the_repetition_is_the_surest(void **)
{
    std::uint64_t found = 0;
    std::uint64_t again = 1;
    {
        Two t;
        (void)t.a.submit(true, 10, 64, t.now);
        const auto first = t.a.pump(t.now);
        t.a.peer.blocked(0);
        t.now = t.a.peer.next_deadline();
        t.a.peer.on_time(t.now); // given up, but the BTL takes nothing
        t.b.take_all(first, t.now);
        t.b.peer.flush_acks();
        t.a.take_all(t.b.pump(t.now), t.now);
        (void)t.a.pump(t.now);
        found = t.a.peer.counters().spurious_timeouts;
        again = t.a.peer.counters().retransmitted_timeout;
    }
    assert_int_equal(found, 1);
    assert_int_equal(again, 0);
}

void who_was_away_looks_before_he_sends_again(void **)
{
    std::size_t at_once = 9;
    std::size_t later = 0;
    std::int64_t waited = 0;
    std::int64_t bound = 0;
    {
        Two t;
        (void)t.a.submit(true, 10, 64, t.now);
        (void)t.a.pump(t.now);
        t.now = t.a.peer.next_deadline() + 500_ms;
        const Time back = t.now;
        at_once = t.a.pump(t.now).size();
        t.now = t.a.peer.next_deadline();
        const auto frames = t.a.pump(t.now);
        later = static_cast<std::size_t>(
            std::count_if(frames.begin(), frames.end(), [](const Frame &f) { return f.again; }));
        waited = (t.now - back).ns();
        bound = t.config.rto_min.ns() / 8;
    }
    assert_int_equal(at_once, 0);
    assert_int_equal(later, 1);
    assert_true(waited <= bound);
}

void who_was_away_and_finds_the_answer_sends_nothing_again(void **)
{
    std::uint64_t again = 1;
    std::size_t done = 0;
    {
        Two t;
        for (int i = 0; i < 3; ++i) {
            (void)t.a.submit(i != 1, 64, 64, t.now);
        }
        t.b.take_all(t.a.pump(t.now), t.now);
        t.b.peer.flush_acks();
        const auto answer = t.b.pump(t.now);
        t.now += 500_ms;
        (void)t.a.pump(t.now); // it looks at its timers first
        t.a.take_all(answer, t.now);
        for (int i = 0; i < 10; ++i) {
            t.now = std::min(t.a.peer.next_deadline(), t.now + 1_s);
            (void)t.a.pump(t.now);
        }
        done = t.a.done.size();
        again = t.a.peer.counters().retransmitted_timeout;
    }
    assert_int_equal(done, 3);
    assert_int_equal(again, 0);
}

/// A VFRAG over two paths, of which one is silent: its timer repeats one fragment over the other,
/// and the answer, which is asked for, tells of the rest. A peer that is only late costs no more.
void a_timeout_repeats_one_fragment_and_asks(void **)
{
    std::size_t repeated = 0;
    bool asked = false;
    std::size_t rest = 0;
    std::uint64_t timeouts = 0;
    std::size_t done = 0;
    {
        Two t(2);
        for (int i = 0; i < 10; ++i) {
            (void)t.a.submit(true, 10, 64, t.now);
            t.settle(2);
        }
        (void)t.a.submit(false, 16 * 64, 64, t.now);
        auto frames = t.a.pump(t.now);
        const PathId silent = frames.back().path;
        std::erase_if(frames, [&](const Frame &f) { return f.path == silent; });
        t.now += 5_us;
        t.b.take_all(frames, t.now);
        std::vector<Frame> again;
        while (again.empty()) {
            t.now = std::max(t.now, t.a.peer.next_deadline());
            again = t.a.pump(t.now);
            std::erase_if(again, [](const Frame &f) { return !f.again; });
        }
        repeated = again.size();
        FragHeader h;
        (void)parse_header(again.front().bytes, true, h);
        asked = h.has(flag_ack_wanted) && h.path != silent;
        t.b.take_all(again, t.now);
        const auto answer = t.b.pump(t.now); // without another cause
        t.now += 5_us;
        t.a.take_all(answer, t.now);
        const auto others = t.a.pump(t.now);
        rest = static_cast<std::size_t>(
            std::count_if(others.begin(), others.end(), [](const Frame &f) { return f.again; }));
        t.b.take_all(others, t.now);
        t.a.take_all(t.b.pump(t.now), t.now);
        (void)t.a.pump(t.now);
        timeouts = t.a.peer.counters().retransmitted_timeout;
        done = t.a.done.size();
    }
    assert_int_equal(repeated, 1);
    assert_true(asked);
    assert_true(rest >= 1);
    assert_int_equal(timeouts, 1);
    assert_int_equal(done, 11);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_to_the_first_transmission_tells),
        cmocka_unit_test(two_copies_at_once_after_a_while_tell),
        cmocka_unit_test(a_second_copy_told_of_later_tells),
        cmocka_unit_test(a_lost_acknowledgement_is_not_taken_for_it),
        cmocka_unit_test(a_lost_fragment_is_not_taken_for_it),
        cmocka_unit_test(it_is_found_out_after_many_timeouts),
        cmocka_unit_test(an_answer_before_the_repetition_is_the_surest),
        cmocka_unit_test(who_was_away_looks_before_he_sends_again),
        cmocka_unit_test(who_was_away_and_finds_the_answer_sends_nothing_again),
        cmocka_unit_test(a_timeout_repeats_one_fragment_and_asks),
    };
    return cmocka_run_group_tests_name("spurious", tests, nullptr, nullptr);
}

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

/// A pair whose wire lets fragments overtake each other.
struct Overtaking {
    explicit Overtaking(unsigned threshold = 3) : t(1, with(threshold)) {}
    static Config with(unsigned threshold)
    {
        Config config = quick_config();
        config.reorder_threshold = threshold;
        return config;
    }
    /// The first of 64 fragments comes after so many others, or never. \return how many were
    /// sent again since a gap was seen
    std::uint64_t round(unsigned others, bool comes = true)
    {
        const std::uint64_t before = gaps();
        (void)t.a.submit(false, std::uint64_t{64} * 64, 64, t.now);
        const std::vector<Frame> frames = t.a.pump(t.now);
        const auto overtaking = frames.begin() + 1 + others;
        t.now += 10_us;
        t.b.take_all({frames.begin() + 1, overtaking}, t.now);
        t.b.peer.flush_acks();
        t.a.take_all(t.b.pump(t.now), t.now);
        const std::vector<Frame> again = t.a.pump(t.now);
        t.now += 10_us;
        if (comes) {
            (void)t.b.take(frames.front(), t.now);
        }
        t.b.take_all(again, t.now);
        t.b.take_all({overtaking, frames.end()}, t.now);
        t.settle();
        return gaps() - before;
    }
    [[nodiscard]] std::uint64_t gaps() const { return t.a.peer.counters().retransmitted_gap; }
    [[nodiscard]] unsigned threshold() const { return t.a.peer.paths()[0].reorder_threshold; }

    Two t;
};

/// Each needless repetition after a gap doubles the number of later arrivals that prove a loss.
void being_overtaken_doubles_the_reorder_threshold(void **)
{
    std::vector<std::uint64_t> repeated;
    std::vector<unsigned> thresholds;
    std::size_t done = 0;
    {
        Overtaking wire;
        thresholds.push_back(wire.threshold());
        for (const unsigned others : {2U, 3U, 3U, 5U, 6U, 11U, 12U, 19U}) {
            repeated.push_back(wire.round(others));
            thresholds.push_back(wire.threshold());
        }
        done = wire.t.a.done.size();
    }
    const std::vector<std::uint64_t> expected{0, 1, 0, 0, 1, 0, 1, 0};
    const std::vector<unsigned> steps{3, 3, 6, 6, 6, 12, 12, 24, 24};
    const bool right = repeated == expected && thresholds == steps;
    assert_true(right);
    assert_int_equal(done, 8);
}

void the_reorder_threshold_has_a_limit(void **)
{
    unsigned threshold = 0;
    {
        Overtaking wire(16);
        for (const unsigned others : {16U, 32U, 60U}) {
            (void)wire.round(others);
        }
        threshold = wire.threshold();
    }
    assert_int_equal(threshold, 64);
}

/// What was lost indeed comes once: nothing tells that the gap misled.
void a_loss_leaves_the_reorder_threshold(void **)
{
    std::uint64_t repeated = 0;
    unsigned threshold = 0;
    {
        Overtaking wire;
        for (int i = 0; i < 5; ++i) {
            repeated += wire.round(3, false);
        }
        threshold = wire.threshold();
    }
    assert_int_equal(repeated, 5);
    assert_int_equal(threshold, 3);
}

/// A timer that was too early says nothing about the order of arrival.
void a_late_answer_leaves_the_reorder_threshold(void **)
{
    std::uint64_t spurious = 0;
    unsigned threshold = 0;
    {
        Late late;
        late.t.b.take_all(late.first, late.t.now);
        late.t.b.take_all(late.second, late.t.now);
        late.answer(5_us);
        spurious = late.t.a.peer.counters().retransmitted_spurious;
        threshold = late.t.a.peer.paths()[0].reorder_threshold;
    }
    assert_int_equal(spurious, 1);
    assert_int_equal(threshold, 3);
}

enum class Fate : std::uint8_t { late, late_and_twice, lost };

/// The congestion window after a timeout where a queue stands, by what became of the fragment whose
/// timer expired. \return of what it was before
double window_after(Fate fate)
{
    Config config = quick_config();
    Two t(0, config);
    for (End *end : {&t.a, &t.b}) {
        PathInfo info;
        info.max_fragment_bytes = 1 << 20;
        info.unreliable = true;
        (void)end->peer.add_path(info, t.now);
    }
    const auto answer = [&] {
        t.now += 5_ms;
        t.b.peer.flush_acks();
        t.a.take_all(t.b.pump(t.now), t.now);
    };
    const auto exchange = [&] {
        (void)t.a.submit(false, 1000, 1000, t.now);
        const auto frames = t.a.pump(t.now);
        t.now += 5_ms;
        t.b.take_all(frames, t.now);
        answer();
    };
    const auto window = [&] {
        return static_cast<double>(t.a.peer.paths()[0].congestion->window());
    };
    for (int i = 0; i < 10; ++i) {
        exchange();
    }
    const double before = window();
    (void)t.a.submit(false, 1000, 1000, t.now);
    const auto first = t.a.pump(t.now);
    std::vector<Frame> second;
    while (second.empty()) {
        t.now = std::max(t.now, t.a.peer.next_deadline());
        second = t.a.pump(t.now);
        std::erase_if(second, [](const Frame &f) { return !f.again; });
    }
    if (fate != Fate::lost) {
        t.b.take_all(first, t.now);
    }
    if (fate != Fate::late) {
        t.now += 1_ms;
        t.b.take_all(second, t.now);
    }
    answer();
    for (int i = 0; i < 3; ++i) {
        exchange();
    }
    return window() / before;
}

void only_a_timeout_that_repairs_a_loss_shrinks_the_window(void **)
{
    const double late = window_after(Fate::late);
    const double twice = window_after(Fate::late_and_twice);
    const double lost = window_after(Fate::lost);
    assert_true(late >= 1 && twice >= 1);
    assert_true(lost < 0.8);
}

/// Where things get lost, too, a timer that was too early is not taken for reordering.
void a_late_answer_after_a_loss_leaves_the_reorder_threshold(void **)
{
    std::uint64_t spurious = 0;
    unsigned threshold = 0;
    {
        Overtaking wire;
        (void)wire.round(3, false);
        Two &t = wire.t;
        (void)t.a.submit(true, 8, 8, t.now);
        t.b.take_all(t.a.pump(t.now), t.now);
        t.b.peer.flush_acks();
        (void)t.b.pump(t.now); // is lost
        std::vector<Frame> again;
        while (again.empty()) {
            t.now = std::max(t.now, t.a.peer.next_deadline());
            again = t.a.pump(t.now);
            std::erase_if(again, [](const Frame &f) { return !f.again; });
        }
        t.b.take_all(again, t.now);
        t.settle();
        spurious = t.a.peer.counters().retransmitted_spurious;
        threshold = wire.threshold();
    }
    assert_int_equal(spurious, 1);
    assert_int_equal(threshold, 3);
}

/// When for long nothing was overtaken the threshold comes down to where it began.
void reordering_is_forgotten(void **)
{
    unsigned learnt = 0;
    unsigned soon = 0;
    unsigned later = 0;
    {
        Overtaking wire;
        (void)wire.round(3);
        (void)wire.round(6);
        learnt = wire.threshold();
        for (int i = 0; i < 600; ++i) {
            (void)wire.round(12, false);
            soon = i == 100 ? wire.threshold() : soon;
        }
        later = wire.threshold();
    }
    assert_int_equal(learnt, 12);
    assert_int_equal(soon, 12);
    assert_int_equal(later, 3);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(only_a_timeout_that_repairs_a_loss_shrinks_the_window),
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
        cmocka_unit_test(being_overtaken_doubles_the_reorder_threshold),
        cmocka_unit_test(the_reorder_threshold_has_a_limit),
        cmocka_unit_test(a_loss_leaves_the_reorder_threshold),
        cmocka_unit_test(a_late_answer_leaves_the_reorder_threshold),
        cmocka_unit_test(a_late_answer_after_a_loss_leaves_the_reorder_threshold),
        cmocka_unit_test(reordering_is_forgotten),
    };
    return cmocka_run_group_tests_name("spurious", tests, nullptr, nullptr);
}

#include "opal/ft/reliability/sender.hpp"
#include "test/unit/cmocka.hpp"
#include "test/unit/reliability/ends.hpp"

#include <utility>

using namespace ft::test;

namespace {

/// Data fragments among frames.
unsigned fragments(const std::vector<Frame> &frames)
{
    unsigned n = 0;
    for (const Frame &f : frames) {
        n += f.what == Transmit::What::fragment ? 1 : 0;
    }
    return n;
}

/// All that is missing of the oldest VFRAG waits for a window that is full of what was lost.
void a_full_window_of_lost_ones_does_not_keep_its_timers_still(void **)
{
    bool waits = false;
    std::size_t done = 0;
    std::size_t submitted = 0;
    {
        Two t(0);
        for (End *end : {&t.a, &t.b}) {
            for (const Duration latency : {1_us, 0_us}) {
                PathInfo info;
                info.max_fragment_bytes = 1 << 20;
                info.latency = latency;
                info.unreliable = true;
                (void)end->peer.add_path(info, t.now);
            }
        }
        // Of the first VFRAG only the last fragment, on path 0, arrives.
        (void)t.a.submit(false, 2048, 1024, t.now);
        const auto first = t.a.pump(t.now);
        t.now += 10_us;
        (void)t.b.take(first.back(), t.now);
        t.b.peer.flush_acks();
        t.a.take_all(t.b.pump(t.now), t.now);
        // Both windows fill, and all that is in them is lost.
        while (t.a.peer.has_room(1024, false)) {
            (void)t.a.submit(false, 1024, 1024, t.now);
            (void)t.a.pump(t.now);
            t.now += 2_us;
        }
        submitted = t.a.boxes.size();
        t.a.peer.path_error(1, t.now);
        waits = first.size() == 2 && first.front().path == 1 && first.back().path == 0 &&
                fragments(t.a.pump(t.now)) == 0;
        // So rarely is anybody there to look that all timers have expired each time.
        for (int i = 0; i < 100 && t.a.done.size() < submitted; ++i) {
            t.now += 100_ms;
            t.b.take_all(t.a.pump(t.now), t.now);
            t.a.take_all(t.b.pump(t.now), t.now);
        }
        done = t.a.done.size();
    }
    assert_true(waits);
    assert_int_equal(done, submitted);
}

/// 32 fragments are lost over a datagram path. \param heard an answer after the first timeout that
/// tells of something later, and not of them \return how many each of the first two timeouts sends
std::pair<unsigned, unsigned> sent_by_timeouts(bool heard)
{
    Two t(0);
    PathInfo info;
    info.max_fragment_bytes = 1 << 20;
    info.unreliable = true;
    (void)t.a.peer.add_path(info, t.now);
    (void)t.b.peer.add_path(info, t.now);
    (void)t.a.submit(false, 32 * 1024, 1024, t.now);
    (void)t.a.pump(t.now);
    std::pair<unsigned, unsigned> sent;
    while (sent.first == 0) {
        t.now += 1_ms;
        sent.first = fragments(t.a.pump(t.now));
    }
    if (heard) {
        t.now += 10_us;
        (void)t.a.submit(true, 8, 8, t.now);
        t.b.take_all(t.a.pump(t.now), t.now);
        (void)t.b.submit(true, 8, 8, t.now);
        for (const Frame &frame : t.b.pump(t.now)) {
            if (frame.what == Transmit::What::fragment) {
                (void)t.a.take(frame, t.now);
            }
        }
    }
    while (sent.second == 0) {
        t.now += 1_ms;
        sent.second = fragments(t.a.pump(t.now));
    }
    return sent;
}

/// An ack may have no room for a VFRAG: what was lost of it must leave the window all the same.
void a_second_timeout_empties_the_window(void **)
{
    const auto [first, at_once] = sent_by_timeouts(true);
    assert_int_equal(first, 1);
    assert_in_range(at_once, 30, 32);
}

/// All of it may wait in the buffer of a peer that does not run.
void a_silent_peer_is_sent_one_fragment_at_a_time(void **)
{
    const auto [first, second] = sent_by_timeouts(false);
    assert_int_equal(first, 1);
    assert_int_equal(second, 1);
}

void the_window_is_exact(void **)
{
    bool empty = false;
    bool over = true;
    bool rest = false;
    bool full = true;
    bool nothing = false;
    bool reopened = false;
    {
        Config c = quick_config();
        c.window_bytes = 3000;
        Two t(1, c);
        empty = t.a.peer.has_room(3000, false);
        over = t.a.peer.has_room(3001, false);
        (void)t.a.submit(false, 2000, 1000, t.now);
        rest = t.a.peer.has_room(1000, false);
        full = t.a.peer.has_room(1001, false);
        (void)t.a.submit(true, 1000, 1000, t.now);
        nothing = t.a.peer.has_room(0, true) && !t.a.peer.has_room(1, true);
        t.settle();
        reopened = t.a.peer.has_room(3000, false);
    }
    assert_true(empty);
    assert_false(over);
    assert_true(rest);
    assert_false(full);
    assert_true(nothing);
    assert_true(reopened);
}

void data_leaves_a_reserve_of_numbers_to_replies(void **)
{
    bool right = true;
    for (const unsigned window : {2U, 3U, 4U, 7U, 8U, 16U, 256U}) {
        Config c = quick_config();
        c.window_vfrags = window;
        c.ack_every = 1;
        unsigned data = 0;
        unsigned ordered = 0;
        Two t(1, c);
        while (t.a.peer.has_room(1, false)) {
            (void)t.a.submit(false, 1, 1, t.now);
            ++data;
        }
        while (t.a.peer.has_room(1, true)) {
            (void)t.a.submit(true, 1, 1, t.now);
            ++ordered;
        }
        right = right && data + ordered == window && ordered == std::max(window / 4, 1U);
    }
    assert_true(right);
}

/// Where nothing overtakes the next fragment proves a loss: the first of two is not waited for.
void where_order_is_kept_one_later_fragment_proves_a_loss(void **)
{
    unsigned again[2] = {};
    for (const bool keeps_order : {false, true}) {
        Two t(0);
        PathInfo info;
        info.max_fragment_bytes = 1 << 20;
        info.keeps_order = keeps_order;
        for (End *end : {&t.a, &t.b}) {
            (void)end->peer.add_path(info, t.now);
        }
        (void)t.a.submit(false, 2048, 1024, t.now);
        t.settle(2);
        (void)t.a.submit(false, 2048, 1024, t.now);
        const auto sent = t.a.pump(t.now);
        t.now += 10_us;
        (void)t.b.take(sent.back(), t.now);
        t.a.take_all(t.b.pump(t.now), t.now);
        again[keeps_order ? 1 : 0] = fragments(t.a.pump(t.now));
    }
    assert_int_equal(again[0], 0);
    assert_int_equal(again[1], 1);
}

void a_gap_is_sent_again_without_a_timer(void **)
{
    unsigned repeated = 0;
    std::uint64_t by_gap = 0;
    std::uint64_t by_timer = 1;
    std::size_t done = 0;
    bool right = false;
    {
        Two t;
        t.settle(2);
        (void)t.a.submit(false, 8 * 64, 64, t.now);
        auto frames = t.a.pump(t.now);
        frames.erase(frames.begin() + 1); // the second is lost
        t.now += 10_us;
        for (const Frame &f : frames) {
            (void)t.b.take(f, t.now);
            t.a.take_all(t.b.pump(t.now), t.now); // on_time has nothing to do at these times
        }
        const auto again = t.a.pump(t.now);
        repeated = fragments(again);
        right = !again.empty() && again[0].index == 1 && again[0].again;
        t.b.take_all(again, t.now);
        t.a.take_all(t.b.pump(t.now), t.now);
        (void)t.a.pump(t.now);
        done = t.a.done.size();
        by_gap = t.a.peer.counters().retransmitted_gap;
        by_timer = t.a.peer.counters().retransmitted_timeout;
    }
    assert_int_equal(repeated, 1);
    assert_true(right);
    assert_int_equal(by_gap, 1);
    assert_int_equal(by_timer, 0);
    assert_int_equal(done, 1);
}

void a_lost_tail_costs_one_timeout(void **)
{
    std::int64_t waited = 0;
    std::int64_t rto = 0;
    unsigned repeated = 0;
    std::size_t done = 0;
    {
        Two t;
        for (int i = 0; i < 30; ++i) {
            (void)t.a.submit(true, 10, 64, t.now);
            t.settle(2);
        }
        t.a.done.clear();
        (void)t.a.submit(false, 4 * 64, 64, t.now);
        auto frames = t.a.pump(t.now);
        frames.pop_back();
        const Time sent = t.now;
        rto = (t.a.peer.paths().rto(0) + t.config.ack_delay).ns();
        t.now += 10_us;
        t.b.take_all(frames, t.now);
        t.a.take_all(t.b.pump(t.now), t.now);
        std::vector<Frame> again;
        while (again.empty()) {
            const Time next = std::min(t.a.peer.next_deadline(), t.b.peer.next_deadline());
            t.now = std::max(t.now, next);
            t.a.take_all(t.b.pump(t.now), t.now);
            again = t.a.pump(t.now);
            std::erase_if(again, [](const Frame &f) { return !f.again; });
        }
        waited = (t.now - sent).ns();
        repeated = fragments(again);
        t.b.take_all(again, t.now);
        t.a.take_all(t.b.pump(t.now), t.now);
        (void)t.a.pump(t.now);
        done = t.a.done.size();
    }
    assert_int_equal(repeated, 1);
    assert_int_equal(done, 1);
    assert_true(waited <= rto + 20'000);
    assert_true(rto < 3'000'000); // adaptive: the guess was 10 ms
}

void the_back_off_doubles_up_to_its_bound(void **)
{
    std::array<std::int64_t, 12> waits{};
    std::int64_t bound = 0;
    {
        Two t;
        (void)t.a.submit(true, 10, 64, t.now);
        (void)t.a.pump(t.now);
        bound = t.config.rto_max.ns();
        Time last = t.now;
        for (auto &wait : waits) {
            std::vector<Frame> again;
            while (again.empty()) {
                t.now = std::max(t.now, t.a.peer.next_deadline());
                again = t.a.pump(t.now);
                std::erase_if(again, [](const Frame &f) { return !f.again; });
            }
            wait = (t.now - last).ns();
            last = t.now;
        }
    }
    assert_true(waits[0] >= 10'000'000 && waits[0] < 11'000'000);
    for (std::size_t i = 1; i < waits.size(); ++i) {
        assert_true(waits[i] == std::min(waits[i - 1] * 2, bound));
    }
    assert_true(waits.back() == bound);
}

// Karn's rule: the sample is of the copy that arrived, not of the first.
void a_retransmission_does_not_stretch_the_round_trip(void **)
{
    std::int64_t smoothed = 0;
    {
        Two t;
        (void)t.a.submit(true, 10, 64, t.now);
        (void)t.a.pump(t.now); // lost
        std::vector<Frame> again;
        while (again.empty()) {
            t.now = t.a.peer.next_deadline();
            again = t.a.pump(t.now);
            std::erase_if(again, [](const Frame &f) { return !f.again; });
        }
        t.now += 100_us;
        t.b.take_all(again, t.now);
        t.b.peer.flush_acks();
        const auto ack = t.b.pump(t.now);
        t.now += 100_us;
        t.a.take_all(ack, t.now);
        smoothed = t.a.peer.paths()[0].rtt.smoothed().ns();
    }
    assert_true(smoothed >= 190'000 && smoothed <= 210'000);
}

/// An ack by hand.
Frame ack_of(std::uint32_t cumulative, const AckBody &body)
{
    Frame f;
    f.bytes.resize(max_control_bytes);
    FragHeader h;
    h.kind = Kind::ack;
    h.source = {1, 1};
    h.flags = flag_ack | flag_payload_checksummed;
    h.cumulative = cumulative;
    h.payload_bytes =
        static_cast<std::uint32_t>(write_ack(body, std::span(f.bytes).subspan(header_bytes)));
    f.bytes.resize(header_bytes + h.payload_bytes);
    h.payload_crc = ft::base::crc32c(std::span(f.bytes).subspan(header_bytes));
    write_header(h, f.bytes);
    seal(f.bytes);
    return f;
}

void an_ack_for_what_was_never_sent_changes_nothing(void **)
{
    std::array<std::uint64_t, 5> malformed{};
    std::uint64_t acknowledged = 1;
    std::size_t done = 0;
    {
        Config c = quick_config();
        c.path_depth = 2;
        Two t(1, c);
        Vfrag &v = t.a.submit(false, 4 * 64, 64, t.now);
        const auto frames = t.a.pump(t.now, false); // two of four are out
        (void)t.a.take(ack_of(1, {}), t.now);       // the whole VFRAG
        malformed[0] = t.a.peer.counters().malformed;
        (void)t.a.take(ack_of(2, {}), t.now); // a VFRAG that does not exist
        malformed[1] = t.a.peer.counters().malformed;
        (void)t.a.take(ack_of(0x7fffffff, {}), t.now);
        malformed[2] = t.a.peer.counters().malformed;
        AckBody body;
        body.words = 1;
        body.whole[0] = 0b11; // it, and one that does not exist
        (void)t.a.take(ack_of(0, body), t.now);
        malformed[3] = t.a.peer.counters().malformed;
        body = {};
        body.partials = 2;
        body.partial[0] = {0, 0b1100, 0b1000}; // fragments 2 and 3
        body.partial[1] = {1000, 1, 0};
        (void)t.a.take(ack_of(0, body), t.now);
        malformed[4] = t.a.peer.counters().malformed;
        acknowledged = t.a.peer.counters().fragments_acknowledged;
        t.b.take_all(frames, t.now);
        t.a.peer.locally_complete(v, 0, 0, t.now, t.now);
        t.a.peer.locally_complete(v, 1, 0, t.now, t.now);
        t.settle();
        done = t.a.done.size();
    }
    for (std::size_t i = 0; i < malformed.size(); ++i) {
        assert_int_equal(malformed[i], i + 1);
    }
    assert_int_equal(acknowledged, 0);
    assert_int_equal(done, 1);
}

void a_stale_ack_is_harmless(void **)
{
    std::size_t done = 0;
    std::uint64_t malformed = 1;
    bool drained = true;
    {
        Two t;
        for (int i = 0; i < 3; ++i) {
            (void)t.a.submit(true, 8, 64, t.now);
            t.settle(3);
        }
        (void)t.a.submit(true, 8, 64, t.now);
        (void)t.a.pump(t.now);
        AckBody body;
        body.words = 1;
        body.whole[0] = 0b10;
        (void)t.a.take(ack_of(1, body), t.now); // from before
        (void)t.a.take(ack_of(0xfffffff0, {}), t.now);
        malformed = t.a.peer.counters().malformed;
        drained = t.a.peer.drained();
        done = t.a.done.size();
    }
    assert_int_equal(done, 3);
    assert_int_equal(malformed, 0);
    assert_false(drained);
}

void an_error_moves_what_is_in_flight_to_another_path(void **)
{
    unsigned on_first = 0;
    unsigned moved = 0;
    bool wrong = false;
    std::size_t done = 0;
    {
        Two t(2);
        (void)t.a.submit(false, 10 * 64, 64, t.now);
        auto frames = t.a.pump(t.now);
        for (const Frame &f : frames) {
            on_first += f.path == 0 ? 1 : 0;
        }
        std::erase_if(frames, [](const Frame &f) { return f.path == 0; });
        t.b.take_all(frames, t.now);
        t.a.peer.path_error(0, t.now);
        const auto again = t.a.pump(t.now); // no time has passed
        for (const Frame &f : again) {
            moved += f.again ? 1 : 0;
            wrong = wrong || f.path != 1;
        }
        t.b.take_all(again, t.now);
        t.settle();
        done = t.a.done.size();
    }
    assert_true(on_first > 0);
    assert_int_equal(moved, on_first);
    assert_false(wrong);
    assert_int_equal(done, 1);
}

void the_watchdog_moves_what_a_transport_holds(void **)
{
    std::uint64_t by_watchdog = 0;
    std::size_t done = 0;
    unsigned held = 0;
    std::int64_t waited = 0;
    {
        Two t(2);
        Vfrag &v = t.a.submit(true, 64, 64, t.now);
        const auto frames = t.a.pump(t.now, false); // it never leaves
        const Time start = t.now;
        std::vector<Frame> again;
        while (again.empty()) {
            t.now = t.a.peer.next_deadline();
            again = t.a.pump(t.now);
            std::erase_if(again, [](const Frame &f) { return !f.again; });
        }
        waited = (t.now - start).ns();
        by_watchdog = t.a.peer.counters().retransmitted_watchdog;
        t.b.take_all(again, t.now);
        t.b.peer.flush_acks();
        t.a.take_all(t.b.pump(t.now), t.now);
        (void)t.a.pump(t.now);
        // Acknowledged, while a descriptor is stuck: given up for lost after a bounded time.
        const Time limit = t.now + t.config.rto_max * 2;
        while (t.a.done.empty() && t.now < limit) {
            t.now = t.a.peer.next_deadline();
            (void)t.a.pump(t.now);
        }
        done = t.a.done.size();
        held = v.descriptors_held();
        t.a.peer.descriptor_released(frames[0].path, start);
    }
    assert_int_equal(by_watchdog, 1);
    assert_true(waited <= 11'000'000);
    assert_int_equal(done, 1);
    assert_int_equal(held, 1);
}

/// One path takes long to be done with what it was given, and does not make the watchdog wait as
/// long for what the other one holds.
void the_watchdog_is_of_the_path_that_holds_something(void **)
{
    std::array<PathId, 4> paths{};
    Duration both{};
    Duration fast{};
    Duration slow{};
    {
        Two t(2);
        const Vfrag *v = nullptr;
        const auto send = [&] {
            v = &t.a.submit(false, 2048, 1024, t.now);
            return t.a.pump(t.now, false);
        };
        const auto complete = [&](const Frame &f, Time sent_at) {
            t.a.peer.locally_complete(*f.vfrag, f.index, f.path, sent_at, t.now);
        };
        const auto left = [&] { return v->watchdog_deadline() - t.now; };
        const Time start = t.now;
        const auto first = send();
        complete(first.at(0), start);
        for (const Frame &frame : first) {
            (void)t.b.take(frame, t.now += 10_us);
            t.b.peer.flush_acks();
            t.a.take_all(t.b.pump(t.now += 10_us), t.now);
        }
        t.now += 8_ms;
        complete(first.at(1), start);
        (void)t.a.pump(t.now);
        const auto second = send();
        both = left();
        complete(second.at(1), t.now);
        fast = left();
        const auto third = send();
        complete(third.at(0), t.now);
        slow = left();
        paths = {first[0].path, first[1].path, second[1].path, third[0].path};
        complete(second[0], t.now);
        complete(third.at(1), t.now);
    }
    assert_true((paths == std::array<PathId, 4>{0, 1, 1, 0}));
    assert_true(both > 20_ms);
    assert_true(fast < 3_ms);
    assert_true(slow > 10_ms);
}

void the_watchdog_alone_repeats_nothing_over_the_same_path(void **)
{
    std::uint64_t by_watchdog = 1;
    {
        Two t(1);
        (void)t.a.submit(false, 2 * 64, 64, t.now);
        (void)t.a.pump(t.now, false);
        for (int i = 0; i < 20; ++i) {
            t.now = t.a.peer.next_deadline();
            (void)t.a.pump(t.now, false);
        }
        by_watchdog = t.a.peer.counters().retransmitted_watchdog;
    }
    assert_int_equal(by_watchdog, 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_full_window_of_lost_ones_does_not_keep_its_timers_still),
        cmocka_unit_test(a_second_timeout_empties_the_window),
        cmocka_unit_test(a_silent_peer_is_sent_one_fragment_at_a_time),
        cmocka_unit_test(the_window_is_exact),
        cmocka_unit_test(data_leaves_a_reserve_of_numbers_to_replies),
        cmocka_unit_test(a_gap_is_sent_again_without_a_timer),
        cmocka_unit_test(where_order_is_kept_one_later_fragment_proves_a_loss),
        cmocka_unit_test(a_lost_tail_costs_one_timeout),
        cmocka_unit_test(the_back_off_doubles_up_to_its_bound),
        cmocka_unit_test(a_retransmission_does_not_stretch_the_round_trip),
        cmocka_unit_test(an_ack_for_what_was_never_sent_changes_nothing),
        cmocka_unit_test(a_stale_ack_is_harmless),
        cmocka_unit_test(an_error_moves_what_is_in_flight_to_another_path),
        cmocka_unit_test(the_watchdog_moves_what_a_transport_holds),
        cmocka_unit_test(the_watchdog_is_of_the_path_that_holds_something),
        cmocka_unit_test(the_watchdog_alone_repeats_nothing_over_the_same_path),
    };
    return cmocka_run_group_tests_name("sender", tests, nullptr, nullptr);
}

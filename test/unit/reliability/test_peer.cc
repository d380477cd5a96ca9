#include "opal/ft/reliability/peer.hpp"
#include "test/unit/cmocka.hpp"
#include "test/unit/reliability/ends.hpp"

#include <algorithm>

using namespace ft::test;

namespace {

// The historic dr acknowledged corrupt fragments, and lost the sequence number of a corrupt eager
// message: its repetition was taken for a duplicate.
void a_corrupt_eager_message_is_repeated_and_delivered(void **)
{
    std::size_t delivered = 9;
    bool acknowledged = true;
    std::uint64_t by_nack = 0;
    std::uint64_t by_timer = 1;
    bool in_order = false;
    std::size_t done = 0;
    {
        Two t;
        (void)t.a.submit(true, 100, 1024, t.now);
        (void)t.a.submit(true, 100, 1024, t.now);
        auto frames = t.a.pump(t.now);
        frames[0].bytes.back() ^= std::byte{1};
        t.now += 10_us;
        t.b.take_all(frames, t.now);
        delivered = t.b.delivered.size();
        t.a.take_all(t.b.pump(t.now), t.now);
        acknowledged = !t.a.done.empty();
        const auto again = t.a.pump(t.now); // no timer
        t.b.take_all(again, t.now);
        in_order = t.b.delivered == std::vector<std::uint32_t>{0, 1};
        t.settle();
        done = t.a.done.size();
        by_nack = t.a.peer.counters().retransmitted_nack;
        by_timer = t.a.peer.counters().retransmitted_timeout;
    }
    assert_int_equal(delivered, 0); // the second waits for the first
    assert_false(acknowledged);
    assert_int_equal(by_nack, 1);
    assert_int_equal(by_timer, 0);
    assert_true(in_order);
    assert_int_equal(done, 2);
}

/// How many of `rounds` answers, `apart` from each other, take acknowledgements along.
std::uint64_t answers_that_acknowledge(unsigned rounds, Duration apart, std::size_t &unacknowledged)
{
    Two t;
    for (unsigned i = 0; i < rounds; ++i) {
        t.b.take_all(t.a.express(8, t.now), t.now);
        (void)t.b.pump(t.now);
        t.a.take_all(t.b.express(8, t.now), t.now);
        (void)t.a.pump(t.now);
        t.now += apart;
    }
    unacknowledged = t.a.peer.sender().window_vfrags();
    return t.b.peer.counters().acks_piggybacked;
}

// In quick succession one answer in several tells of all that came; in slow succession each does.
void answers_in_quick_succession_share_an_acknowledgement(void **)
{
    const std::uint32_t together = 16; // half of ack_every is more
    std::size_t left = 0;
    assert_int_equal(answers_that_acknowledge(together * 4, 0_us, left), 4);
    assert_int_equal(left, 0);
    assert_int_equal(answers_that_acknowledge(together * 4 + 1, 0_us, left), 4);
    assert_int_equal(left, 1);
    // After 16 us it is told with the next answer.
    assert_int_equal(answers_that_acknowledge(9, 8_us, left), 3);
    assert_int_equal(left, 0);
    // What its sender waits for is told with the first answer, and so is what was missing.
    std::uint64_t with_data = 0;
    std::size_t done = 0;
    bool after_loss = false;
    {
        Two t;
        (void)t.a.submit(false, 64, 64, t.now);
        t.b.take_all(t.a.pump(t.now), t.now);
        t.a.take_all(t.b.express(8, t.now), t.now);
        with_data = t.b.peer.counters().acks_piggybacked;
        (void)t.a.pump(t.now);
        done = t.a.done.size();
        (void)t.a.express(8, t.now);
        t.b.take_all(t.a.express(8, t.now), t.now); // one before it is missing
        after_loss = t.b.express(8, t.now).empty();
    }
    assert_int_equal(with_data, 1);
    assert_int_equal(done, 1);
    assert_true(after_loss); // an acknowledgement of its own goes first
}

void a_corrupt_fragment_of_many_is_the_only_one_repeated(void **)
{
    std::uint64_t sent = 0;
    std::size_t delivered = 0;
    std::size_t done = 0;
    {
        Two t;
        (void)t.a.submit(false, 64 * 16, 16, t.now);
        auto frames = t.a.pump(t.now);
        frames[63].bytes.back() ^= std::byte{0x80}; // the last: no gap behind it
        t.b.take_all(frames, t.now);
        t.settle();
        sent = t.a.peer.counters().fragments_sent;
        delivered = t.b.delivered.size();
        done = t.a.done.size();
    }
    assert_int_equal(sent, 65);
    assert_int_equal(delivered, 64);
    assert_int_equal(done, 1);
}

void lost_acks_lead_to_duplicates_that_are_acknowledged_again(void **)
{
    std::size_t delivered = 0;
    std::uint64_t duplicates = 0;
    std::size_t done = 0;
    {
        Two t;
        (void)t.a.submit(false, 4 * 16, 16, t.now);
        for (int i = 0; i < 5; ++i) {
            t.b.take_all(t.a.pump(t.now), t.now);
            (void)t.b.pump(t.now); // lost
            t.now = std::max(t.now, t.a.peer.next_deadline());
        }
        t.settle();
        delivered = t.b.delivered.size();
        duplicates = t.b.peer.counters().duplicates;
        done = t.a.done.size();
    }
    assert_int_equal(delivered, 4);
    assert_true(duplicates >= 3);
    assert_int_equal(done, 1);
}

void all_numbers_wrap_under_loss(void **)
{
    bool in_order = true;
    std::size_t delivered = 0;
    std::size_t done = 0;
    {
        Two t;
        t.a.peer.start_at(0xfffffff0, 0xfffffff8, 0xfffff0);
        t.b.peer.start_at(0xfffffff0, 0xfffffff8, 0xfffff0);
        unsigned lost = 0;
        for (int i = 0; i < 60; ++i) {
            (void)t.a.submit(true, 5, 64, t.now);
            auto frames = t.a.pump(t.now);
            std::erase_if(frames, [&](const Frame &) { return ++lost % 5 == 0; });
            t.now += 10_us;
            std::reverse(frames.begin(), frames.end());
            t.b.take_all(frames, t.now);
            t.a.take_all(t.b.pump(t.now), t.now);
        }
        for (int i = 0; i < 60; ++i) {
            t.now = std::max(t.now, std::min(t.a.peer.next_deadline(), t.b.peer.next_deadline()));
            if (t.a.done.size() == 60) {
                break;
            }
            t.settle(2);
        }
        delivered = t.b.delivered.size();
        for (std::size_t i = 0; i < delivered; ++i) {
            in_order = in_order && t.b.delivered[i] == 0xfffffff0U + static_cast<std::uint32_t>(i);
        }
        done = t.a.done.size();
    }
    assert_int_equal(delivered, 60);
    assert_true(in_order);
    assert_int_equal(done, 60);
}

void silence_ends_in_unreachable_within_its_bound(void **)
{
    std::int64_t took = 0;
    std::int64_t least = 0;
    std::int64_t most = 0;
    std::size_t failed = 0;
    std::size_t more = 1;
    bool room = true;
    {
        Two t(2);
        least = t.config.give_up.ns();
        most = (t.config.give_up + t.config.rto_max).ns();
        for (int i = 0; i < 5; ++i) {
            (void)t.a.submit(i % 2 == 0, 64, 64, t.now);
        }
        const Time start = t.now;
        (void)t.a.pump(t.now);
        while (!t.a.peer.unreachable() && t.now - start < 100_s) {
            t.now = t.a.peer.next_deadline();
            (void)t.a.pump(t.now);
        }
        took = (t.now - start).ns();
        failed = t.a.failed.size();
        t.a.failed.clear();
        t.a.peer.declare_dead();
        t.a.peer.path_error(0, t.now);
        t.a.peer.path_error(1, t.now);
        (void)t.a.pump(t.now);
        more = t.a.failed.size() + t.a.done.size();
        room = t.a.peer.has_room(0, true);
    }
    assert_true(took >= least);
    assert_true(took <= most + 1'000'000);
    assert_int_equal(failed, 5);
    assert_int_equal(more, 0); // each once
    assert_false(room);
}

void a_process_that_was_away_looks_once_before_it_gives_up(void **)
{
    bool reachable = false;
    std::size_t done = 0;
    {
        Two t;
        (void)t.a.submit(true, 64, 64, t.now);
        t.b.take_all(t.a.pump(t.now), t.now);
        t.b.peer.flush_acks();
        const auto answer = t.b.pump(t.now);
        t.now += t.config.give_up * 10; // it computed
        t.a.peer.on_time(t.now);        // and sees its timer first
        reachable = !t.a.peer.unreachable();
        t.a.take_all(answer, t.now);
        (void)t.a.pump(t.now);
        done = t.a.done.size();
    }
    assert_true(reachable);
    assert_int_equal(done, 1);
}

void the_last_path_gone_gives_everything_back_once(void **)
{
    bool one_left = false;
    bool lost = false;
    std::size_t failed = 0;
    bool balanced = false;
    {
        Two t(2);
        (void)t.a.submit(false, 10 * 64, 64, t.now);
        (void)t.a.submit(true, 64, 64, t.now);
        (void)t.a.pump(t.now, false); // the transports hold descriptors
        t.a.peer.path_error(0, t.now);
        one_left = !t.a.peer.unreachable();
        (void)t.a.pump(t.now, false);
        t.a.peer.path_error(1, t.now);
        lost = t.a.peer.unreachable();
        (void)t.a.pump(t.now);
        failed = t.a.failed.size();
        const Counters &c = t.a.peer.counters();
        balanced =
            c.fragments_sent + c.acknowledged_late == c.fragments_acknowledged + c.declared_lost;
    }
    assert_true(one_left);
    assert_true(lost);
    assert_int_equal(failed, 2);
    assert_true(balanced);
}

void the_last_path_with_a_fresh_transport_delivers_what_the_old_one_lost(void **)
{
    bool reachable = false;
    PathState between{};
    PathState after{};
    std::size_t done = 0;
    std::uint64_t again = 0;
    {
        Two t(1);
        (void)t.a.submit(false, 10 * 64, 64, t.now);
        (void)t.a.submit(true, 64, 64, t.now);
        (void)t.a.pump(t.now); // the old transport loses it all
        t.a.peer.path_replaced(0, t.now);
        reachable = !t.a.peer.unreachable();
        between = t.a.peer.paths()[0].state;
        t.b.take_all(t.a.pump(t.now), t.now);
        t.b.peer.flush_acks();
        t.a.take_all(t.b.pump(t.now), t.now);
        (void)t.a.pump(t.now);
        after = t.a.peer.paths()[0].state;
        done = t.a.done.size();
        again = t.a.peer.counters().retransmitted_failover;
    }
    assert_true(reachable);
    assert_int_equal(between, PathState::probing);
    assert_int_equal(after, PathState::up);
    assert_int_equal(done, 2);
    assert_int_equal(again, 11);
}

void a_connection_that_was_not_made_costs_no_path(void **)
{
    std::array<std::uint64_t, 2> down{};
    std::array<std::uint64_t, 2> again{};
    std::array<std::size_t, 2> done{};
    bool up = true;
    for (const unsigned paths : {1U, 2U}) {
        Two t(paths);
        (void)t.a.submit(false, 10 * 64, 64, t.now);
        const auto lost = t.a.pump(t.now);
        for (PathId id = 0; id < paths; ++id) {
            t.a.peer.path_not_connected(id, t.now);
            up = up && t.a.peer.paths()[id].state == PathState::up;
        }
        t.settle(); // no timer
        down[paths - 1] = t.a.peer.counters().path_down + t.a.peer.counters().path_suspect;
        again[paths - 1] = t.a.peer.counters().retransmitted_failover;
        done[paths - 1] = t.a.done.size();
    }
    assert_true(up);
    for (const unsigned i : {0U, 1U}) {
        assert_int_equal(down[i], 0);
        assert_int_equal(again[i], 10);
        assert_int_equal(done[i], 1);
    }
}

void a_probe_is_answered_over_the_path_it_came_by(void **)
{
    bool right = false;
    PathState state{};
    {
        Two t(2);
        (void)t.a.submit(true, 64, 64, t.now);
        const auto lost = t.a.pump(t.now);
        const PathId path = lost[0].path;
        t.now = t.a.peer.next_deadline();
        auto frames = t.a.pump(t.now);
        std::erase_if(frames, [](const Frame &f) { return f.what != Transmit::What::probe; });
        right = frames.size() == 1 && frames[0].path == path;
        t.now += 10_us;
        t.b.take_all(frames, t.now);
        auto replies = t.b.pump(t.now);
        std::erase_if(replies,
                      [](const Frame &f) { return f.what != Transmit::What::probe_reply; });
        right = right && replies.size() == 1 && replies[0].path == path;
        t.a.take_all(replies, t.now);
        state = t.a.peer.paths()[path].state;
    }
    assert_true(right);
    assert_int_equal(state, PathState::up);
}

void acknowledgements_ride_on_what_goes_the_other_way(void **)
{
    std::uint64_t acks = 1;
    std::size_t done = 0;
    {
        Two t;
        for (int i = 0; i < 10; ++i) {
            (void)t.a.submit(true, 8, 64, t.now);
            t.b.take_all(t.a.pump(t.now), t.now);
            t.now += 5_us;
            (void)t.b.submit(true, 8, 64, t.now);
            t.a.take_all(t.b.pump(t.now), t.now);
            t.now += 5_us;
        }
        (void)t.a.pump(t.now);
        acks = t.a.peer.counters().acks_sent + t.b.peer.counters().acks_sent;
        done = t.a.done.size();
    }
    assert_int_equal(acks, 0);
    assert_int_equal(done, 10);
}

/// A window of messages and a word that all have come, as programs talk: each acknowledgement of
/// its own would cost a system call at either end.
void the_word_that_ends_a_burst_acknowledges_all_of_it(void **)
{
    std::uint64_t acks = 1;
    std::size_t done = 0;
    {
        Two t;
        for (int burst = 0; burst < 10; ++burst) {
            for (int i = 0; i < 64; ++i) {
                (void)t.a.submit(true, 8, 64, t.now);
            }
            t.b.take_all(t.a.pump(t.now), t.now);
            t.now += 5_us;
            (void)t.b.submit(true, 8, 64, t.now);
            t.a.take_all(t.b.pump(t.now), t.now);
            t.now += 5_us;
        }
        (void)t.a.pump(t.now);
        acks = t.a.peer.counters().acks_sent + t.b.peer.counters().acks_sent;
        done = t.a.done.size();
    }
    assert_int_equal(acks, 0);
    assert_int_equal(done, 640);
}

void broken_control_fragments_are_dropped_and_counted(void **)
{
    std::uint64_t corrupt = 0;
    std::uint64_t malformed = 0;
    std::size_t done = 1;
    {
        Two t;
        (void)t.a.submit(false, 2 * 64, 64, t.now);
        t.b.take_all(t.a.pump(t.now), t.now);
        auto acks = t.b.pump(t.now);
        // Its cumulative number stands in the header; without that, the body alone speaks.
        FragHeader h;
        (void)parse_header(acks[0].bytes, true, h);
        h.cumulative = 0;
        h.flags = static_cast<std::uint8_t>(h.flags & ~flag_payload_checksummed);
        write_header(h, acks[0].bytes);
        seal(acks[0].bytes);
        (void)t.a.take(acks[0], t.now); // an ack without a checksum is none
        corrupt = t.a.peer.counters().corrupt_payload;
        h.kind = Kind::probe_reply;
        h.path = 9; // a path that we do not have
        write_header(h, acks[0].bytes);
        seal(acks[0].bytes);
        (void)t.a.take(acks[0], t.now);
        malformed = t.a.peer.counters().malformed;
        (void)t.a.pump(t.now);
        done = t.a.done.size();
    }
    assert_int_equal(corrupt, 1);
    assert_int_equal(malformed, 1);
    assert_int_equal(done, 0);
}

/// Lets time pass with nothing arriving anywhere. \return how many probes went out
std::size_t pass_alone(End &end, Time &now, Duration length)
{
    std::size_t probes = 0;
    const Time until = now + length;
    while (end.peer.next_deadline() <= until) {
        now = std::max(now, end.peer.next_deadline());
        const auto frames = end.pump(now);
        probes += static_cast<std::size_t>(
            std::count_if(frames.begin(), frames.end(),
                          [](const Frame &frame) { return frame.what == Transmit::What::probe; }));
    }
    now = until;
    return probes;
}

// Peers that were lost while nobody needed them would be probed as long as the job runs.
void a_silent_peer_that_nobody_needs_is_probed_for_a_while_only(void **)
{
    PathState left = PathState::up;
    std::size_t first = 0;
    std::size_t late = 9;
    bool quiet = false;
    std::size_t heard = 0;
    std::size_t heard_late = 9;
    bool express = true;
    std::size_t used = 0;
    std::size_t up = 0;
    {
        Two t(2);
        (void)t.a.submit(true, 100, 1024, t.now);
        auto lost = t.a.pump(t.now); // over one of the paths, which is silent from now on
        const PathId silent = lost.front().path;
        t.now = t.a.peer.next_deadline();
        const auto pass = [&](End &to, const std::vector<Frame> &frames) {
            for (const Frame &frame : frames) {
                if (frame.path != silent) {
                    (void)to.take(frame, t.now);
                }
            }
        };
        for (int i = 0; i < 4; ++i) {
            pass(t.b, t.a.pump(t.now));
            t.b.peer.flush_acks();
            pass(t.a, t.b.pump(t.now));
            t.now += 100_us;
        }
        left = t.a.peer.paths()[silent].state;
        first = pass_alone(t.a, t.now, 3_s); // give_up is 2 s
        late = pass_alone(t.a, t.now, 60_s);
        quiet = t.a.peer.resting() && t.a.peer.next_deadline().is_never();
        // It is heard of again: worth another while.
        (void)t.b.submit(true, 100, 1024, t.now);
        t.a.take_all(t.b.pump(t.now), t.now);
        heard = pass_alone(t.a, t.now, 3_s);
        heard_late = pass_alone(t.a, t.now, 60_s);
        // It is needed again: both paths are tried, and back.
        express = !t.a.express(8, t.now).empty();
        (void)t.a.submit(true, 100, 1024, t.now);
        auto frames = t.a.pump(t.now);
        used = static_cast<std::size_t>(
            std::count_if(frames.begin(), frames.end(),
                          [](const Frame &frame) { return frame.what == Transmit::What::probe; }));
        t.b.take_all(frames, t.now);
        for (int i = 0; i < 40; ++i) {
            t.settle(4);
            t.now += 20_ms;
        }
        for (PathId id = 0; id < 2; ++id) {
            up += t.a.peer.paths()[id].state == PathState::up ? 1U : 0U;
        }
    }
    assert_int_not_equal(left, PathState::up);
    assert_in_range(first, 20, 200);
    assert_int_equal(late, 0);
    assert_true(quiet);
    assert_in_range(heard, 20, 200);
    assert_int_equal(heard_late, 0);
    assert_false(express);
    assert_int_equal(used, 1);
    assert_int_equal(up, 2);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_corrupt_eager_message_is_repeated_and_delivered),
        cmocka_unit_test(answers_in_quick_succession_share_an_acknowledgement),
        cmocka_unit_test(a_corrupt_fragment_of_many_is_the_only_one_repeated),
        cmocka_unit_test(lost_acks_lead_to_duplicates_that_are_acknowledged_again),
        cmocka_unit_test(all_numbers_wrap_under_loss),
        cmocka_unit_test(silence_ends_in_unreachable_within_its_bound),
        cmocka_unit_test(a_process_that_was_away_looks_once_before_it_gives_up),
        cmocka_unit_test(the_last_path_gone_gives_everything_back_once),
        cmocka_unit_test(the_last_path_with_a_fresh_transport_delivers_what_the_old_one_lost),
        cmocka_unit_test(a_connection_that_was_not_made_costs_no_path),
        cmocka_unit_test(a_probe_is_answered_over_the_path_it_came_by),
        cmocka_unit_test(acknowledgements_ride_on_what_goes_the_other_way),
        cmocka_unit_test(the_word_that_ends_a_burst_acknowledges_all_of_it),
        cmocka_unit_test(broken_control_fragments_are_dropped_and_counted),
        cmocka_unit_test(a_silent_peer_that_nobody_needs_is_probed_for_a_while_only),
    };
    return cmocka_run_group_tests_name("peer", tests, nullptr, nullptr);
}

#include "opal/ft/reliability/path_set.hpp"
#include "test/unit/cmocka.hpp"
#include "test/unit/reliability/path_fixture.hpp"

using namespace ft::test;

namespace {

void the_earliest_delivery_is_picked(void **)
{
    PathId idle = 0;
    PathId loaded = 0;
    PathId avoided = 0;
    PathId blocked = 0;
    PathId full = 0;
    {
        Fixture f(3);
        f.set.use(1).bandwidth = 10;
        f.set.use(1).measured = true;
        idle = f.set.pick(1000, no_path);
        f.set.use(1).in_flight = 1'000'000;
        loaded = f.set.pick(1000, no_path);
        avoided = f.set.pick(1000, 0);
        f.set.use(0).blocked = true;
        f.set.use(2).held = f.config.path_depth;
        blocked = f.set.pick(1000, no_path);
        f.set.use(1).blocked = true;
        full = f.set.pick(1000, no_path);
    }
    assert_int_equal(idle, 1);
    assert_int_equal(loaded, 0);
    assert_int_equal(avoided, 2);
    assert_int_equal(blocked, 1);
    assert_int_equal(full, no_path);
}

/// The quick one of two holds all it may: it is sooner than the slow one, but only when that can be
/// told.
void a_full_path_is_waited_for_when_that_is_sooner(void **)
{
    std::array<PathId, 8> picked{};
    {
        Fixture f(2);
        f.set.use(0).bandwidth = 1;
        f.set.use(1).bandwidth = 0.00001;
        f.set.use(0).measured = f.set.use(1).measured = true;
        f.set.use(0).held = f.config.path_depth;
        f.set.use(0).in_flight = 100'000;
        picked[0] = f.set.pick(1000, no_path);
        picked[1] = f.set.pick(1000, 0); // sent again, for it was not answered there
        picked[2] = f.set.pick(1000, no_path, true);
        picked[7] = f.set.pick(1000, 1); // nor is it waited for by what the other one lost
        f.set.use(0).blocked = true;
        picked[3] = f.set.pick(1000, no_path);
        f.set.use(0).blocked = false;
        f.set.use(0).in_flight = 0; // nothing is owed: no timer runs
        picked[4] = f.set.pick(1000, no_path);
        f.set.use(0).in_flight = 100'000;
        f.set.use(0).measured = false;
        picked[5] = f.set.pick(1000, no_path);
        f.set.use(0).measured = true;
        f.time_out(0);
        f.time_out(1); // both are in doubt
        picked[6] = f.set.pick(1000, no_path);
    }
    assert_int_equal(picked[0], no_path);
    for (unsigned i = 1; i < picked.size(); ++i) {
        assert_int_equal(picked.at(i), 1);
    }
}

void a_suspect_path_waits_until_no_other_is_up(void **)
{
    PathId first = 0;
    PathId last = 0;
    {
        Fixture f(2);
        f.set.use(0).bandwidth = 100;
        f.set.on_timeout(0, f.now);
        first = f.set.pick(1, no_path);
        f.set.on_error(1, f.now);
        last = f.set.pick(1, no_path);
    }
    assert_int_equal(first, 1);
    assert_int_equal(last, 0);
}

void timeouts_alone_never_take_the_last_path(void **)
{
    PathState only{};
    PathState both{};
    PathId picked = 0;
    {
        Fixture f(1);
        Fixture g(2);
        for (unsigned i = 0; i < 1000; ++i) {
            f.set.on_timeout(0, f.now += 1_ms);
            g.set.on_timeout(0, g.now += 1_ms); // nobody answers at all
            g.set.on_timeout(1, g.now);
        }
        only = f.set[0].state;
        picked = f.set.pick(1, 0);
        both = g.set[0].state;
    }
    assert_int_equal(only, PathState::suspect);
    assert_int_equal(picked, 0);
    assert_int_equal(both, PathState::suspect);
}

void retries_take_a_path_down_when_another_answers(void **)
{
    PathState before{};
    PathState after{};
    std::uint64_t counted = 0;
    {
        Fixture f(2);
        for (unsigned i = 0; i < f.config.path_retries; ++i) {
            before = f.set[0].state;
            f.set.on_alive(1, f.now += 1_us);
            f.time_out(0);
        }
        after = f.set[0].state;
        counted = f.counters.all().path_down;
    }
    assert_int_equal(before, PathState::suspect);
    assert_int_equal(after, PathState::down);
    assert_int_equal(counted, 1);
}

/// A path that has become ten times slower answers within ten times what it took before.
void what_times_out_together_counts_once(void **)
{
    unsigned strikes = 0;
    std::int64_t took = 0;
    std::int64_t rto = 0;
    {
        Fixture f(2);
        rto = f.set.rto(0).ns();
        const Time start = f.now;
        while (f.set[0].state != PathState::down && f.now - start < 10_s) {
            f.set.on_alive(1, f.now += 10_us);
            f.set.on_timeout(0, f.now += 10_us);
            strikes = f.now - start < f.set.rto(0) ? f.set[0].strikes : strikes;
        }
        took = (f.now - start).ns();
    }
    assert_int_equal(strikes, 1);
    assert_true(took > 10 * rto && took < 16 * rto);
}

void a_peer_that_falls_silent_loses_no_path(void **)
{
    PathState silent{};
    PathState again{};
    {
        Fixture f(2);
        // It answers over the other path, and then computes for a long time.
        f.set.on_alive(0, f.now += 1_us);
        f.set.on_alive(1, f.now += 1_us);
        for (unsigned i = 0; i < 1000; ++i) {
            f.set.on_timeout(0, f.now += 1_ms);
        }
        silent = f.set[0].state;
        // The path is dead indeed: the peer is heard again, and not there.
        for (unsigned i = 0; i < f.config.path_retries; ++i) {
            f.set.on_alive(1, f.now += 1_us);
            f.time_out(0);
        }
        again = f.set[0].state;
    }
    assert_int_equal(silent, PathState::suspect);
    assert_int_equal(again, PathState::down);
}

/// At first contact, and wherever a path was not used for a while, what another one answered before
/// says nothing of a peer that has been silent since.
void an_answer_from_before_is_no_witness(void **)
{
    PathState silent{};
    PathState dead{};
    {
        Config c = quick_config();
        c.path_retries = 1;
        for (const bool answers : {false, true}) {
            Fixture f(2, c);
            f.set.on_alive(1, f.now += 1_us);
            const Time sent = f.now += 1_us;
            if (answers) {
                f.set.on_alive(1, f.now += 1_us);
            }
            f.set.on_timeout(0, f.now += f.set.rto(0), sent);
            (answers ? dead : silent) = f.set[0].state;
        }
    }
    assert_int_equal(silent, PathState::suspect);
    assert_int_equal(dead, PathState::down);
}

void a_sign_of_life_clears_a_suspect(void **)
{
    PathState state{};
    unsigned timeouts = 1;
    {
        Fixture f(2);
        f.set.on_timeout(0, f.now);
        f.set.on_timeout(0, f.now);
        f.set.on_alive(0, f.now += 1_us);
        state = f.set[0].state;
        timeouts = f.set[0].timeouts;
    }
    assert_int_equal(state, PathState::up);
    assert_int_equal(timeouts, 0);
}

/// Answers every probe of path 0 at once. \return how long the path stayed away
Duration time_away(Fixture &f)
{
    const Time start = f.now;
    for (unsigned i = 0; i < 100'000 && f.set[0].state != PathState::up; ++i) {
        if (f.set.probe_wanted() == 0) {
            f.answer(0, f.probe(0), 1_us);
        } else {
            f.now = std::max(f.now, f.set.next_deadline());
            f.set.on_time(f.now);
        }
    }
    return f.now - start;
}

void a_path_returns_after_replies_and_its_hold_down_which_doubles(void **)
{
    std::array<std::int64_t, 9> away{};
    std::int64_t hold = 0;
    std::uint64_t ups = 0;
    {
        Fixture f(2);
        hold = f.config.hold_down.ns();
        for (auto &one : away) {
            f.take_down(0, 1);
            one = time_away(f).ns();
        }
        ups = f.counters.all().path_up;
    }
    std::int64_t expected = hold;
    for (std::size_t i = 0; i < away.size(); ++i) {
        assert_true(away[i] >= expected - 100'000); // it went down a moment before we look
        assert_true(away[i] <= expected + 100'000'000);
        expected = std::min(expected * 2, hold * 64);
    }
    assert_int_equal(ups, 9);
}

void a_connection_that_is_reset_again_and_again_is_held_down_longer(void **)
{
    std::array<std::int64_t, 4> away{};
    std::int64_t hold = 0;
    {
        Fixture f(2);
        hold = f.config.hold_down.ns();
        for (auto &one : away) {
            f.set.on_error(0, f.now += 1_us);
            f.set.revive(0, f.now);
            one = time_away(f).ns();
        }
    }
    for (std::size_t i = 0; i < away.size(); ++i) {
        assert_true(away[i] >= hold << i);
        assert_true(away[i] <= (hold << i) + 100'000'000);
    }
}

/// A peer that does not run makes the other path suspect, too: that is no reason to take this one
/// back before its time. As many timeouts of the other as cost a path, while this one answers, are.
void only_a_path_that_is_lost_ends_a_hold_down(void **)
{
    PathState late{};
    PathState lost{};
    {
        Config c = quick_config();
        c.hold_down = 10_s;
        Fixture f(2, c);
        f.take_down(0, 1);
        const auto answered = [&f] {
            f.now += 1_us;
            f.answer(0, f.probe(0), 100_us);
        };
        for (unsigned i = 0; i < f.config.probe_confirm; ++i) {
            answered();
        }
        f.time_out(1);
        answered();
        late = f.set[0].state;
        for (unsigned i = 1; i < f.config.path_retries; ++i) {
            f.time_out(1);
            answered();
        }
        lost = f.set[0].state;
    }
    assert_int_equal(late, PathState::probing);
    assert_int_equal(lost, PathState::up);
}

void a_lost_probe_sends_a_probing_path_down_again(void **)
{
    PathState probing{};
    PathState lost{};
    PathState late{};
    unsigned confirms = 0;
    {
        Fixture f(2);
        f.take_down(0, 1);
        f.now = f.set.next_deadline();
        f.set.on_time(f.now);
        f.answer(0, f.probe(0), 1_us);
        probing = f.set[0].state;
        f.now = f.set.next_deadline();
        f.set.on_time(f.now);
        const std::uint32_t second = f.probe(0);
        f.now = f.set.next_deadline();
        f.set.on_time(f.now);
        lost = f.set[0].state;
        f.set.on_probe_reply(0, second, f.now); // late, and once
        late = f.set[0].state;
        f.set.on_probe_reply(0, second, f.now);
        confirms = f.set[0].confirms;
    }
    assert_int_equal(probing, PathState::probing);
    assert_int_equal(lost, PathState::down);
    assert_int_equal(late, PathState::probing);
    assert_int_equal(confirms, 1);
}

/// Every answer comes later than rto_max, which bounds all timeouts: they count all the same.
void a_path_with_a_round_trip_beyond_every_timeout_returns(void **)
{
    std::array<PathState, 3> states{};
    std::array<std::int64_t, 3> away{};
    {
        const std::array factors{2, 5, 50};
        for (std::size_t i = 0; i < factors.size(); ++i) {
            Fixture f(2);
            const Duration trip = f.config.rto_max * factors[i] + 1_ms;
            std::deque<std::pair<Time, std::uint32_t>> under_way;
            f.take_down(0, 1);
            const Time start = f.now;
            while (f.set[0].state != PathState::up && f.now - start < trip * 50) {
                if (f.set.probe_wanted() == 0) {
                    under_way.emplace_back(f.now + trip, f.probe(0));
                }
                const Time due = f.set.next_deadline();
                if (!under_way.empty() && under_way.front().first <= due) {
                    const auto [when, nonce] = under_way.front();
                    under_way.pop_front();
                    f.now = std::max(f.now, when);
                    f.answer(0, nonce, 0_us);
                } else {
                    f.now = std::max(f.now, due);
                    f.set.on_time(f.now);
                }
                f.set.on_alive(1, f.now);
            }
            states[i] = f.set[0].state;
            away[i] = (f.now - start).ns() / trip.ns();
        }
    }
    for (std::size_t i = 0; i < states.size(); ++i) {
        assert_int_equal(states[i], PathState::up);
        assert_true(away[i] <= 8);
    }
}

/// Who was away himself finds the time for an answer long past, and the answer perhaps unread.
void a_probe_that_was_missed_is_looked_for_once_more(void **)
{
    unsigned at_once = 1;
    unsigned after_the_look = 0;
    {
        Fixture f(2);
        f.set.on_timeout(0, f.now);
        (void)f.probe(0);
        f.now = f.set.next_deadline() + 1_s;
        f.set.on_time(f.now);
        at_once = f.set[0].timeouts - 1U;
        f.now = f.set.next_deadline() + 1_s;
        f.set.on_time(f.now);
        after_the_look = f.set[0].timeouts - 1U;
    }
    assert_int_equal(at_once, 0);
    assert_int_equal(after_the_look, 1);
}

void spurious_timeouts_lengthen_later_ones_for_a_while(void **)
{
    std::array<std::int64_t, 4> rto{};
    std::int64_t least = 0;
    unsigned halvings = 0;
    PathState state{};
    {
        Fixture f(2);
        least = f.config.rto_min.ns();
        for (int i = 0; i < 100; ++i) {
            f.set.use(0).rtt.sample(20_us);
            f.set.use(1).rtt.sample(20_us);
        }
        rto[0] = f.set.rto(0).ns();
        f.set.on_timeout(0, f.now);
        f.set.on_spurious_timeout(0, 2_ms, f.now);
        rto[1] = f.set.rto(0).ns();
        state = f.set[0].state;
        rto[2] = f.set.rto(1).ns(); // it is the peer that is late
        f.set.on_spurious_timeout(0, 60_s, f.now);
        rto[3] = f.set.rto(0).ns();
        for (; f.set.rto(0).ns() > least && halvings < 100; ++halvings) {
            f.set.on_time(f.now += 10_s);
        }
    }
    assert_int_equal(rto[0], least);
    assert_int_equal(rto[1], 3 * least);
    assert_int_equal(rto[2], 3 * least);
    assert_int_equal(rto[3], 4 * least);
    assert_int_equal(halvings, 2);
    assert_int_equal(state, PathState::up);
}

void descriptors_of_a_failed_transport_are_not_counted_with_the_fresh_one(void **)
{
    std::uint32_t fresh = 0;
    std::uint32_t after_old = 0;
    std::uint32_t after_new = 1;
    {
        Fixture f(2);
        const Time before = f.now;
        f.set.use(0).held = 3;
        f.set.on_error(0, f.now += 1_us);
        f.set.revive(0, f.now += 1_us);
        fresh = f.set[0].held;
        f.set.use(0).held = 1;
        for (int i = 0; i < 3; ++i) {
            f.set.release(0, before);
        }
        after_old = f.set[0].held;
        f.set.release(0, f.now);
        after_new = f.set[0].held;
    }
    assert_int_equal(fresh, 0);
    assert_int_equal(after_old, 1);
    assert_int_equal(after_new, 0);
}

void an_error_is_final_until_a_fresh_transport(void **)
{
    PathState gone{};
    PathState revived{};
    bool all = false;
    std::uint32_t limit_gone = 0;
    std::uint32_t limit_none = 1;
    {
        Fixture f(2);
        f.set.on_error(0, f.now);
        f.set.on_timeout(0, f.now);
        f.set.on_alive(0, f.now);
        gone = f.set[0].state;
        limit_gone = f.set.fragment_limit(1 << 20); // path 0 may come back, it takes 1000 bytes
        f.set.on_error(1, f.now);
        all = f.set.all_gone();
        limit_none = f.set.fragment_limit(1 << 20);
        f.set.revive(0, f.now);
        revived = f.set[0].state;
    }
    assert_int_equal(gone, PathState::gone);
    assert_true(all);
    assert_int_equal(limit_gone, 1000);
    assert_int_equal(limit_none, 0);
    assert_int_equal(revived, PathState::probing);
}

void answers_without_a_known_path_take_turns(void **)
{
    unsigned seen = 0;
    PathId wanted = 0;
    PathId best = 0;
    {
        Fixture f(4);
        f.set.on_timeout(2, f.now); // suspect: not in the best class
        for (unsigned turn = 0; turn < 12; ++turn) {
            seen |= 1U << f.set.pick_control(no_path, turn);
        }
        wanted = f.set.pick_control(2, 0);
        f.set.use(2).blocked = true;
        best = f.set.pick_control(2, 0);
    }
    assert_int_equal(seen, 0b1011);
    assert_int_equal(wanted, 2);
    assert_int_equal(best, 0);
}

void there_are_at_most_sixteen(void **)
{
    PathId last = 0;
    PathId beyond = 0;
    {
        Fixture f(max_paths - 1);
        PathInfo info;
        last = f.set.add(info);
        beyond = f.set.add(info);
    }
    assert_int_equal(last, max_paths - 1);
    assert_int_equal(beyond, no_path);
}

/// An answer that lay unread while the program computed does not teach that answers take long.
void who_was_away_does_not_wait_longer_for_probes(void **)
{
    Duration patience[2];
    for (const bool away : {false, true}) {
        Fixture f(2);
        f.take_down(0, 1);
        while (f.set.probe_wanted() != 0) {
            f.set.on_time(f.now = std::max(f.now + 1_us, f.set.next_deadline()));
        }
        const std::uint32_t nonce = f.probe(0);
        f.now += away ? 30_s : 50_us;
        f.set.on_time(f.now);
        f.answer(0, nonce, 1_us);
        while (f.set.probe_wanted() != 0) {
            f.set.on_time(f.now = std::max(f.now + 1_us, f.set.next_deadline()));
        }
        (void)f.probe(0);
        patience[away ? 1 : 0] = f.set[0].next_probe - f.now;
    }
    assert_true(patience[1] <= patience[0] * 2);
}

/// A program's own reordering threshold, beyond the limit, is not lowered by what should raise it.
void a_threshold_beyond_the_limit_stays(void **)
{
    Config config;
    config.reorder_threshold = 255;
    unsigned after = 0;
    {
        PathSet set(config);
        PeerCounters counters;
        set.counters = &counters;
        set.add(PathInfo{.max_fragment_bytes = 1 << 20});
        set.tolerate_more_reordering();
        after = set[0].reorder_threshold;
    }
    assert_int_equal(after, 255);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_earliest_delivery_is_picked),
        cmocka_unit_test(a_full_path_is_waited_for_when_that_is_sooner),
        cmocka_unit_test(a_suspect_path_waits_until_no_other_is_up),
        cmocka_unit_test(timeouts_alone_never_take_the_last_path),
        cmocka_unit_test(retries_take_a_path_down_when_another_answers),
        cmocka_unit_test(what_times_out_together_counts_once),
        cmocka_unit_test(a_peer_that_falls_silent_loses_no_path),
        cmocka_unit_test(an_answer_from_before_is_no_witness),
        cmocka_unit_test(a_sign_of_life_clears_a_suspect),
        cmocka_unit_test(a_path_returns_after_replies_and_its_hold_down_which_doubles),
        cmocka_unit_test(a_connection_that_is_reset_again_and_again_is_held_down_longer),
        cmocka_unit_test(only_a_path_that_is_lost_ends_a_hold_down),
        cmocka_unit_test(a_lost_probe_sends_a_probing_path_down_again),
        cmocka_unit_test(a_path_with_a_round_trip_beyond_every_timeout_returns),
        cmocka_unit_test(a_probe_that_was_missed_is_looked_for_once_more),
        cmocka_unit_test(spurious_timeouts_lengthen_later_ones_for_a_while),
        cmocka_unit_test(descriptors_of_a_failed_transport_are_not_counted_with_the_fresh_one),
        cmocka_unit_test(an_error_is_final_until_a_fresh_transport),
        cmocka_unit_test(answers_without_a_known_path_take_turns),
        cmocka_unit_test(there_are_at_most_sixteen),
        cmocka_unit_test(who_was_away_does_not_wait_longer_for_probes),
        cmocka_unit_test(a_threshold_beyond_the_limit_stays),
    };
    return cmocka_run_group_tests_name("path_set", tests, nullptr, nullptr);
}

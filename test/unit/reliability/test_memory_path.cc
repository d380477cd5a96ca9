// A path through memory beside others: it carries alone, and who does not answer over it is taken
// to be looking elsewhere. And what is believed of latencies, by which short messages choose.
#include "test/unit/cmocka.hpp"
#include "test/unit/reliability/path_fixture.hpp"

using namespace ft::test;

namespace {

Config striping()
{
    Config c = quick_config();
    c.stripe_memory = true;
    return c;
}

/// Two ordinary paths, and one through memory that is the slowest by its own account.
struct Beside : Fixture {
    explicit Beside(const Config &c = quick_config()) : Fixture(2, c)
    {
        PathInfo info;
        info.max_fragment_bytes = 4000;
        info.latency = 50_us;
        info.in_memory = true;
        memory = set.add(info);
    }
    PathId memory = no_path;
};

void it_carries_alone_while_it_is_up(void **)
{
    std::array<PathId, 5> picked{};
    PathId striped = no_path;
    {
        Beside f;
        picked[0] = f.set.pick(100, no_path);
        f.set.use(f.memory).in_flight = 1'000'000'000;
        picked[1] = f.set.pick(100, no_path);
        f.set.use(f.memory).blocked = true;
        picked[2] = f.set.pick(100, no_path); // there will be room sooner than another is connected
        f.set.unblock();
        f.set.on_error(f.memory, f.now);
        picked[3] = f.set.pick(100, no_path);
        f.set.revive(f.memory, f.now);
        picked[4] = f.set.pick(100, no_path);
    }
    {
        Beside f(striping());
        striped = f.set.pick(100, no_path);
    }
    assert_int_equal(picked[0], 2);
    assert_int_equal(picked[1], 2);
    assert_int_equal(picked[2], no_path);
    assert_int_equal(picked[3], 0);
    assert_int_equal(picked[4], 0); // it has to be asked before
    assert_int_equal(striped, 0);
}

/// Its BTL may have no room since others do not look. The first refusal does not tell.
void others_help_when_it_refuses_for_long(void **)
{
    std::array<PathId, 4> picked{};
    {
        Beside f;
        const auto pick = [&] {
            f.set.keep_pace(f.now);
            return f.set.pick(100, no_path);
        };
        (void)pick();
        f.set.block(f.memory, true);
        picked[0] = pick();
        for (unsigned i = 0; i < 110; ++i) {
            f.now += 1_ms;
            f.set.unblock();
            (void)pick();
            f.set.block(f.memory, true);
        }
        picked[1] = pick();
        f.set.unblock();
        picked[2] = pick();
        f.set.use(f.memory).next_tx += 1; // it took one
        picked[3] = pick();
    }
    assert_int_equal(picked[0], no_path);
    assert_int_equal(picked[1], 0);
    assert_int_equal(picked[2], 0); // the slowest by its own account, in this test
    assert_int_equal(picked[3], 2);
}

/// What its BTL holds may never come back, while the peer answers.
void others_help_when_it_is_full_for_long(void **)
{
    PathId at_first = 0;
    PathId later = no_path;
    PathId when_it_moves = no_path;
    {
        Beside f;
        f.set.use(f.memory).held = f.config.path_depth;
        const auto pick = [&] {
            f.set.keep_pace(f.now);
            const PathId picked = f.set.pick(100, no_path);
            if (picked == no_path) {
                f.set.note_full();
            }
            return picked;
        };
        at_first = pick();
        f.now += f.config.rto_max / 2 + 1_us;
        later = pick();
        f.set.use(f.memory).held = 0;
        f.set.use(f.memory).next_tx += 1;
        when_it_moves = pick();
    }
    assert_int_equal(at_first, no_path);
    assert_int_equal(later, 0);
    assert_int_equal(when_it_moves, 2);
}

/// What its predecessor refused, however long ago, tells nothing of it.
void a_fresh_transport_has_refused_nothing(void **)
{
    PathState state{};
    PathId picked = no_path;
    {
        Beside f;
        f.set.keep_pace(f.now);
        f.set.block(f.memory, true);
        f.set.on_error(f.memory, f.now += 1_us);
        f.set.revive(f.memory, f.now += f.config.rto_max);
        for (unsigned i = 0; i < f.config.probe_confirm; ++i) {
            f.answer(f.memory, f.probe(f.memory), f.config.hold_down);
        }
        state = f.set[f.memory].state;
        f.set.keep_pace(f.now);
        picked = f.set.pick(100, no_path);
    }
    assert_int_equal(state, PathState::up);
    assert_int_equal(picked, 2);
}

void a_peer_that_does_not_look_costs_no_path(void **)
{
    Duration borne{};
    bool alone = true;
    PathId beyond = no_path;
    PathId afterwards = no_path;
    Duration most{};
    {
        Beside f;
        most = f.config.rto_max;
        const Time start = f.now;
        for (Duration timeout = 1_ms; f.now - start < 10_s; timeout = timeout * 2) {
            alone = alone && f.set.waits_for_peer(f.memory) && f.set.pick(100, no_path) == f.memory;
            const Time sent = f.now;
            f.set.on_timeout(f.memory, f.now += timeout, sent);
            if (f.set[f.memory].state != PathState::up) {
                break;
            }
            borne = f.now - start;
        }
        beyond = f.set.pick(100, f.memory);
        f.set.on_alive(f.memory, f.now += 1_us);
        afterwards = f.set.pick(100, no_path);
    }
    assert_true(borne >= most / 2 && borne <= most);
    assert_true(alone);
    assert_int_equal(beyond, 0);
    assert_int_equal(afterwards, 2);
}

/// Who answers over another path does look.
void an_answer_by_another_way_tells_against_it(void **)
{
    PathState first = PathState::down;
    PathState second = PathState::up;
    Duration other_answers_after{};
    {
        Beside f;
        const auto time_out = [&] {
            const Time sent = f.now;
            f.set.on_alive(0, f.now + other_answers_after);
            f.now += 20_ms;
            f.set.on_timeout(f.memory, f.now, sent);
            return f.set[f.memory].state;
        };
        first = time_out();
        other_answers_after = 1_us;
        second = time_out();
    }
    assert_int_equal(first, PathState::up);
    assert_int_equal(second, PathState::suspect);
}

/// Memory keeps out all others, but not when it is to be avoided; and an answer waits for it.
void what_it_loses_again_and_again_goes_elsewhere(void **)
{
    PathId avoided = no_path;
    PathId alone = no_path;
    PathId answer = 0;
    PathId by_its_way = no_path;
    {
        Beside f;
        avoided = f.set.pick(100, f.memory);
        f.set.block(f.memory, false);
        answer = f.set.pick_control(f.memory, 0);
        by_its_way = f.set.pick_control(0, 0);
        f.set.unblock();
        f.set.on_error(0, f.now);
        f.set.on_error(1, f.now);
        alone = f.set.pick(100, f.memory);
    }
    assert_int_equal(avoided, 0);
    assert_int_equal(alone, 2);
    assert_int_equal(answer, no_path);
    assert_int_equal(by_its_way, 0);
}

/// Two ends with an ordinary path 0 and one through memory. The first transmissions of a message
/// are lost.
struct Ends {
    Ends()
    {
        for (End *end : {&t.a, &t.b}) {
            PathInfo info;
            info.max_fragment_bytes = 1 << 16;
            info.latency = 100_us;
            (void)end->peer.add_path(info, t.now);
            info.in_memory = true;
            info.latency = 1_us;
            (void)end->peer.add_path(info, t.now);
        }
    }
    /// \return by which paths it went, until one of them was taken
    std::vector<PathId> lost(unsigned transmissions)
    {
        std::vector<PathId> paths;
        (void)t.a.submit(true, 8, 8, t.now);
        while (paths.size() <= transmissions && t.now < Time::from_ns(0) + 100_s) {
            for (const Frame &frame : t.a.pump(t.now)) {
                if (frame.what != Transmit::What::fragment) {
                    continue;
                }
                paths.push_back(frame.path);
                if (paths.size() > transmissions) {
                    (void)t.b.take(frame, t.now);
                }
            }
            t.now = std::max(t.now + 1_us, t.a.peer.next_deadline());
            t.a.peer.on_time(t.now);
        }
        return paths;
    }
    Two t{0};
};

void what_a_timer_repeats_stays_in_memory(void **)
{
    std::vector<PathId> few;
    std::vector<PathId> many;
    std::size_t delivered = 0;
    bool used = true;
    {
        Ends e;
        few = e.lost(2);
        used = e.t.a.peer.paths()[0].fragments_sent != 0;
        delivered = e.t.b.delivered.size();
    }
    {
        Ends e;
        many = e.lost(20);
    }
    assert_true(few == std::vector<PathId>(3, 1));
    assert_false(used);
    assert_int_equal(delivered, 1);
    const auto other = std::find(many.begin(), many.end(), 0);
    assert_true(other != many.end()); // it may be memory that fails, after all
    assert_in_range(other - many.begin(), 3, 8);
}

/// The first round trips of a path are to a process that does not look yet. What is believed of it
/// must not keep all short messages from it for ever, which could show better.
void first_round_trips_are_not_the_last_word(void **)
{
    PathId at_first = no_path;
    PathId known = no_path;
    PathId later = no_path;
    PathId again = no_path;
    {
        Fixture f(0);
        PathInfo info;
        info.max_fragment_bytes = 4000;
        info.latency = 100_us;
        (void)f.set.add(info);
        info.latency = 1_us;
        (void)f.set.add(info);
        const auto measured = [&](PathId id, Duration trip, unsigned acked) {
            Path &path = f.set.use(id);
            path.rtt.sample(trip);
            path.sampled_at = f.now;
            path.fragments_acked += acked;
        };
        const auto pick = [&] {
            f.set.keep_pace(f.now);
            return f.set.pick(8, no_path);
        };
        f.now += 1_s;
        measured(0, 10_us, 100);
        measured(1, 200_us, 2);
        at_first = pick();
        measured(1, 200_us, 100);
        known = pick();
        f.now += 1_s;
        measured(0, 10_us, 1);
        later = pick();
        measured(1, 200_us, 1);
        again = pick();
    }
    assert_int_equal(at_first, 1);
    assert_int_equal(known, 0);
    assert_int_equal(later, 1);
    assert_int_equal(again, 0);
}

/// The lane is open over the better one of two paths, as long as it is that.
void the_lane_is_open_over_the_better_path(void **)
{
    unsigned on_lane = 0;
    std::uint64_t by_the_other = 1;
    unsigned until_full = 0;
    {
        Ends e;
        for (unsigned i = 0; i < 10; ++i) {
            e.t.b.take_all(e.t.a.express(8, e.t.now, Form::compressed), e.t.now);
        }
        on_lane = e.t.a.on_lane;
        by_the_other = e.t.a.peer.paths()[0].fragments_sent;
    }
    {
        Config c = quick_config();
        Two t(0, c);
        for (End *end : {&t.a, &t.b}) {
            PathInfo info;
            info.max_fragment_bytes = 1 << 16;
            info.latency = 2_us;
            info.bandwidth = 1; // a byte a nanosecond: after 1 us of it the other is as good
            (void)end->peer.add_path(info, t.now);
            info.latency = 1_us;
            (void)end->peer.add_path(info, t.now);
        }
        do {
            t.b.take_all(t.a.express(32, t.now, Form::compressed), t.now);
            ++until_full;
        } while (t.a.peer.paths()[0].fragments_sent == 0 && until_full < 1000);
    }
    assert_int_equal(on_lane, 9);
    assert_int_equal(by_the_other, 0);
    assert_in_range(until_full, 30, 34);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(it_carries_alone_while_it_is_up),
        cmocka_unit_test(others_help_when_it_refuses_for_long),
        cmocka_unit_test(others_help_when_it_is_full_for_long),
        cmocka_unit_test(a_fresh_transport_has_refused_nothing),
        cmocka_unit_test(a_peer_that_does_not_look_costs_no_path),
        cmocka_unit_test(an_answer_by_another_way_tells_against_it),
        cmocka_unit_test(what_it_loses_again_and_again_goes_elsewhere),
        cmocka_unit_test(what_a_timer_repeats_stays_in_memory),
        cmocka_unit_test(first_round_trips_are_not_the_last_word),
        cmocka_unit_test(the_lane_is_open_over_the_better_path),
    };
    return cmocka_run_group_tests_name("memory_path", tests, nullptr, nullptr);
}

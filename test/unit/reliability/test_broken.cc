// A path whose BTL was believed breaks: what was in it is asked for. PROTOCOL.md, "Levels".
#include "test/unit/reliability/believers.hpp"

#include "test/unit/cmocka.hpp"

using namespace ft::test;

namespace {

/// Both talk over the path that is left, as long as it takes. \return questions
unsigned talk(Believers &t)
{
    unsigned questions = 0;
    for (unsigned i = 0; i < 100; ++i) {
        const auto there = t.a.pump(t.now);
        questions += static_cast<unsigned>(std::count_if(there.begin(), there.end(), is_question));
        t.b.take_all(there, t.now);
        t.now += 10_us;
        t.a.take_all(t.b.pump(t.now), t.now);
        t.now += 10_ms;
    }
    return questions;
}

/// The path that is believed breaks with eight messages in it.
struct Broken : Believers {
    Broken() : Believers(1)
    {
        for (unsigned i = 0; i < 8; ++i) {
            send_past(a, 1, inside, now);
        }
        a.peer.path_error(0, now);
    }
    std::vector<Frame> inside;
};

void what_a_broken_path_had_is_asked_for(void **)
{
    unsigned questions = 0;
    bool lost = true;
    std::size_t delivered = 0;
    {
        Broken x;
        x.b.take_all(x.inside, x.now);
        questions = talk(x);
        lost = x.a.peer.unreachable();
        (void)x.a.submit(true, 8, 8, x.now);
        x.settle();
        delivered = x.b.delivered.size();
    }
    assert_int_equal(questions, 1);
    assert_false(lost);
    assert_int_equal(delivered, 9);
}

void what_is_lost_with_it_is_told(void **)
{
    unsigned questions = 0;
    bool lost = false;
    std::uint32_t count = 0;
    std::size_t failed = 0;
    {
        Broken x;
        x.inside.resize(5);
        x.b.take_all(x.inside, x.now);
        (void)x.a.submit(true, 8, 8, x.now);
        questions = talk(x);
        lost = x.a.peer.unreachable();
        count = x.a.peer.lost_for_good();
        failed = x.b.delivered.size();
    }
    assert_in_range(questions, 3, 6);
    assert_true(lost);
    assert_int_equal(count, 3);
    assert_int_equal(failed, 5);
}

// A message over the path that is believed, behind one that has not gone yet.
void so_is_what_went_behind_others(void **)
{
    for (const bool arrives : {true, false}) {
        bool lost = arrives;
        std::uint32_t count = 0;
        std::size_t delivered = 0;
        {
            Believers t(1);
            Vfrag &held = t.a.submit(false, 640, 64, t.now);
            (void)t.a.pump(t.now, false);
            std::vector<Frame> inside;
            for (unsigned i = 0; i < 8; ++i) {
                send_past(t.a, 1, inside, t.now);
            }
            for (unsigned i = 0; i < held.count(); ++i) {
                t.a.peer.locally_complete(held, i, 0, t.now, t.now, false);
            }
            t.a.peer.path_error(0, t.now);
            if (arrives) {
                t.b.take_all(inside, t.now);
            }
            (void)talk(t);
            lost = t.a.peer.unreachable();
            count = t.a.peer.lost_for_good();
            delivered = t.b.delivered.size();
        }
        assert_int_equal(lost, !arrives);
        assert_int_equal(count, arrives ? 0 : 8);
        assert_int_equal(delivered, arrives ? 18 : 10);
    }
}

// The one end is told by its BTL, and the other one by its peer: what that end sent is gone as
// well.
void the_other_end_is_told(void **)
{
    PathState state{};
    bool lost = false;
    std::uint32_t count = 0;
    std::size_t sent_since = 0;
    {
        Believers t(1);
        std::vector<Frame> swallowed;
        for (unsigned i = 0; i < 4; ++i) {
            send_past(t.b, 1, swallowed, t.now);
        }
        t.a.peer.path_error(0, t.now);
        for (unsigned i = 0; i < 100 && !t.b.peer.unreachable(); ++i) {
            t.b.take_all(t.a.pump(t.now), t.now);
            state = t.b.peer.paths()[0].state;
            t.now += 10_us;
            t.a.take_all(t.b.pump(t.now), t.now);
            t.now += 10_ms;
        }
        lost = t.b.peer.unreachable();
        count = t.b.peer.lost_for_good();
        sent_since = t.a.delivered.size();
    }
    assert_int_equal(state, PathState::gone);
    assert_true(lost);
    assert_int_equal(count, 4);
    assert_int_equal(sent_since, 0);
}

// A peer that does not run has lost nothing.
void who_is_silent_is_not_judged(void **)
{
    bool lost = true;
    bool lost_then = true;
    {
        Broken x;
        for (unsigned i = 0; i < 100; ++i) {
            x.now += 10_ms;
            (void)x.a.pump(x.now);
        }
        lost = x.a.peer.unreachable();
        x.b.take_all(x.inside, x.now);
        (void)talk(x);
        lost_then = x.a.peer.unreachable();
    }
    assert_false(lost);
    assert_false(lost_then);
}

/// One thread's pass goes on when another one has replaced the path meanwhile.
void what_an_older_pass_hands_over_gives_its_places_back(void **)
{
    std::uint32_t held = 1;
    std::size_t sent = 0;
    {
        Config c = quick_config();
        c.path_depth = 2;
        Two t(1, c);
        Vfrag &first = t.a.submit(true, 8, 8, t.now);
        Vfrag &second = t.a.submit(true, 8, 8, t.now);
        t.a.peer.path_replaced(0, t.now + 10_us);
        (void)t.a.pump(t.now, false);
        t.now += 20_us;
        for (Vfrag *v : {&first, &second}) {
            t.a.peer.locally_complete(*v, 0, 0, t.now - 20_us, t.now);
        }
        held = t.a.peer.paths()[0].held;
        (void)t.a.submit(true, 8, 8, t.now);
        sent = t.a.pump(t.now, false).size();
    }
    assert_int_equal(held, 0);
    assert_true(sent >= 1);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_a_broken_path_had_is_asked_for),
        cmocka_unit_test(what_is_lost_with_it_is_told),
        cmocka_unit_test(so_is_what_went_behind_others),
        cmocka_unit_test(the_other_end_is_told),
        cmocka_unit_test(who_is_silent_is_not_judged),
        cmocka_unit_test(what_an_older_pass_hands_over_gives_its_places_back),
    };
    return cmocka_run_group_tests_name("broken", tests, nullptr, nullptr);
}

// What a path is believed to carry, and what teaches that. Where the load then goes is told by
// test_balance and test_bursts.
#include "opal/ft/reliability/path_set.hpp"
#include "test/unit/cmocka.hpp"
#include "test/unit/reliability/path_fixture.hpp"

using namespace ft::test;

namespace {

/// One path is measured at 10 bytes per ns, the other is still at its first guess of a thousandth:
/// it must be given enough to be measured too, again after half a second without a measurement, and
/// not before.
void a_path_that_was_never_measured_gets_a_share(void **)
{
    std::array<double, 4> believed{};
    {
        Fixture f(2);
        f.now = Time::zero() + Duration::from_s(10);
        f.set.use(1).bandwidth = 0.01;
        const auto look = [&f](Duration after) {
            f.now += after;
            f.load(0);
            f.set.on_acked_bytes(0, 20'000'000, f.now + Duration::from_ms(2));
            f.set.use(0).in_flight = 0;
            f.set.on_acked_bytes(0, 1, f.now + Duration::from_ms(3)); // and it ends
            return f.set[1].bandwidth;
        };
        believed[0] = look(0_us);
        f.set.use(1).bandwidth = 0.01; // measured meanwhile, and found slow
        believed[1] = look(100_ms);
        believed[2] = look(500_ms);
        believed[3] = look(600_ms); // that did not get it measured
    }
    assert_true(believed[0] > 1.2 && believed[0] < 1.3);
    assert_true(believed[1] == 0.01);
    assert_true(believed[2] > 0.8 && believed[2] < 1.3); // of 7 or more
    assert_true(believed[3] == 2 * believed[2]);
}

/// Each look at a path that is slow indeed costs what it is given then: while it is found slow
/// again and again there are fewer of them.
void one_that_is_slow_indeed_is_looked_at_less_often(void **)
{
    std::array<unsigned, 2> looks{};
    {
        Fixture f(2);
        f.set.use(1).bandwidth = 0.01;
        bool slow = true;
        for (unsigned tenths = 0; tenths < 300; ++tenths) {
            f.now += 100_ms;
            f.load(0);
            f.set.on_acked_bytes(0, 20'000'000, f.now + Duration::from_ms(2));
            f.set.use(0).in_flight = 0;
            f.set.on_acked_bytes(0, 1, f.now + Duration::from_ms(3));
            if (f.set[1].bandwidth > 0.5) {
                ++looks.at(slow ? 0 : 1);
                f.load(1);
                f.set.on_acked_bytes(1, slow ? 100'000 : 20'000'000, f.now + Duration::from_ms(4));
                f.set.use(1).in_flight = 0;
                f.set.on_acked_bytes(1, 1, f.now + Duration::from_ms(5));
                f.set.use(1).bandwidth = 0.01;
            }
            slow = tenths < 200;
        }
    }
    assert_in_range(looks[0], 6, 9); // after 0.5, 1, 2, 4, 4 ... s
    assert_in_range(looks[1], 9, 13);
}

/// A token bucket lets pass what it has saved up, and what is acknowledged at one moment did not
/// come in that moment.
void what_comes_at_once_is_not_taken_for_a_rate(void **)
{
    double burst = 0;
    double at_one_moment = 0;
    double slow = 0;
    double idle = 0;
    {
        Fixture f(1);
        const std::uint64_t fragment =
            std::min(f.config.fragment_bytes, f.set[0].info.max_fragment_bytes);
        const auto in_time = [&fragment](double rate) { // for one fragment
            return Duration::from_ns(
                static_cast<std::int64_t>(static_cast<double>(fragment) / rate));
        };
        f.set.use(0).bandwidth = 0.01;
        f.load(0);
        for (int i = 0; i < 3; ++i) { // at some 20 bytes per ns, but not for long
            f.set.on_acked_bytes(0, fragment, f.now);
            f.now += 3_us;
        }
        burst = f.set[0].bandwidth;
        for (int i = 0; i < 200; ++i) {
            f.now += in_time(0.001) * 4;
            for (int together = 0; together < 4; ++together) {
                f.set.on_acked_bytes(0, fragment, f.now);
            }
        }
        at_one_moment = f.set[0].bandwidth;
        for (int i = 0; i < 800; ++i) {
            f.now += in_time(0.0001);
            f.set.on_acked_bytes(0, fragment, f.now);
        }
        slow = f.set[0].bandwidth;
        f.set.use(0).in_flight = 0; // it has no more to do for a while
        f.set.on_acked_bytes(0, fragment, f.now + 1_us);
        f.now += 100_s;
        f.load(0);
        for (int i = 0; i < 3; ++i) {
            f.now += in_time(0.0001);
            f.set.on_acked_bytes(0, fragment, f.now);
        }
        idle = f.set[0].bandwidth;
    }
    assert_true(burst == 0.01);
    assert_true(at_one_moment > 0.00099 && at_one_moment < 0.00101);
    assert_true(slow > 0.000099 && slow < 0.000101);
    assert_true(idle > 0.000099 && idle < 0.000101);
}

// A path that was silent for a moment in the middle of a burst would be believed to carry next to
// nothing, would be given nothing, and so would never be measured again.
void a_silence_is_no_rate(void **)
{
    double before = 0;
    double after = 0;
    double slow = 0;
    {
        Fixture f(2);
        f.now = Time::zero() + Duration::from_s(10);
        f.set.use(0).bandwidth = before = 10;
        f.set.use(0).measured = true;
        const auto carry = [&f](std::uint64_t bytes) {
            f.set.on_alive(0, f.now);
            f.set.on_acked_bytes(0, bytes, f.now);
        };
        f.load(0);
        carry(1000);
        f.now += 100_us;
        carry(1000);
        f.time_out(0);
        f.now += Duration::from_ms(300);
        carry(1000);
        f.load(0);
        f.now += 10_us;
        carry(1000);
        after = f.set[0].bandwidth;
        // One that has become slow is measured all the same.
        for (unsigned i = 0; i < 50; ++i) {
            f.now += Duration::from_ms(10);
            carry(1000);
        }
        slow = f.set[0].bandwidth;
    }
    assert_true(after == before);
    assert_true(slow < before / 2);
}

/// What was declared lost ends a load as what was acknowledged does: the idle second after it is
/// not one in which next to nothing was carried.
void a_load_that_was_lost_ends(void **)
{
    double lowest = 1;
    double after = 0;
    {
        Fixture f(2);
        f.now = Time::zero() + Duration::from_s(10);
        f.set.use(0).bandwidth = 0.05;
        f.set.use(0).measured = true;
        f.load(0);
        f.now += 100_us;
        f.set.take_off(0, 1 << 20);
        f.now += 1_s;
        constexpr std::uint64_t piece = 32 * 1024; // at 0.05 bytes per ns
        f.load(0, 4 * piece);
        for (int i = 0; i < 1000; ++i) {
            f.now += Duration::from_us(655);
            f.set.on_acked_bytes(0, piece, f.now);
            lowest = std::min(lowest, f.set[0].bandwidth);
        }
        after = f.set[0].bandwidth;
    }
    assert_true(lowest > 0.049);
    assert_true(after > 0.049 && after < 0.051);
}

/// It comes back, and what it carried as a last resort is acknowledged in the same moment: that is
/// no part of a load, and what follows is measured.
void a_path_that_comes_back_is_measured(void **)
{
    double after = 0;
    PathState state{};
    {
        Fixture f(2);
        f.now = Time::zero() + Duration::from_s(10);
        f.take_down(0, 1);
        for (unsigned i = 0; i + 1 < f.config.probe_confirm; ++i) {
            f.answer(0, f.probe(0), 1_ms);
        }
        f.load(0);
        const std::uint32_t nonce = f.probe(0);
        f.now += f.config.hold_down;
        f.set.on_acked_bytes(0, 1000, f.now);
        f.answer(0, nonce, 0_us);
        state = f.set[0].state;
        f.set.on_acked_bytes(0, 1000, f.now);
        for (int i = 0; i < 1000; ++i) {
            f.load(0);
            f.now += 1_ms;
            f.set.on_acked_bytes(0, 50'000, f.now);
        }
        after = f.set[0].bandwidth;
    }
    assert_int_equal(state, PathState::up);
    assert_true(after > 0.049 && after < 0.051);
}

/// A timeout while another path answers halves what is believed of one under load, and of no other:
/// where only little is sent nothing would ever raise it again.
void a_timeout_under_load_halves(void **)
{
    std::array<double, 2> loaded{};
    double idle = 0;
    {
        Fixture f(3);
        f.now = Time::zero() + Duration::from_s(10);
        for (PathId id = 0; id < 2; ++id) {
            f.set.use(id).bandwidth = 0.05;
            f.set.use(id).in_flight = id == 0 ? 1 << 20 : 1000;
        }
        for (double &now : loaded) {
            f.set.on_alive(2, f.now += 1_us);
            f.time_out(0);
            now = f.set[0].bandwidth;
        }
        for (int i = 0; i < 3; ++i) {
            f.set.on_alive(2, f.now += 1_us);
            f.time_out(1);
        }
        idle = f.set[1].bandwidth;
    }
    assert_true(loaded[0] == 0.025 && loaded[1] == 0.0125);
    assert_true(idle == 0.05);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_path_that_was_never_measured_gets_a_share),
        cmocka_unit_test(one_that_is_slow_indeed_is_looked_at_less_often),
        cmocka_unit_test(what_comes_at_once_is_not_taken_for_a_rate),
        cmocka_unit_test(a_silence_is_no_rate),
        cmocka_unit_test(a_load_that_was_lost_ends),
        cmocka_unit_test(a_path_that_comes_back_is_measured),
        cmocka_unit_test(a_timeout_under_load_halves),
    };
    return cmocka_run_group_tests_name("measured", tests, nullptr, nullptr);
}

#include "opal/ft/base/rng.hpp"
#include "opal/ft/detector/heartbeat.hpp"
#include "opal/ft/detector/suspicion.hpp"
#include "test/unit/cmocka.hpp"

#include <cmath>
#include <queue>

using namespace ft::detector;
using namespace ft::base;

namespace {

void quantiles_are_those_of_the_normal_distribution(void **)
{
    assert_true(std::fabs(z_of_phi(1) - 1.2816) < 0.01);
    assert_true(std::fabs(z_of_phi(3) - 3.0902) < 0.01);
    assert_true(std::fabs(z_of_phi(8) - 5.6120) < 0.01);
    assert_true(std::fabs(z_of_phi(16) - 8.2221) < 0.02);
}

void a_regular_peer_is_suspected_at_the_floor(void **)
{
    SuspicionConfig c;
    Suspicion s(Time::zero(), 100_ms);
    Time t;
    for (int i = 0; i < 200; ++i) {
        t += 100_ms;
        s.on_arrival(t);
    }
    assert_true(s.timeout(c) == c.floor);
    assert_true(s.deadline(c) == t + c.floor);
    assert_true(s.phi(t + 50_ms) < 1);
    assert_true(s.phi(t + 400_ms) > 8);
}

void an_irregular_peer_gets_more_time(void **)
{
    SuspicionConfig c;
    Suspicion s(Time::zero(), 100_ms);
    Time t;
    for (int i = 0; i < 200; ++i) {
        t += i % 10 == 9 ? 900_ms : 100_ms;
        s.on_arrival(t);
    }
    assert_true(s.timeout(c) >= 1500_ms);
    assert_true(s.timeout(c) <= c.ceiling);
    for (int i = 0; i < 3000; ++i) {
        t += 100_ms;
        s.on_arrival(t);
    }
    assert_true(s.timeout(c) <= 600_ms); // calm is believed again
}

/// Two heartbeat engines whose turns come late: `delay` says how late each.
struct Pair {
    HeartbeatConfig config;
    Heartbeat a{config}, b{config};
    Time now;
    unsigned suspicions = 0;

    Pair()
    {
        const Heartbeat::Peer pa{0, 0};
        const Heartbeat::Peer pb{1, 0};
        a.watch(now, std::span(&pb, 1));
        b.watch(now, std::span(&pa, 1));
    }

    /// Runs until `end`; both processes share a machine that lets each run only `delay()` after it
    /// is due. What arrives meanwhile waits in its socket and is read first, as a daemon's event
    /// loop does.
    template <typename F>
    void run(Time end, F &&delay)
    {
        struct Mail {
            std::uint64_t beat, echo;
        };
        std::vector<Mail> to[2];
        Time wake[2] = {now, now};
        while (now < end) {
            const int who = wake[0] <= wake[1] ? 0 : 1;
            now = std::max(now, wake[who]);
            Heartbeat &h = who == 0 ? a : b;
            for (const Mail &m : to[who]) {
                h.on_heartbeat(now, {static_cast<std::uint32_t>(1 - who), 0}, m.beat, m.echo);
            }
            to[who].clear();
            Heartbeat::Output out;
            h.on_time(now, out);
            suspicions += static_cast<unsigned>(out.suspects.size());
            for (const auto &x : out.beats) {
                to[1 - who].push_back({x.beat, x.echo});
            }
            wake[who] = h.next_deadline() + delay();
        }
    }
};

/// An hour with 16 busy processes a core: each turn waits for up to 15 others' time slices (3 to 24
/// ms), and now and then the scheduler forgets about one for half a second. Nobody is accused.
void sixteenfold_oversubscription_accuses_nobody(void **)
{
    Rng rng(3);
    Pair pair;
    pair.run(Time::zero() + 3600_s, [&] {
        Duration d;
        for (std::uint64_t i = rng.below(16); i > 0; --i) {
            d += Duration::from_us(static_cast<std::int64_t>(rng.between(3000, 24000)));
        }
        if (rng.below(500) == 0) {
            d += Duration::from_ms(static_cast<std::int64_t>(rng.below(500)));
        }
        return d;
    });
    assert_int_equal(pair.suspicions, 0);
}

void a_stopped_peer_is_suspected_in_time(void **)
{
    Pair pair;
    pair.run(Time::zero() + 10_s, [] { return 1_ms; });
    const bool calm = pair.suspicions == 0;
    const Time stopped = pair.now;
    Heartbeat::Output out;
    Time t = stopped;
    while (out.suspects.empty() && t < stopped + 5_s) {
        t = pair.a.next_deadline();
        pair.a.on_time(t, out);
    }
    const bool one = out.suspects.size() == 1;
    const Duration took = t - stopped;
    // Once, until it is heard again.
    for (int i = 0; i < 20; ++i) {
        t = pair.a.next_deadline();
        pair.a.on_time(t, out);
    }
    const bool once = out.suspects.size() == 1;
    assert_true(calm);
    assert_true(one);
    assert_true(took <= 650_ms);
    assert_true(once);
}

void own_pauses_accuse_nobody(void **)
{
    Pair pair;
    pair.run(Time::zero() + 3_s, [] { return 1_ms; });
    // Both were stopped for a minute: neither holds it against the other.
    Heartbeat::Output out;
    pair.a.on_time(pair.now + 60_s, out);
    assert_true(out.suspects.empty());
}

void leases_tell_who_cannot_have_voted(void **)
{
    Pair pair;
    pair.run(Time::zero() + 2_s, [] { return Duration::zero(); });
    const Heartbeat::Peer b{1, 0};
    const bool fresh = pair.a.clean(pair.now, b);
    const bool later = pair.a.clean(pair.now + pair.config.fence, b);
    const bool other_life = pair.a.clean(pair.now, {1, 1});
    // b must wait until its promise is over, which is after a stops to count on it.
    const Time hold = pair.b.hold_until(0);
    Time last_clean = pair.now;
    while (pair.a.clean(last_clean, b)) {
        last_clean += 1_ms;
    }
    const bool ordered = last_clean <= hold;
    const bool none = pair.b.hold_until(77) == Time::zero();
    assert_true(fresh);
    assert_false(later);
    assert_false(other_life);
    assert_true(ordered);
    assert_true(none);
}

void who_holds_no_lease_or_is_told_so_is_out_of_touch(void **)
{
    HeartbeatConfig config; // 100 ms, 400 ms
    Heartbeat h(config);
    const Heartbeat::Peer peers[] = {{0, 0}, {1, 0}};
    const Time start = Time::zero() + 1_s;
    Time now = start;
    h.watch(now, peers);
    constexpr std::uint32_t nobody = 9;
    const auto out_of_touch = [&](std::uint32_t but, std::uint32_t gone) {
        return h.out_of_touch(now, start, but,
                              [gone](const Heartbeat::Peer &p) { return p.id == gone; });
    };
    Heartbeat::Output out;
    h.on_time(now, out);
    now += 300_ms;
    assert_false(out_of_touch(nobody, nobody)); // as new as the view
    h.on_time(now, out);                        // the second heartbeat
    now += 60_ms;
    assert_true(out_of_touch(nobody, nobody));
    h.on_heartbeat(now, peers[0], 1, 2);
    assert_true(out_of_touch(nobody, nobody));
    assert_false(out_of_touch(nobody, 1)); // whose death is proven
    h.on_heartbeat(now, peers[1], 1, 2);
    assert_false(out_of_touch(nobody, nobody));
    // Told by one, to be told to the other, not back.
    h.on_heartbeat(now, peers[0], 2, 2, true);
    assert_true(out_of_touch(nobody, nobody));
    assert_true(out_of_touch(1, nobody));
    assert_false(out_of_touch(0, nobody));
    // What was said last counts, also of one who has died since; an old heartbeat says nothing.
    assert_true(out_of_touch(nobody, 0));
    h.on_heartbeat(now, peers[0], 1, 2, false);
    assert_true(out_of_touch(nobody, nobody));
    h.on_heartbeat(now, peers[0], 3, 2, false);
    assert_false(out_of_touch(nobody, nobody));
    h.on_heartbeat(now, peers[0], 4, 2, true);
    h.watch(now, peers); // another view
    assert_false(out_of_touch(nobody, nobody));
    now += 350_ms;
    assert_true(out_of_touch(nobody, nobody));
}

void pauses_and_steps_of_the_clock_keep_leases_honest(void **)
{
    HeartbeatConfig config;
    Heartbeat h(config);
    const Heartbeat::Peer p{0, 0};
    Time now = Time::zero() + 1_s;
    h.watch(now, std::span(&p, 1));
    Heartbeat::Output out;
    h.on_time(now, out);
    h.on_heartbeat(now, p, 1, 1);
    const Time promised = h.hold_until(0);
    // A pause of which nobody knows how long it was for others: the promise lasts as much longer.
    now += 300_ms;
    h.on_pause(now, 200_ms);
    const Time longer = h.hold_until(0);
    // A long one leaves what was left of it before.
    now += 5_s;
    h.on_pause(now, 5_s);
    const Time longest = h.hold_until(0);
    const bool leased = h.clean(Time::zero() + 1_s + 50_ms, p);
    h.on_step_back();
    const bool still = h.clean(Time::zero() + 1_s + 50_ms, p);
    assert_true(promised == Time::zero() + 1_s + config.fence);
    assert_true(longer == promised + 200_ms);
    assert_true(longest == now + 300_ms);
    assert_true(leased && !still);
}

void without_heartbeats_nothing_happens(void **)
{
    HeartbeatConfig c;
    c.interval = Duration::zero();
    Heartbeat h(c);
    const Heartbeat::Peer p{1, 0};
    h.watch(Time::zero(), std::span(&p, 1));
    assert_true(h.next_deadline().is_never());
    assert_false(h.clean(Time::zero(), p));
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_those_of_the_normal_distribution),
        cmocka_unit_test(a_regular_peer_is_suspected_at_the_floor),
        cmocka_unit_test(an_irregular_peer_gets_more_time),
        cmocka_unit_test(sixteenfold_oversubscription_accuses_nobody),
        cmocka_unit_test(a_stopped_peer_is_suspected_in_time),
        cmocka_unit_test(own_pauses_accuse_nobody),
        cmocka_unit_test(leases_tell_who_cannot_have_voted),
        cmocka_unit_test(who_holds_no_lease_or_is_told_so_is_out_of_touch),
        cmocka_unit_test(pauses_and_steps_of_the_clock_keep_leases_honest),
        cmocka_unit_test(without_heartbeats_nothing_happens),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

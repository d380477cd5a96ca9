// The congestion window in closed loop with a link that has a rate, a delay and a bounded queue.
#include "opal/ft/base/rng.hpp"
#include "opal/ft/reliability/congestion.hpp"
#include "test/unit/cmocka.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <vector>

using namespace ft::reliability;
using ft::base::Duration;
using ft::base::Time;

namespace {

constexpr std::uint64_t packet = 1400;

struct Link {
    double rate = 1;                        ///< bytes per ns
    Duration delay = Duration::from_us(50); ///< there and back, without the queue
    std::uint64_t queue = 256 * 1024;       ///< bytes that wait at most
    double loss = 0;                        ///< by chance
    Time free_at{};
};

/// One sender. Whatever arrives is acknowledged; what is lost is noticed when a later one is.
struct Flow {
    Congestion congestion;
    std::uint64_t in_flight = 0;
    std::uint32_t next_tx = 0;
    std::uint64_t delivered = 0;
    std::uint64_t lost = 0;
    double smoothed = 0;
    struct Sent {
        std::uint32_t tx;
        Time sent;
        Time acked; ///< or when its loss is noticed
        bool arrives;
    };
    std::deque<Sent> way;

    void acknowledge(const Sent &sent)
    {
        if (sent.arrives) {
            const auto trip = static_cast<double>((sent.acked - sent.sent).ns());
            smoothed = smoothed == 0 ? trip : smoothed + (trip - smoothed) / 8;
            congestion.on_round_trip(Duration::from_ns(static_cast<std::int64_t>(trip)),
                                     Duration::from_ns(static_cast<std::int64_t>(smoothed)));
            congestion.on_acked(packet, in_flight, sent.tx, next_tx, sent.acked);
            delivered += packet;
        } else {
            congestion.on_lost(packet, sent.tx);
            lost += packet;
        }
        in_flight -= packet;
    }
    void send(Link &link, Time now, ft::base::Rng &rng)
    {
        const Time start = std::max(link.free_at, now);
        const double waiting = static_cast<double>((start - now).ns()) * link.rate;
        const bool fits = waiting + packet <= static_cast<double>(link.queue);
        const bool lucky = !(link.loss > 0 && rng.chance(link.loss));
        Time arrival = start + link.delay;
        if (fits) {
            link.free_at = start + Duration::from_ns(static_cast<std::int64_t>(packet / link.rate));
            arrival = link.free_at + link.delay;
        }
        way.push_back({next_tx, now, arrival, fits && lucky});
        congestion.on_sent(packet, next_tx++, false, now);
        in_flight += packet;
    }
};

/// Runs flows over one link. \return bytes delivered per ns, of all
double run(Link link, std::vector<Flow> &flows, Duration length, std::uint64_t seed = 3)
{
    ft::base::Rng rng(seed);
    const Duration step = Duration::from_us(1);
    std::uint64_t before = 0;
    const Time middle = Time::zero() + length / 2;
    for (Time now = Time::zero() + step; now < Time::zero() + length; now += step) {
        for (Flow &flow : flows) {
            while (!flow.way.empty() && flow.way.front().acked <= now) {
                flow.acknowledge(flow.way.front());
                flow.way.pop_front();
            }
            while (!flow.congestion.pausing(now) &&
                   flow.congestion.allows(flow.in_flight, packet)) {
                flow.send(link, now, rng);
            }
        }
        if (now <= middle) {
            before = 0;
            for (const Flow &flow : flows) {
                before += flow.delivered;
            }
        }
    }
    std::uint64_t all = 0;
    for (const Flow &flow : flows) {
        all += flow.delivered;
    }
    return static_cast<double>(all - before) / static_cast<double>((length / 2).ns());
}

double alone(const Link &link, Duration length = Duration::from_ms(400))
{
    std::vector<Flow> one(1);
    return run(link, one, length) / link.rate;
}

void it_starts_small_and_fills_a_fast_link(void **)
{
    const Congestion fresh;
    const std::uint64_t first = fresh.window();
    const double share = alone(Link{});
    assert_true(first <= 64 * 1024 && fresh.starting());
    assert_true(share > 0.9);
}

void it_fills_slow_links_and_long_ones(void **)
{
    Link slow;
    slow.rate = 0.0125; // 100 Mbit/s
    slow.queue = 64 * 1024;
    const double on_slow = alone(slow);
    Link far;
    far.delay = Duration::from_ms(1);
    far.queue = 512 * 1024;
    const double on_far = alone(far);
    assert_true(on_slow > 0.85);
    assert_true(on_far > 0.8);
}

void loss_by_chance_does_not_stop_it(void **)
{
    double least = 1;
    for (const double loss : {0.01, 0.05, 0.3}) {
        Link link;
        link.loss = loss;
        least = std::min(least, alone(link) / (1 - loss));
    }
    assert_true(least > 0.8);
}

void a_queue_that_runs_over_makes_it_shrink(void **)
{
    Link link;
    link.rate = 0.0125;
    link.queue = 32 * 1024;
    std::vector<Flow> one(1);
    const double share = run(link, one, Duration::from_ms(400)) / link.rate;
    const double wasted =
        static_cast<double>(one[0].lost) / static_cast<double>(one[0].lost + one[0].delivered);
    const std::uint64_t window = one[0].congestion.window();
    assert_true(share > 0.8);
    assert_true(wasted < 0.1);
    assert_true(window < 128 * 1024);
}

void two_share_a_link(void **)
{
    Link link;
    link.rate = 0.1;
    std::vector<Flow> two(2);
    const double together = run(link, two, Duration::from_ms(800)) / link.rate;
    const auto a = static_cast<double>(two[0].delivered);
    const auto b = static_cast<double>(two[1].delivered);
    const double jain = (a + b) * (a + b) / (2 * (a * a + b * b));
    assert_true(together > 0.85);
    assert_true(jain > 0.9);
}

/// What is in flight on a way of 100 us without a queue, a second after one that lost a tenth and
/// made each round trip take 8 ms: in bytes.
std::uint64_t after_losses(std::uint32_t bytes)
{
    Congestion congestion(CongestionControl::hybrid);
    ft::base::Rng rng(3);
    const Time start = Time::zero() + Duration::from_s(1);
    Time now = start;
    std::uint32_t tx = 1;
    std::uint64_t most = 0;
    while (now - start < Duration::from_s(2)) {
        const bool bad = now - start < Duration::from_s(1) && now != start;
        std::uint64_t in_flight = 0;
        const std::uint32_t first = tx;
        while (congestion.allows(in_flight, bytes)) {
            congestion.on_sent(bytes, tx++, false, now);
            in_flight += bytes;
        }
        most = in_flight;
        const Duration trip = bad ? Duration::from_ms(8) : Duration::from_us(100);
        now += trip;
        congestion.on_round_trip(trip, trip);
        for (std::uint32_t t = first; t != tx; ++t, in_flight -= bytes) {
            if (bad && rng.chance(0.1)) {
                congestion.on_lost(bytes, t);
            } else {
                congestion.on_acked(bytes, in_flight, t, tx, now);
            }
        }
    }
    return most;
}

/// A window that has room for one packet and not for two is full with one.
void it_grows_again_whatever_a_packet_holds(void **)
{
    std::uint64_t least = std::uint64_t{1} << 40;
    for (const std::uint32_t bytes : {1400U, 4000U, 8900U, 16000U, 33000U, 40000U, 65000U}) {
        least = std::min(least, after_losses(bytes));
    }
    assert_true(least > 512 * 1024);
}

/// What several packets are acknowledged with at once does not make a half-used window a full one.
void a_window_that_is_half_used_does_not_grow(void **)
{
    for (const bool full : {false, true}) {
        Congestion congestion;
        const Time now = Time::zero() + Duration::from_s(1);
        const std::uint64_t before = congestion.window();
        const auto count = static_cast<std::uint32_t>(before / packet / (full ? 1 : 2));
        for (std::uint32_t tx = 0; tx < count; ++tx) {
            congestion.on_sent(packet, tx, false, now);
        }
        const std::uint64_t bytes = std::uint64_t{count} * packet;
        congestion.on_acked_run(bytes, packet, bytes, count - 1, count, now);
        assert_int_equal(congestion.window(), full ? before + bytes : before);
    }
}

/// A flow over a way with a queue that stands, 50 ms long.
struct Queued {
    Congestion congestion{CongestionControl::cubic};
    Time now = Time::zero() + Duration::from_s(1);
    std::uint32_t tx = 0;

    /// A window is sent and answered, but for `lost` of its packets.
    void round(unsigned lost)
    {
        const auto packets = static_cast<std::uint32_t>(congestion.window() / packet);
        const std::uint32_t first = tx;
        for (std::uint32_t i = 0; i < packets; ++i) {
            congestion.on_sent(packet, tx++, false, now);
        }
        const auto trip = Duration::from_ms(50);
        now += trip;
        congestion.on_round_trip(trip, trip);
        for (std::uint32_t i = 0; i < packets; ++i) {
            if (i < lost) {
                congestion.on_lost(packet, first + i);
            } else {
                congestion.on_acked(packet, std::uint64_t{packets - i} * packet, first + i, tx,
                                    now);
            }
        }
    }
    void pass(double seconds)
    {
        for (const Time end = now + Duration::from_ms(static_cast<std::int64_t>(1e3 * seconds));
             now < end;) {
            round(0);
        }
    }
};

/// CUBIC's K: how long it takes from `floor` to `top`, in seconds.
double until(double top, double floor)
{
    return std::cbrt((top - floor) / 1448 / 0.4);
}

/// Who is shrunk by another before it has come back to where it shrank last lingers below that, and
/// leaves the rest to the other (RFC 9438, 4.7).
void who_loses_room_to_another_leaves_it_more(void **)
{
    Queued flow;
    while (flow.congestion.window() < 1'000'000) {
        flow.round(0);
    }
    const auto high = static_cast<double>(flow.congestion.window());
    flow.round(1);
    flow.pass(until(high, 0.7 * high));
    const auto back = static_cast<double>(flow.congestion.window());
    assert_true(back > 0.97 * high && back < 1.03 * high);

    flow.round(1);
    flow.pass(0.2);
    const auto lower = static_cast<double>(flow.congestion.window());
    assert_true(lower < 0.85 * back);
    flow.round(1);
    flow.pass(until(0.85 * lower, 0.7 * lower));
    const auto lingers = static_cast<double>(flow.congestion.window());
    assert_true(lingers > 0.82 * lower && lingers < 0.88 * lower);

    flow.round(1); // again, at less than that
    flow.pass(0.2);
    flow.pass(until(lingers, 0.7 * lingers) + 6);
    assert_true(static_cast<double>(flow.congestion.window()) >
                lingers); // it comes back when there is room
}

/// The window doubles while the queue that stands there stays as it is, and no longer.
void who_comes_to_a_queue_starts_until_it_grows(void **)
{
    Congestion congestion;
    Time now = Time::zero() + Duration::from_s(1);
    std::uint32_t tx = 0;
    const auto round = [&](Duration trip) {
        const std::uint64_t packets = congestion.window() / packet;
        const std::uint32_t first = tx;
        for (std::uint64_t i = 0; i < packets; ++i) {
            congestion.on_sent(packet, tx++, false, now);
        }
        now += trip;
        congestion.on_round_trip(trip, trip);
        for (std::uint64_t i = 0; i < packets; ++i) {
            congestion.on_acked(packet, (packets - i) * packet,
                                first + static_cast<std::uint32_t>(i), tx, now);
        }
    };
    for (int i = 0; i < 4; ++i) {
        round(Duration::from_ms(50));
    }
    const bool starts = congestion.starting() && congestion.queued();
    const std::uint64_t doubled = congestion.window();
    round(Duration::from_ms(53)); // less than an eighth more: a matter of who runs when
    const bool still = congestion.starting();
    for (int i = 0; i < 2; ++i) {
        round(Duration::from_ms(62));
    }
    assert_true(starts && still && !congestion.starting());
    assert_true(doubled > 4 * Congestion::initial_window);
}

/// A way of 50 us for a second, then round trips as `trip` tells them for 25 s. \return whether
/// they are taken for a queue's
template <class Trip>
bool taken_for_a_queue(Trip trip)
{
    Congestion congestion;
    const Time start = Time::zero() + Duration::from_s(1);
    const Time change = start + Duration::from_s(1);
    Time now = start;
    for (std::uint32_t tx = 0; now < change + Duration::from_s(25); ++tx) {
        const Duration took = now < change ? Duration::from_us(50) : trip(now - change);
        congestion.on_sent(packet, tx, true, now);
        now += took;
        congestion.on_round_trip(took, took);
        congestion.on_acked(packet, packet, tx, tx + 1, now);
        now += Duration::from_us(500);
    }
    return congestion.queued();
}

/// A route that changed is one way, and a queue that somebody fills and lets shrink, as CUBIC does,
/// another, however long it stands.
void a_way_that_got_longer_is_told_from_a_queue(void **)
{
    const bool changed = taken_for_a_queue(
        [](Duration since) { return Duration::from_us(since.ns() % 7 == 0 ? 1300 : 1200); });
    const bool filled = taken_for_a_queue([](Duration since) {
        // 2.3 to 3.3 ms, in 6.4 s, and most of the time near the top.
        const double left = 1 - static_cast<double>(since.ns() % 6'400'000'000) * 1e-9 / 6.4;
        return Duration::from_us(static_cast<std::int64_t>(3300 - 1000 * left * left * left));
    });
    assert_false(changed);
    assert_true(filled);
}

/// Over a path that comes back nothing is known of the way.
void a_path_that_returns_may_be_longer(void **)
{
    Congestion congestion;
    std::uint32_t tx = 0;
    Time now = Time::zero() + Duration::from_s(1);
    const auto round = [&](Duration took) {
        congestion.on_sent(packet, tx, true, now);
        now += took;
        congestion.on_round_trip(took, took);
        congestion.on_acked(packet, packet, tx, tx + 1, now);
        ++tx;
        return congestion.queued();
    };
    (void)round(Duration::from_us(50));
    const bool before = round(Duration::from_us(1200));
    congestion.forget_way();
    const bool after = round(Duration::from_us(1200));
    assert_true(before && !after);
}

/// What both ends sharing their cores does: in four rounds of five all answers are late.
/// \return the window after two seconds of a loss by chance in each tenth round
std::uint64_t window_on_shared_cores(const Absence *absence, Absence *noted)
{
    Congestion congestion(CongestionControl::hybrid, absence);
    std::uint32_t tx = 0;
    Time now = Time::zero();
    const auto shortest = Duration::from_us(50);
    for (int round = 0; now < Time::zero() + Duration::from_ms(2000); ++round) {
        const Duration trip = round % 5 == 0 ? shortest : Duration::from_ms(6);
        const auto count = static_cast<std::uint32_t>(congestion.window() / packet);
        for (std::uint32_t i = 0; i < count; ++i) {
            congestion.on_sent(packet, tx + i, false, now);
        }
        now += trip;
        if (noted != nullptr) {
            noted->note(trip, now);
        }
        congestion.on_round_trip(trip, trip);
        std::uint64_t in_flight = std::uint64_t{count} * packet;
        for (std::uint32_t i = 0; i < count; ++i, in_flight -= packet) {
            if (round % 10 == 3 && i == count / 2) {
                congestion.on_lost(packet, tx + i);
            } else {
                congestion.on_acked(packet, in_flight, tx + i, tx + count, now);
            }
        }
        tx += count;
    }
    return congestion.window();
}

void who_shares_a_core_does_not_take_that_for_a_queue(void **)
{
    Absence absence;
    const std::uint64_t known = window_on_shared_cores(&absence, &absence);
    const Absence never;
    const std::uint64_t unknown = window_on_shared_cores(&never, nullptr);
    const std::uint64_t none = window_on_shared_cores(nullptr, nullptr);
    assert_true(known > 10 * unknown);
    assert_int_equal(unknown, none);
}

void an_absence_is_forgotten(void **)
{
    Absence absence;
    const Time start = Time::zero() + Duration::from_ms(5);
    const auto before = absence.lately(start);
    absence.note(Duration::from_us(900), start);
    const auto too_short = absence.lately(start);
    absence.note(Duration::from_ms(5), start);
    absence.note(Duration::from_ms(2), start + Duration::from_ms(10));
    const auto longest = absence.lately(start + Duration::from_ms(500));
    const auto later = absence.lately(start + Duration::from_ms(1500));
    assert_true(before == Duration::zero() && too_short == Duration::zero());
    assert_true(longest == Duration::from_ms(5) && later == Duration::zero());
}

// A queue that really stands is seen all the same, a little later.
void a_queue_behind_a_shared_core_makes_it_shrink(void **)
{
    Absence absence;
    Link slow;
    slow.rate = 0.0125; // 100 Mbit/s
    slow.queue = 256 * 1024;
    std::vector<Flow> one(1);
    one.front().congestion = Congestion(CongestionControl::hybrid, &absence);
    for (std::int64_t ms = 0; ms < 2000; ms += 500) {
        absence.note(Duration::from_ms(4), Time::zero() + Duration::from_ms(ms));
    }
    const double share = run(slow, one, Duration::from_ms(2000)) / slow.rate;
    assert_true(share > 0.85);
    assert_true(one.front().congestion.congestion_events() > 0);
    assert_true(one.front().congestion.window() <= 512 * 1024);
}

void what_it_counts_is_what_happened(void **)
{
    const Congestion fresh;
    Link shallow;
    shallow.queue = 64 * 1024;
    shallow.delay = Duration::from_ms(2);
    shallow.loss = 0.002;
    std::vector<Flow> one(1);
    run(shallow, one, Duration::from_ms(400));
    const Flow &flow = one.front();
    const Congestion &after = flow.congestion;
    assert_true(fresh.pace() == 0 && fresh.lost_bytes() == 0 && fresh.congestion_events() == 0);
    assert_int_equal(after.lost_bytes(), flow.lost);
    assert_true(flow.lost > 0 && after.congestion_events() > 0);
    assert_int_equal(after.congestion_events() & 0x7f, after.shrinks());
    const double pace = 2 * static_cast<double>(after.window()) / flow.smoothed;
    assert_true(after.pace() > pace * 0.999 && after.pace() < pace * 1.001);
}

void the_window_keeps_its_bounds(void **)
{
    Congestion congestion;
    bool inside = true;
    std::uint32_t tx = 0;
    for (int round = 0; round < 200; ++round) {
        congestion.on_sent(packet, tx++, false, Time::zero());
        congestion.on_lost(round % 2 == 0 ? 1'000'000 : 0, tx - 1);
        congestion.on_acked(packet, 10'000'000, tx - 1, tx, Time::zero());
        inside = inside && congestion.window() >= Congestion::least_window &&
                 congestion.window() <= Congestion::most_window;
    }
    assert_true(inside);
    assert_true(congestion.allows(0, 100'000'000)); // one fragment always
}

void it_pauses_after_a_burst_and_goes_on(void **)
{
    Congestion congestion;
    congestion.on_round_trip(Duration::from_ms(1), Duration::from_ms(1));
    const Time now = Time::zero() + Duration::from_s(1);
    std::uint64_t sent = 0;
    while (!congestion.pausing(now) && sent < 10'000'000) {
        congestion.on_sent(packet, 0, false, now);
        sent += packet;
    }
    const bool paused = congestion.pausing(now) && !congestion.resumes().is_never();
    const bool goes_on = !congestion.pausing(congestion.resumes());
    assert_true(paused && goes_on);
    assert_in_range(sent, Congestion::initial_window / 4,
                    Congestion::initial_window / 4 + 2 * packet);
}

/// The peer was stopped when it was met: the first round trip that is known took seconds.
void who_stood_still_does_not_keep_the_pace_down(void **)
{
    Congestion congestion;
    const Duration network = Duration::from_us(100);
    const Duration stopped = Duration::from_ms(5000);
    Time now = Time::from_ns(1'000'000'000'000);
    congestion.on_round_trip(stopped, stopped);
    congestion.on_sent(Congestion::burst_bytes, 0, true, now);
    assert_true(congestion.pausing(now));
    assert_true(congestion.resumes() > now + Duration::from_ms(1000));
    // It goes on, and its answer takes as long as answers take.
    now += network;
    congestion.on_round_trip(network, stopped - stopped / 8);
    const double two_windows_a_trip = 2.0 * Congestion::initial_window /
                                      static_cast<double>((network * Congestion::far_shorter).ns());
    assert_true(congestion.pace() >= 0.99 * two_windows_a_trip);
    assert_true(!congestion.pausing(now) ||
                congestion.resumes() < now + network * Congestion::far_shorter);
    // One short round trip among long ones is not far shorter.
    const double before = congestion.pace();
    congestion.on_round_trip(network, network * 2);
    assert_true(congestion.pace() > before);
    assert_true(congestion.pace() <= 1.01 * before * Congestion::far_shorter / 2);
}

void an_acknowledgement_is_asked_for_before_the_window_is_full(void **)
{
    Congestion congestion;
    std::uint64_t in_flight = 0;
    int asked = 0;
    while (congestion.allows(in_flight, packet)) {
        const bool asks = congestion.wants_ack(in_flight, packet);
        congestion.on_sent(packet, 0, asks, Time::zero());
        in_flight += packet;
        asked += asks ? 1 : 0;
        const bool last = !congestion.allows(in_flight, packet);
        assert_true(!last || asks);
    }
    assert_in_range(asked, 4, 6);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(it_starts_small_and_fills_a_fast_link),
        cmocka_unit_test(it_fills_slow_links_and_long_ones),
        cmocka_unit_test(loss_by_chance_does_not_stop_it),
        cmocka_unit_test(a_queue_that_runs_over_makes_it_shrink),
        cmocka_unit_test(two_share_a_link),
        cmocka_unit_test(it_grows_again_whatever_a_packet_holds),
        cmocka_unit_test(a_window_that_is_half_used_does_not_grow),
        cmocka_unit_test(who_loses_room_to_another_leaves_it_more),
        cmocka_unit_test(who_comes_to_a_queue_starts_until_it_grows),
        cmocka_unit_test(a_way_that_got_longer_is_told_from_a_queue),
        cmocka_unit_test(a_path_that_returns_may_be_longer),
        cmocka_unit_test(who_shares_a_core_does_not_take_that_for_a_queue),
        cmocka_unit_test(an_absence_is_forgotten),
        cmocka_unit_test(a_queue_behind_a_shared_core_makes_it_shrink),
        cmocka_unit_test(what_it_counts_is_what_happened),
        cmocka_unit_test(the_window_keeps_its_bounds),
        cmocka_unit_test(it_pauses_after_a_burst_and_goes_on),
        cmocka_unit_test(who_stood_still_does_not_keep_the_pace_down),
        cmocka_unit_test(an_acknowledgement_is_asked_for_before_the_window_is_full),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

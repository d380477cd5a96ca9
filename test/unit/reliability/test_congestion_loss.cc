// What the control of congestion learns from losses, round by round.
#include "opal/ft/reliability/congestion.hpp"
#include "test/unit/cmocka.hpp"

#include <functional>

using namespace ft::reliability;
using ft::base::Duration;
using ft::base::Time;

namespace {

constexpr std::uint64_t packet = 1400;
constexpr auto way = Duration::from_us(50);

struct Driver {
    explicit Driver(const Absence *absence = nullptr)
        : congestion(CongestionControl::hybrid, absence)
    {
    }

    /// A window of packets that takes so long; `lost` says which of them by their place.
    void round(Duration trip, const std::function<bool(std::uint32_t place)> &lost)
    {
        const auto count = static_cast<std::uint32_t>(congestion.window() / packet);
        for (std::uint32_t i = 0; i < count; ++i) {
            congestion.on_sent(packet, tx + i, false, now);
        }
        now += trip;
        congestion.on_round_trip(trip, trip);
        std::uint64_t in_flight = std::uint64_t{count} * packet;
        for (std::uint32_t i = 0; i < count; ++i, in_flight -= packet) {
            if (lost(i)) {
                congestion.on_lost(packet, tx + i);
            } else {
                congestion.on_acked(packet, in_flight, tx + i, tx + count, now);
            }
        }
        tx += count;
    }

    Congestion congestion;
    std::uint32_t tx = 0;
    Time now = Time::zero();
};

bool none(std::uint32_t /*place*/)
{
    return false;
}

/// Processes that share a core answer late in nearly all rounds, which is no queue's doing: what
/// chance takes meanwhile is learnt.
void chance_is_learnt_on_shared_cores(void **)
{
    Absence absence;
    Driver it(&absence);
    for (int i = 0; i < 1000; ++i) {
        const Duration trip = i % 12 == 0 ? way : Duration::from_ms(6);
        absence.note(trip, it.now + trip);
        it.round(trip, [i](std::uint32_t place) { return i > 50 && place % 6 == 3; });
    }
    assert_true(it.congestion.congestion_events() < 40);
}

/// What one overflow took is answered for when the window has shrunk for it.
void one_overflow_shrinks_once(void **)
{
    Driver it;
    for (int i = 0; i < 3; ++i) {
        it.round(way, none);
    }
    const std::uint32_t before = it.congestion.congestion_events();
    const std::uint64_t some = it.congestion.window() / packet * 2 / 5; // told of first
    it.round(Duration::from_ms(3), [some](std::uint32_t place) { return place < some; });
    const std::uint32_t after = it.congestion.congestion_events();
    for (int i = 0; i < 100; ++i) {
        it.round(way, none);
    }
    assert_int_equal(before, 0);
    assert_int_equal(after, 1);
    assert_int_equal(it.congestion.congestion_events(), 1);
}

/// A round trip now and then tells nothing of how the way is between them.
void a_few_rounds_are_no_longer_way(void **)
{
    Driver it;
    for (int i = 0; i < 100; ++i) {
        it.round(way, none);
    }
    for (int i = 0; i < 5; ++i) {
        it.now += Duration::from_s(11);
        it.round(Duration::from_ms(3), none);
    }
    assert_true(it.congestion.queued());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(chance_is_learnt_on_shared_cores),
        cmocka_unit_test(one_overflow_shrinks_once),
        cmocka_unit_test(a_few_rounds_are_no_longer_way),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

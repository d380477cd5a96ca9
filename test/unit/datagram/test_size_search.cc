#include "opal/ft/base/rng.hpp"
#include "opal/ft/datagram/size_search.hpp"
#include "test/unit/cmocka.hpp"

using namespace ft::dgram;
using ft::base::Duration;
using ft::base::Time;

namespace {

constexpr Duration step = Duration::from_ms(10);

/// A way that swallows what is longer than `passes`, and of the rest a share of `loss` in each
/// direction.
struct Way {
    std::uint32_t passes = 65507;
    double loss = 0;
    bool away = false;
    std::uint32_t nonces = 1;
    ft::base::Rng rng{7};

    void run(SizeSearch &search, Time &now, Duration length)
    {
        for (const Time end = now + length; now < end; now += step) {
            const SizeSearch::Probes probes = search.on_time(now, nonces++);
            for (std::uint32_t i = 0; i < probes.count; ++i) {
                const bool lost = chance() || chance();
                if (probes.size[i] <= passes && !lost && !away) {
                    search.on_reply(probes.nonce, probes.size[i]);
                }
            }
        }
    }
    bool chance() { return static_cast<double>(rng.next() >> 11U) * 0x1p-53 < loss; }
};

void a_sound_way_keeps_its_size(void **)
{
    SizeSearch search(1472, Duration::from_s(1));
    Way way;
    Time now = Time::zero() + step;
    way.run(search, now, Duration::from_s(100));
    assert_int_equal(search.size(), 1472);
    assert_int_equal(search.times_lowered(), 0);
}

void a_narrower_way_is_found_within_a_second(void **)
{
    SizeSearch search(8972, Duration::from_s(1));
    Way way;
    way.passes = 1300;
    Time now = Time::zero() + step;
    way.run(search, now, Duration::from_s(1));
    assert_int_equal(search.size(), 1252);
}

void a_way_that_widens_is_used_again(void **)
{
    SizeSearch search(1472, Duration::from_s(1));
    Way way;
    way.passes = 600;
    Time now = Time::zero() + step;
    way.run(search, now, Duration::from_s(2));
    const bool small = search.size() == least_datagram;
    way.passes = 1472;
    way.run(search, now, Duration::from_s(300));
    assert_true(small);
    assert_int_equal(search.size(), 1472);
}

void a_peer_that_is_away_says_nothing_of_sizes(void **)
{
    SizeSearch search(1472, Duration::from_s(1));
    Way way;
    way.away = true;
    Time now = Time::zero() + step;
    way.run(search, now, Duration::from_s(100));
    assert_int_equal(search.size(), 1472);
}

void loss_alone_lowers_the_size_rarely_and_not_for_good(void **)
{
    SizeSearch search(1472, Duration::from_s(1));
    Way way;
    way.loss = 0.3;
    Time now = Time::zero() + step;
    way.run(search, now, Duration::from_s(300));
    const std::uint32_t lowered = search.times_lowered();
    way.loss = 0;
    way.run(search, now, Duration::from_s(300));
    assert_in_range(lowered, 0, 30);
    assert_int_equal(search.size(), 1472);
}

void a_late_answer_counts_for_nothing(void **)
{
    SizeSearch search(1472, Duration::from_s(1));
    Time now = Time::zero() + step;
    const SizeSearch::Probes first = search.on_time(now, 7);
    assert_int_equal(first.count, 2);
    assert_int_equal(first.size[0], 1472);
    search.on_reply(first.nonce + 1, 1472);
    search.on_reply(first.nonce, 9999);
    search.on_reply(first.nonce, least_datagram);
    assert_int_equal(search.on_time(now, 8).count, 0);
    now += Duration::from_ms(60);
    assert_int_equal(search.on_time(now, 9).count, 2); // it counts against the size, and asks again
}

/// Two modules of a process lead to one address of a peer, which answers both by one of them; the
/// other one's way is narrower.
void an_answer_serves_the_search_that_asked(void **)
{
    SizeSearch wide(1472, Duration::from_s(1));
    SizeSearch narrow(1472, Duration::from_s(1));
    std::uint32_t nonces = 0;
    Time now = Time::zero() + step;
    for (const Time end = now + Duration::from_s(2); now < end; now += step) {
        for (SizeSearch *search : {&wide, &narrow}) {
            const SizeSearch::Probes probes = search->on_time(now, nonces++);
            for (std::uint32_t i = 0; i < probes.count; ++i) {
                if (search == &wide || probes.size[i] <= 600) {
                    wide.on_reply(probes.nonce, probes.size[i]);
                    narrow.on_reply(probes.nonce, probes.size[i]);
                }
            }
        }
    }
    assert_int_equal(wide.size(), 1472);
    assert_int_equal(narrow.size(), least_datagram);
}

void the_least_size_needs_no_search(void **)
{
    SizeSearch search(100, Duration::from_s(1));
    assert_int_equal(search.size(), least_datagram);
    assert_int_equal(search.on_time(Time::zero() + step, 1).count, 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_way_keeps_its_size),
        cmocka_unit_test(a_narrower_way_is_found_within_a_second),
        cmocka_unit_test(a_way_that_widens_is_used_again),
        cmocka_unit_test(a_peer_that_is_away_says_nothing_of_sizes),
        cmocka_unit_test(loss_alone_lowers_the_size_rarely_and_not_for_good),
        cmocka_unit_test(a_late_answer_counts_for_nothing),
        cmocka_unit_test(an_answer_serves_the_search_that_asked),
        cmocka_unit_test(the_least_size_needs_no_search),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

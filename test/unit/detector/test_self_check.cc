#include "opal/ft/detector/self_check.hpp"
#include "test/unit/cmocka.hpp"

using namespace ft::detector;
using namespace ft::base;
using Verdict = SelfCheckMonitor::Verdict;

namespace {

/// Reports every period from `from` to `to`; `state(t)` is what the rank is at t. Returns the first
/// time hung.
template <typename F>
Time hung_at(Time to, F &&state)
{
    const SelfCheckConfig config;
    SelfCheckMonitor m(Time::zero(), config);
    SelfCheckReporter r(config);
    for (Time t; t <= to; t += 100_ms) {
        const RankState s = state(t);
        if (r.due(t, s)) {
            m.on_report(t, s);
        }
        if (m.verdict(t) == Verdict::hung) {
            return t;
        }
    }
    return Time::never();
}

void frozen_inside_a_call_is_hung(void **)
{
    const Time t = hung_at(Time::zero() + 60_s, [](Time) {
        return RankState{.in_mpi = true, .call = 7, .progress = 99};
    });
    assert_true(t >= Time::zero() + 10_s);
    assert_true(t <= Time::zero() + 11_s);
}

void computing_is_never_hung(void **)
{
    const Time t = hung_at(Time::zero() + 86400_s, [](Time) {
        return RankState{.in_mpi = false, .call = 7, .progress = 99};
    });
    assert_true(t.is_never());
}

void waiting_with_progress_is_never_hung(void **)
{
    const Time t = hung_at(Time::zero() + 3600_s, [](Time now) {
        return RankState{.in_mpi = true,
                         .call = 7,
                         .progress = static_cast<std::uint64_t>(now.ns() / 1'000'000)};
    });
    assert_true(t.is_never());
}

void many_short_calls_are_not_one_long_one(void **)
{
    const Time t = hung_at(Time::zero() + 3600_s, [](Time now) {
        return RankState{.in_mpi = true,
                         .call = static_cast<std::uint64_t>(now.ns() / 1'000'000'000)};
    });
    assert_true(t.is_never());
}

void a_debugger_accuses_nobody(void **)
{
    const Time t = hung_at(Time::zero() + 3600_s, [](Time now) {
        return RankState{.in_mpi = true, .traced = now >= Time::zero() + 5_s, .call = 7};
    });
    assert_true(t.is_never());
}

void after_the_debugger_the_count_begins_anew(void **)
{
    const Time t = hung_at(Time::zero() + 3600_s, [](Time now) {
        return RankState{.in_mpi = true, .traced = now < Time::zero() + 30_s, .call = 7};
    });
    assert_true(t >= Time::zero() + 40_s && t <= Time::zero() + 42_s);
}

void an_announced_operation_extends_the_deadline(void **)
{
    // At 5 s: this will take 100 s.
    const Time t = hung_at(Time::zero() + 3600_s, [](Time now) {
        return RankState{.in_mpi = true,
                         .call = 7,
                         .announced = now < Time::zero() + 5_s   ? Duration::zero()
                                      : now < Time::zero() + 6_s ? 100_s
                                                                 : Duration::zero()};
    });
    assert_true(t >= Time::zero() + 115_s && t <= Time::zero() + 118_s);
}

void an_announcement_is_reported_at_once(void **)
{
    SelfCheckReporter r((SelfCheckConfig()));
    assert_true(r.due(Time::zero(), RankState{}));
    assert_false(r.due(Time::zero() + 100_ms, RankState{}));
    assert_true(r.due(Time::zero() + 200_ms, RankState{.announced = 10_s}));
    assert_false(r.due(Time::zero() + 300_ms, RankState{.announced = 9_s}));
    assert_true(r.next_deadline() == Time::zero() + 700_ms);
}

void without_reports_a_rank_is_silent_not_hung(void **)
{
    SelfCheckMonitor m(Time::zero(), SelfCheckConfig());
    m.on_report(Time::zero() + 1_s, RankState{.in_mpi = true, .call = 7});
    assert_true(m.verdict(Time::zero() + 6_s) == Verdict::healthy);
    assert_true(m.next_deadline() > Time::zero() + 6_s);
    assert_true(m.verdict(Time::zero() + 60_s) == Verdict::silent);
    m.on_own_pause(Time::zero() + 60_s, 55_s);
    assert_true(m.verdict(Time::zero() + 60_s) == Verdict::healthy);
    // Stopped for an hour and back: the frozen counter of that time is no proof.
    m.on_report(Time::zero() + 3600_s, RankState{.in_mpi = true, .call = 7});
    assert_true(m.verdict(Time::zero() + 3600_s) == Verdict::healthy);
}

void bad_parameters_are_named(void **)
{
    SelfCheckConfig c;
    assert_true(c.fault().empty());
    c.frozen_limit = c.period;
    assert_false(c.fault().empty());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(frozen_inside_a_call_is_hung),
        cmocka_unit_test(computing_is_never_hung),
        cmocka_unit_test(waiting_with_progress_is_never_hung),
        cmocka_unit_test(many_short_calls_are_not_one_long_one),
        cmocka_unit_test(a_debugger_accuses_nobody),
        cmocka_unit_test(after_the_debugger_the_count_begins_anew),
        cmocka_unit_test(an_announced_operation_extends_the_deadline),
        cmocka_unit_test(an_announcement_is_reported_at_once),
        cmocka_unit_test(without_reports_a_rank_is_silent_not_hung),
        cmocka_unit_test(bad_parameters_are_named),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

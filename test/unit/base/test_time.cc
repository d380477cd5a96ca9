#include "opal/ft/base/time.hpp"
#include "test/unit/cmocka.hpp"

#include <limits>

using namespace ft::base;

namespace {

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();

void units_agree(void **)
{
    assert_int_equal((1_s).ns(), 1'000'000'000);
    assert_true(1_s == 1000_ms);
    assert_true(1_ms == 1000_us);
    assert_true(1_us == 1000_ns);
    assert_int_equal((1999_ns).us(), 1);
    assert_int_equal((-(1999_ns)).us(), -1);
    assert_int_equal((2_s).ms(), 2000);
    assert_true((1500_ms).seconds() > 1.499 && (1500_ms).seconds() < 1.501);
    assert_true(Duration() == Duration::zero());
}

void durations_compute(void **)
{
    assert_true(3_ms + 4_ms == 7_ms);
    assert_true(3_ms - 4_ms == -(1_ms));
    assert_true(3_ms * 4 == 12_ms);
    assert_true(4 * 3_ms == 12_ms);
    assert_true(7_ms / 2 == 3500_us);
    assert_int_equal(7_ms / 2_ms, 3);
    assert_true(7_ms / -1 == -(7_ms));
    Duration d = 1_ms;
    d += 1_ms;
    d -= 3_ms;
    assert_true(d == -(1_ms));
    assert_true(-(1_ms) < Duration::zero());
}

void durations_saturate(void **)
{
    const Duration max = Duration::max();
    const Duration min = Duration::from_ns(least);
    assert_true(max + 1_ns == max);
    assert_true(min - 1_ns == min);
    assert_true(max * 2 == max);
    assert_true(max * -2 == min);
    assert_true(-min == max);
    assert_true(min / -1 == max);
    assert_int_equal(min / Duration::from_ns(-1), most);
    assert_true(Duration::from_s(most) == max);
    assert_true(Duration::from_s(least) == min);
    assert_true(Duration::from_ms(most / 1000) == max);
}

void times_compute(void **)
{
    const Time t = Time::from_ns(100);
    assert_true(t + 5_ns == Time::from_ns(105));
    assert_true(5_ns + t == Time::from_ns(105));
    assert_true(t - 5_ns == Time::from_ns(95));
    assert_true(Time::from_ns(95) - t == -(5_ns));
    assert_true(Time() == Time::zero());
    Time u = t;
    u += 10_ns;
    u -= 20_ns;
    assert_true(u == Time::from_ns(90));
    assert_true(u < t && t > u && u != t);
}

void never_stays_never(void **)
{
    assert_true(Time::never().is_never());
    assert_true((Time::never() + 1_s).is_never());
    assert_true((Time::never() - 1_s).is_never());
    assert_true((Time::from_ns(most - 5) + 10_ns).is_never());
    assert_false((Time::from_ns(most - 5) + 4_ns).is_never());
    assert_true(Time::from_ns(most - 1) < Time::never());
    assert_true(Time::never() - Time::from_ns(least) == Duration::max());
}

// All of it is available to the compiler.
static_assert(Time::zero() + 16_us == Time::from_ns(16'000));
static_assert(Duration::max() + Duration::max() == Duration::max());

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(units_agree),        cmocka_unit_test(durations_compute),
        cmocka_unit_test(durations_saturate), cmocka_unit_test(times_compute),
        cmocka_unit_test(never_stays_never),
    };
    return cmocka_run_group_tests_name("time", tests, nullptr, nullptr);
}

#include "opal/ft/reliability/rtt.hpp"
#include "test/unit/cmocka.hpp"

using namespace ft::base::literals;
using ft::base::Duration;
using ft::reliability::RttEstimator;

namespace {

void before_the_first_sample_the_guess_counts_within_bounds(void **)
{
    const RttEstimator e;
    assert_false(e.has_sample());
    assert_true(e.timeout(50_ms, 2_ms, 2_s) == 50_ms);
    assert_true(e.timeout(1_ms, 2_ms, 2_s) == 2_ms);
    assert_true(e.timeout(5_s, 2_ms, 2_s) == 2_s);
}

void the_samples_enter_as_rfc_6298_says(void **)
{
    RttEstimator e;
    e.sample(800_us);
    assert_true(e.smoothed() == 800_us);
    assert_true(e.variance() == 400_us);
    assert_true(e.timeout(50_ms, 1_us, 2_s) == 2400_us); // 800 + 4 x 400
    e.sample(1600_us); // RTTVAR = 3/4 x 400 + 1/4 x 800, SRTT = 7/8 x 800 + 1/8 x 1600
    assert_true(e.variance() == 500_us);
    assert_true(e.smoothed() == 900_us);
    assert_true(e.timeout(50_ms, 1_us, 2_s) == 2900_us);
    assert_true(e.minimum() == 800_us);
}

void the_bounds_hold(void **)
{
    RttEstimator e;
    e.sample(1_us);
    assert_true(e.timeout(50_ms, 2_ms, 2_s) == 2_ms);
    RttEstimator slow;
    slow.sample(10_s);
    assert_true(slow.timeout(50_ms, 2_ms, 2_s) == 2_s);
}

void a_negative_sample_is_ignored(void **)
{
    RttEstimator e;
    e.sample(-Duration::from_us(5));
    assert_false(e.has_sample());
    e.sample(100_us);
    e.sample(-Duration::from_us(5));
    assert_true(e.smoothed() == 100_us);
}

void a_steady_path_has_a_timeout_a_little_above_its_round_trip(void **)
{
    RttEstimator e;
    for (int i = 0; i < 200; ++i) {
        e.sample(500_us);
    }
    assert_true(e.smoothed() == 500_us);
    assert_true(e.timeout(50_ms, 1_us, 2_s) <= 502_us);
    assert_true(e.timeout(50_ms, 1_us, 2_s) > 500_us);
}

void a_hundredfold_step_is_covered_by_the_next_timeout(void **)
{
    RttEstimator e;
    for (int i = 0; i < 100; ++i) {
        e.sample(100_us);
    }
    e.sample(10_ms);
    assert_true(e.timeout(50_ms, 1_us, 2_s) > 10_ms);
    for (int i = 0; i < 200; ++i) {
        e.sample(100_us); // and back
    }
    assert_true(e.timeout(50_ms, 1_us, 2_s) < 200_us);
    assert_true(e.minimum() == 100_us);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(before_the_first_sample_the_guess_counts_within_bounds),
        cmocka_unit_test(the_samples_enter_as_rfc_6298_says),
        cmocka_unit_test(the_bounds_hold),
        cmocka_unit_test(a_negative_sample_is_ignored),
        cmocka_unit_test(a_steady_path_has_a_timeout_a_little_above_its_round_trip),
        cmocka_unit_test(a_hundredfold_step_is_covered_by_the_next_timeout),
    };
    return cmocka_run_group_tests_name("rtt", tests, nullptr, nullptr);
}

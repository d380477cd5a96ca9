// When a BTL is given again what it refused: at once at first, and then less and less often.
#include "ompi/mca/pml/dr/retry.hpp"
#include "test/unit/cmocka.hpp"

#include <algorithm>

using namespace ft;
using dr::Retry;

namespace {

constexpr base::Time start = base::Time::from_ns(1'000'000'000);
constexpr base::Duration between_passes = base::Duration::from_ns(200);

/// Passes of progress until then, by a BTL without room. \return how often it was asked
unsigned refused_until(Retry &retry, base::Time &now, base::Time &next, base::Time end)
{
    unsigned asked = 0;
    for (; now < end; now += between_passes) {
        if (now >= next) {
            next = retry.refused(now);
            ++asked;
        }
    }
    return asked;
}

void the_first_are_at_once(void **)
{
    Retry retry;
    for (int i = 0; i < 5; ++i) {
        assert_true(retry.refused(start) <= start);
        assert_true(retry.at_once());
    }
}

void those_that_last_cost_little(void **)
{
    Retry retry;
    base::Time now = start;
    base::Time next = start;
    assert_true(refused_until(retry, now, next, start + base::Duration::from_ms(1)) < 25);
    assert_false(retry.at_once());
    assert_true(refused_until(retry, now, next, start + base::Duration::from_s(1)) < 1025);
}

/// It is never asked later than after twice the time that it had no room for, or 1 ms.
void room_is_found_soon(void **)
{
    for (std::int64_t us = 1; us < 5000; us += 7) {
        Retry retry;
        base::Time now = start;
        base::Time next = start;
        const base::Time room = start + base::Duration::from_us(us);
        refused_until(retry, now, next, room);
        assert_true(next - room <= base::Duration::from_us(std::min(us + 2, INT64_C(1100))));
    }
}

void after_success_they_are_at_once_again(void **)
{
    Retry retry;
    base::Time now = start;
    base::Time next = start;
    refused_until(retry, now, next, start + base::Duration::from_ms(3));
    retry.over();
    assert_true(retry.refused(now) <= now);
    assert_true(retry.at_once());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_first_are_at_once),
        cmocka_unit_test(those_that_last_cost_little),
        cmocka_unit_test(room_is_found_soon),
        cmocka_unit_test(after_success_they_are_at_once_again),
    };
    return cmocka_run_group_tests_name("retry", tests, nullptr, nullptr);
}

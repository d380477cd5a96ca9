// How a request ends exactly once, with threads: one completes it, another one frees it, or starts
// it again, between any two steps of the first.
#include "ompi/mca/pml/dr/request.hpp"
#include "test/unit/cmocka.hpp"

using namespace ft;
using dr::Life;

namespace {

void released_by_the_later_of_both(void **)
{
    Life life = {};
    life.rest();
    life.start();
    assert_false(life.free());
    assert_true(life.finish(life.epoch()));

    life.rest();
    life.start();
    assert_false(life.finish(life.epoch()));
    assert_true(life.free());
}

void never_started(void **)
{
    Life life = {};
    life.rest();
    assert_true(life.free());
}

/// Its user has started a persistent request anew when the end of its last run comes to `finish`.
void a_late_end_is_of_an_earlier_run(void **)
{
    Life life = {};
    life.rest();
    life.start();
    const std::uint32_t first = life.epoch();
    life.start();
    assert_false(life.free());
    assert_false(life.finish(first));
    assert_true(life.finish(life.epoch()));
}

/// It is freed, released and used again for another request by then.
void nor_does_it_end_another_request(void **)
{
    Life life = {};
    life.rest();
    life.start();
    const std::uint32_t first = life.epoch();
    life.start();
    assert_false(life.finish(life.epoch()));
    assert_true(life.free());

    life.rest();
    life.start();
    assert_false(life.free());
    assert_false(life.finish(first));
    assert_true(life.finish(life.epoch()));
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(released_by_the_later_of_both),
        cmocka_unit_test(never_started),
        cmocka_unit_test(a_late_end_is_of_an_earlier_run),
        cmocka_unit_test(nor_does_it_end_another_request),
    };
    opal_set_using_threads(true);
    return cmocka_run_group_tests_name("life", tests, nullptr, nullptr);
}

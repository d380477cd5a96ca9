#include "opal/process/deaths.hpp"
#include "test/unit/cmocka.hpp"

#include <thread>
#include <vector>

using namespace ft::process;

namespace {

void each_death_is_known_once_with_its_first_epoch(void **)
{
    assert_int_equal(death_count(), 0);
    assert_false(is_dead({1, 3}));
    assert_true(declare_dead({{1, 3}, 5}));
    assert_false(declare_dead({{1, 3}, 6}));
    assert_int_equal(death_count(), 1);
    assert_true(is_dead({1, 3}));
    assert_false(is_dead({2, 3}));
    assert_false(is_dead({3, 1}));
    assert_true(death(0).who == (Name{1, 3}));
    assert_int_equal(death(0).epoch, 5);
}

void the_epoch_never_falls(void **)
{
    set_epoch(100);
    set_epoch(7);
    assert_int_equal(epoch(), 100);
    declare_dead({{1, 9}, 101});
    assert_int_equal(epoch(), 101);
}

void what_is_counted_can_be_read_by_other_threads(void **)
{
    constexpr unsigned most = 20000;
    const std::size_t before = death_count();
    bool torn = false;
    {
        std::thread reader([&] {
            for (std::size_t seen = before; seen < before + most;) {
                for (const std::size_t now = death_count(); seen < now; ++seen) {
                    const Death d = death(seen);
                    torn = torn || d.who.jobid != 7 || d.epoch != d.who.vpid || !is_dead(d.who);
                }
            }
        });
        for (unsigned i = 0; i < most; ++i) {
            declare_dead({{7, i}, i});
        }
        reader.join();
    }
    assert_false(torn);
    assert_int_equal(death_count(), before + most);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(each_death_is_known_once_with_its_first_epoch),
        cmocka_unit_test(the_epoch_never_falls),
        cmocka_unit_test(what_is_counted_can_be_read_by_other_threads),
    };
    return cmocka_run_group_tests_name("deaths", tests, nullptr, nullptr);
}

#include "orte_glue/radixft/held.hpp"
#include "test/unit/cmocka.hpp"

#include <utility>

using namespace ft::radixft;

namespace {

Bytes bytes(unsigned value)
{
    return Bytes(1, static_cast<std::byte>(value));
}

void what_is_kept_comes_out_in_order_and_once(void **)
{
    Held held;
    const bool began = held.begin(3);
    const bool waits = held.waits_for(3) && !held.waits_for(4);
    held.keep(3, {7, bytes(1)});
    held.keep(3, {8, bytes(2)});
    const auto kept = held.end(3);
    const bool over = !held.waits_for(3) && held.end(3).empty();
    assert_true(began && waits && over);
    assert_int_equal(kept.size(), 2);
    assert_int_equal(kept[0].tag, 7);
    assert_true(kept[0].bytes == bytes(1));
    assert_int_equal(kept[1].tag, 8);
    assert_true(kept[1].bytes == bytes(2));
}

void a_second_knock_changes_nothing(void **)
{
    Held held;
    held.begin(3);
    held.keep(3, {7, bytes(1)});
    const bool again = held.begin(3);
    assert_false(again);
    assert_int_equal(held.end(3).size(), 1);
    assert_true(held.begin(3));
}

void daemons_do_not_get_each_others(void **)
{
    Held held;
    held.begin(3);
    held.begin(4);
    held.keep(3, {7, bytes(3)});
    held.keep(4, {7, bytes(4)});
    const auto of_four = held.end(4);
    assert_true(held.waits_for(3));
    assert_int_equal(of_four.size(), 1);
    assert_true(of_four[0].bytes == bytes(4));
    assert_int_equal(held.end(3).size(), 1);
}

void no_more_than_a_number_is_kept(void **)
{
    Held held;
    held.begin(3);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < Held::most + 5; ++i) {
        kept += held.keep(3, {7, bytes(1)}) ? 1 : 0;
    }
    assert_int_equal(kept, Held::most);
    assert_int_equal(held.end(3).size(), Held::most);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_is_kept_comes_out_in_order_and_once),
        cmocka_unit_test(a_second_knock_changes_nothing),
        cmocka_unit_test(daemons_do_not_get_each_others),
        cmocka_unit_test(no_more_than_a_number_is_kept),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

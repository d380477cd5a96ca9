#include "opal/process/standing.hpp"
#include "test/unit/cmocka.hpp"

#include <vector>

using namespace ft::process;

namespace {

bool recognises(std::uint32_t context, const std::vector<std::uint32_t> &ranks)
{
    return recognised(context) == ranks;
}

// pml/dr asks for all of them at once, and again only when there is news.
void the_recognised_ranks_are_told_with_news(void **)
{
    assert_true(recognises(7, {}));
    std::uint64_t before = news();
    set_standing(7, 3, Standing::acknowledged);
    assert_true(news() > before);
    assert_true(recognises(7, {}));
    before = news();
    set_standing(7, 3, Standing::recognised);
    assert_true(news() > before);
    set_standing(7, 0xffffffff, Standing::recognised);
    set_standing(7, 0, Standing::recognised);
    set_standing(6, 9, Standing::recognised);
    set_standing(8, 1, Standing::recognised);
    assert_true(recognises(7, {0, 3, 0xffffffff}));
    assert_true(recognises(6, {9}));
    before = news();
    set_standing(7, 3, Standing::acknowledged); // it never falls
    assert_int_equal(news(), before);
    assert_true(recognises(7, {0, 3, 0xffffffff}));
    assert_int_equal(standing(7, 3), Standing::recognised);
    before = news();
    let_stand_in(7);
    assert_true(news() > before);
    assert_true(stands_in(7));
    assert_false(stands_in(6));
    forget_context(7);
    assert_false(stands_in(7));
    assert_true(recognises(7, {}));
    assert_true(recognises(8, {1}));
}

// An agreement waits for the process that finds no way itself; what others say of it must not stand
// in the way, whichever comes first.
void what_was_found_here_is_told_from_what_was_heard(void **)
{
    const Name first{1, 4};
    const Name second{1, 5};
    const Name sayer{1, 6};
    const Name other{2, 6};
    std::uint64_t before = news();
    assert_true(hear_unreachable(first, sayer));
    assert_true(news() > before);
    before = news();
    assert_false(hear_unreachable(first, sayer));
    assert_int_equal(news(), before);
    assert_true(declare_unreachable(first));
    assert_true(news() > before);
    before = news();
    assert_false(declare_unreachable(first));
    assert_false(hear_unreachable(first, other));
    assert_int_equal(news(), before);
    assert_true(hear_unreachable(second, sayer));
    before = news();
    assert_true(hear_unreachable(second, other)); // the first one may die
    assert_true(news() > before);
    assert_true((unreachable() ==
                 std::vector<Unreachable>{{first, true, {}}, {second, false, {sayer, other}}}));
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_recognised_ranks_are_told_with_news),
        cmocka_unit_test(what_was_found_here_is_told_from_what_was_heard),
    };
    return cmocka_run_group_tests_name("standing", tests, nullptr, nullptr);
}

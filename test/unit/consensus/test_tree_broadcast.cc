#include "../cmocka.hpp"
#include "opal/ft/consensus/tree_broadcast.hpp"

namespace {

using namespace ft::consensus;

constexpr Number one{1, 0, 1};
constexpr Number two{1, 0, 2};

TreeBroadcast joined()
{
    TreeBroadcast tree;
    tree.open(one, 0, Stage::ballot, {{4, {5, 8}}, {3, {4, 4}}});
    return tree;
}

void complete_when_all_children_have_answered(void **)
{
    bool early = true;
    bool late = false;
    {
        TreeBroadcast tree = joined();
        tree.take_answer(4, one, Stage::ballot);
        early = tree.complete();
        tree.take_answer(3, one, Stage::ballot);
        late = tree.complete();
    }
    assert_false(early);
    assert_true(late);
}

void a_leaf_is_complete_at_once(void **)
{
    bool complete = false;
    {
        TreeBroadcast tree;
        tree.open(one, 0, Stage::ballot, {});
        complete = tree.complete();
    }
    assert_true(complete);
}

void answers_that_are_none_are_ignored(void **)
{
    int taken = 0;
    {
        TreeBroadcast tree = joined();
        taken += tree.take_answer(9, one, Stage::ballot); // no child
        taken += tree.take_answer(4, two, Stage::ballot); // another tree
        taken += tree.take_answer(4, one, Stage::commit); // another sweep
        tree.take_answer(4, one, Stage::ballot);
        taken += tree.take_answer(4, one, Stage::ballot); // twice
    }
    assert_int_equal(taken, 0);
}

void a_lost_child_breaks_the_tree_only_before_it_answers(void **)
{
    bool after = false;
    bool before = true;
    {
        TreeBroadcast tree = joined();
        tree.take_answer(4, one, Stage::ballot);
        tree.on_suspects({4});
        after = tree.whole();
        tree.on_suspects({3});
        before = tree.whole();
    }
    assert_true(after);
    assert_false(before);
}

void the_next_sweep_wants_new_answers(void **)
{
    bool complete = true;
    bool whole = true;
    {
        TreeBroadcast tree = joined();
        tree.take_answer(4, one, Stage::ballot);
        tree.take_answer(3, one, Stage::ballot);
        tree.next(Stage::commit);
        complete = tree.complete();
        tree.on_suspects({4});
        whole = tree.whole();
    }
    assert_false(complete);
    assert_false(whole);
}

void a_lost_parent_makes_an_orphan(void **)
{
    bool orphan = false;
    bool whole = false;
    {
        TreeBroadcast tree = joined();
        tree.on_suspects({0});
        orphan = tree.orphaned();
        whole = tree.whole();
    }
    assert_true(orphan);
    assert_true(whole); // its children's answers may still be of use
}

void a_higher_number_starts_over(void **)
{
    bool root = false;
    bool orphan = true;
    bool old = true;
    {
        TreeBroadcast tree = joined();
        tree.on_suspects({0, 4});
        tree.open(two, no_rank, Stage::ballot, {{3, {4, 8}}});
        root = tree.is_root();
        orphan = tree.orphaned();
        old = tree.take_answer(3, one, Stage::ballot);
    }
    assert_true(root);
    assert_false(orphan);
    assert_false(old);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(complete_when_all_children_have_answered),
        cmocka_unit_test(a_leaf_is_complete_at_once),
        cmocka_unit_test(answers_that_are_none_are_ignored),
        cmocka_unit_test(a_lost_child_breaks_the_tree_only_before_it_answers),
        cmocka_unit_test(the_next_sweep_wants_new_answers),
        cmocka_unit_test(a_lost_parent_makes_an_orphan),
        cmocka_unit_test(a_higher_number_starts_over),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

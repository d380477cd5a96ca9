#include "opal/ft/base/rng.hpp"
#include "opal/ft/membership/messages.hpp"
#include "opal/ft/membership/quorum.hpp"
#include "opal/ft/membership/view.hpp"
#include "test/unit/cmocka.hpp"

#include <algorithm>
#include <set>

using namespace ft::membership;

namespace {

/// A view of 0 .. n-1 without `gone`, as epoch 1.
ViewPtr without(Position n, const std::vector<NodeId> &gone)
{
    Change c;
    for (const NodeId id : gone) {
        c.removed.push_back({id, 0, Grade::suspected, no_node});
    }
    return View::initial(n, 2, TreeMode::rebuild)->apply(1, c);
}

Quorum quorum(Position n, const std::vector<NodeId> &gone, const std::vector<Removed> &dead)
{
    return quorum_of(*View::initial(n, 2, TreeMode::rebuild), *without(n, gone), dead);
}

void changes_that_do_not_fit_are_refused(void **)
{
    const ViewPtr v = View::initial(3, 2, TreeMode::rebuild);
    Change absent, wrong_life, twice, all, absurd;
    absent.removed.push_back({7, 0, Grade::proven, no_node});
    wrong_life.removed.push_back({1, 1, Grade::proven, no_node});
    twice.joined.push_back({1, 0});
    for (NodeId id = 0; id < 3; ++id) {
        all.removed.push_back({id, 0, Grade::proven, no_node});
    }
    absurd.joined.push_back({max_nodes, 0});
    const bool refused = !v->apply(1, absent) && !v->apply(1, wrong_life) && !v->apply(1, twice) &&
                         !v->apply(1, all) && !v->apply(1, absurd);
    assert_true(refused);
}

void one_change_can_replace_a_life(void **)
{
    const ViewPtr v = View::initial(3, 2, TreeMode::rebuild);
    Change c;
    c.removed.push_back({1, 0, Grade::proven, no_node});
    c.joined.push_back({1, 5});
    const ViewPtr next = v->apply(9, c);
    const bool good = next->contains(Identity{1, 5}) && !next->contains(Identity{1, 0}) &&
                      next->epoch() == 9 && v->difference(*next) == c;
    assert_true(good);
}

void exiles_are_kept_until_settled(void **)
{
    const ViewPtr v = without(4, {2, 3});
    const bool two = v->exiles() == std::vector<NodeId>{2, 3};
    Change c;
    c.settled.push_back(2);
    const ViewPtr next = v->apply(2, c);
    const bool one = next->exiles() == std::vector<NodeId>{3};
    assert_true(two);
    assert_true(one);
}

void a_pool_gives_the_same_object(void **)
{
    ViewPool pool;
    const ViewPtr v = View::initial(1000, 4, TreeMode::rebuild);
    Change c;
    c.removed.push_back({5, 0, Grade::proven, no_node});
    const ViewPtr a = pool.apply(v, 1, c);
    const ViewPtr b = pool.apply(v, 1, c);
    const ViewPtr other = pool.apply(v, 2, c);
    const bool same = a == b && a != other;
    assert_true(same);
}

/// The same changes, in both forms: every question has the same answer, and the bytes are the same.
void both_forms_agree(void **)
{
    ft::base::Rng rng(7);
    bool agree = true;
    bool refused = true;
    for (int round = 0; round < 200; ++round) {
        const unsigned arity = 2U << rng.below(3);
        const auto n = static_cast<Position>(rng.between(1, 70));
        ViewPtr full = View::initial(n, arity, TreeMode::rebuild);
        ViewPtr local = View::initial(n, arity, TreeMode::rebuild, ViewForm::localised);
        for (int step = 0; step < 25; ++step) {
            Change c;
            for (NodeId id = 0; id < 80; ++id) {
                const bool strikes = rng.below(16) == 0;
                if (strikes && full->contains(id)) {
                    const auto grade = static_cast<Grade>(rng.below(3));
                    c.removed.push_back({id, full->incarnation_of(id), grade, no_node});
                }
                if (strikes && (!full->contains(id) || rng.below(4) == 0)) {
                    c.joined.push_back({id, full->incarnation_of(id) + 1});
                }
            }
            const ViewPtr next = full->apply(full->epoch() + 1, c);
            const ViewPtr same = local->apply(local->epoch() + 1, c);
            refused &= (next == nullptr) == (same == nullptr);
            if (!next || !same) {
                break; // nobody was left
            }
            agree &= next->form() == ViewForm::full && same->form() == ViewForm::localised &&
                     next->consistent() && same->consistent() && next->agrees(*same) &&
                     same->agrees(*next) && full->difference(*next) == local->difference(*same);
            for (NodeId id = 0; id < 82; ++id) {
                agree &= next->contains(id) == same->contains(id) &&
                         next->incarnation_of(id) == same->incarnation_of(id);
            }
            agree &= View::in_form(next, ViewForm::localised)->agrees(*same) &&
                     View::in_form(same, ViewForm::full)->agrees(*next) &&
                     View::in_form(next, ViewForm::full) == next;
            for (const NodeId coordinator : {next->root(), next->at(next->size() / 2)}) {
                std::vector<NodeId> mine;
                std::vector<NodeId> theirs;
                for (const NodeId id : next->members()) {
                    Sweep(*next, coordinator).commit_children(id, mine);
                    Sweep(*same, coordinator).commit_children(id, theirs);
                    agree &= mine == theirs;
                }
            }
            Message m;
            m.type = Type::view_state;
            m.from = m.to = 1;
            m.view = next;
            const auto bytes = encode(m);
            m.view = same;
            const auto again = decode(bytes);
            agree &= encode(m) == bytes && again && again->view->agrees(*next);
            full = next;
            local = same;
        }
    }
    assert_true(agree);
    assert_true(refused);
}

/// The check of the two forms can fail, and so can that of the runs.
void forms_that_differ_are_found(void **)
{
    const ViewPtr full = without(9, {4});
    const ViewPtr other = View::in_form(without(9, {5}), ViewForm::localised);
    const ViewPtr more = View::in_form(without(10, {4}), ViewForm::localised);
    const bool found = !full->agrees(*other) && !other->agrees(*full) && !full->agrees(*more) &&
                       !(full->members() == other->members());
    assert_true(found);
}

/// As many bytes for a million nodes as for ten; for each gap in the ids eight more.
void a_localised_view_is_as_large_as_its_gaps(void **)
{
    const auto bytes = [](Position n, const std::vector<NodeId> &gone) {
        Change c;
        for (const NodeId id : gone) {
            c.removed.push_back({id, 0, Grade::proven, no_node});
        }
        return View::initial(n, 2, TreeMode::rebuild, ViewForm::localised)->apply(1, c)->bytes();
    };
    const bool same = bytes(10, {}) == bytes(1U << 20, {});
    const bool gaps = bytes(1U << 20, {7, 8, 9, 100, 5000}) == bytes(10, {}) + 8 * 3;
    assert_true(same);
    assert_true(gaps);
}

/// The sweeps reach everybody once, from the coordinator, whoever it is.
void sweeps_reach_everybody_once(void **)
{
    bool good = true;
    for (const TreeMode mode : {TreeMode::rebuild, TreeMode::paper}) {
        for (Position n = 1; n <= 40; ++n) {
            const ViewPtr v = View::initial(n, 2, mode);
            for (NodeId coordinator = 0; coordinator < n; ++coordinator) {
                const Sweep sweep(*v, coordinator);
                for (const bool commit : {false, true}) {
                    std::vector<NodeId> reached{coordinator};
                    std::vector<NodeId> children;
                    for (std::size_t i = 0; i < reached.size() && reached.size() <= n; ++i) {
                        if (commit) {
                            sweep.commit_children(reached[i], children);
                        } else {
                            sweep.children(reached[i], children);
                            for (const NodeId child : children) {
                                good &= sweep.parent(child) == reached[i];
                            }
                        }
                        reached.insert(reached.end(), children.begin(), children.end());
                    }
                    good &= reached.size() == n &&
                            std::set<NodeId>(reached.begin(), reached.end()).size() == n;
                }
            }
        }
    }
    assert_true(good);
}

void a_majority_goes_on(void **)
{
    assert_true(quorum(5, {3, 4}, {}) == Quorum::majority);
    assert_true(quorum(5, {0, 1, 2}, {}) == Quorum::none);
}

void an_even_split_goes_to_the_lowest_id(void **)
{
    assert_true(quorum(4, {2, 3}, {}) == Quorum::majority);
    assert_true(quorum(4, {0, 1}, {}) == Quorum::none);
    assert_true(quorum(4, {1, 2}, {}) == Quorum::majority);
    assert_true(quorum(2, {1}, {}) == Quorum::majority);
    assert_true(quorum(2, {0}, {}) == Quorum::none);
}

void clean_deaths_leave_the_base(void **)
{
    // 3 and 4 are dead, 2 is out of reach: 0 and 1 are two of the remaining three.
    const std::vector<Removed> clean{{3, 0, Grade::proven, 1}, {4, 0, Grade::proven, 1}};
    const std::vector<Removed> unwitnessed{{3, 0, Grade::proven, no_node},
                                           {4, 0, Grade::proven, no_node}};
    const std::vector<Removed> witness_gone{{3, 0, Grade::proven, 2}, {4, 0, Grade::proven, 2}};
    const std::vector<Removed> left{{3, 0, Grade::farewell, no_node},
                                    {4, 0, Grade::farewell, no_node}};
    assert_true(quorum(5, {2, 3, 4}, clean) == Quorum::majority);
    assert_true(quorum(5, {2, 3, 4}, left) == Quorum::majority);
    // They may have voted with 2 before they died.
    assert_true(quorum(5, {2, 3, 4}, unwitnessed) == Quorum::none);
    assert_true(quorum(5, {2, 3, 4}, witness_gone) == Quorum::none);
    // An even split of the remaining: the lowest of the remaining decides.
    assert_true(quorum(4, {0, 3}, {{0, 0, Grade::proven, 1}}) == Quorum::majority);
    assert_true(quorum(3, {0, 1}, {{0, 0, Grade::proven, 2}}) == Quorum::none);
}

void the_last_ones_go_on(void **)
{
    const std::vector<Removed> dead{{0, 0, Grade::proven, no_node},
                                    {1, 0, Grade::proven, no_node},
                                    {2, 0, Grade::proven, no_node}};
    assert_true(quorum(4, {0, 1, 2}, dead) == Quorum::all_others_dead);
    const std::vector<Removed> one_silent{{0, 0, Grade::proven, no_node},
                                          {1, 0, Grade::suspected, no_node},
                                          {2, 0, Grade::proven, no_node}};
    assert_true(quorum(4, {0, 1, 2}, one_silent) == Quorum::none);
    // The proof is about another life.
    const std::vector<Removed> other_life{{0, 1, Grade::proven, 1}};
    assert_true(quorum(2, {0}, other_life) == Quorum::none);
}

/// Who is left when the others may have gone on before they died.
void a_doubt_keeps_its_vote(void **)
{
    const auto proven = [](NodeId id) { return Removed{id, 0, Grade::proven, no_node}; };
    const auto doubted = [](NodeId id) { return Removed{id, 0, Grade::doubtful, no_node}; };
    // Two may have left the third behind, and did not need the others, who have not voted so.
    assert_true(quorum(3, {1, 2}, {doubted(1), doubted(2)}) == Quorum::outlived);
    assert_true(quorum(5, {1, 2, 3, 4}, {proven(1), doubted(2), doubted(3), proven(4)}) ==
                Quorum::outlived);
    // One against one: the lower one, whoever else has died.
    assert_true(quorum(5, {1, 2, 3, 4}, {proven(1), proven(2), doubted(3), proven(4)}) ==
                Quorum::all_others_dead);
    assert_true(quorum(2, {0}, {doubted(0)}) == Quorum::outlived);
    assert_true(quorum(5, {0, 1, 4}, {doubted(0), proven(1), proven(4)}) ==
                Quorum::all_others_dead);
    // A majority is one in any case, and who is silent may live.
    assert_true(quorum(3, {2}, {doubted(2)}) == Quorum::majority);
    assert_true(quorum(3, {1, 2}, {doubted(1), {2, 0, Grade::suspected, no_node}}) == Quorum::none);
    // A witness knows better.
    assert_true(quorum(3, {0, 1}, {{0, 0, Grade::doubtful, 2}, {1, 0, Grade::doubtful, 2}}) ==
                Quorum::majority);
    assert_true(may_go_on(Quorum::all_others_dead) && may_go_on(Quorum::majority));
    assert_true(!may_go_on(Quorum::outlived) && !may_go_on(Quorum::none));
}

/// Whether holds(n, a, b) for all disjoint parts a and b, as bits, of views of n, 2 to 7.
template <typename F>
bool for_disjoint_parts(F &&holds)
{
    for (Position n = 2; n <= 7; ++n) {
        const unsigned all = (1U << n) - 1;
        for (unsigned a = 1; a < all; ++a) {
            for (unsigned b = 1; b < all; ++b) {
                if ((a & b) == 0 && !holds(n, a, b)) {
                    return false;
                }
            }
        }
    }
    return true;
}

/// What the part `mine` of a view of n is, to which the others are what grade_of() says.
template <typename F>
Quorum part_of(Position n, unsigned mine, F &&grade_of)
{
    std::vector<NodeId> gone;
    std::vector<Removed> dead;
    for (NodeId id = 0; id < n; ++id) {
        if ((mine >> id & 1U) == 0) {
            gone.push_back(id);
            dead.push_back({id, 0, grade_of(id), no_node});
        }
    }
    return quorum(n, gone, dead);
}

/// One after the other: the first part gives the second up as silent and the rest as dead, as clean
/// as can be, and dies; the second finds all of it dead, the first part in doubt.
void disjoint_parts_never_go_on_in_turn(void **)
{
    assert_true(for_disjoint_parts([](Position n, unsigned a, unsigned b) {
        const Quorum first = part_of(n, a, [b](NodeId id) {
            return (b >> id & 1U) != 0 ? Grade::suspected : Grade::farewell;
        });
        const Quorum second = part_of(
            n, b, [a](NodeId id) { return (a >> id & 1U) != 0 ? Grade::doubtful : Grade::proven; });
        return !may_go_on(first) || !may_go_on(second);
    }));
}

/// With silent members only.
void disjoint_parts_are_never_both_quorums(void **)
{
    const auto silent = [](NodeId) { return Grade::suspected; };
    assert_true(for_disjoint_parts([&](Position n, unsigned a, unsigned b) {
        return part_of(n, a, silent) == Quorum::none || part_of(n, b, silent) == Quorum::none;
    }));
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(changes_that_do_not_fit_are_refused),
        cmocka_unit_test(one_change_can_replace_a_life),
        cmocka_unit_test(exiles_are_kept_until_settled),
        cmocka_unit_test(a_pool_gives_the_same_object),
        cmocka_unit_test(both_forms_agree),
        cmocka_unit_test(forms_that_differ_are_found),
        cmocka_unit_test(a_localised_view_is_as_large_as_its_gaps),
        cmocka_unit_test(sweeps_reach_everybody_once),
        cmocka_unit_test(a_majority_goes_on),
        cmocka_unit_test(an_even_split_goes_to_the_lowest_id),
        cmocka_unit_test(clean_deaths_leave_the_base),
        cmocka_unit_test(the_last_ones_go_on),
        cmocka_unit_test(a_doubt_keeps_its_vote),
        cmocka_unit_test(disjoint_parts_never_go_on_in_turn),
        cmocka_unit_test(disjoint_parts_are_never_both_quorums),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

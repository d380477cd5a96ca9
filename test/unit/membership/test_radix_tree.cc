#include "opal/ft/base/rng.hpp"
#include "opal/ft/membership/paper_tree.hpp"
#include "opal/ft/membership/radix_tree.hpp"
#include "opal/ft/membership/view.hpp"
#include "test/unit/cmocka.hpp"

#include <algorithm>
#include <numeric>

using namespace ft::membership;

namespace {

void arity_must_be_a_power_of_two(void **)
{
    for (unsigned a = 0; a <= 1025; ++a) {
        const bool power = a >= 2 && a <= 1024 && (a & (a - 1)) == 0;
        assert_true(RadixTree::valid_arity(a) == power);
    }
}

/// All sizes radix^k +-1 and some more: parent and child agree, the tree spans.
void tree_spans_every_size(void **)
{
    bool good = true;
    for (const unsigned arity : {2U, 4U, 8U, 16U}) {
        const RadixTree t(arity);
        for (Position n = 1; n <= 600; ++n) {
            Position edges = 0;
            for (Position p = 0; p < n; ++p) {
                const unsigned k = t.child_count(p, n);
                good &= k <= arity;
                for (unsigned i = 0; i < k; ++i) {
                    good &= t.parent(static_cast<Position>(t.first_child(p) + i)) == p;
                }
                edges += k;
            }
            good &= edges == n - 1;
        }
    }
    assert_true(good);
}

void heights_are_the_papers(void **)
{
    const RadixTree two(2);
    const RadixTree four(4);
    assert_int_equal(two.height(0), 0);
    assert_int_equal(two.height(1), 1);
    assert_int_equal(two.height(2), 2);
    assert_int_equal(two.height(1023), 10);
    assert_int_equal(two.height(1024), 11);
    // Section 7.2: the height of the tree with four children grows above 5 and 21 nodes.
    assert_int_equal(four.height(5), 2);
    assert_int_equal(four.height(6), 3);
    assert_int_equal(four.height(21), 3);
    assert_int_equal(four.height(22), 4);
}

/// Nobody works twice: who has children on the way out has none in the mirror.
void mirror_shares_the_work(void **)
{
    bool good = true;
    for (const unsigned arity : {2U, 4U, 8U}) {
        const RadixTree t(arity);
        for (Position n = 2; n <= 300; ++n) {
            for (Position p = 1; p < n; ++p) {
                good &= t.child_count(p, n) + t.child_count(mirrored(p, n), n) <= arity;
            }
        }
    }
    assert_true(good);
}

/// Figure 1 and 2 of the paper: node 4 of a binary tree fails, its children go to its parent.
void four_repair_steps(void **)
{
    std::vector<NodeId> ids(15);
    std::iota(ids.begin(), ids.end(), 0U);
    PaperTree t(ids, 2);
    const bool before = t.consistent(ids) && t.parent(4) == 1 && t.children(4).size() == 2;
    t.remove(4);
    std::erase(ids, 4U);
    const bool after = t.consistent(ids) && t.parent(9) == 1 && t.parent(10) == 1 &&
                       t.children(1) == std::vector<NodeId>{3, 9, 10};
    t.remove(0);
    std::erase(ids, 0U);
    const bool root = t.consistent(ids) && t.root() == 1 && t.parent(2) == 1;
    t.add(4);
    ids.insert(ids.begin() + 3, 4);
    const bool joined = t.consistent(ids) && t.children(4).empty();
    t.add(0);
    ids.insert(ids.begin(), 0);
    const bool new_root = t.consistent(ids) && t.root() == 0 && t.parent(1) == 0;
    assert_true(before);
    assert_true(after);
    assert_true(root);
    assert_true(joined);
    assert_true(new_root);
}

void repaired_trees_stay_trees(void **)
{
    ft::base::Rng rng(1);
    bool good = true;
    for (int round = 0; round < 300 && good; ++round) {
        const unsigned arity = 2U << rng.below(3);
        ViewPtr v = View::initial(static_cast<Position>(rng.between(1, 40)), arity,
                                  round % 2 == 0 ? TreeMode::paper : TreeMode::rebuild);
        for (int step = 0; step < 30 && good; ++step) {
            Change c;
            const auto id = static_cast<NodeId>(rng.below(48));
            if (v->contains(id) && v->size() > 1) {
                c.removed.push_back({id, v->incarnation_of(id), Grade::proven, no_node});
            } else if (!v->contains(id)) {
                c.joined.push_back({id, static_cast<std::uint32_t>(rng.below(3))});
            }
            const ViewPtr next = v->apply(v->epoch() + 1, c);
            good = next && next->consistent() && (c.empty() || next->digest() != v->digest());
            v = next;
        }
    }
    assert_true(good);
}

void a_broken_tree_is_found(void **)
{
    const std::vector<NodeId> ids{0, 1, 2, 3};
    PaperTree t;
    const bool fine = t.assign(ids, std::vector<NodeId>{no_node, 0, 0, 1}, 2);
    const bool cycle = t.assign(ids, std::vector<NodeId>{no_node, 0, 3, 2}, 2);
    const bool itself = t.assign(ids, std::vector<NodeId>{no_node, 0, 2, 1}, 2);
    const bool stranger = t.assign(ids, std::vector<NodeId>{no_node, 0, 7, 1}, 2);
    const bool two_roots = t.assign(ids, std::vector<NodeId>{no_node, no_node, 0, 1}, 2);
    assert_true(fine);
    assert_false(cycle);
    assert_false(itself);
    assert_false(stranger);
    assert_false(two_roots);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(arity_must_be_a_power_of_two),
        cmocka_unit_test(tree_spans_every_size),
        cmocka_unit_test(heights_are_the_papers),
        cmocka_unit_test(mirror_shares_the_work),
        cmocka_unit_test(four_repair_steps),
        cmocka_unit_test(repaired_trees_stay_trees),
        cmocka_unit_test(a_broken_tree_is_found),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

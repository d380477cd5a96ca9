#include "../cmocka.hpp"
#include "opal/ft/base/rng.hpp"
#include "opal/ft/consensus/tree_shape.hpp"

#include <algorithm>
#include <bit>
#include <functional>

namespace {

using namespace ft::consensus;

struct Walked {
    std::vector<int> times; ///< how often each rank was reached
    std::vector<Rank> parent;
    unsigned depth = 0;
    std::size_t most_children = 0;
};

Walked walk(const TreeShape &shape, Rank root, const RankSet &dead)
{
    Walked seen;
    seen.times.assign(shape.size(), 0);
    seen.parent.assign(shape.size(), no_rank);
    seen.times[root] = 1;
    const std::function<void(Rank, const std::vector<Child> &, unsigned)> down =
        [&](Rank self, const std::vector<Child> &children, unsigned depth) {
            seen.depth = std::max(seen.depth, depth);
            seen.most_children = std::max(seen.most_children, children.size());
            for (const Child &child : children) {
                ++seen.times[child.rank];
                seen.parent[child.rank] = self;
                down(child.rank, shape.children(child.below, dead), depth + 1);
            }
        };
    down(root, shape.root_children(root, dead), 0);
    return seen;
}

bool reaches_exactly(const Walked &seen, const RankSet &dead)
{
    for (Rank rank = 0; rank < seen.times.size(); ++rank) {
        if (seen.times[rank] != (dead.contains(rank) ? 0 : 1)) {
            return false;
        }
    }
    return true;
}

void binomial_is_as_flat_as_its_survivors_allow(void **)
{
    ft::base::Rng rng(7);
    int wrong = 0;
    for (int round = 0; round < 2000; ++round) {
        const auto size = static_cast<Rank>(1 + rng.below(100));
        RankSet dead;
        for (std::uint64_t i = rng.below(size); i-- > 0;) {
            dead.insert(static_cast<Rank>(rng.below(size)));
        }
        if (dead.count() == size) {
            continue;
        }
        const Rank root = dead.lowest_absent();
        const auto shape = TreeShape::binomial(size);
        const Walked seen = walk(*shape, root, dead);
        const auto bound = static_cast<unsigned>(std::bit_width(size - dead.count() - 1));
        wrong += !reaches_exactly(seen, dead);
        wrong += seen.depth > bound;
        wrong += seen.most_children > bound;
        for (Rank rank = 0; rank < size; ++rank) {
            if (!dead.contains(rank)) {
                wrong += shape->parent(rank, root, dead) != seen.parent[rank];
            }
        }
    }
    assert_int_equal(wrong, 0);
}

void the_larger_part_goes_first(void **)
{
    std::vector<Child> children;
    {
        children = TreeShape::binomial(8)->root_children(0, {});
    }
    const bool good = children.size() == 3 && children[0] == Child{4, {5, 8}} &&
                      children[1] == Child{2, {3, 4}} && children[2] == Child{1, {2, 2}};
    children = {};
    children.shrink_to_fit();
    assert_true(good);
}

void a_million_is_twenty_deep(void **)
{
    const Rank size = Rank{1} << 20;
    std::size_t children = 0;
    unsigned hops = 0;
    {
        const auto shape = TreeShape::binomial(size);
        children = shape->root_children(0, {}).size();
        for (Rank rank = size - 1; rank != 0; rank = shape->parent(rank, 0, {})) {
            ++hops;
        }
    }
    assert_int_equal(children, 20);
    assert_int_equal(hops, 20);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(binomial_is_as_flat_as_its_survivors_allow),
        cmocka_unit_test(the_larger_part_goes_first),
        cmocka_unit_test(a_million_is_twenty_deep),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

#include "opal/ft/consensus/tree_shape.hpp"

#include "opal/ft/base/assert.hpp"

#include <algorithm>

namespace ft::consensus {

std::shared_ptr<const TreeShape> TreeShape::binomial(Rank size)
{
    FT_ASSERT(size > 0);
    return std::shared_ptr<const TreeShape>(new TreeShape(size));
}

/// Halves what lives in `below` again and again: the far half goes to its first member.
std::vector<Child> TreeShape::children(Range below, const RankSet &suspects) const
{
    FT_ASSERT(below.end <= size_);
    std::vector<Child> out;
    if (below.begin >= below.end) {
        return out;
    }
    Rank alive = (below.end - below.begin) - suspects.count_in(below.begin, below.end);
    const Rank absent_before = below.begin - suspects.count_below(below.begin);
    while (alive > 0) {
        // alive + 1 with the parent; the child's part must not be the larger one.
        const Rank part = (alive + 1) / 2;
        alive -= part;
        const Rank at = suspects.absent(absent_before + alive);
        out.push_back({at, {at + 1, below.end}});
        below.end = at;
    }
    return out;
}

std::vector<Child> TreeShape::root_children(Rank root, const RankSet &suspects) const
{
    std::vector<Child> out = children({root + 1, size_}, suspects);
    if (root > 0) {
        // None, where the root is the first survivor.
        const std::vector<Child> before = children({0, root}, suspects);
        out.insert(out.end(), before.begin(), before.end());
    }
    return out;
}

Rank TreeShape::parent(Rank self, Rank root, const RankSet &suspects) const
{
    if (self == root) {
        return no_rank;
    }
    Rank above = root;
    std::vector<Child> below = root_children(root, suspects);
    for (;;) {
        const auto child = std::find_if(below.begin(), below.end(), [self](const Child &c) {
            return c.rank == self || (c.below.begin <= self && self < c.below.end);
        });
        FT_ASSERT(child != below.end());
        if (child->rank == self) {
            return above;
        }
        above = child->rank;
        below = children(child->below, suspects);
    }
}

} // namespace ft::consensus

#include "opal/ft/consensus/tree_shape.hpp"

#include "opal/ft/base/assert.hpp"

#include <algorithm>
#include <map>

namespace ft::consensus {

std::shared_ptr<const TreeShape> TreeShape::binomial(Rank size)
{
    FT_ASSERT(size > 0);
    return std::shared_ptr<const TreeShape>(new TreeShape(size));
}

std::shared_ptr<const TreeShape> TreeShape::node_aware(std::span<const std::uint32_t> node_of)
{
    FT_ASSERT(!node_of.empty());
    const auto size = static_cast<Rank>(node_of.size());
    std::shared_ptr<TreeShape> shape(new TreeShape(size));
    // Nodes in the order of their lowest ranks, so that rank 0 is at position 0.
    std::map<std::uint32_t, std::size_t> index;
    std::vector<std::vector<Rank>> nodes;
    for (Rank rank = 0; rank < size; ++rank) {
        const auto [at, fresh] = index.try_emplace(node_of[rank], nodes.size());
        if (fresh) {
            nodes.emplace_back();
        }
        nodes[at->second].push_back(rank);
    }
    shape->by_rank_.resize(size);
    shape->by_position_.reserve(size);
    shape->node_of_position_.reserve(size);
    for (std::size_t node = 0; node < nodes.size(); ++node) {
        shape->node_begin_.push_back(static_cast<Rank>(shape->by_position_.size()));
        for (const Rank rank : nodes[node]) {
            shape->by_rank_[rank] = static_cast<Rank>(shape->by_position_.size());
            shape->by_position_.push_back(rank);
            shape->node_of_position_.push_back(static_cast<Rank>(node));
        }
    }
    shape->node_begin_.push_back(size);
    return shape;
}

RankSet TreeShape::positions(const RankSet &ranks) const
{
    if (by_rank_.empty() || ranks.empty()) {
        return ranks;
    }
    std::vector<Rank> all = ranks.members();
    for (Rank &rank : all) {
        rank = by_rank_[rank];
    }
    std::sort(all.begin(), all.end());
    RankSet::Builder builder;
    for (const Rank position : all) {
        builder.add(position, position + 1);
    }
    return builder.take();
}

namespace {

/// Halves what lives in `below` again and again: the far half goes to its first member.
template <typename Give>
void halve(Range below, const RankSet &dead, Give give)
{
    Rank alive = (below.end - below.begin) - dead.count_in(below.begin, below.end);
    const Rank absent_before = below.begin - dead.count_below(below.begin);
    while (alive > 0) {
        // alive + 1 with the parent; the child's part must not be the larger one.
        const Rank part = (alive + 1) / 2;
        alive -= part;
        const Rank at = dead.absent(absent_before + alive);
        give(at, Range{at, below.end});
        below.end = at;
    }
}

} // namespace

void TreeShape::split(Range below, const RankSet &dead, std::vector<Child> &out) const
{
    halve(below, dead, [&](Rank at, Range part) {
        out.push_back({rank_at(at), {at + 1, part.end}});
    });
}

RankSet TreeShape::dead_nodes(const RankSet &dead) const
{
    RankSet::Builder builder;
    for (const auto &run : dead.runs()) {
        Rank node = node_of_position_[run.first];
        if (node_begin_[node] < run.first) {
            ++node;
        }
        while (node + 1 < node_begin_.size() && node_begin_[node + 1] <= run.end) {
            builder.add(node, node + 1);
            ++node;
        }
    }
    return builder.take();
}

void TreeShape::split_nodes(Rank self, Range below, const RankSet &dead,
                            std::vector<Child> &out) const
{
    // `self` is the position whose node is served last, from shared memory.
    const Rank home_end = node_begin_[node_of_position_[self] + 1];
    Rank home = below.begin;
    if (below.begin > self) {
        home = std::clamp(home_end, below.begin, below.end);
    }
    if (home < below.end) {
        // The range may start or end within a node only at its own edges: a range handed over
        // starts after a leader and ends where a node ends.
        const Rank first = node_of_position_[home];
        const Rank last = node_of_position_[below.end - 1];
        Rank end = below.end;
        halve({first, last + 1}, dead_nodes(dead), [&](Rank node, Range) {
            const Rank from = std::max(node_begin_[node], home);
            const Rank leader = dead.absent(from - dead.count_below(from));
            if (leader < end) {
                out.push_back({rank_at(leader), {leader + 1, end}});
            }
            end = from;
        });
    }
    split({below.begin, home}, dead, out);
}

std::vector<Child> TreeShape::children(Rank self, Range below, const RankSet &suspects) const
{
    FT_ASSERT(below.end <= size_);
    std::vector<Child> out;
    if (below.begin >= below.end) {
        return out;
    }
    const RankSet dead = positions(suspects);
    if (has_nodes()) {
        split_nodes(position_of(self), below, dead, out);
    } else {
        split(below, dead, out);
    }
    return out;
}

std::vector<Child> TreeShape::root_children(Rank root, const RankSet &suspects) const
{
    const Rank at = position_of(root);
    std::vector<Child> out = children(root, {at + 1, size_}, suspects);
    if (at > 0) {
        // Only where the root is not the first survivor in the order: positions before it live
        // when its node was not the first one, or hold the dead that came before it.
        std::vector<Child> before = children(root, {0, at}, suspects);
        out.insert(out.end(), before.begin(), before.end());
    }
    return out;
}

Rank TreeShape::parent(Rank self, Rank root, const RankSet &suspects) const
{
    if (self == root) {
        return no_rank;
    }
    const Rank at = position_of(self);
    Rank above = root;
    std::vector<Child> below = root_children(root, suspects);
    for (;;) {
        const auto child = std::find_if(below.begin(), below.end(), [&](const Child &c) {
            return c.rank == self || (c.below.begin <= at && at < c.below.end);
        });
        FT_ASSERT(child != below.end());
        if (child->rank == self) {
            return above;
        }
        above = child->rank;
        below = children(child->rank, child->below, suspects);
    }
}

} // namespace ft::consensus

/// Who hands what to whom in a tree that may be built anew at any moment.
///
/// The members are put in an order, and their places in it are called positions. A process that is
/// handed a range of positions is to reach everybody in it: it picks children, hands each a part of
/// the range, and so on (Buntinas 2011, section 2, and the reliable broadcast of the report
/// ANL/MCS-TM-314 that it refers to). The dead are counted out before the range is halved, so the
/// tree over the survivors is as flat as the tree of a group that never had the dead.
///
/// Two shapes: by rank (binomial; positions are ranks) and by node (binomial between the nodes'
/// leaders, binomial within a node, the network's part first because it takes longer).
/// Immutable and free of locks once built: one shape serves all processes and threads.
#pragma once

#include "opal/ft/consensus/rank_set.hpp"

#include <memory>
#include <span>
#include <vector>

namespace ft::consensus {

/// Positions begin .. end - 1.
struct Range {
    Rank begin = 0;
    Rank end = 0;
    bool operator==(const Range &) const = default;
};

/// A child in the tree and the positions below it. The child's own position is just before
/// `below.begin` or further ahead; it is not part of the range.
struct Child {
    Rank rank;
    Range below;
    bool operator==(const Child &) const = default;
};

class TreeShape {
  public:
    /// Binomial tree by rank over `size` processes, 1 .. 2^31.
    static std::shared_ptr<const TreeShape> binomial(Rank size);
    /// node_of[rank] is any number that names the node a rank runs on.
    static std::shared_ptr<const TreeShape> node_aware(std::span<const std::uint32_t> node_of);

    Rank size() const { return size_; }
    Rank position_of(Rank rank) const { return by_rank_.empty() ? rank : by_rank_[rank]; }
    Rank rank_at(Rank position) const
    {
        return by_position_.empty() ? position : by_position_[position];
    }
    /// The same members as positions.
    RankSet positions(const RankSet &ranks) const;

    /// Children of `self`, which was handed `below`, with `suspects` (ranks) left out. The child
    /// with the most below it comes first: it is the one to send to first.
    std::vector<Child> children(Rank self, Range below, const RankSet &suspects) const;
    /// Children of a root: everybody else is below it.
    std::vector<Child> root_children(Rank root, const RankSet &suspects) const;
    /// Who `self` is a child of when `root` is the root and all leave out the same suspects;
    /// no_rank if self is the root. Neither self nor root may be a suspect.
    Rank parent(Rank self, Rank root, const RankSet &suspects) const;

  private:
    explicit TreeShape(Rank size) : size_(size) {}
    void split(Range below, const RankSet &dead, std::vector<Child> &out) const;
    void split_nodes(Rank self, Range below, const RankSet &dead, std::vector<Child> &out) const;
    RankSet dead_nodes(const RankSet &dead) const;
    bool has_nodes() const { return !node_begin_.empty(); }

    Rank size_;
    std::vector<Rank> by_rank_;          ///< empty when positions are ranks
    std::vector<Rank> by_position_;      ///< the inverse
    std::vector<Rank> node_begin_;       ///< first position of each node, then size; may be empty
    std::vector<Rank> node_of_position_; ///< index into node_begin_
};

} // namespace ft::consensus

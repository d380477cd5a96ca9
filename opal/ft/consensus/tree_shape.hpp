/// Who hands what to whom in a tree that may be built anew at any moment.
///
/// A process that is handed a range of ranks is to reach everybody in it: it picks children, hands
/// each a part of the range, and so on (Buntinas 2011, section 2, and the reliable broadcast of the
/// report ANL/MCS-TM-314 that it refers to). The dead are counted out before the range is halved,
/// so the tree over the survivors is as flat as the tree of a group that never had the dead.
///
/// Immutable and free of locks once built: one shape serves all processes and threads.
#pragma once

#include "opal/ft/consensus/rank_set.hpp"

#include <memory>
#include <vector>

namespace ft::consensus {

/// Ranks begin .. end - 1.
struct Range {
    Rank begin = 0;
    Rank end = 0;
    bool operator==(const Range &) const = default;
};

/// A child in the tree and the ranks below it. The child's own rank is just before `below.begin` or
/// further ahead; it is not part of the range.
struct Child {
    Rank rank;
    Range below;
    bool operator==(const Child &) const = default;
};

class TreeShape {
  public:
    /// Binomial tree by rank over `size` processes, 1 .. 2^31.
    static std::shared_ptr<const TreeShape> binomial(Rank size);

    Rank size() const { return size_; }

    /// Children of who was handed `below`, with `suspects` left out. The child with the most below
    /// it comes first: it is the one to send to first.
    std::vector<Child> children(Range below, const RankSet &suspects) const;
    /// Children of a root: everybody else is below it.
    std::vector<Child> root_children(Rank root, const RankSet &suspects) const;
    /// Who `self` is a child of when `root` is the root and all leave out the same suspects;
    /// no_rank if self is the root. Neither self nor root may be a suspect.
    Rank parent(Rank self, Rank root, const RankSet &suspects) const;

  private:
    explicit TreeShape(Rank size) : size_(size) {}

    Rank size_;
};

} // namespace ft::consensus

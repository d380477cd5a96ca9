/// The tree as the paper repairs it: links that are kept and mended, not formed anew.
///
/// Varma et al. 2006, section 3.4, figure 2: when D fails, (1) the parent of D's children becomes
/// D's parent, (2) D leaves its parent's children, (3) D's children join them, (4) D has none. When
/// the root fails, the next id becomes the root and takes the dead root's children. A newcomer
/// becomes a leaf at the first place, level by level, with fewer than `arity` children; one with
/// the lowest id becomes the root, with the old root as its child. So members can come to have more
/// than `arity` children.
///
/// A value; one object belongs to one thread unless const.
#pragma once

#include "opal/ft/membership/types.hpp"

#include <span>
#include <vector>

namespace ft::membership {

/// Parent and children of every member, by id. Ids should be dense: memory is per id up to the
/// highest.
class PaperTree {
  public:
    PaperTree() = default;
    /// Ids of `sorted`, placed as `rebuild` would. `arity` is a power of two, at least 2.
    PaperTree(std::span<const NodeId> sorted, unsigned arity);

    /// From parents as they came from the wire: parents[i] belongs to sorted[i], no_node for the
    /// root. False, and an empty tree, when that is no tree over exactly these members.
    bool assign(std::span<const NodeId> sorted, std::span<const NodeId> parents, unsigned arity);

    bool contains(NodeId id) const { return id < nodes_.size() && nodes_[id].present; }
    NodeId root() const { return root_; }
    /// no_node for the root. `id` must be a member.
    NodeId parent(NodeId id) const { return nodes_[id].parent; }
    /// In the order in which they were linked. `id` must be a member.
    const std::vector<NodeId> &children(NodeId id) const { return nodes_[id].children; }
    std::size_t size() const { return size_; }

    /// The four repair steps. `id` must be a member.
    void remove(NodeId id);
    /// `id` must not be a member.
    void add(NodeId id);

    /// The invariant check: one root, the lowest id; every member of `sorted` and nobody else
    /// reachable from it exactly once; links and back links agree. Visits all members.
    bool consistent(std::span<const NodeId> sorted) const;

  private:
    struct Node {
        NodeId parent = no_node;
        bool present = false;
        std::vector<NodeId> children;
    };

    void unlink(NodeId id);
    void link(NodeId id, NodeId parent);
    NodeId lowest() const;

    std::vector<Node> nodes_;
    NodeId root_ = no_node;
    std::size_t size_ = 0;
    unsigned arity_ = 2;
};

} // namespace ft::membership

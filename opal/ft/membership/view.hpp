/// A view: who is a member, in which epoch; and what makes one view out of another.
///
/// Views are immutable and shared: all engines of one process (a simulator has a million) hold the
/// same object. A view keeps the sorted array of members and an index by id, so position, parent
/// and children take constant time (Varma et al. 2006, section 3.1), or, localised, the runs of
/// their ids only (member_list.hpp). Const access from any thread.
#pragma once

#include "opal/ft/membership/member_list.hpp"
#include "opal/ft/membership/paper_tree.hpp"
#include "opal/ft/membership/radix_tree.hpp"
#include "opal/ft/membership/types.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace ft::membership {

/// How the tree follows from the members.
enum class TreeMode : std::uint8_t {
    rebuild, ///< formed anew over the sorted live ids: nobody above `arity` children
    paper,   ///< the paper's four repair steps
};

/// A member that leaves, and why.
struct Removed {
    NodeId id = no_node;
    std::uint32_t incarnation = 0;
    Grade grade = Grade::suspected;
    /// Who knows that it had not voted against them (see PROTOCOL.md, "clean"); no_node when
    /// nobody.
    NodeId witness = no_node;

    bool operator==(const Removed &) const = default;
};

/// What turns one view into the next. All lists are sorted by id, each id once in a list; an id may
/// be in `removed` (old incarnation) and in `joined` (new one).
struct Change {
    std::vector<Removed> removed;
    std::vector<Identity> joined;
    std::vector<NodeId> settled; ///< exiles that are accounted for

    bool empty() const { return removed.empty() && joined.empty() && settled.empty(); }
    /// Whether somebody is removed without proof.
    bool makes_exiles() const;
    bool operator==(const Change &) const = default;
};

class View;
using ViewPtr = std::shared_ptr<const View>;

class View {
  public:
    /// The default view of a job: ids 0 .. n-1, epoch 0, n >= 1. What follows from it keeps its
    /// form. The paper's tree has links of its own for every node: it wants the full one.
    static ViewPtr initial(Position n, unsigned arity, TreeMode mode,
                           ViewForm form = ViewForm::full);

    /// A view from its parts, as they come from the wire; null when they are not a view: no
    /// members, an incarnation or exile list not sorted, parents (paper mode) not a tree. In the
    /// form of `members`; full in paper mode.
    static ViewPtr from_parts(Epoch epoch, MemberList members, std::vector<Identity> incarnations,
                              std::vector<NodeId> exiles, unsigned arity, TreeMode mode,
                              std::span<const NodeId> parents);

    /// The view that `change` makes of this one; null if it does not fit: removes who is not there,
    /// adds who is, leaves nobody.
    ViewPtr apply(Epoch epoch, const Change &change) const;

    /// `view`, or the same in another form.
    static ViewPtr in_form(const ViewPtr &view, ViewForm form);

    /// What turns this view into `next`; who left is graded `suspected` unless `next` says no
    /// exile.
    Change difference(const View &next) const;

    Epoch epoch() const { return epoch_; }
    /// Equal views have equal digests; different ones almost never. Covers epoch, members,
    /// incarnations, exiles.
    std::uint64_t digest() const { return digest_; }
    ViewForm form() const { return members_.form(); }
    Position size() const { return members_.size(); }
    const MemberList &members() const { return members_; }
    const std::vector<NodeId> &exiles() const { return exiles_; }
    /// Only those that are not 0.
    const std::vector<Identity> &incarnations() const { return incarnations_; }
    NodeId root() const { return members_.front(); }
    unsigned arity() const { return shape_.arity(); }
    TreeMode mode() const { return mode_; }
    const RadixTree &shape() const { return shape_; }

    bool contains(NodeId id) const { return members_.find(id) != MemberList::nowhere; }
    bool contains(const Identity &who) const
    {
        return contains(who.id) && incarnation_of(who.id) == who.incarnation;
    }
    /// 0 for ids that are no members.
    std::uint32_t incarnation_of(NodeId id) const;
    /// `id` must be a member.
    Position position(NodeId id) const { return members_.find(id); }
    NodeId at(Position p) const { return members_[p]; }

    /// no_node for the root. `id` must be a member.
    NodeId parent(NodeId id) const;
    /// Replaces the contents of `out`. `id` must be a member.
    void children(NodeId id, std::vector<NodeId> &out) const;
    /// What the object takes, all in all; without the paper's tree.
    std::size_t bytes() const;
    const PaperTree *paper_tree() const { return tree_ ? &*tree_ : nullptr; }

    /// Invariant check: array, index and tree describe the same members; spans, no cycle, and in
    /// rebuild mode nobody above `arity` children. Visits all members.
    bool consistent() const;
    /// Invariant check of the two forms: epoch, digest, and the position, parent and children of
    /// every member are those of `other`. Visits all members.
    bool agrees(const View &other) const;

  private:
    View(Epoch epoch, unsigned arity, TreeMode mode, ViewForm form)
        : epoch_(epoch), shape_(arity), mode_(mode), members_(form)
    {
    }
    void finish();

    Epoch epoch_;
    std::uint64_t digest_ = 0;
    std::uint64_t member_sum_ = 0; // the members' part of the digest
    RadixTree shape_;
    TreeMode mode_;
    MemberList members_;
    std::vector<Identity> incarnations_;
    std::vector<NodeId> exiles_;
    std::unique_ptr<const PaperTree> tree_; // paper mode only
};

/// The tree of one attempt or commit: the coordinator first, then the other members in order. It is
/// the view's own tree when the coordinator is the lowest id, which it is unless the lowest just
/// joins.
class Sweep {
  public:
    /// `coordinator` must be a member of `view`, which must outlive the sweep.
    Sweep(const View &view, NodeId coordinator) : view_(view), coordinator_(coordinator) {}

    /// Replaces the contents of `out` with those that `id` passes a proposal on to.
    void children(NodeId id, std::vector<NodeId> &out) const;
    /// Who passes the proposal on to `id`; no_node for the coordinator.
    NodeId parent(NodeId id) const;
    /// Likewise for the commit, which goes down the mirrored tree, starting at the coordinator.
    void commit_children(NodeId id, std::vector<NodeId> &out) const;

  private:
    Position rank(NodeId id) const;
    NodeId at(Position rank) const;
    NodeId towards_coordinator(NodeId id) const;

    const View &view_;
    NodeId coordinator_;
};

/// Keeps one object per view: computing the same change twice gives the same pointer while anybody
/// holds it. Not thread safe: one pool belongs to the thread of its engines.
class ViewPool {
  public:
    /// As base.apply(epoch, change).
    ViewPtr apply(const ViewPtr &base, Epoch epoch, const Change &change);

  private:
    std::unordered_map<std::uint64_t, std::weak_ptr<const View>> made_;
};

} // namespace ft::membership

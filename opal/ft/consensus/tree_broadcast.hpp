/// One process's part in a numbered broadcast tree.
///
/// Buntinas 2011 (section 2) and the report ANL/MCS-TM-314: a message goes down a tree that every
/// process grows for itself from the range it was handed, and one answer comes back up when all
/// children have answered. A child that dies before it has answered breaks the tree: that is told
/// upwards at once, and the root grows another tree with a higher number.
///
/// A tree serves several sweeps: once everybody has answered the first one, everybody knows its
/// parent and its children, and the next sweep uses the same edges. That is why a parent's death
/// can be noticed by its children in every sweep but the first, and why the first needs answers.
///
/// This class keeps the edges and counts the answers. It makes no messages: what is sent down and
/// what an answer means is the caller's business. Pure; one object belongs to one thread.
#pragma once

#include "opal/ft/consensus/message.hpp"

#include <vector>

namespace ft::consensus {

class TreeBroadcast {
  public:
    struct Edge {
        Rank rank;
        Range below;
        bool answered = false;
    };

    /// Joins tree `number` below `parent` (no_rank: as its root). Drops what was known of any other
    /// tree. A higher number than the last one, except that the caller may reset.
    void open(const Number &number, Rank parent, Stage stage, const std::vector<Child> &children);

    /// Goes on to the next sweep on the same edges. The tree must be whole.
    void next(Stage stage);

    /// A child's answer to this sweep; false if it is none (another tree, another sweep, no child,
    /// answered already) and must be ignored.
    bool take_answer(Rank from, const Number &number, Stage stage);

    /// Those in `suspects` are dead to this process. A child among them that has not answered this
    /// sweep breaks the tree for good; a parent among them leaves this process an orphan.
    void on_suspects(const RankSet &suspects);

    /// This process has given this tree up: it counts no more answers.
    void give_up() { whole_ = false; }

    const Number &number() const { return number_; }
    Stage stage() const { return stage_; }
    Rank parent() const { return parent_; }
    bool is_root() const { return whole_ && parent_ == no_rank; }
    /// False before the first tree and after a loss or give_up().
    bool whole() const { return whole_; }
    bool orphaned() const { return orphaned_; }
    /// All children have answered this sweep.
    bool complete() const { return whole_ && waiting_ == 0; }
    bool has_child(Rank rank) const;
    /// The edges down, also of a tree that is broken.
    const std::vector<Edge> &edges() const { return edges_; }

  private:
    Number number_;
    Rank parent_ = no_rank;
    std::uint32_t waiting_ = 0;
    Stage stage_ = Stage::ballot;
    bool whole_ = false;
    bool orphaned_ = false;
    std::vector<Edge> edges_;
};

} // namespace ft::consensus

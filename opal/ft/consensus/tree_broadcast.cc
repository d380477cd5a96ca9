#include "opal/ft/consensus/tree_broadcast.hpp"

#include "opal/ft/base/assert.hpp"

#include <algorithm>

namespace ft::consensus {

void TreeBroadcast::open(const Number &number, Rank parent, Stage stage,
                         const std::vector<Child> &children)
{
    FT_ASSERT(number > number_);
    number_ = number;
    parent_ = parent;
    stage_ = stage;
    whole_ = true;
    orphaned_ = false;
    edges_.clear();
    edges_.reserve(children.size());
    for (const Child &child : children) {
        edges_.push_back({child.rank, child.below, false});
    }
    waiting_ = static_cast<std::uint32_t>(edges_.size());
}

void TreeBroadcast::next(Stage stage)
{
    FT_ASSERT(whole_ && stage > stage_);
    stage_ = stage;
    for (Edge &edge : edges_) {
        edge.answered = false;
    }
    waiting_ = static_cast<std::uint32_t>(edges_.size());
}

bool TreeBroadcast::take_answer(Rank from, const Number &number, Stage stage)
{
    if (!whole_ || number != number_ || stage != stage_) {
        return false;
    }
    for (Edge &edge : edges_) {
        if (edge.rank == from && !edge.answered) {
            edge.answered = true;
            --waiting_;
            return true;
        }
    }
    return false;
}

bool TreeBroadcast::has_child(Rank rank) const
{
    return std::any_of(edges_.begin(), edges_.end(),
                       [rank](const Edge &edge) { return edge.rank == rank; });
}

void TreeBroadcast::on_suspects(const RankSet &suspects)
{
    if (!number_ || suspects.empty()) {
        return;
    }
    if (parent_ != no_rank && suspects.contains(parent_)) {
        orphaned_ = true;
    }
    for (const Edge &edge : edges_) {
        if (!edge.answered && suspects.contains(edge.rank)) {
            whole_ = false;
        }
    }
}

} // namespace ft::consensus

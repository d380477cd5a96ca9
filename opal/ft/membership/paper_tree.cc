#include "opal/ft/membership/paper_tree.hpp"

#include "opal/ft/base/assert.hpp"
#include "opal/ft/membership/radix_tree.hpp"

#include <algorithm>

namespace ft::membership {

PaperTree::PaperTree(std::span<const NodeId> sorted, unsigned arity) : arity_(arity)
{
    if (sorted.empty()) {
        return;
    }
    const RadixTree shape(arity);
    nodes_.resize(sorted.back() + 1);
    root_ = sorted.front();
    size_ = sorted.size();
    for (Position p = 0; p < sorted.size(); ++p) {
        nodes_[sorted[p]].present = true;
        if (p != 0) {
            link(sorted[p], sorted[shape.parent(p)]);
        }
    }
}

bool PaperTree::assign(std::span<const NodeId> sorted, std::span<const NodeId> parents,
                       unsigned arity)
{
    *this = PaperTree();
    arity_ = arity;
    if (sorted.size() != parents.size()) {
        return false;
    }
    if (sorted.empty()) {
        return true;
    }
    nodes_.resize(sorted.back() + 1);
    root_ = sorted.front();
    size_ = sorted.size();
    for (const NodeId id : sorted) {
        nodes_[id].present = true;
    }
    bool good = true;
    for (std::size_t i = 0; i < sorted.size() && good; ++i) {
        if (sorted[i] == root_) {
            good = parents[i] == no_node;
        } else {
            good = contains(parents[i]);
            if (good) {
                link(sorted[i], parents[i]);
            }
        }
    }
    if (!good || !consistent(sorted)) {
        *this = PaperTree();
        return false;
    }
    return true;
}

void PaperTree::link(NodeId id, NodeId parent)
{
    nodes_[id].parent = parent;
    nodes_[parent].children.push_back(id);
}

void PaperTree::unlink(NodeId id)
{
    const NodeId parent = nodes_[id].parent;
    if (parent != no_node) {
        auto &siblings = nodes_[parent].children;
        siblings.erase(std::find(siblings.begin(), siblings.end(), id));
        nodes_[id].parent = no_node;
    }
}

NodeId PaperTree::lowest() const
{
    for (NodeId id = 0; id < nodes_.size(); ++id) {
        if (nodes_[id].present) {
            return id;
        }
    }
    return no_node;
}

void PaperTree::remove(NodeId id)
{
    FT_ASSERT(contains(id));
    nodes_[id].present = false;
    --size_;
    NodeId heir = nodes_[id].parent;
    if (id == root_) {
        heir = lowest();
        root_ = heir;
        if (heir == no_node) {
            nodes_[id].children.clear();
            return;
        }
        // The new root leaves its own parent first, which may be the dead root.
        unlink(heir);
    }
    const std::vector<NodeId> orphans = std::move(nodes_[id].children);
    nodes_[id].children.clear();
    unlink(id);
    for (const NodeId child : orphans) {
        link(child, heir);
    }
}

void PaperTree::add(NodeId id)
{
    FT_ASSERT(!contains(id));
    if (id >= nodes_.size()) {
        nodes_.resize(id + 1);
    }
    nodes_[id].present = true;
    ++size_;
    if (root_ == no_node) {
        root_ = id;
        return;
    }
    if (id < root_) {
        link(root_, id);
        root_ = id;
        return;
    }
    std::vector<NodeId> level{root_};
    for (std::size_t i = 0; i < level.size(); ++i) {
        const auto &children = nodes_[level[i]].children;
        if (children.size() < arity_) {
            link(id, level[i]);
            return;
        }
        level.insert(level.end(), children.begin(), children.end());
    }
    FT_ASSERT(!"a finite tree has a leaf");
}

bool PaperTree::consistent(std::span<const NodeId> sorted) const
{
    if (sorted.size() != size_ || (size_ == 0) != (root_ == no_node)) {
        return false;
    }
    if (size_ == 0) {
        return true;
    }
    if (root_ != sorted.front() || nodes_[root_].parent != no_node) {
        return false;
    }
    std::vector<NodeId> reached{root_};
    for (std::size_t i = 0; i < reached.size(); ++i) {
        for (const NodeId child : nodes_[reached[i]].children) {
            // A cycle or a node linked twice would make the list longer than the tree is large.
            if (reached.size() >= size_ || !contains(child) || nodes_[child].parent != reached[i]) {
                return false;
            }
            reached.push_back(child);
        }
    }
    std::sort(reached.begin(), reached.end());
    return std::equal(reached.begin(), reached.end(), sorted.begin(), sorted.end());
}

} // namespace ft::membership

#include "opal/ft/membership/view.hpp"

#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/rng.hpp"

#include <algorithm>

namespace ft::membership {

namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b)
{
    std::uint64_t state = a * 0x9e3779b97f4a7c15U + b;
    return base::splitmix64(state);
}

template <typename T>
bool strictly_sorted(const std::vector<T> &v)
{
    return std::adjacent_find(v.begin(), v.end(),
                              [](const T &a, const T &b) { return !(a < b); }) == v.end();
}

std::uint64_t sum_over(const MemberList &members)
{
    std::uint64_t sum = 0;
    for (const NodeId id : members) {
        sum += mix(id, 1);
    }
    return sum;
}

std::vector<NodeId> ids(const MemberList &members)
{
    return {members.begin(), members.end()};
}

bool ids_sorted(const std::vector<Identity> &v)
{
    return std::adjacent_find(v.begin(), v.end(), [](const Identity &a, const Identity &b) {
               return a.id >= b.id;
           }) == v.end();
}

} // namespace

void View::finish()
{
    // A sum over the members: independent of the order, cheap, and sets that differ in few of them
    // follow from each other in as few steps.
    std::uint64_t sum = mix(epoch_, members_.size()) + member_sum_;
    for (const Identity &i : incarnations_) {
        sum += mix(i.id, (std::uint64_t{i.incarnation} << 8) + 2);
    }
    for (const NodeId id : exiles_) {
        sum += mix(id, 3);
    }
    digest_ = mix(sum, epoch_);
    FT_ASSERT_SLOW(consistent());
}

bool Change::makes_exiles() const
{
    return std::any_of(removed.begin(), removed.end(),
                       [](const Removed &r) { return r.grade == Grade::suspected; });
}

ViewPtr View::initial(Position n, unsigned arity, TreeMode mode, ViewForm form)
{
    FT_ASSERT(n >= 1 && RadixTree::valid_arity(arity));
    FT_ASSERT(mode == TreeMode::rebuild || form == ViewForm::full);
    std::shared_ptr<View> v(new View(0, arity, mode, form));
    v->members_.append(0, n);
    v->member_sum_ = sum_over(v->members_);
    if (mode == TreeMode::paper) {
        v->tree_ = std::make_unique<PaperTree>(ids(v->members_), arity);
    }
    v->finish();
    return v;
}

ViewPtr View::from_parts(Epoch epoch, MemberList members, std::vector<Identity> incarnations,
                         std::vector<NodeId> exiles, unsigned arity, TreeMode mode,
                         std::span<const NodeId> parents)
{
    // The highest id sizes the index: an absurd one is a bad message, not a reason to run out of
    // memory.
    if (members.empty() || members.back() >= max_nodes || !ids_sorted(incarnations) ||
        !strictly_sorted(exiles) || !RadixTree::valid_arity(arity)) {
        return nullptr;
    }
    std::shared_ptr<View> v(new View(epoch, arity, mode, members.form()));
    v->members_ = mode == TreeMode::paper ? members.as(ViewForm::full) : std::move(members);
    v->member_sum_ = sum_over(v->members_);
    v->incarnations_ = std::move(incarnations);
    v->exiles_ = std::move(exiles);
    if (mode == TreeMode::paper) {
        auto tree = std::make_unique<PaperTree>();
        if (!tree->assign(ids(v->members_), parents, arity)) {
            return nullptr;
        }
        v->tree_ = std::move(tree);
    }
    v->finish();
    for (const Identity &i : v->incarnations_) {
        if (!v->contains(i.id) || i.incarnation == 0) {
            return nullptr;
        }
    }
    return v;
}

ViewPtr View::apply(Epoch epoch, const Change &change) const
{
    std::shared_ptr<View> v(new View(epoch, arity(), mode_, form()));
    v->member_sum_ = member_sum_;
    std::vector<NodeId> gone;
    std::vector<NodeId> come;
    for (const Removed &r : change.removed) {
        if (!contains(Identity{r.id, r.incarnation}) || (!gone.empty() && r.id <= gone.back())) {
            return nullptr;
        }
        gone.push_back(r.id);
        v->member_sum_ -= mix(r.id, 1);
    }
    const auto leaves = [&](NodeId id) {
        const auto at = std::lower_bound(change.removed.begin(), change.removed.end(), id,
                                         [](const Removed &r, NodeId x) { return r.id < x; });
        return at != change.removed.end() && at->id == id;
    };
    for (const Identity &i : incarnations_) {
        if (!leaves(i.id)) {
            v->incarnations_.push_back(i);
        }
    }
    for (const Identity &j : change.joined) {
        if (j.id >= max_nodes || (contains(j.id) && !leaves(j.id)) ||
            (!come.empty() && j.id <= come.back())) {
            return nullptr;
        }
        come.push_back(j.id);
        v->member_sum_ += mix(j.id, 1);
        if (j.incarnation != 0) {
            v->incarnations_.push_back(j);
        }
    }
    v->members_ = members_.changed(gone, come);
    if (v->members_.empty()) {
        return nullptr;
    }
    std::sort(v->incarnations_.begin(), v->incarnations_.end());
    v->exiles_ = exiles_;
    for (const Removed &r : change.removed) {
        if (r.grade == Grade::suspected) {
            v->exiles_.push_back(r.id);
        }
    }
    std::sort(v->exiles_.begin(), v->exiles_.end());
    v->exiles_.erase(std::unique(v->exiles_.begin(), v->exiles_.end()), v->exiles_.end());
    std::erase_if(v->exiles_, [&](NodeId id) {
        return std::binary_search(change.settled.begin(), change.settled.end(), id);
    });
    if (tree_) {
        auto tree = std::make_unique<PaperTree>(*tree_);
        for (const Removed &r : change.removed) {
            tree->remove(r.id);
        }
        for (const Identity &j : change.joined) {
            tree->add(j.id);
        }
        v->tree_ = std::move(tree);
    }
    v->finish();
    return v;
}

ViewPtr View::in_form(const ViewPtr &view, ViewForm form)
{
    if (view->form() == form) {
        return view;
    }
    FT_ASSERT(view->mode() == TreeMode::rebuild || form == ViewForm::full);
    std::shared_ptr<View> v(new View(view->epoch(), view->arity(), view->mode(), form));
    v->members_ = view->members_.as(form);
    v->member_sum_ = view->member_sum_;
    v->incarnations_ = view->incarnations_;
    v->exiles_ = view->exiles_;
    v->finish();
    return v;
}

Change View::difference(const View &next) const
{
    Change c;
    for (const NodeId id : members_) {
        const std::uint32_t old = incarnation_of(id);
        if (!next.contains(Identity{id, old})) {
            const bool exile = std::binary_search(next.exiles_.begin(), next.exiles_.end(), id);
            c.removed.push_back({id, old, exile ? Grade::suspected : Grade::proven, no_node});
        }
    }
    for (const NodeId id : next.members_) {
        const Identity who{id, next.incarnation_of(id)};
        if (!contains(who)) {
            c.joined.push_back(who);
        }
    }
    for (const NodeId id : exiles_) {
        if (!std::binary_search(next.exiles_.begin(), next.exiles_.end(), id)) {
            c.settled.push_back(id);
        }
    }
    return c;
}

std::uint32_t View::incarnation_of(NodeId id) const
{
    const auto at = std::lower_bound(incarnations_.begin(), incarnations_.end(), id,
                                     [](const Identity &i, NodeId x) { return i.id < x; });
    return at != incarnations_.end() && at->id == id ? at->incarnation : 0;
}

NodeId View::parent(NodeId id) const
{
    if (tree_) {
        return tree_->parent(id);
    }
    const Position p = position(id);
    return p == 0 ? no_node : members_[shape_.parent(p)];
}

void View::children(NodeId id, std::vector<NodeId> &out) const
{
    if (tree_) {
        out = tree_->children(id);
        return;
    }
    const Position p = position(id);
    const unsigned count = shape_.child_count(p, size());
    const std::uint64_t first = shape_.first_child(p);
    out.clear();
    for (unsigned i = 0; i < count; ++i) {
        out.push_back(members_[static_cast<Position>(first + i)]);
    }
}

bool View::consistent() const
{
    if (members_.empty() || !members_.consistent() || member_sum_ != sum_over(members_)) {
        return false;
    }
    std::vector<NodeId> children;
    std::size_t edges = 0;
    for (Position p = 0; p < size(); ++p) {
        if (position(members_[p]) != p) {
            return false;
        }
        this->children(members_[p], children);
        edges += children.size();
        if (mode_ == TreeMode::rebuild && children.size() > arity()) {
            return false;
        }
        for (const NodeId child : children) {
            if (!contains(child) || parent(child) != members_[p]) {
                return false;
            }
        }
    }
    // Every node but the root has one parent, and in rebuild mode the parent is nearer to the root
    // by construction; in paper mode the links are walked.
    return edges == members_.size() - 1 && (!tree_ || tree_->consistent(ids(members_)));
}

std::size_t View::bytes() const
{
    return sizeof(View) + members_.heap_bytes() + incarnations_.capacity() * sizeof(Identity) +
           exiles_.capacity() * sizeof(NodeId);
}

bool View::agrees(const View &other) const
{
    if (epoch_ != other.epoch_ || digest_ != other.digest_ || !(members_ == other.members_) ||
        incarnations_ != other.incarnations_ || exiles_ != other.exiles_) {
        return false;
    }
    std::vector<NodeId> mine;
    std::vector<NodeId> theirs;
    bool same = true;
    Position p = 0;
    for (const NodeId id : members_) {
        children(id, mine);
        other.children(id, theirs);
        same &= other.at(p) == id && at(p) == id && position(id) == p && other.position(id) == p &&
                parent(id) == other.parent(id) && mine == theirs;
        ++p;
    }
    return same;
}

Position Sweep::rank(NodeId id) const
{
    const Position p = view_.position(id);
    const Position c = view_.position(coordinator_);
    return p == c ? 0 : p < c ? p + 1 : p;
}

NodeId Sweep::at(Position rank) const
{
    const Position c = view_.position(coordinator_);
    return rank == 0 ? coordinator_ : view_.at(rank <= c ? rank - 1 : rank);
}

NodeId Sweep::towards_coordinator(NodeId id) const
{
    // The neighbour of `id` on the way to the coordinator, in a tree with links both ways.
    const PaperTree &tree = *view_.paper_tree();
    NodeId below = no_node;
    for (NodeId at = coordinator_; at != no_node; at = tree.parent(at)) {
        if (at == id) {
            return below; // no_node for the coordinator itself
        }
        below = at;
    }
    return tree.parent(id);
}

void Sweep::children(NodeId id, std::vector<NodeId> &out) const
{
    if (view_.paper_tree() != nullptr) {
        const PaperTree &tree = *view_.paper_tree();
        const NodeId back = towards_coordinator(id);
        out = tree.children(id);
        if (tree.parent(id) != no_node) {
            out.push_back(tree.parent(id));
        }
        std::erase(out, back);
        return;
    }
    const Position r = rank(id);
    const unsigned count = view_.shape().child_count(r, view_.size());
    const std::uint64_t first = view_.shape().first_child(r);
    out.clear();
    for (unsigned i = 0; i < count; ++i) {
        out.push_back(at(static_cast<Position>(first + i)));
    }
}

NodeId Sweep::parent(NodeId id) const
{
    if (id == coordinator_) {
        return no_node;
    }
    if (view_.paper_tree() != nullptr) {
        return towards_coordinator(id);
    }
    return at(view_.shape().parent(rank(id)));
}

void Sweep::commit_children(NodeId id, std::vector<NodeId> &out) const
{
    out.clear();
    const Position n = view_.size();
    const Position r = rank(id);
    if (r == 0) {
        if (n > 1) {
            out.push_back(at(n - 1));
        }
        return;
    }
    const Position m = mirrored(r, n);
    const unsigned count = view_.shape().child_count(m, n);
    const std::uint64_t first = view_.shape().first_child(m);
    for (unsigned i = 0; i < count; ++i) {
        const Position back = mirrored(static_cast<Position>(first + i), n);
        if (back != 0) { // the coordinator has it already
            out.push_back(at(back));
        }
    }
}

ViewPtr ViewPool::apply(const ViewPtr &base, Epoch epoch, const Change &change)
{
    std::uint64_t key = mix(base->digest() + static_cast<std::uint64_t>(base->form()), epoch);
    for (const Removed &r : change.removed) {
        key = mix(key, (std::uint64_t{r.id} << 8) | static_cast<std::uint64_t>(r.grade));
        key = mix(key, r.incarnation);
    }
    for (const Identity &j : change.joined) {
        key = mix(key, (std::uint64_t{j.id} << 32) | j.incarnation);
    }
    for (const NodeId id : change.settled) {
        key = mix(key, ~std::uint64_t{id});
    }
    const auto found = made_.find(key);
    if (found != made_.end()) {
        if (ViewPtr known = found->second.lock()) {
            return known;
        }
    }
    if (made_.size() > 64) {
        std::erase_if(made_, [](const auto &entry) { return entry.second.expired(); });
    }
    ViewPtr made = base->apply(epoch, change);
    if (made) {
        made_[key] = made;
    }
    return made;
}

} // namespace ft::membership

// Newcomers and those who come back: the joiner's search, and the root's answers.

#include "opal/ft/base/assert.hpp"
#include "opal/ft/membership/stabilizer.hpp"

#include <algorithm>
#include <iterator>

namespace ft::membership {

using base::Time;

void Stabilizer::search(Time now, Output &out)
{
    if (state_ != State::joining) {
        return;
    }
    drop_pending([](const Pending &p) { return p.purpose == Purpose::join; });
    if (candidates_.empty()) {
        become(State::ended, Event::Kind::ended, out);
        return;
    }
    const NodeId whom = candidates_[candidate_ % candidates_.size()];
    ++candidate_;
    search_at_ = now + config_.give_up;
    Message m = make(self_.incarnation == 0 ? Type::new_node : Type::node_alive, whom);
    // Whoever it is, in whatever life: a joiner cannot know.
    m.to_incarnation = seed_ ? seed_->incarnation_of(whom) : 0;
    ask(now, Purpose::join, std::move(m), out);
}

/// This joiner is told of the present view. Whoever is a member may be the root when it asks again,
/// also one that it was not told of at its start and that has joined since. Members first, then all
/// others that it knows.
void Stabilizer::take_seed(const ViewPtr &view)
{
    seed_ = view;
    std::vector<NodeId> whom;
    whom.reserve(view->size() + candidates_.size());
    for (const NodeId id : view->members()) {
        if (id != self_.id) {
            whom.push_back(id);
        }
    }
    std::copy_if(candidates_.begin(), candidates_.end(), std::back_inserter(whom),
                 [&](NodeId id) { return !view->contains(id); });
    candidates_ = std::move(whom);
    candidate_ = 0;
}

/// This joiner is told of a node that it may not know.
void Stabilizer::hear_of(NodeId id)
{
    if (std::find(candidates_.begin(), candidates_.end(), id) == candidates_.end()) {
        candidates_.push_back(id);
    }
}

bool Stabilizer::joins_allowed(Time now) const
{
    return settled_exiles(now).size() == view_->exiles().size();
}

std::vector<NodeId> Stabilizer::settled_exiles(Time now) const
{
    std::vector<NodeId> settled;
    for (const auto &[id, since] : exiled_since_) {
        if (now >= since + config_.exile_hold ||
            std::find(accounted_.begin(), accounted_.end(), id) != accounted_.end()) {
            settled.push_back(id);
        }
    }
    return settled;
}

/// A view has been installed. Each exile is waited for from the first one on that does without it.
void Stabilizer::follow_exiles(Time now)
{
    const std::vector<NodeId> &exiles = view_->exiles();
    const auto is_none = [&exiles](NodeId id) {
        return !std::binary_search(exiles.begin(), exiles.end(), id);
    };
    std::erase_if(accounted_, is_none);
    std::erase_if(exiled_since_, [&](const auto &entry) { return is_none(entry.first); });
    for (const NodeId id : exiles) {
        if (std::none_of(exiled_since_.begin(), exiled_since_.end(),
                         [id](const auto &entry) { return entry.first == id; })) {
            exiled_since_.emplace_back(id, now);
        }
    }
}

/// An exile is known to be out of the way: dead, or told. False: it is none, or that was known.
bool Stabilizer::account_for(NodeId exile)
{
    if (!std::binary_search(view_->exiles().begin(), view_->exiles().end(), exile) ||
        std::find(accounted_.begin(), accounted_.end(), exile) != accounted_.end()) {
        return false;
    }
    accounted_.push_back(exile);
    drop_pending(Purpose::eviction, exile);
    return true;
}

bool Stabilizer::unwanted(const Identity &who) const
{
    return std::any_of(unwanted_.begin(), unwanted_.end(), [&who](const Identity &u) {
        return u.id == who.id && who.incarnation <= u.incarnation;
    });
}

bool Stabilizer::is_first_of(const View &target) const
{
    for (const NodeId id : view_->members()) {
        if (id >= self_.id) {
            break;
        }
        if (target.contains(Identity{id, view_->incarnation_of(id)})) {
            return false;
        }
    }
    return true;
}

void Stabilizer::turn_away(Time now, const Identity &who, Output &out)
{
    now = tick(now);
    if (!view_ || view_->contains(who) || unwanted(who)) {
        return;
    }
    std::erase_if(unwanted_, [&who](const Identity &u) { return u.id == who.id; });
    unwanted_.push_back(who);
    std::erase_if(joins_, [this](const Newcomer &n) { return unwanted(n.who); });
    // Who coordinates installs first, and all below it have left its view (is_first_of): for the
    // root, what is not in force here is so nowhere.
    if (attempt_ && attempt_->coordinator() == self_.id && attempt_->target->contains(who)) {
        abort_attempt();
        maybe_start(now, out);
    }
}

void Stabilizer::on_join(Time now, const Message &m, Output &out)
{
    const Identity who{m.from, m.from_incarnation};
    const NodeId root = acting_root();
    Message answer = make(Type::join_det_ack, who.id);
    answer.to_incarnation = who.incarnation;
    if (view_->contains(who)) {
        answer.status = Status::welcome;
        answer.number = epoch();
        answer.view = view_;
        send(now, std::move(answer), out);
        return;
    }
    if (unwanted(who)) {
        answer.status = Status::denied;
        send(now, std::move(answer), out);
        return;
    }
    if (root != self_.id) {
        answer.status = Status::not_root;
        answer.hint = root;
        answer.beat = view_->incarnation_of(root);
        send(now, std::move(answer), out);
        return;
    }
    if (view_->contains(who.id)) {
        if (who.incarnation < view_->incarnation_of(who.id)) {
            answer.status = Status::denied;
            send(now, std::move(answer), out);
            return;
        }
        // It lives again, so its earlier life is over.
        prove(now, who.id, ProofKind::refused, out);
    }
    // Whoever asks to come back under an exile's id knows that it was evicted, or has forgotten
    // everything.
    account_for(who.id);
    std::erase_if(joins_, [&](const Newcomer &n) { return n.who.id == who.id; });
    joins_.push_back({who, now + config_.commit_wait * 4});
    std::erase(shunned_, who); // it speaks again
    if (!changing_) {
        changing_ = true;
        changing_since_ = now;
    }
    answer.status = Status::pending;
    answer.view = view_;
    send(now, std::move(answer), out);
    maybe_start(now, out);
}

void Stabilizer::on_join_ack(Time now, const Message &m, Output &out)
{
    if (state_ != State::joining) {
        return;
    }
    switch (m.status) {
    case Status::not_root: {
        drop_pending([](const Pending &p) { return p.purpose == Purpose::join; });
        Message ask_root = make(self_.incarnation == 0 ? Type::new_node : Type::node_alive, m.hint);
        ask_root.to_incarnation = static_cast<std::uint32_t>(m.beat);
        search_at_ = now + config_.give_up * 2;
        if (m.hint < max_nodes && m.hint != self_.id) {
            hear_of(m.hint);
            ask(now, Purpose::join, std::move(ask_root), out);
        }
        break;
    }
    case Status::pending:
        // The root knows us. If nothing comes of it we ask again, in case the root changes.
        drop_pending([](const Pending &p) { return p.purpose == Purpose::join; });
        search_at_ = now + config_.commit_wait * 2;
        candidate_ = 0;
        if (m.view) {
            adopt(now, m.view, out); // and asks its members then
        }
        break;
    case Status::welcome:
        if (m.view) {
            adopt(now, m.view, out);
        } else if (!install_voted(now, m.number, out)) {
            fetch_from(now, m.from, out);
        }
        break;
    case Status::denied:
        candidates_.clear();
        become(State::ended, Event::Kind::ended, out);
        break;
    default:
        ++counters_.unexpected;
        break;
    }
}

} // namespace ft::membership

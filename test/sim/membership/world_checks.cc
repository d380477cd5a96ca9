// Checks that look beyond one moment: what is taken was sent; views follow one another; all come to
// rest.
#include "test/sim/membership/world.hpp"

#include <algorithm>

namespace sim {

// Delivery integrity.

namespace {

/// Names a message by its sender's life and number, which no other message has.
std::uint64_t number_of(NodeId from, std::uint32_t incarnation, std::uint64_t sequence)
{
    return std::uint64_t{from} << 44U ^ std::uint64_t{incarnation} << 32U ^ sequence;
}

} // namespace

void World::remember(NodeId from, const Message &m)
{
    const auto [at, fresh] = sent_.try_emplace(
        number_of(from, nodes_[from].incarnation, m.sequence), Sent{m.to, m.type});
    if (!fresh) {
        violation("a sequence number is used twice: " + describe(m));
    }
}

bool World::was_sent(const Message &m) const
{
    const auto at = sent_.find(number_of(m.from, m.from_incarnation, m.sequence));
    return at != sent_.end() && at->second.to == m.to && at->second.type == m.type;
}

void World::forge(NodeId from, NodeId to, bool has_key)
{
    if (from == to || !running(from) || !running(to) || !nodes_[from].engine->view()) {
        return;
    }
    const View &v = *nodes_[from].engine->view();
    Message m;
    m.type = Type::how_are_you;
    m.from = from;
    m.to = to;
    m.from_incarnation = nodes_[from].incarnation;
    m.to_incarnation = nodes_[to].incarnation;
    m.sequence = unused_sequence;
    m.epoch = v.epoch();
    // Only a receiver that opens what the right key has not sealed takes it.
    const Key theirs = has_key ? key : Key{std::byte{4}};
    if (auto opened = Sealer(key).open(Sealer(theirs).seal(m))) {
        carry(std::move(*opened));
    }
    if (has_key) {
        // Whose name it bears has sent nothing to anybody.
        mcasts_.push_back({v.epoch(), v.digest(), from, {}});
        push(now_ + weather_.latency, Item::Kind::application, to,
             static_cast<std::uint32_t>(mcasts_.size() - 1), from);
    }
}

// Checks over the whole.

Time World::death_of(const Identity &who) const
{
    const auto at = deaths_.find({who.id, who.incarnation});
    return at == deaths_.end() ? Time::never() : at->second;
}

void World::follow_newcomer(const Message &m)
{
    Node &n = nodes_[m.to];
    if (n.engine->state() != State::joining) {
        return;
    }
    if (m.view) {
        for (const NodeId id : m.view->members()) {
            n.heard_of.insert(id);
        }
    }
    if (m.type == Type::join_det_ack && m.status == Status::not_root) {
        n.heard_of.insert(m.hint);
    }
}

bool World::stranded(NodeId id) const
{
    const Node &n = nodes_[id];
    return n.engine->state() == State::joining &&
           std::none_of(n.heard_of.begin(), n.heard_of.end(), [&](NodeId other) {
               return other != id && participating(other) &&
                      nodes_[other].engine->state() != State::joining;
           });
}

bool World::settled() const
{
    const View *view = nullptr;
    Position members = 0;
    bool waiting = false;
    bool suspended = false;
    for (NodeId id = 0; id < nodes_.size(); ++id) {
        if (running(id) && nodes_[id].engine->state() == State::leaving) {
            return false;
        }
        if (!participating(id) || stranded(id)) {
            continue;
        }
        const Stabilizer &e = *nodes_[id].engine;
        if (e.state() != State::member) {
            waiting = true;
            suspended |= e.state() == State::suspended;
            continue;
        }
        if (!e.quiet()) {
            return false;
        }
        if (view == nullptr) {
            view = e.view().get();
        } else if (view->digest() != e.view()->digest()) {
            return false;
        }
        ++members;
    }
    if (view == nullptr) {
        // Nobody is left whom the joiners could join, or nobody at all.
        return !suspended;
    }
    return !waiting && members == view->size();
}

void World::check_end(bool must_settle)
{
    std::stable_sort(commits_.begin(), commits_.end(), [](const Commit &a, const Commit &b) {
        return a.view->epoch() < b.view->epoch();
    });
    for (std::size_t i = 1; i < commits_.size(); ++i) {
        const Commit &a = commits_[i - 1];
        const Commit &b = commits_[i];
        if (a.view->epoch() == b.view->epoch()) {
            if (a.view->digest() != b.view->digest() || a.at != b.at) {
                violation("two primary views: epoch " + std::to_string(a.view->epoch()) +
                          " committed twice");
            }
            continue;
        }
        // Nor one after the other: also where all of the earlier one are dead.
        const auto &members = a.view->members();
        if (std::none_of(members.begin(), members.end(), [&](NodeId id) {
                return b.view->contains(Identity{id, a.view->incarnation_of(id)});
            })) {
            violation("two primary views: " + std::to_string(a.view->epoch()) + " and " +
                      std::to_string(b.view->epoch()) + " share no member");
        }
    }
    if (!must_settle) {
        return;
    }
    if (!settled()) {
        std::string who;
        for (NodeId id = 0; id < nodes_.size(); ++id) {
            if (running(id)) {
                who += ' ' + label(id) + ':' + name(nodes_[id].engine->state()) + '@' +
                       std::to_string(nodes_[id].engine->epoch()) +
                       (nodes_[id].engine->quiet() ? "" : "*");
            }
        }
        violation("not settled at the end:" + who);
    }
    // If most of the last view can still talk, there must be a view.
    const View &last = *commits_.back().view;
    Position live = 0;
    bool any_member = false;
    for (const NodeId id : last.members()) {
        const bool there = running(id) && nodes_[id].incarnation == last.incarnation_of(id);
        live += there && participating(id) && nodes_[id].engine->state() != State::joining;
        any_member |= there && nodes_[id].engine->state() == State::member;
    }
    if (2 * live > last.size() && !any_member) {
        violation("nobody goes on although " + std::to_string(live) + " of " +
                  std::to_string(last.size()) + " members of the last view live");
    }
    for (NodeId id = 0; id < nodes_.size(); ++id) {
        if (running(id) && nodes_[id].engine->state() == State::member) {
            for (const NodeId other : nodes_[id].engine->view()->members()) {
                if (death_of({other, nodes_[id].engine->view()->incarnation_of(other)}) !=
                    Time::never()) {
                    violation("the last view holds the dead " + std::to_string(other));
                }
            }
            break;
        }
    }
}

} // namespace sim

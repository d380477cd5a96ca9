// Life of a node, sending and repeating, time. PROTOCOL.md says what for; stabilizer_receive.cc is
// the other direction.

#include "opal/ft/membership/stabilizer.hpp"

#include "opal/ft/base/assert.hpp"

#include <algorithm>

namespace ft::membership {

using base::Duration;
using base::Time;

const char *name(State state)
{
    switch (state) {
    case State::joining:
        return "joining";
    case State::member:
        return "member";
    case State::suspended:
        return "suspended";
    case State::evicted:
        return "evicted";
    case State::leaving:
        return "leaving";
    case State::left:
        return "left";
    case State::ended:
        return "ended";
    }
    return "?";
}

Stabilizer::Stabilizer(const Config &config, std::shared_ptr<ViewPool> pool, Identity self,
                       const ViewPtr &initial, Time now)
    : config_(config),
      pool_(std::move(pool)),
      self_(self),
      state_(State::member),
      last_(now),
      view_(View::in_form(initial, config.form)),
      view_since_(now),
      heartbeat_(config.heartbeat)
{
    FT_ASSERT(view_->contains(self_) && view_->arity() == config_.arity);
    max_number_ = view_->epoch();
    watch_neighbours(now);
}

Stabilizer::Stabilizer(const Config &config, std::shared_ptr<ViewPool> pool, Identity self,
                       std::vector<NodeId> known, Time now)
    : config_(config),
      pool_(std::move(pool)),
      self_(self),
      state_(State::joining),
      last_(now),
      view_since_(now),
      candidates_(std::move(known)),
      search_at_(now),
      heartbeat_(config.heartbeat)
{
    std::erase(candidates_, self_.id);
}

/// The engine's time for the caller's: it never goes back. Who did not run for a while, or whose
/// clock stepped forward, has heard no answers meanwhile.
Time Stabilizer::tick(Time now)
{
    if (config_.mutation == Mutation::trust_clock) {
        return now;
    }
    if (now + skew_ < last_) {
        skew_ = last_ - now;
        heartbeat_.on_step_back();
    }
    now = now + skew_;
    const Time expected = std::max(due(), last_);
    last_ = now;
    if (expected >= now) {
        return now;
    }
    const Duration late = now - expected;
    heartbeat_.on_pause(now, late);
    if (attempt_ && attempt_->hold + late > now) {
        attempt_->hold = std::min(attempt_->hold + late, now + config_.heartbeat.fence); // as those
    }
    if (late <= config_.probe_timeout / 2) {
        return now;
    }
    for (Suspect &s : suspects_) {
        // A node that is always late must still come to believe.
        if (!s.believed && s.respites < 4) {
            ++s.respites;
            s.believe_at = now + config_.probe_timeout;
            s.next = now;
        }
    }
    for (Pending &p : pending_) {
        p.since = p.since + late;
    }
    if (!minority_deadline_.is_never()) {
        minority_deadline_ = minority_deadline_ + late;
    }
    return now;
}

std::uint32_t Stabilizer::incarnation_of(NodeId id) const
{
    if (view_ && view_->contains(id)) {
        return view_->incarnation_of(id);
    }
    // The later of what is known: lives only go up.
    return std::max(attempt_ ? attempt_->target->incarnation_of(id) : 0,
                    seed_ ? seed_->incarnation_of(id) : 0);
}

void Stabilizer::watch_neighbours(Time now)
{
    if (config_.heartbeat.interval == Duration::zero()) {
        return;
    }
    std::vector<NodeId> ids;
    view_->children(self_.id, ids);
    if (view_->parent(self_.id) != no_node) {
        ids.push_back(view_->parent(self_.id));
    }
    std::sort(ids.begin(), ids.end());
    std::vector<detector::Heartbeat::Peer> peers;
    peers.reserve(ids.size());
    for (const NodeId id : ids) {
        peers.push_back({id, view_->incarnation_of(id)});
    }
    heartbeat_.watch(now, peers);
}

NodeId Stabilizer::acting_root() const
{
    if (!view_) {
        return no_node;
    }
    for (const NodeId id : view_->members()) {
        if (!believed(id)) {
            return id;
        }
    }
    return self_.id;
}

/// Whether one that the attempt evicts without proof is proven dead by now, while voters may still
/// hold their votes back until their promises to it are over: to the dead they have none.
bool Stabilizer::proven_meanwhile(Time now) const
{
    const std::vector<Removed> &removed = attempt_->change->removed;
    return now < attempt_->since + config_.heartbeat.fence &&
           std::any_of(removed.begin(), removed.end(), [&](const Removed &r) {
               const Suspect *s = r.grade == Grade::suspected ? find_suspect(r.id) : nullptr;
               return s != nullptr && s->grade >= Grade::proven;
           });
}

/// Whether this node takes part in a view without `peer`, or has voted for one that may be in
/// force. It promises it nothing then: a vote that was held back until the promises were over would
/// break those that were made meanwhile, and who died with it would look as if it had not voted.
bool Stabilizer::goes_without(const detector::Heartbeat::Peer &peer) const
{
    const Identity who{peer.id, peer.incarnation};
    return config_.mutation != Mutation::promise_always &&
           ((attempt_ && !attempt_->target->contains(who)) ||
            std::any_of(votes_.begin(), votes_.end(),
                        [&who](const Vote &v) { return !v.target->contains(who); }));
}

bool Stabilizer::quiet() const
{
    return !attempt_ && suspects_.empty() && pending_.empty() && joins_.empty() &&
           state_ != State::joining && state_ != State::leaving;
}

void Stabilizer::become(State state, Event::Kind kind, Output &out)
{
    state_ = state;
    out.events.push_back({kind, view_, nullptr, self_, Grade::suspected, Duration::zero()});
}

// Sending.

namespace {

/// Whether the bound of invariant 6 is about messages of this type.
bool for_a_change(Type type)
{
    return is_proposal(type) || is_vote(type) || type == Type::view_commit ||
           type == Type::commit_ack || type == Type::node_failure || type == Type::root_failure ||
           type == Type::failure_det_ack;
}

} // namespace

void Stabilizer::suspend(Time now, Output &out)
{
    settle_until_ = Time::never();
    settled_ = false;
    if (state_ == State::member) {
        minority_deadline_ = now + config_.minority_wait;
        become(State::suspended, Event::Kind::suspended, out);
    }
}

void Stabilizer::resume(Time now, Output &out)
{
    static_cast<void>(now);
    if (state_ == State::suspended) {
        minority_deadline_ = Time::never();
        settle_until_ = Time::never();
        become(State::member, Event::Kind::resumed, out);
    }
}

Message Stabilizer::make(Type type, NodeId to) const
{
    Message m;
    m.type = type;
    m.from = self_.id;
    m.from_incarnation = self_.incarnation;
    m.to = to;
    m.to_incarnation = incarnation_of(to);
    return m;
}

void Stabilizer::send(Time now, Message m, Output &out)
{
    static_cast<void>(now);
    m.sequence = ++sequence_;
    m.epoch = epoch();
    if (m.type == Type::heartbeat) {
        ++counters_.heartbeats;
    } else {
        ++counters_.sent;
        const bool bounded = for_a_change(m.type);
        change_messages_ += bounded;
        counters_.for_changes += bounded;
    }
    out.messages.push_back(std::move(m));
}

void Stabilizer::reply(Time now, const Message &to, Type type, Status status, Output &out)
{
    Message m = make(type, to.from);
    m.to_incarnation = to.from_incarnation;
    m.status = status;
    m.number = to.number;
    m.beat = to.beat;
    send(now, std::move(m), out);
}

void Stabilizer::ask(Time now, Purpose purpose, Message m, Output &out)
{
    pending_.push_back({purpose, m, now + config_.repeat, now, config_.repeat});
    send(now, std::move(m), out);
}

void Stabilizer::drop_pending(Purpose purpose, NodeId to)
{
    drop_pending([&](const Pending &p) { return p.purpose == purpose && p.message.to == to; });
}

void Stabilizer::service_pending(Time now, Output &out)
{
    // Giving up changes the list, so it comes after.
    std::vector<Pending> given_up;
    for (Pending &p : pending_) {
        if (p.next > now) {
            continue;
        }
        p.interval = std::min(p.interval * 2, config_.repeat_max);
        p.next = now + p.interval;
        ++p.tries;
        if (config_.mutation != Mutation::no_repeat) {
            ++counters_.repeats;
            counters_.for_changes_again += for_a_change(p.message.type);
            send(now, p.message, out);
        }
        if (now - p.since >= config_.give_up) {
            given_up.push_back(p);
        }
    }
    for (const Pending &p : given_up) {
        give_up_on(now, p, out);
    }
}

void Stabilizer::give_up_on(Time now, const Pending &p, Output &out)
{
    const NodeId to = p.message.to;
    switch (p.purpose) {
    case Purpose::proposal:
        if (!view_ || !view_->contains(Identity{to, p.message.to_incarnation})) {
            // Something about a newcomer: it does not answer, or this is one, who can only tell.
            // The coordinator finds out, and goes on without.
            if (attempt_ && attempt_->coordinator() != self_.id) {
                Message m = make(Type::node_failure, attempt_->coordinator());
                m.number = attempt_->number();
                m.accused.push_back({to, p.message.to_incarnation, Grade::suspected, no_node});
                send(now, std::move(m), out);
            } else if (attempt_) {
                shunned_.push_back({to, p.message.to_incarnation});
                abort_attempt();
                maybe_start(now, out);
            }
            return;
        }
        [[fallthrough]];
    case Purpose::commit:
        suspect(now, to, Grade::suspected, no_node, out, nobody);
        break;
    case Purpose::report: {
        // The root that we report to is silent too. Ask the next ones, more of them each time.
        suspect(now, to, Grade::suspected, no_node, out, nobody);
        const unsigned more = (1U << std::min(candidates_tried_, 10U)) - 1;
        ++candidates_tried_;
        unsigned asked = 0;
        for (const NodeId id : view_->members()) {
            if (asked == more || id >= self_.id) {
                break;
            }
            if (id > to && find_suspect(id) == nullptr) {
                suspect(now, id, Grade::suspected, no_node, out, nobody);
                ++asked;
            }
        }
        break;
    }
    case Purpose::join:
        search(now, out);
        break;
    case Purpose::goodbye:
        if (p.tries >= 3) {
            const NodeId gone = to;
            drop_pending(Purpose::goodbye, gone);
            if (std::none_of(pending_.begin(), pending_.end(),
                             [](const Pending &q) { return q.purpose == Purpose::goodbye; })) {
                become(State::left, Event::Kind::left, out);
            }
        }
        break;
    case Purpose::eviction:
        if (p.tries >= 5) {
            drop_pending(Purpose::eviction, to);
        }
        break;
    }
}

// Time.

void Stabilizer::on_time(Time now, Output &out)
{
    now = tick(now);
    if (state_ == State::left || state_ == State::ended || state_ == State::evicted) {
        return;
    }
    if (heartbeat_.next_deadline() <= now && state_ != State::leaving && view_) {
        detector::Heartbeat::Output beats;
        heartbeat_.on_time(now, beats);
        for (const auto &b : beats.beats) {
            Message m = make(Type::heartbeat, b.to.id);
            m.to_incarnation = b.to.incarnation;
            m.beat = b.beat;
            m.echo = goes_without(b.to) ? 0 : b.echo;
            if (config_.mutation != Mutation::untold_doubt && doubts_proofs(now, b.to.id)) {
                m.status = Status::in_doubt;
            }
            send(now, std::move(m), out);
        }
        for (const auto &s : beats.suspects) {
            suspect(now, s.id, Grade::suspected, no_node, out, nobody);
        }
    }
    if (state_ == State::joining && search_at_ <= now) {
        search(now, out);
    }
    service_pending(now, out);
    service_suspects(now, out);
    std::erase_if(joins_, [now](const Newcomer &n) { return n.expires <= now; });
    if (attempt_ && !attempt_->voted && attempt_->hold <= now) {
        try_vote(now, out);
    }
    if (watches() && watch_ <= now) {
        // No word from the coordinator: is it there? Its answer tells its epoch, and what it is
        // about. A vote may outlive the attempt that it was for.
        watch_ = now + config_.commit_wait;
        std::vector<NodeId> coordinators;
        if (attempt_) {
            coordinators.push_back(attempt_->coordinator());
        }
        for (const Vote &v : votes_) {
            coordinators.push_back(v.coordinator);
        }
        for (const NodeId id : coordinators) {
            suspect(now, id, Grade::suspected, no_node, out, nobody);
        }
    }
    if (retry_at_ <= now) {
        retry_at_ = Time::never();
        maybe_start(now, out);
    }
    if (settle_until_ <= now) {
        settle_until_ = Time::never();
        settled_ = true;
        maybe_start(now, out);
    }
    if (state_ == State::suspended && minority_deadline_ <= now) {
        Grade known = Grade::suspected;
        for (const Suspect &s : suspects_) {
            known = s.grade == Grade::doubtful ? s.grade : known;
        }
        pending_.clear();
        suspects_.clear();
        abort_attempt();
        become(State::ended, Event::Kind::ended, out);
        out.events.back().grade = known;
    }
}

Time Stabilizer::next_deadline() const
{
    const Time t = due();
    return t.is_never() ? t : t - skew_;
}

Time Stabilizer::due() const
{
    if (state_ == State::left || state_ == State::ended || state_ == State::evicted) {
        return Time::never();
    }
    Time t = std::min({retry_at_, minority_deadline_, settle_until_});
    if (state_ != State::leaving && view_) {
        t = std::min(t, heartbeat_.next_deadline());
    }
    if (state_ == State::joining) {
        t = std::min(t, search_at_);
    }
    for (const Pending &p : pending_) {
        t = std::min(t, p.next);
    }
    for (const Newcomer &n : joins_) {
        t = std::min(t, n.expires);
    }
    for (const Suspect &s : suspects_) {
        t = std::min({t, s.next, s.report_at});
    }
    if (watches()) {
        t = std::min(t, watch_);
    }
    if (attempt_) {
        if (!attempt_->voted && std::all_of(attempt_->children.begin(), attempt_->children.end(),
                                            [](const Child &c) { return c.voted; })) {
            t = std::min(t, attempt_->hold);
        }
    }
    return t;
}

Stabilizer::Gate Stabilizer::admit(NodeId from, Epoch sent_in) const
{
    if (config_.mutation == Mutation::deliver_any_view) {
        return Gate::deliver;
    }
    if (!view_ || sent_in > view_->epoch()) {
        return state_ == State::joining || state_ == State::member || state_ == State::suspended
                   ? Gate::hold
                   : Gate::drop;
    }
    const bool in_force = state_ == State::member || state_ == State::suspended;
    return in_force && sent_in == view_->epoch() && view_->contains(from) ? Gate::deliver
                                                                          : Gate::drop;
}

void Stabilizer::leave(Time now, Output &out)
{
    now = tick(now);
    if (state_ != State::member && state_ != State::suspended) {
        become(State::left, Event::Kind::left, out);
        return;
    }
    abort_attempt();
    pending_.clear();
    std::vector<NodeId> whom;
    view_->children(self_.id, whom);
    if (view_->parent(self_.id) != no_node) {
        whom.push_back(view_->parent(self_.id));
    }
    for (const NodeId id : view_->members()) {
        if (id != self_.id && !believed(id)) {
            whom.push_back(id); // the root, or who will be it
            break;
        }
    }
    suspects_.clear();
    std::sort(whom.begin(), whom.end());
    whom.erase(std::unique(whom.begin(), whom.end()), whom.end());
    state_ = State::leaving;
    minority_deadline_ = Time::never(); // who goes need not wait any more
    for (const NodeId id : whom) {
        Message m = make(Type::goodbye, id);
        // Votes that may still count make the farewell a mere death.
        m.status = votes_.empty() ? Status::none : Status::received;
        ask(now, Purpose::goodbye, std::move(m), out);
    }
    if (whom.empty()) {
        become(State::left, Event::Kind::left, out);
    }
}

} // namespace ft::membership

// Attempts, votes, commits: how one view follows another.

#include "opal/ft/base/assert.hpp"
#include "opal/ft/membership/stabilizer.hpp"

#include <algorithm>

namespace ft::membership {

using base::Duration;
using base::Time;

namespace {

/// Added to the number of an attempt that goes on without a majority because all others are dead,
/// once for each of them: they may have used the next few numbers among themselves before they
/// died, or have gone on like this, at most until one was left. No number may name two views.
constexpr Epoch leap = 1U << 20;

Type proposal_type(const View &base, const Change &change)
{
    if (!change.removed.empty()) {
        const bool root = std::any_of(change.removed.begin(), change.removed.end(),
                                      [&](const Removed &r) { return r.id == base.root(); });
        if (!root) {
            return Type::failed_node;
        }
        return change.removed.size() == 1 ? Type::root_dead : Type::root_and_node_failure;
    }
    const bool recovered =
        !change.joined.empty() && std::all_of(change.joined.begin(), change.joined.end(),
                                              [](const Identity &j) { return j.incarnation != 0; });
    return recovered ? Type::alive_node_join : Type::new_node_join;
}

template <typename T>
void sort_by_id(std::vector<T> &list)
{
    std::sort(list.begin(), list.end(), [](const T &a, const T &b) { return a.id < b.id; });
}

} // namespace

Change Stabilizer::wanted_change(Time now) const
{
    Change c;
    if (!votes_.empty()) {
        // The last attempt may be in force somewhere: go on from it.
        c = view_->difference(*votes_.back().target);
        for (Removed &r : c.removed) {
            const auto &told = votes_.back().change->removed;
            const auto at = std::find_if(told.begin(), told.end(), [&](const Removed &x) {
                return x.id == r.id && x.incarnation == r.incarnation;
            });
            if (at != told.end()) {
                r.grade = std::max(r.grade, at->grade); // a doubt is passed on
            }
        }
    }
    for (const Suspect &s : suspects_) {
        if (!s.believed || !view_->contains(s.who)) {
            continue;
        }
        const auto at = std::find_if(c.removed.begin(), c.removed.end(),
                                     [&](const Removed &r) { return r.id == s.who.id; });
        if (at == c.removed.end()) {
            c.removed.push_back({s.who.id, s.who.incarnation, s.grade, s.witness});
        } else {
            at->grade = std::max(at->grade, s.grade);
            at->witness = s.witness;
        }
    }
    if (joins_allowed(now)) {
        for (const Newcomer &n : joins_) {
            const Identity &j = n.who;
            const bool there = std::any_of(c.joined.begin(), c.joined.end(),
                                           [&](const Identity &x) { return x.id == j.id; });
            const bool leaves = std::any_of(c.removed.begin(), c.removed.end(),
                                            [&](const Removed &r) { return r.id == j.id; });
            if (!there && (!view_->contains(j.id) || leaves)) {
                c.joined.push_back(j);
            }
        }
    }
    // Who is evicted without proof knows nothing of newcomers, and may go on when all whom it knows
    // are proven dead: nobody joins until it is accounted for, whether they asked or were voted
    // for.
    const bool exiles = c.makes_exiles();
    std::erase_if(c.joined, [&](const Identity &j) {
        return exiles || unwanted(j) ||
               std::find(shunned_.begin(), shunned_.end(), j) != shunned_.end();
    });
    if (!c.removed.empty() || !c.joined.empty()) {
        for (const NodeId id : settled_exiles(now)) {
            if (std::find(c.settled.begin(), c.settled.end(), id) == c.settled.end()) {
                c.settled.push_back(id);
            }
        }
    }
    sort_by_id(c.removed);
    sort_by_id(c.joined);
    std::sort(c.settled.begin(), c.settled.end());
    return c;
}

Quorum Stabilizer::strength(const View &target, std::span<const Removed> dead,
                            std::span<const Ambiguous> reported) const
{
    if (config_.mutation == Mutation::no_quorum) {
        return Quorum::majority;
    }
    Quorum weakest = quorum_of(*view_, target, dead);
    const auto also = [&](const View &base) {
        weakest = std::min(weakest, quorum_of(base, target, dead));
    };
    for (const Vote &v : votes_) {
        also(*v.target);
    }
    for (const Ambiguous &a : reported) {
        // Attempts of our own that are not in force are taken back: nobody else could have
        // committed them.
        if (a.target->epoch() > epoch() && a.coordinator != self_.id) {
            also(*a.target);
        }
    }
    for (const Ambiguous &a : obstacles_) {
        also(*a.target);
    }
    return weakest;
}

void Stabilizer::maybe_start(Time now, Output &out)
{
    if ((state_ != State::member && state_ != State::suspended) || busy_starting_ ||
        !retry_at_.is_never() || acting_root() != self_.id) {
        return;
    }
    if (attempt_) {
        if (attempt_->coordinator() != self_.id) {
            if (!believed(attempt_->coordinator())) {
                return;
            }
        } else {
            const bool hopeless =
                std::any_of(suspects_.begin(), suspects_.end(), [&](const Suspect &s) {
                    return s.believed && attempt_->target->contains(s.who);
                });
            if (!hopeless && !proven_meanwhile(now)) {
                return; // new joins wait for the next change
            }
            // Start again with what is known by then: deaths come in swarms.
            abort_attempt();
            retry_at_ = now + config_.combine;
            return;
        }
    }
    busy_starting_ = true;
    start_attempt(now, out);
    busy_starting_ = false;
    if (!attempt_ && state_ == State::member && retry_at_.is_never()) {
        // Alone or through at once: there may be more.
        const Change rest = wanted_change(now);
        if (!rest.removed.empty() || !rest.joined.empty()) {
            retry_at_ = now + config_.combine;
        }
    }
}

void Stabilizer::start_attempt(Time now, Output &out)
{
    Change change = wanted_change(now);
    if (change.removed.empty() && change.joined.empty() && votes_.empty()) {
        return;
    }
    abort_attempt();
    if (change.empty()) {
        return; // what we voted for is what is in force
    }
    Epoch number = std::max(max_number_, epoch()) + 1;
    if (config_.mutation == Mutation::reuse_epoch) {
        number = epoch() + 1;
    }
    ViewPtr target = pool_->apply(view_, number, change);
    if (!target || !target->contains(self_)) {
        return;
    }
    FT_ASSERT(is_first_of(*target));
    const Quorum quorum = strength(*target, change.removed, {});
    if (!may_go_on(quorum)) {
        // Nobody who lives is given up for a bad link if that is too many.
        std::erase_if(suspects_, [](const Suspect &s) { return s.link; });
        const bool told = state_ == State::suspended;
        suspend(now, out);
        if (!told) {
            announce_minority(now, *target, change.removed, out);
        }
        if (quorum == Quorum::outlived && target->size() == 1) {
            minority_deadline_ = now; // there is nobody to wait for, nor to be told
        }
        return;
    }
    if (quorum == Quorum::all_others_dead) {
        number += leap * std::max<std::size_t>(change.removed.size(), 1);
        target = pool_->apply(view_, number, change);
    }
    if (state_ == State::suspended) {
        if (settles(now, change)) {
            return;
        }
        resume(now, out);
    }
    if (!changing_) {
        changing_ = true;
        changing_since_ = now;
    }
    max_number_ = number;
    ++counters_.attempts;
    auto proposal = std::make_shared<Proposal>();
    proposal->number = number;
    proposal->coordinator = self_.id;
    proposal->base = epoch();
    proposal->base_digest = view_->digest();
    proposal->target_digest = target->digest();
    proposal->change = std::move(change);
    attempt_ = std::make_unique<Attempt>();
    attempt_->type = proposal_type(*view_, proposal->change);
    attempt_->doubted_us = static_cast<std::uint64_t>(doubted_for(now, proposal->change).us());
    attempt_->change = std::shared_ptr<const Change>(proposal, &proposal->change);
    attempt_->proposal = std::move(proposal);
    attempt_->target = std::move(target);
    pass_on(now, out);
    try_vote(now, out);
}

void Stabilizer::abort_attempt()
{
    if (!attempt_) {
        return;
    }
    attempt_.reset();
    drop_pending([](const Pending &p) { return p.purpose == Purpose::proposal; });
}

/// Sends the present attempt to the children, and sets until when the own vote must wait.
void Stabilizer::pass_on(Time now, Output &out)
{
    Attempt &a = *attempt_;
    std::vector<NodeId> children;
    Sweep(*a.target, a.coordinator()).children(self_.id, children);
    a.hold = a.since = now;
    a.asked = questions_;
    for (const Removed &r : a.proposal->change.removed) {
        if (r.grade == Grade::suspected) {
            a.hold = std::max(a.hold, heartbeat_.hold_until(r.id));
        }
    }
    watch_ = now + config_.commit_wait;
    for (const NodeId id : children) {
        a.children.push_back({id});
        Message m = make(a.type, id);
        m.to_incarnation = a.target->incarnation_of(id);
        m.number = a.number();
        m.coordinator = a.coordinator();
        m.proposal = a.proposal;
        m.beat = a.doubted_us;
        ask(now, Purpose::proposal, std::move(m), out);
    }
}

void Stabilizer::on_proposal(Time now, const Message &m, Output &out)
{
    const Proposal &p = *m.proposal;
    if (p.number != m.number || p.coordinator == self_.id) {
        ++counters_.unexpected;
        return;
    }
    if (attempt_ && attempt_->number() == p.number && attempt_->coordinator() == p.coordinator) {
        // Asked again. The vote may have been lost, or may take its time.
        if (attempt_->voted) {
            attempt_->voted = false;
            std::erase_if(votes_, [&](const Vote &v) { return v.target->epoch() == p.number; });
            try_vote(now, out);
        } else {
            reply(now, m, Type::working, Status::none, out);
        }
        return;
    }
    if (view_ && p.number == epoch()) {
        reply(now, m, vote_for(m.type), Status::none, out);
        return;
    }
    if (p.number <= max_number_ && config_.mutation != Mutation::reuse_epoch) {
        ++counters_.stale;
        Message no = make(Type::refused, p.coordinator);
        no.number = max_number_;
        no.coordinator = attempt_ ? attempt_->coordinator() : no_node;
        no.beat = p.number;
        no.status = Status::low_number;
        send(now, std::move(no), out);
        return;
    }
    if (!catch_up(now, m, out)) {
        return;
    }
    const ViewPtr base = view_ ? view_ : seed_;
    ViewPtr target = pool_->apply(base, p.number, p.change);
    if (!target || target->digest() != p.target_digest || !target->contains(self_) ||
        !target->contains(p.coordinator)) {
        ++counters_.unexpected;
        return;
    }
    if (std::vector<Removed> heard = wronged(now, m); !heard.empty()) {
        ++objections_;
        Message no = make(Type::refused, p.coordinator);
        no.number = p.number;
        no.beat = p.number;
        no.status = Status::heard;
        no.accused = std::move(heard);
        send(now, std::move(no), out);
        return; // as if never asked
    }
    max_number_ = p.number;
    abort_attempt();
    // A coordinator makes one attempt at a time, and commits are its own: a new one takes back the
    // last.
    std::erase_if(votes_, [&](const Vote &v) { return v.coordinator == p.coordinator; });
    std::erase_if(obstacles_, [&](const Ambiguous &a) { return a.coordinator == p.coordinator; });
    if (state_ == State::suspended) {
        resume(now, out);
    }
    attempt_ = std::make_unique<Attempt>();
    attempt_->proposal = m.proposal;
    attempt_->change = std::shared_ptr<const Change>(m.proposal, &m.proposal->change);
    attempt_->target = std::move(target);
    attempt_->type = m.type;
    attempt_->doubted_us = m.beat;
    attempt_->parent = m.from;
    pass_on(now, out);
    try_vote(now, out);
}

void Stabilizer::try_vote(Time now, Output &out)
{
    Attempt &a = *attempt_;
    if (a.voted || a.hold > now ||
        std::any_of(a.children.begin(), a.children.end(),
                    [](const Child &c) { return !c.voted; })) {
        return;
    }
    if (a.parent == no_node) {
        complete(now, out);
        return;
    }
    a.voted = true;
    Message m = make(vote_for(a.type), a.parent);
    m.to_incarnation = a.target->incarnation_of(a.parent);
    m.number = a.number();
    m.coordinator = a.coordinator();
    if (config_.mutation != Mutation::no_ambiguous) {
        std::vector<Ambiguous> all = a.ambiguous;
        for (const Vote &v : votes_) {
            if (std::none_of(all.begin(), all.end(), [&](const Ambiguous &x) {
                    return x.target->epoch() == v.target->epoch() &&
                           x.target->digest() == v.target->digest();
                })) {
                all.push_back({v.coordinator, v.target});
            }
        }
        if (!all.empty()) {
            m.ambiguous = std::make_shared<const std::vector<Ambiguous>>(std::move(all));
        }
    }
    votes_.push_back({a.change, a.target, a.coordinator(), a.asked});
    if (config_.mutation == Mutation::chatter) {
        for (const NodeId id : a.target->members()) {
            if (id != self_.id && id != a.parent) {
                Message copy = m;
                copy.to = id;
                copy.to_incarnation = a.target->incarnation_of(id);
                send(now, std::move(copy), out);
            }
        }
    }
    send(now, std::move(m), out);
}

void Stabilizer::on_vote(Time now, const Message &m, Output &out)
{
    if (!attempt_ || attempt_->number() != m.number) {
        ++counters_.stale;
        return;
    }
    const auto child = std::find_if(attempt_->children.begin(), attempt_->children.end(),
                                    [&](const Child &c) { return c.id == m.from; });
    if (child == attempt_->children.end() || child->voted) {
        return;
    }
    child->voted = true;
    drop_pending(Purpose::proposal, m.from);
    if (m.ambiguous) {
        attempt_->ambiguous.insert(attempt_->ambiguous.end(), m.ambiguous->begin(),
                                   m.ambiguous->end());
    }
    try_vote(now, out);
}

void Stabilizer::complete(Time now, Output &out)
{
    const Attempt &a = *attempt_;
    const ViewPtr target = a.target;
    const std::shared_ptr<const Change> change = a.change;
    const Quorum quorum = strength(*target, change->removed, a.ambiguous);
    if (!may_go_on(quorum)) {
        // A voter knew of an attempt that may be in force among those whom we do not reach.
        for (const Ambiguous &x : a.ambiguous) {
            if (x.target->epoch() > epoch() && x.coordinator != self_.id) {
                obstacles_.push_back(x);
            }
        }
        abort_attempt();
        suspend(now, out);
        retry_at_ = now + config_.reprobe;
        return;
    }
    ++counters_.commits;
    out.events.push_back(
        {Event::Kind::stabilized, target, change, self_, Grade::suspected, now - changing_since_});
    attempt_.reset();
    drop_pending([](const Pending &p) { return p.purpose == Purpose::proposal; });
    install(now, target, change, out);
    forward_commit(now, self_.id, out);
    for (const Identity &j : change->joined) {
        Message m = make(Type::join_det_ack, j.id);
        m.status = Status::welcome;
        m.number = epoch();
        send(now, std::move(m), out);
    }
    for (const Removed &r : change->removed) {
        if (r.grade == Grade::suspected) {
            Message m = make(Type::evicted, r.id);
            m.to_incarnation = r.incarnation;
            m.number = epoch();
            ask(now, Purpose::eviction, std::move(m), out);
        }
    }
    busy_starting_ = false;
    maybe_start(now, out);
}

bool Stabilizer::install_voted(Time now, Epoch number, Output &out)
{
    if (attempt_ && attempt_->number() == number) {
        const ViewPtr target = attempt_->target;
        const std::shared_ptr<const Change> change = attempt_->change;
        install(now, target, change, out);
        return true;
    }
    for (const Vote &v : votes_) {
        if (v.target->epoch() == number) {
            const Vote vote = v;
            // Its change is against an older view if we missed one between.
            const bool next = view_ && view_->contains(self_);
            install(now, vote.target,
                    next ? std::make_shared<const Change>(view_->difference(*vote.target))
                         : vote.change,
                    out);
            return true;
        }
    }
    return false;
}

void Stabilizer::on_commit(Time now, const Message &m, Output &out)
{
    if (epoch() < m.number && !install_voted(now, m.number, out)) {
        fetch_from(now, m.from, out); // the commit is repeated, since it stays unanswered
        return;
    }
    reply(now, m, Type::commit_ack, Status::none, out);
    if (epoch() == m.number && forwarded_ < m.number && view_->contains(m.coordinator)) {
        forward_commit(now, m.coordinator, out);
    }
    maybe_start(now, out);
}

void Stabilizer::forward_commit(Time now, NodeId coordinator, Output &out)
{
    forwarded_ = epoch();
    std::vector<NodeId> children;
    Sweep(*view_, coordinator).commit_children(self_.id, children);
    for (const NodeId id : children) {
        Message m = make(Type::view_commit, id);
        m.number = epoch();
        m.coordinator = coordinator;
        ask(now, Purpose::commit, std::move(m), out);
    }
}

void Stabilizer::adopt(Time now, const ViewPtr &from_elsewhere, Output &out)
{
    if (from_elsewhere->arity() != config_.arity || from_elsewhere->mode() != config_.mode) {
        ++counters_.unexpected; // a differently configured job, in spite of the MAC
        return;
    }
    const ViewPtr view = View::in_form(from_elsewhere, config_.form);
    if (!view_) {
        if (view->contains(self_)) {
            install(now, view, std::make_shared<const Change>(), out);
        } else if (!seed_ || seed_->epoch() < view->epoch()) {
            take_seed(view);
        }
        return;
    }
    if (view->epoch() <= epoch()) {
        return;
    }
    if (!view->contains(self_) && config_.mutation != Mutation::no_self_check) {
        if (config_.mutation != Mutation::keep_evicted) {
            abort_attempt();
            pending_.clear();
            suspects_.clear();
            become(State::evicted, Event::Kind::evicted, out);
        }
        return;
    }
    install(now, view, std::make_shared<const Change>(view_->difference(*view)), out);
    maybe_start(now, out);
}

void Stabilizer::install(Time now, const ViewPtr &view, std::shared_ptr<const Change> change,
                         Output &out)
{
    FT_ASSERT(view->contains(self_) || config_.mutation == Mutation::no_self_check);
    FT_ASSERT(!view_ || view->epoch() > epoch() || config_.mutation == Mutation::reuse_epoch);
    view_ = view;
    view_since_ = now;
    max_number_ = std::max(max_number_, epoch());
    std::erase_if(votes_, [&](const Vote &v) { return v.target->epoch() <= epoch(); });
    std::erase_if(obstacles_, [&](const Ambiguous &a) { return a.target->epoch() <= epoch(); });
    if (attempt_ && (attempt_->number() <= epoch() || attempt_->proposal->base != epoch())) {
        attempt_.reset();
        drop_pending([](const Pending &p) { return p.purpose == Purpose::proposal; });
    }
    std::vector<NodeId> dead;
    for (const Suspect &s : suspects_) {
        if (s.grade >= Grade::proven && !view_->contains(s.who)) {
            dead.push_back(s.who.id);
        }
    }
    std::erase_if(suspects_, [&](const Suspect &s) { return !view_->contains(s.who); });
    std::erase_if(joins_, [&](const Newcomer &n) { return view_->contains(n.who); });
    shunned_.clear();
    refutations_.clear();
    refuted_by_ = no_node;
    candidates_tried_ = 0;
    objections_ = 0;
    follow_exiles(now);
    for (const NodeId id : dead) {
        account_for(id); // proven when the vote that makes it an exile was already on
    }
    drop_pending([&](const Pending &p) {
        return p.purpose == Purpose::commit || p.purpose == Purpose::join ||
               (p.purpose == Purpose::report && suspects_.empty());
    });
    changing_ = !suspects_.empty();
    changing_since_ = now;
    minority_deadline_ = Time::never();
    search_at_ = Time::never();
    seed_ = nullptr;
    candidates_.clear();
    state_ = State::member;
    Event e{Event::Kind::installed, view_,           std::move(change), self_,
            Grade::suspected,       Duration::zero()};
    e.messages = change_messages_;
    change_messages_ = 0;
    out.events.push_back(std::move(e));
    if (view_->contains(self_.id)) {
        watch_neighbours(now);
    }
}

} // namespace ft::membership

// Receiving: who may speak, strangers and the evicted, and which message goes where.

#include "opal/ft/membership/stabilizer.hpp"

#include "opal/ft/base/assert.hpp"

#include <algorithm>

namespace ft::membership {

using base::Time;

bool Stabilizer::known_sender(const Message &m) const
{
    const Identity who{m.from, m.from_incarnation};
    if (view_->contains(who) || (attempt_ && attempt_->target->contains(who))) {
        return true;
    }
    return std::any_of(votes_.begin(), votes_.end(),
                       [&](const Vote &v) { return v.target->contains(who); });
}

Stabilizer::Verdict Stabilizer::on_message(Time now, const Message &m, Output &out)
{
    now = tick(now);
    if (state_ == State::left || state_ == State::ended) {
        return Verdict::deaf;
    }
    const Identity from{m.from, m.from_incarnation};
    if (m.to != self_.id || m.from == self_.id) {
        ++counters_.unexpected;
        return Verdict::unexpected;
    }
    if (!inbox_.accept(from, m.sequence) && config_.mutation != Mutation::no_dedup) {
        ++counters_.duplicates;
        return Verdict::duplicate;
    }
    // A probe for an earlier life is answered too: hearing this one tells the asker that the other
    // is dead.
    if (m.to_incarnation != self_.incarnation && m.type != Type::how_are_you &&
        m.type != Type::new_node && m.type != Type::node_alive) {
        ++counters_.stale;
        return Verdict::stale;
    }
    if (state_ == State::evicted) {
        if (m.type == Type::evicted) {
            reply(now, m, Type::evicted_ack, Status::none, out);
        }
        return Verdict::deaf;
    }
    if (state_ == State::leaving) {
        if (m.type == Type::failure_det_ack) {
            on_det_ack(now, m, out);
        } else if (m.type == Type::how_are_you) {
            reply(now, m, Type::i_am_well, Status::none, out);
        }
        return Verdict::taken;
    }
    if (view_ && !known_sender(m)) {
        return on_stranger(now, m, out);
    }
    if (view_) {
        on_sign_of_life(now, from, out);
        const bool brings_it = m.type == Type::view_commit || is_proposal(m.type) || m.view;
        if (m.epoch > view_->epoch() && !brings_it && m.type != Type::evicted) {
            fetch_from(now, m.from, out);
        }
    }
    dispatch(now, m, out);
    return Verdict::taken;
}

Stabilizer::Verdict Stabilizer::on_stranger(Time now, const Message &m, Output &out)
{
    const Identity from{m.from, m.from_incarnation};
    if (view_->contains(m.from)) {
        if (m.from_incarnation < view_->incarnation_of(m.from)) {
            ++counters_.stale;
            return Verdict::stale;
        }
        // A later life: the one in the view is over.
        prove(now, m.from, ProofKind::refused, out);
    }
    switch (m.type) {
    case Type::new_node:
    case Type::node_alive:
        on_join(now, m, out);
        return Verdict::taken;
    case Type::evicted:
    case Type::evicted_ack:
    case Type::view_state:
    case Type::fetch_view:
        dispatch(now, m, out);
        return Verdict::taken;
    case Type::failed_node:
    case Type::root_dead:
    case Type::root_and_node_failure:
    case Type::new_node_join:
    case Type::alive_node_join:
        // A newcomer has its place in the tree of the attempt that makes it a member. Whether the
        // attempt is good is another matter, that on_proposal looks into.
        if (view_->contains(m.proposal->coordinator)) {
            dispatch(now, m, out);
            return Verdict::taken;
        }
        break;
    case Type::how_are_you:
        reply(now, m, Type::i_am_well, Status::none, out);
        break;
    default:
        break;
    }
    ++counters_.foreign;
    if (m.epoch > view_->epoch()) {
        fetch_from(now, m.from, out);
    } else if (!view_->contains(m.from) && m.type != Type::i_am_well) {
        tell_evicted(now, from, out);
    }
    return Verdict::foreign;
}

void Stabilizer::tell_evicted(Time now, const Identity &who, Output &out)
{
    Message m = make(Type::evicted, who.id);
    m.to_incarnation = who.incarnation;
    m.number = epoch();
    send(now, std::move(m), out);
}

void Stabilizer::fetch_from(Time now, NodeId id, Output &out)
{
    if (last_fetch_from_ == id && now - last_fetch_ < config_.repeat) {
        return;
    }
    last_fetch_ = now;
    last_fetch_from_ = id;
    send(now, make(Type::fetch_view, id), out);
}

bool Stabilizer::catch_up(Time now, const Message &m, Output &out)
{
    const Proposal &p = *m.proposal;
    if (view_ && p.base > epoch()) {
        // The coordinator has installed the base: so it was committed, and if we voted for it we
        // have it.
        install_voted(now, p.base, out);
    }
    const ViewPtr &have = view_ ? view_ : seed_;
    if (have && have->epoch() == p.base && have->digest() == p.base_digest) {
        return true;
    }
    if (have && have->epoch() > p.base) {
        Message no = make(Type::refused, p.coordinator);
        no.number = p.number;
        no.beat = p.number;
        no.status = Status::old_base;
        no.view = have;
        send(now, std::move(no), out);
    } else {
        // A newcomer passes on what it may not have itself.
        fetch_from(now, view_ && view_->contains(m.from) ? m.from : p.coordinator, out);
    }
    return false;
}

/// A coordinator that is about something else, or nothing, has given up the attempt that we wait
/// for or have voted for, and only it could have committed that, unless it answers what was asked
/// before.
void Stabilizer::on_answer(const Message &m)
{
    const auto given_up = [&m](const View &target, NodeId coordinator, std::uint64_t asked) {
        return coordinator == m.from && target.contains(Identity{m.from, m.from_incarnation}) &&
               m.beat > asked && m.number != target.epoch() && m.epoch < target.epoch();
    };
    if (attempt_ && given_up(*attempt_->target, attempt_->coordinator(), attempt_->asked)) {
        abort_attempt();
    }
    std::erase_if(votes_,
                  [&](const Vote &v) { return given_up(*v.target, v.coordinator, v.asked); });
}

void Stabilizer::dispatch(Time now, const Message &m, Output &out)
{
    if (!view_ && !is_proposal(m.type)) {
        // A joiner knows nothing yet that the other messages are about.
        switch (m.type) {
        case Type::how_are_you:
            reply(now, m, Type::i_am_well, Status::none, out);
            return;
        case Type::join_det_ack:
            on_join_ack(now, m, out);
            return;
        case Type::view_state:
            adopt(now, m.view, out);
            return;
        case Type::view_commit:
            on_commit(now, m, out);
            return;
        case Type::failure_ack:
        case Type::new_node_join_ack:
        case Type::alive_node_join_ack:
            on_vote(now, m, out);
            return;
        case Type::working:
            break;
        default:
            ++counters_.unexpected;
            return;
        }
    }
    switch (m.type) {
    case Type::how_are_you: {
        Message answer = make(Type::i_am_well, m.from);
        answer.to_incarnation = m.from_incarnation;
        answer.beat = m.beat;
        answer.number = attempt_ ? attempt_->number() : 0;
        send(now, std::move(answer), out);
        break;
    }
    case Type::i_am_well:
        on_answer(m); // the sign of life was most of it
        break;
    case Type::node_failure:
    case Type::root_failure:
        on_report(now, m, out);
        break;
    case Type::failure_det_ack:
        on_det_ack(now, m, out);
        break;
    case Type::failed_node:
    case Type::root_dead:
    case Type::root_and_node_failure:
    case Type::new_node_join:
    case Type::alive_node_join:
        on_proposal(now, m, out);
        break;
    case Type::failure_ack:
    case Type::new_node_join_ack:
    case Type::alive_node_join_ack:
        on_vote(now, m, out);
        break;
    case Type::working:
        for (Pending &p : pending_) {
            if (p.purpose == Purpose::proposal && p.message.to == m.from) {
                p.since = now;
            }
        }
        break;
    case Type::refused:
        on_refused(now, m, out);
        break;
    case Type::new_node:
    case Type::node_alive:
        on_join(now, m, out);
        break;
    case Type::join_det_ack:
        on_join_ack(now, m, out);
        break;
    case Type::view_commit:
        on_commit(now, m, out);
        break;
    case Type::commit_ack:
        drop_pending(Purpose::commit, m.from);
        break;
    case Type::fetch_view: {
        Message answer = make(Type::view_state, m.from);
        answer.to_incarnation = m.from_incarnation;
        answer.view = view_;
        send(now, std::move(answer), out);
        // What it could not take without the view, it can take now.
        for (const Pending &p : pending_) {
            if (p.message.to == m.from &&
                (p.purpose == Purpose::proposal || p.purpose == Purpose::commit)) {
                send(now, p.message, out);
            }
        }
        break;
    }
    case Type::view_state:
        adopt(now, m.view, out);
        break;
    case Type::evicted:
        if (m.number > epoch() && config_.mutation == Mutation::no_self_check) {
            fetch_from(now, m.from, out);
        } else if (m.number > epoch()) {
            reply(now, m, Type::evicted_ack, Status::none, out);
            if (config_.mutation != Mutation::keep_evicted) {
                abort_attempt();
                pending_.clear();
                suspects_.clear();
                become(State::evicted, Event::Kind::evicted, out);
            }
        }
        break;
    case Type::evicted_ack:
        drop_pending(Purpose::eviction, m.from);
        account_for(m.from);
        maybe_start(now, out);
        break;
    case Type::goodbye:
        on_goodbye(now, m, out);
        break;
    case Type::minority:
        on_minority(now, m, out);
        break;
    case Type::heartbeat:
        heartbeat_.on_heartbeat(now, {m.from, m.from_incarnation}, m.beat, m.echo,
                                m.status == Status::in_doubt && m.epoch == epoch());
        break;
    }
}

} // namespace ft::membership

// The paper's phases: what a root does, and what everybody does in a root's tree.
#include "opal/ft/consensus/agreement.hpp"

#include "opal/ft/base/assert.hpp"

#include <algorithm>

namespace ft::consensus {

/// As the root: grows a new tree. With COMMIT if a value was already put forward in this round,
/// else with BALLOTING.
void Agreement::lead(Actions &out)
{
    const Number last = std::max(promised_, seen_);
    const Number mine{std::max(last.round, 1U), self_, 1};
    Number number = mine;
    if (last.same_round(mine)) {
        number.attempt = last.attempt + 1;
    } else if (number < last) {
        ++number.round;
    }
    const bool put_forward = accepted_ && accepted_->number.same_round(number);
    promised_ = number;
    seen_ = number;
    exchange_.active = false;
    answered_up_ = false;
    excluded_ = suspects_;
    tree_.open(number, no_rank, put_forward ? Stage::commit : Stage::ballot,
               shape_->root_children(self_, suspects_));
    gather_own();
    if (put_forward) {
        accepted_->number = number;
    }
    send_down(put_forward ? Kind::commit : Kind::ballot, true, out);
    check_complete(out);
}

void Agreement::gather_own()
{
    gathered_ = {true, flags_, acknowledged_, {}};
    if (settings_.mutation != Mutation::forget_accepted) {
        gathered_.accepted = accepted_;
    }
}

void Agreement::gather(const Message &answer)
{
    gathered_.ok = gathered_.ok && answer.ok;
    if (settings_.mutation != Mutation::ignore_flags) {
        gathered_.flags &= answer.flags;
    }
    gathered_.acknowledged = gathered_.acknowledged.common(answer.acknowledged);
    if (answer.accepted &&
        (!gathered_.accepted || gathered_.accepted->number < answer.accepted->number)) {
        gathered_.accepted = answer.accepted;
    }
}

/// The same message to all children; on a fresh tree each also gets its part of the range.
void Agreement::send_down(Kind kind, bool fresh, Actions &out)
{
    Message message(kind, tree_.number());
    message.suspects = excluded_;
    message.unconfirmed = excluded_.minus(confirmed_);
    if (kind != Kind::ballot) {
        message.accepted = accepted_;
    }
    for (const auto &edge : tree_.edges()) {
        if (fresh) {
            message.below = edge.below;
        }
        send(edge.rank, message, out);
    }
}

void Agreement::refuse(Rank to, const Number &number, Actions &out)
{
    Message nak(Kind::refuse, number);
    nak.seen = std::max(promised_, seen_);
    nak.suspects = suspects_;
    nak.unconfirmed = unconfirmed();
    send(to, std::move(nak), out);
}

/// BALLOT or COMMIT from above.
void Agreement::on_tree_message(Rank from, const Message &message, Actions &out)
{
    const bool commit = message.kind == Kind::commit;
    if (message.number < promised_) {
        refuse(from, message.number, out);
        return;
    }
    if (message.number > promised_) {
        if (!message.below) {
            return; // the next sweep of a tree that this process is not in
        }
        promised_ = message.number;
        seen_ = std::max(seen_, promised_);
        exchange_.active = false;
        excluded_ = message.suspects;
        answered_up_ = false;
        tree_.open(message.number, from, commit ? Stage::commit : Stage::ballot,
                   shape_->children(*message.below, suspects_));
        gather_own();
        if (suspects_.is_subset_of(excluded_)) {
            want_report_ = false; // the root knew it first
        }
    } else if (commit && tree_.whole() && tree_.parent() == from &&
               tree_.stage() == Stage::ballot) {
        tree_.next(Stage::commit);
        answered_up_ = false;
        gather_own();
    } else {
        return; // a duplicate, or a tree that this process has given up
    }
    if (!commit) {
        send_down(Kind::ballot, true, out);
        return;
    }
    accepted_ = Accepted{message.number, message.accepted->value};
    if (accepted_->value.failed.contains(self_)) {
        stop(from, out);
        return;
    }
    if (settings_.semantics == Semantics::loose ||
        settings_.mutation == Mutation::return_at_commit) {
        decide(accepted_->value, from, Kind::commit, out);
        return;
    }
    send_down(Kind::commit, message.below.has_value(), out);
    // A child may have died since it answered the ballot.
    tree_.on_suspects(suspects_);
}

void Agreement::on_answer(Rank from, const Message &message, Actions &)
{
    if (tree_.take_answer(from, message.number, message.stage)) {
        gather(message);
        // What it tells of goes up with this process's own answer; unless that it has told of is
        // the loss of the process above.
        want_report_ = want_report_ && tree_.orphaned();
    }
}

void Agreement::on_refuse(Rank, const Message &message, Actions &)
{
    if (message.number == tree_.number()) {
        seen_ = std::max(seen_, message.seen);
        tree_.give_up();
    }
}

void Agreement::on_decide(Rank from, const Message &message, Actions &out)
{
    decide(message.accepted->value, from, Kind::decide, out);
    if (message.below && decided_) {
        pass_on(*message.below, out);
    }
}

void Agreement::check_complete(Actions &out)
{
    if (decided_ || stopped_ || !tree_.complete()) {
        return;
    }
    if (tree_.is_root()) {
        root_complete(out);
        return;
    }
    if (answered_up_ || tree_.orphaned() || (tree_.stage() == Stage::commit && !fence_open())) {
        return;
    }
    // BALLOTING: the ballot must hold everything known here. COMMIT: a confirmed failure more does
    // no harm, but somebody who may live must have been asked or have stopped.
    const RankSet held = tree_.stage() == Stage::ballot ? suspects_.minus(excluded_)
                                                        : unconfirmed().minus(excluded_);
    Message answer(Kind::answer, tree_.number());
    answer.stage = tree_.stage();
    answer.ok = gathered_.ok && held.empty();
    if (settings_.mutation == Mutation::accept_any_ballot) {
        answer.ok = true;
    } else if (!answer.ok) {
        answer.suspects = suspects_;
        answer.unconfirmed = unconfirmed();
    }
    if (tree_.stage() == Stage::ballot) {
        answer.flags = gathered_.flags;
        answer.acknowledged = gathered_.acknowledged;
        answer.accepted = gathered_.accepted;
    }
    answered_up_ = true;
    send(tree_.parent(), std::move(answer), out);
}

/// All have answered: the next phase, or the same again with what was missing.
void Agreement::root_complete(Actions &out)
{
    if (tree_.stage() == Stage::commit) {
        if (!fence_open()) {
            return;
        }
        if (!gathered_.ok || !unconfirmed().is_subset_of(excluded_)) {
            lead(out);
            return;
        }
        decide(accepted_->value, no_rank, Kind::decide, out);
        return;
    }
    const bool lacking = !gathered_.ok || !suspects_.is_subset_of(excluded_);
    if (lacking && settings_.mutation != Mutation::accept_any_ballot) {
        lead(out);
        return;
    }
    if (gathered_.accepted) {
        // Somebody may have returned this value: it is carried through, whatever it lacks.
        accepted_ = gathered_.accepted;
        accepted_->number = tree_.number();
    } else {
        accepted_ = Accepted{tree_.number(), {excluded_, gathered_.flags, gathered_.acknowledged}};
        if (settings_.mutation == Mutation::accuse_the_living) {
            accepted_->value.failed.insert(shape_->size() - 1);
        }
    }
    commit_here(out);
}

void Agreement::commit_here(Actions &out)
{
    if (accepted_->value.failed.contains(self_)) {
        stop(self_, out);
        return;
    }
    if (settings_.semantics == Semantics::loose ||
        settings_.mutation == Mutation::return_at_commit) {
        decide(accepted_->value, no_rank, Kind::commit, out);
        return;
    }
    tree_.next(Stage::commit);
    gather_own();
    tree_.on_suspects(suspects_);
    if (!tree_.whole()) {
        lead(out); // a child died after it had answered
        return;
    }
    send_down(Kind::commit, false, out);
    check_complete(out);
}

} // namespace ft::consensus

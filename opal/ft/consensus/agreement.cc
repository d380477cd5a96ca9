#include "opal/ft/consensus/agreement.hpp"

#include "opal/ft/base/assert.hpp"

#include <algorithm>

namespace ft::consensus {

Agreement::Agreement(Rank self, InstanceId id, const Settings &settings,
                     std::shared_ptr<const TreeShape> shape)
    : self_(self), id_(id), settings_(settings), shape_(std::move(shape))
{
    FT_ASSERT(shape_ != nullptr && self_ < shape_->size());
    FT_ASSERT(settings_.fan_out - 1 < most_fan_out);
}

void Agreement::send(Rank to, Message message, Actions &out) const
{
    message.instance = id_;
    out.push_back({Action::Kind::send, to, std::move(message)});
}

/// A message that is written where it lies.
Message &Agreement::begin_send(Rank to, Kind kind, Actions &out) const
{
    Action &action = out.emplace_back();
    action.to = to;
    action.message.kind = kind;
    action.message.instance = id_;
    return action.message;
}

void Agreement::start(const Contribution &brought, Actions &out)
{
    FT_ASSERT(!started_);
    started_ = true;
    if (stopped_) {
        return;
    }
    flags_ = brought.flags;
    acknowledged_ = brought.acknowledged;
    RankSet suspects = brought.suspects;
    if (suspects.contains(self_)) {
        suspects = suspects.minus(RankSet{self_});
    }
    own_.unite(suspects);
    if (!learn(self_, suspects, brought.unconfirmed, out)) {
        return;
    }
    want_report_ = !unconfirmed().empty();
    if (settings_.algorithm != Algorithm::paper) {
        begin_exchange(out);
    }
    react(out);
    const auto early = std::exchange(early_, {});
    for (const auto &[from, message] : early) {
        on_message(from, message, out);
    }
}

void Agreement::on_suspect(Rank who, Certainty certainty, Actions &out)
{
    on_suspects(RankSet{who}, certainty, out);
}

void Agreement::on_suspects(const RankSet &who, Certainty certainty, Actions &out)
{
    if (stopped_) {
        return;
    }
    RankSet others = who;
    if (who.contains(self_) || (!who.empty() && who.runs().back().end > shape_->size())) {
        others = who.minus(RankSet{self_}).common(RankSet::range(0, shape_->size()));
    }
    const bool fresh = own_.unite(others);
    if (certainty == Certainty::unconfirmed && fresh && !others.is_subset_of(confirmed_)) {
        // Nobody else may know, and it may be in the way of somebody's answer.
        want_report_ = true;
    }
    const bool sure = certainty == Certainty::confirmed;
    if (learn(self_, others, sure ? RankSet{} : others, out)) {
        react(out);
    }
}

void Agreement::on_message(Rank from, const Message &message, Actions &out)
{
    FT_ASSERT(from != self_ && message.instance == id_);
    if (from >= shape_->size()) {
        return;
    }
    if (stopped_) {
        if (message.kind != Kind::stopped) {
            send(from, Message(Kind::stopped), out);
        }
        return;
    }
    if (message.kind == Kind::stopped) {
        if (learn(self_, RankSet{from}, {}, out)) {
            react(out);
        }
        return;
    }
    const bool suspect = suspects_.contains(from);
    if (message.kind == Kind::stop) {
        // Two that suspect each other must not both give way: the lower rank goes on.
        if (!suspect || from < self_) {
            stop(from, out);
        }
        return;
    }
    if (suspect) {
        // It speaks, so it lives, and may not know that it is held for failed.
        send(from, Message(Kind::stop), out);
        return;
    }
    if (!started_) {
        early_.emplace_back(from, message);
        return;
    }
    handle(from, message, out);
}

void Agreement::handle(Rank from, const Message &message, Actions &out)
{
    if (!learn(from, message.suspects, message.unconfirmed, out)) {
        return;
    }
    if (decided_) {
        if (message.kind == Kind::report && message.below) {
            spread(shape_->children(*message.below, suspects_), out);
            want_report_ = false;
            return;
        }
        const bool asks = message.kind == Kind::report || message.kind == Kind::exchange ||
                          message.kind == Kind::ballot || message.kind == Kind::commit;
        if (asks) {
            answer_with_decision(from, out);
        }
        if (message.below) {
            pass_on(*message.below, out);
        }
        react(out);
        return;
    }
    switch (message.kind) {
    case Kind::exchange:
        on_exchange(from, message, out);
        break;
    case Kind::ballot:
    case Kind::commit:
        on_tree_message(from, message, out);
        break;
    case Kind::answer:
        on_answer(from, message, out);
        break;
    case Kind::refuse:
        on_refuse(from, message, out);
        break;
    case Kind::decide:
        on_decide(from, message, out);
        break;
    case Kind::report:
        on_report(from, message, out);
        break;
    case Kind::stop:
    case Kind::stopped:
        break;
    }
    react(out);
}

/// Takes over what `from` holds for true. False if that ends this process's part.
bool Agreement::learn(Rank from, const RankSet &suspects, const RankSet &unconfirmed, Actions &out)
{
    if (suspects.contains(self_)) {
        stop(from, out);
        return false;
    }
    if (suspects.empty()) {
        return true;
    }
    confirmed_.unite(suspects.minus(unconfirmed));
    const RankSet fresh = suspects.minus(suspects_);
    suspects_.unite(suspects);
    if (confirmed_ == suspects_) {
        confirmed_ = suspects_; // one copy, and differences cost nothing
    }
    if (fresh.empty()) {
        return true;
    }
    // Who has no complaint of its own can probably reach the accused, and must tell it.
    for (const Rank accused : fresh.minus(confirmed_).minus(own_).members()) {
        send(accused, Message(Kind::stop), out);
    }
    if (settings_.majority && losing_side()) {
        stop(self_, out);
        return false;
    }
    note_losses();
    return true;
}

bool Agreement::losing_side() const
{
    const RankSet doubtful = unconfirmed();
    const Rank against = doubtful.count();
    const Rank left = shape_->size() - suspects_.count();
    return against > left || (against == left && doubtful.contains(confirmed_.lowest_absent()));
}

void Agreement::note_losses()
{
    if (!started_) {
        return;
    }
    if (decided_) {
        // Somebody may live, be suspected, and not know it. Whoever was told before may have died.
        want_report_ = !unconfirmed().empty();
        return;
    }
    if (can_begin_anew()) {
        prepare_exchange(); // everybody else is going to hear of it, too
        exchange_.ask = settings_.semantics == Semantics::loose;
        return;
    }
    trouble_ = true;
    tree_.on_suspects(suspects_);
    if (tree_.orphaned()) {
        lost_ = std::max(lost_, tree_.number());
    }
    // Even in a tree that seems whole: the root may have gone on to another, and the dead may have
    // been the way to here.
    want_report_ = true;
}

/// Does what the present state asks for, after any input.
void Agreement::react(Actions &out)
{
    if (!started_ || stopped_) {
        return;
    }
    if (!decided_ && exchange_.active) {
        advance_exchange(out);
    }
    if (!decided_) {
        if (leads()) {
            const bool waits_for_exchange = exchange_.active && !trouble_;
            // A suspect that lives may be unable to answer whoever it hangs below in this tree.
            const bool overtaken = tree_.is_root() && !unconfirmed().is_subset_of(excluded_);
            if (overtaken || (!tree_.is_root() && !waits_for_exchange)) {
                lead(out);
            }
        } else if (tree_.number() && !tree_.whole() && !answered_up_) {
            answered_up_ = true;
            if (!tree_.orphaned()) {
                refuse(tree_.parent(), tree_.number(), out);
                want_report_ = false; // the refusal tells the same
            }
        }
    }
    if (!decided_) {
        check_complete(out);
    }
    if (want_report_) {
        if (!leads()) {
            report(out);
        } else if (decided_ && !unconfirmed().empty()) {
            spread({shape_->root_children(self_, suspects_)}, out);
        }
    }
    want_report_ = false;
}

/// Tells the next process towards the root what is amiss. Each tells only news, so that a failure
/// that all notice at once costs each one message and brings no more to a process than it has
/// children in the tree.
void Agreement::report(Actions &out)
{
    if (settings_.mutation == Mutation::drop_reports) {
        return;
    }
    const Rank count = suspects_.count();
    if (reported_ && count == reported_count_ && lost_ == reported_lost_) {
        return;
    }
    reported_ = true;
    reported_count_ = count;
    reported_lost_ = lost_;
    const Rank up = shape_->parent(self_, suspects_.lowest_absent(), suspects_);
    Message news(Kind::report, lost_);
    news.suspects = suspects_;
    news.unconfirmed = unconfirmed();
    send(up, std::move(news), out);
}

void Agreement::on_report(Rank from, const Message &message, Actions &out)
{
    if (message.below) {
        // From a root that has decided, while its decision is still on its way to here.
        spread(shape_->children(*message.below, suspects_), out);
        return;
    }
    if (std::find(askers_.begin(), askers_.end(), from) == askers_.end()) {
        askers_.push_back(from);
    }
    trouble_ = true;
    want_report_ = true;
    lost_ = std::max(lost_, message.number);
    if (tree_.is_root() && message.number == tree_.number()) {
        // Somebody in this very tree can no longer be reached through it.
        tree_.give_up();
    }
}

/// A root that has decided sends no more trees, but somebody it cannot reach may still wait: all
/// are told, and those who can reach it tell it to stop.
void Agreement::spread(const std::vector<Child> &children, Actions &out)
{
    Message news(Kind::report);
    news.suspects = suspects_;
    news.unconfirmed = unconfirmed();
    for (const Child &child : children) {
        news.below = child.below;
        send(child.rank, news, out);
    }
}

bool Agreement::fence_open() const
{
    return settings_.mutation == Mutation::skip_fence || unconfirmed().is_subset_of(own_);
}

Message Agreement::decision_message() const
{
    Message decision(Kind::decide, tree_.number());
    decision.accepted = accepted_;
    decision.unconfirmed = unconfirmed();
    if (!decision.unconfirmed.empty()) {
        decision.suspects = suspects_; // so that those who can reach them tell them
    }
    return decision;
}

void Agreement::answer_with_decision(Rank to, Actions &out) const
{
    send(to, decision_message(), out);
}

/// A tree comes to a process that has decided: whoever is below learns the value, not the question.
/// Not all of them need to have noticed a failure, so they might never ask.
void Agreement::pass_on(const Range &below, Actions &out)
{
    Message decision = decision_message();
    for (const Child &child : shape_->children(below, suspects_)) {
        decision.below = child.below;
        send(child.rank, decision, out);
    }
}

/// The end: this process returns. Whoever may still wait for a message of this process gets the
/// value instead; from now on every question is answered with it.
void Agreement::decide(Value value, Rank from, Kind downwards, Actions &out)
{
    FT_ASSERT(!decided_ && !stopped_);
    if (value.failed.contains(self_)) {
        stop(from, out);
        return;
    }
    const Number number = accepted_ ? accepted_->number : tree_.number();
    accepted_ = Accepted{number, std::move(value)};
    decided_ = true;
    out.emplace_back().kind = Action::Kind::decide;
    if (tree_.number()) {
        if (tree_.parent() != no_rank && tree_.parent() != from && !tree_.orphaned()) {
            answer_with_decision(tree_.parent(), out);
        }
        if (downwards == Kind::commit) {
            send_down(Kind::commit, false, out);
        } else {
            for (const auto &edge : tree_.edges()) {
                answer_with_decision(edge.rank, out);
            }
        }
    }
    if (exchange_.active) {
        release_partners(out);
    }
    for (const Rank asker : std::exchange(askers_, {})) {
        if (!tree_.has_child(asker)) {
            answer_with_decision(asker, out);
        }
    }
    exchange_ = {};
    gathered_ = {};
}

/// Others hold this process for failed. It says so to whoever told it, and to all who ask.
void Agreement::stop(Rank from, Actions &out)
{
    if (stopped_) {
        return;
    }
    stopped_ = true;
    out.push_back({Action::Kind::stop, no_rank, {}});
    if (from != self_) {
        send(from, Message(Kind::stopped), out);
    }
    for (const auto &[waiting, message] : std::exchange(early_, {})) {
        if (waiting != from) {
            send(waiting, Message(Kind::stopped), out);
        }
    }
}

} // namespace ft::consensus

// The fast path: dissemination (Hensgen, Finkel and Manber, "Two algorithms for barrier
// synchronization", IJPP 17, 1988) used as a vote. In step k everybody sends to the process 2^k
// places ahead in the ring of survivors what it has heard so far; after ceil(log2(m)) steps
// everybody has heard from everybody. The first sweep collects what all bring and so makes COMMIT
// known to all without a root; the second one collects that all have committed.
#include "opal/ft/consensus/agreement.hpp"

#include "opal/ft/base/assert.hpp"

#include <bit>

namespace ft::consensus {

void Agreement::begin_exchange(Actions &out)
{
    prepare_exchange();
    // Around the ring a suspicion travels with the steps. What waits at the top of a tree would
    // tell nobody.
    trouble_ = settings_.algorithm == Algorithm::tree && !unconfirmed().empty();
    advance_exchange(out);
}

void Agreement::prepare_exchange()
{
    exchange_ = {};
    exchange_.active = true;
    exchange_.tag = suspects_;
    exchange_.alive = shape_->size() - suspects_.count();
    exchange_.place = self_ - exchange_.tag.count_below(self_);
    exchange_.steps = static_cast<std::uint8_t>(std::bit_width(exchange_.alive - 1));
    exchange_.flags = flags_;
    exchange_.acknowledged = acknowledged_;
}

/// After a death the exchange begins anew among those left, unless this process has accepted its
/// value already. Of a confirmed death everybody hears, so everybody comes to the same ring; a
/// suspicion that is not confirmed needs a root that asks.
bool Agreement::can_begin_anew() const
{
    return exchange_.active && !accepted_ && !trouble_ && confirmed_ == suspects_;
}

/// Who has this place in the ring of those outside the tag, in the order of ranks: the first steps
/// stay within a node where the node's processes are neighbours.
Rank Agreement::at_place(std::uint64_t place) const
{
    while (place >= exchange_.alive) {
        place -= exchange_.alive; // once round at most
    }
    return exchange_.tag.absent(static_cast<Rank>(place));
}

bool Agreement::carries_value(Stage stage, std::uint8_t step) const
{
    return settings_.algorithm == Algorithm::tree ? sweeps().carries_value(stage, step)
                                                  : stage == Stage::ballot;
}

void Agreement::send_exchange(Rank to, Stage stage, std::uint8_t step, Actions &out) const
{
    Message &message = begin_send(to, Kind::exchange, out);
    message.stage = stage;
    message.step = step;
    message.suspects = exchange_.tag;
    message.unconfirmed = exchange_.tag.minus(confirmed_);
    if (carries_value(stage, step)) {
        message.flags = exchange_.flags;
        message.acknowledged = exchange_.acknowledged;
    }
}

/// The exchange cannot come to its end: only a root can bring everybody to one set.
void Agreement::call_for_root()
{
    trouble_ = true;
    want_report_ = true;
}

void Agreement::on_exchange(Rank from, const Message &message, Actions &out)
{
    if (!exchange_.active) {
        return; // a tree is on its way to the sender, too
    }
    if (message.suspects != exchange_.tag) {
        if (can_begin_anew()) {
            return; // the sender is going to hear of what it lacks, and to begin anew
        }
        call_for_root(); // the two count different rings
        return;
    }
    if (message.step == no_step) {
        return; // a question to those who have returned
    }
    std::uint32_t bit = std::uint32_t{1} << message.step;
    const bool sweeps = message.step == step_up || message.step == step_down;
    if (sweeps && settings_.algorithm == Algorithm::tree) {
        bit = sweep_bit(from, message);
    } else if (sweeps || settings_.algorithm == Algorithm::tree) {
        bit = 0; // the processes were not told the same
    }
    if (bit == 0) {
        call_for_root();
        return;
    }
    exchange_.done.got[static_cast<unsigned>(message.stage)] |= bit;
    if (carries_value(message.stage, message.step)) {
        // Hearing more than this step's share early does no harm: AND and intersection do not mind.
        exchange_.flags &= message.flags;
        exchange_.acknowledged = exchange_.acknowledged.common(message.acknowledged);
    }
    advance_exchange(out);
}

void Agreement::accept_exchanged()
{
    if (!accepted_) {
        accepted_ = Accepted{{}, {exchange_.tag, exchange_.flags, exchange_.acknowledged}};
    }
}

void Agreement::advance_exchange(Actions &out)
{
    if (settings_.algorithm == Algorithm::tree) {
        advance_sweeps(out);
        return;
    }
    if (std::exchange(exchange_.ask, false) && settings_.mutation != Mutation::ask_nobody) {
        ask_those_behind(out);
    }
    for (const Stage stage : {Stage::ballot, Stage::commit}) {
        const auto sweep = static_cast<unsigned>(stage);
        if (stage == Stage::commit) {
            accept_exchanged();
            if (settings_.semantics == Semantics::loose ||
                settings_.mutation == Mutation::return_at_commit) {
                break;
            }
            if (!fence_open()) {
                return;
            }
        }
        const unsigned heard = static_cast<unsigned>(std::countr_one(exchange_.done.got[sweep]));
        while (exchange_.done.sent[sweep] < exchange_.steps &&
               exchange_.done.sent[sweep] <= heard) {
            const std::uint8_t step = exchange_.done.sent[sweep]++;
            send_exchange(exchange_partner(step), stage, step, out);
        }
        if (heard < exchange_.steps) {
            return;
        }
    }
    decide(accepted_->value, no_rank, Kind::decide, out);
}

/// Decided by other means while others may still count on this process's steps.
void Agreement::release_partners(Actions &out)
{
    if (settings_.algorithm == Algorithm::tree) {
        release_neighbours(out);
        return;
    }
    const bool strict = settings_.semantics == Semantics::strict;
    for (unsigned step = 0; step < exchange_.steps; ++step) {
        if (exchange_.done.sent[0] <= step || (strict && exchange_.done.sent[1] <= step)) {
            answer_with_decision(exchange_partner(step), out);
        }
    }
}

/// Under loose semantics somebody may have returned from the exchange before this one, and takes no
/// step of it. Whoever counts on its steps gets the value for an answer. (Strict: whoever has
/// returned knows that all have accepted, and then nobody begins anew.)
void Agreement::ask_those_behind(Actions &out)
{
    for (unsigned step = 0; step < exchange_.steps; ++step) {
        ask(at_place(exchange_.place + exchange_.alive - (std::uint64_t{1} << step)), out);
    }
}

void Agreement::ask(Rank whom, Actions &out) const
{
    Message &question = begin_send(whom, Kind::exchange, out);
    question.step = no_step;
    question.suspects = exchange_.tag;
}

} // namespace ft::consensus

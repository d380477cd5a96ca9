// The fast path: dissemination (Hensgen, Finkel and Manber, "Two algorithms for barrier
// synchronization", IJPP 17, 1988) used as a vote. In step k everybody sends to the process 2^k
// places ahead in the ring of survivors what it has heard so far; after ceil(log2(m)) steps
// everybody has heard from everybody. The first sweep collects what all bring and so makes COMMIT
// known to all without a root; the second one collects that all have committed.
#include "opal/ft/consensus/agreement.hpp"

#include "opal/ft/base/assert.hpp"

#include <bit>

namespace ft::consensus {

namespace {

/// No group is so large that it takes this step.
constexpr std::uint8_t no_step = 31;

} // namespace

void Agreement::begin_exchange(Actions &out)
{
    prepare_exchange();
    trouble_ = false;
    advance_exchange(out);
}

void Agreement::prepare_exchange()
{
    const Rank alive = shape_->size() - suspects_.count();
    exchange_ = {};
    exchange_.active = true;
    exchange_.tag = suspects_;
    exchange_.tag_positions = shape_->positions(suspects_);
    exchange_.steps = static_cast<std::uint8_t>(std::bit_width(alive - 1));
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

/// Who is so many places ahead among those outside the tag, in the order of positions: the first
/// steps stay within a node where the node's processes are neighbours.
Rank Agreement::at_distance(std::uint64_t places) const
{
    const RankSet &dead = exchange_.tag_positions;
    const Rank alive = shape_->size() - dead.count();
    const Rank at = shape_->position_of(self_);
    const Rank mine = at - dead.count_below(at);
    return shape_->rank_at(dead.absent(static_cast<Rank>((mine + places) % alive)));
}

void Agreement::send_exchange(Stage stage, unsigned step, Actions &out)
{
    Message message(Kind::exchange);
    message.stage = stage;
    message.step = static_cast<std::uint8_t>(step);
    message.suspects = exchange_.tag;
    message.unconfirmed = exchange_.tag.minus(confirmed_);
    if (stage == Stage::ballot) {
        message.flags = exchange_.flags;
        message.acknowledged = exchange_.acknowledged;
    }
    send(exchange_partner(step), std::move(message), out);
}

void Agreement::on_exchange(Rank, const Message &message, Actions &out)
{
    if (!exchange_.active) {
        return; // a tree is on its way to the sender, too
    }
    if (message.suspects != exchange_.tag) {
        if (can_begin_anew()) {
            return; // the sender is going to hear of what it lacks, and to begin anew
        }
        // The two count different rings. Only a root can bring everybody to one set.
        trouble_ = true;
        want_report_ = true;
        return;
    }
    if (message.step == no_step) {
        return; // a question to those who have returned
    }
    exchange_.got[static_cast<unsigned>(message.stage)] |= 1U << message.step;
    if (message.stage == Stage::ballot) {
        // Hearing more than this step's share early does no harm: AND and intersection do not mind.
        exchange_.flags &= message.flags;
        exchange_.acknowledged = exchange_.acknowledged.common(message.acknowledged);
    }
    advance_exchange(out);
}

void Agreement::advance_exchange(Actions &out)
{
    if (std::exchange(exchange_.ask, false) && settings_.mutation != Mutation::ask_nobody) {
        ask_those_behind(out);
    }
    for (const Stage stage : {Stage::ballot, Stage::commit}) {
        const auto sweep = static_cast<unsigned>(stage);
        if (stage == Stage::commit) {
            if (!accepted_) {
                accepted_ = Accepted{{}, {exchange_.tag, exchange_.flags, exchange_.acknowledged}};
            }
            if (settings_.semantics == Semantics::loose ||
                settings_.mutation == Mutation::return_at_commit) {
                break;
            }
            if (!fence_open()) {
                return;
            }
        }
        const unsigned heard = static_cast<unsigned>(std::countr_one(exchange_.got[sweep]));
        while (exchange_.sent[sweep] < exchange_.steps && exchange_.sent[sweep] <= heard) {
            send_exchange(stage, exchange_.sent[sweep], out);
            ++exchange_.sent[sweep];
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
    const bool strict = settings_.semantics == Semantics::strict;
    for (unsigned step = 0; step < exchange_.steps; ++step) {
        if (exchange_.sent[0] <= step || (strict && exchange_.sent[1] <= step)) {
            answer_with_decision(exchange_partner(step), out);
        }
    }
}

/// Under loose semantics somebody may have returned from the exchange before this one, and takes no
/// step of it. Whoever counts on its steps gets the value for an answer. (Strict: whoever has
/// returned knows that all have accepted, and then nobody begins anew.)
void Agreement::ask_those_behind(Actions &out)
{
    Message question(Kind::exchange);
    question.step = no_step;
    question.suspects = exchange_.tag;
    const Rank alive = shape_->size() - exchange_.tag.count();
    for (unsigned step = 0; step < exchange_.steps; ++step) {
        send(at_distance(alive - (std::uint64_t{1} << step)), question, out);
    }
}

} // namespace ft::consensus

// The calls of this process that agree on something: which number each gets, which may begin, and
// in which order they hear of what was decided.
#include "ompi/mpi_ft/contexts.hpp"
#include "ompi/mpi_ft/record.hpp"

#include "ompi/mpi_ft/service.hpp"

namespace ft::validate {

namespace {

/// How many calls may be under way at once, others wait for their turn; and how many agreements are
/// kept after they were concluded. Others may still ask about one until all have concluded it. That
/// is sure of those which are not kept: a call is begun when all but so many before it are over, so
/// who knows of a decision knows that everybody has concluded the call that many places before.
constexpr std::size_t kept_calls = 16;

} // namespace

void Record::agree(const Brought &brought, std::function<void(const Value &)> done,
                   Attempt *attempt)
{
    service().take_news();
    retire();
    if (attempt != nullptr && attempt->number != 0) {
        enter({attempt->number, attempt->sequence}, brought, acknowledged, std::move(done),
              attempt);
    } else if (recovering_) {
        held_.push_back({brought, acknowledged, std::move(done), attempt});
    } else {
        call_now(brought, acknowledged, std::move(done), attempt);
    }
}

void Record::call_now(const Brought &brought, const RankSet &known,
                      std::function<void(const Value &)> done, Attempt *attempt)
{
    const bool makes = (brought.flags & all_make) != 0;
    if (makes && revoked && !foreign_) {
        Value refused;
        refused.failed = failed();
        refused.flags = 0;
        done(refused);
        return;
    }
    const consensus::InstanceId which = next_of(attempt);
    if (makes) {
        made_until_ = *next_sequence_;
    }
    recovering_ = (brought.flags & all_recover) != 0;
    try {
        enter(which, brought, known, std::move(done), attempt);
    } catch (...) {
        recovering_ = false;
        throw;
    }
}

consensus::InstanceId Record::next_of(Attempt *attempt)
{
    const consensus::InstanceId which{0U, (*next_sequence_)++};
    if (attempt != nullptr) {
        attempt->sequence = which.sequence;
    }
    return which;
}

void Record::enter(const consensus::InstanceId &which, const Brought &brought, const RankSet &known,
                   std::function<void(const Value &)> done, Attempt *attempt)
{
    const bool again = which.context != 0;
    Call &mine = call(which, semantics);
    auto at = waiting_.end();
    while (at != waiting_.begin() && before(which, (*std::prev(at))->which)) {
        --at;
    }
    waiting_.insert(at, &mine);
    mine.done = std::move(done);
    mine.brought = brought;
    mine.attempt = attempt;
    mine.recovers = !again && (brought.flags & all_recover) != 0;
    // One whose `done` is running may try once more, and is not over before that.
    if (!again && waiting_.size() + (concluding_ ? 1 : 0) > kept_calls) {
        mine.queued = known;
        return;
    }
    try {
        begin(mine, brought, known);
    } catch (...) {
        // The caller hears of it, and may be gone when it is decided.
        std::erase_if(waiting_, [&](Call *one) { return one->which == which; });
        throw;
    }
}

/// Tells of the decisions that have come. They come in any order, not the same one everywhere; what
/// calls make of the communicator they must make in one.
void Record::conclude()
{
    // What is begun in `done` may bring decisions, too: they wait until that has its place here.
    if (!concluding_) {
        conclude_decided();
        decline();
    }
}

void Record::conclude_decided()
{
    concluding_ = true;
    struct Over {
        bool &concluding;
        ~Over() { concluding = false; }
    } over{concluding_};
    while (!waiting_.empty() && waiting_.front()->agreement.decision() != nullptr) {
        Call &next = *waiting_.front();
        waiting_.erase(waiting_.begin());
        next.over = true;
        ++over_;
        // It may begin another agreement, which may give this one's place away.
        auto done = std::move(next.done);
        next.done = nullptr;
        const bool recovers = next.recovers;
        const Brought brought = next.brought;
        Attempt *const attempt = next.attempt;
        const Value value = *next.agreement.decision();
        // Nor is this one revoked by a call of the one that had its name before (inherit()).
        if ((value.flags & unrevoked) == 0 && !comes_before(next.which.sequence, first_sequence_)) {
            if (comm_ != nullptr) {
                revoke();
            } else if (guest_) {
                revoked = true; // what its members come from
            }
        }
        if (recovers && (value.flags & all_recover) == 0) {
            enter(next_of(attempt), brought, acknowledged, std::move(done), attempt);
        } else {
            recovering_ = recovering_ && !recovers;
            done(value);
        }
        begin_queued();
        begin_held();
    }
}

void Record::begin_held()
{
    while (!held_.empty() && !recovering_) {
        Held next = std::move(held_.front());
        held_.pop_front();
        call_now(next.brought, next.acknowledged, std::move(next.done), next.attempt);
    }
}

/// Those whose turn has come.
void Record::begin_queued()
{
    for (std::size_t i = 0; i < waiting_.size() && i < kept_calls; ++i) {
        Call &call = *waiting_[i];
        if (call.queued) {
            const RankSet known = *std::exchange(call.queued, std::nullopt);
            begin(call, Brought(call.brought), known);
        }
    }
}

void Record::retire()
{
    for (auto at = calls_.begin(); over_ > kept_calls && at != calls_.end();) {
        if ((*at)->over) {
            spare_ = std::move(*at);
            --over_;
            if (at == calls_.begin()) {
                calls_.pop_front();
                at = calls_.begin();
            } else {
                at = calls_.erase(at);
            }
        } else {
            ++at;
        }
    }
}

} // namespace ft::validate

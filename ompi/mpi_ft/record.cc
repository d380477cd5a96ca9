#include "ompi/mpi_ft/record.hpp"

#include "ompi/mpi_ft/contexts.hpp"
#include "ompi/mpi_ft/service.hpp"
#include "opal/process/standing.hpp"

namespace ft::validate {

using consensus::Action;
using consensus::Actions;
using consensus::Certainty;

namespace {

/// How many agreements are kept after they were decided. Others may still ask about one until all
/// have returned from it, which is sure once a later one has been decided that was called after it;
/// the rest is for non-blocking calls that overlap.
constexpr std::size_t kept_calls = 16;

std::uint32_t hash_of(const std::vector<std::uint32_t> &ranks)
{
    std::uint32_t hash = 2166136261U; // FNV-1a
    for (std::uint32_t rank : ranks) {
        for (int i = 0; i < 4; ++i) {
            hash = (hash ^ (rank & 0xff)) * 16777619U;
            rank >>= 8;
        }
    }
    return hash;
}

} // namespace

Record::Record(ompi_communicator_t *communicator)
    : semantics(service().options.semantics), comm_(communicator)
{
    usable_ = !OMPI_COMM_IS_INTER(comm_);
    const int size = comm_->c_local_group->grp_proc_count;
    for (int rank = 0; rank < size; ++rank) {
        const opal_process_name_t name = ompi_group_get_proc_name(comm_->c_local_group, rank);
        usable_ = usable_ && name.jobid == OMPI_PROC_MY_NAME->jobid;
        rank_of_[name.vpid] = static_cast<Rank>(rank);
        world_of_.push_back(name.vpid);
    }
    self_ = static_cast<Rank>(comm_->c_my_rank);
    key_ = static_cast<std::uint64_t>(comm_->c_contextid) << 32 | hash_of(world_of_);
    if (usable_) {
        shape_ = consensus::TreeShape::binomial(static_cast<Rank>(size));
    }
}

Record::~Record()
{
    process::forget_context(comm_->c_contextid);
    if (survivors_ != nullptr) {
        ompi_comm_free(&survivors_);
    }
}

RankSet Record::members(const std::vector<std::uint32_t> &world_ranks) const
{
    RankSet set;
    for (const std::uint32_t world : world_ranks) {
        if (const auto found = rank_of_.find(world); found != rank_of_.end()) {
            set.insert(found->second);
        }
    }
    return set;
}

void Record::learn(const RankSet &dead, const RankSet &unreachable, const RankSet &heard)
{
    const RankSet confirmed = dead.minus(dead_);
    const RankSet suspected = unreachable.minus(dead).minus(unconfirmed_);
    dead_.unite(dead);
    unconfirmed_ = unconfirmed_.united(unreachable).minus(dead_);
    heard_ = heard.minus(dead_);
    for (auto &[sequence, call] : calls_) {
        Actions actions;
        if (!confirmed.empty()) {
            call.engine->on_suspects(confirmed, Certainty::confirmed, actions);
        }
        if (!suspected.empty()) {
            call.engine->on_suspects(suspected, Certainty::unconfirmed, actions);
        }
        carry_out(sequence, actions);
    }
}

Mode Record::mode() const
{
    if (revoked) {
        return Mode::revoked;
    }
    if (!failed().united(heard_).is_subset_of(recognised_)) {
        return Mode::broken;
    }
    return recognised_.empty() ? Mode::stock : Mode::survivors;
}

Record::Call &Record::call(std::uint32_t sequence, Semantics wanted)
{
    Call &call = calls_[sequence];
    if (!call.engine) {
        consensus::Settings settings;
        settings.algorithm = service().options.algorithm;
        settings.majority = service().options.majority;
        settings.semantics = wanted;
        call.semantics = wanted;
        call.engine = std::make_unique<consensus::Agreement>(
            self_, consensus::InstanceId{0, sequence}, settings, shape_);
        Actions actions;
        if (!dead_.empty()) {
            call.engine->on_suspects(dead_, Certainty::confirmed, actions);
        }
        if (!unconfirmed_.empty()) {
            call.engine->on_suspects(unconfirmed_, Certainty::unconfirmed, actions);
        }
        carry_out(sequence, actions);
    }
    return call;
}

void Record::agree(const Brought &brought, std::function<void(const Value &)> done)
{
    service().take_news();
    const std::uint32_t sequence = service().next_sequence(key_)++;
    Call &mine = call(sequence, brought.semantics);
    mine.done = std::move(done);
    consensus::Contribution contribution;
    contribution.suspects = failed();
    contribution.unconfirmed = unconfirmed_;
    contribution.flags = brought.flags;
    if (brought.acknowledged) {
        contribution.acknowledged = acknowledged.united(recognised_);
    }
    Actions actions;
    mine.engine->start(contribution, actions);
    retire();
    carry_out(sequence, actions);
}

void Record::on_letter(Letter &&letter)
{
    const auto from = rank_of_.find(letter.from);
    if (from == rank_of_.end()) {
        return;
    }
    if (letter.topic == Topic::revoked) {
        revoke();
        return;
    }
    const auto message = consensus::decode(letter.body, size());
    if (!message || message->instance.context != 0) {
        return;
    }
    const std::uint32_t sequence = message->instance.sequence;
    const std::uint32_t next = service().next_sequence(key_);
    if (sequence < next && calls_.count(sequence) == 0) {
        return; // all have returned from it
    }
    call(sequence, letter.topic == Topic::loose_agreement ? Semantics::loose : Semantics::strict);
    Actions actions;
    calls_[sequence].engine->on_message(from->second, *message, actions);
    carry_out(sequence, actions);
}

void Record::carry_out(std::uint32_t sequence, Actions &actions)
{
    Call &mine = calls_[sequence];
    bool stop = false;
    for (Action &action : actions) {
        if (action.kind == Action::Kind::send) {
            service().post().send(world_of_[action.to], topic_of(mine.semantics), key_,
                                  consensus::encode(action.message));
        }
        stop = stop || action.kind == Action::Kind::stop;
    }
    if (stop) {
        service().stop_self(); // behind the answers that had to leave
    }
    if (mine.over || !mine.done || mine.engine->decision() == nullptr) {
        return;
    }
    mine.over = true;
    // It may begin another agreement, which changes calls_.
    const auto done = std::move(mine.done);
    mine.done = nullptr;
    const Value value = *mine.engine->decision();
    done(value);
}

void Record::retire()
{
    std::size_t over = 0;
    for (auto at = calls_.rbegin(); at != calls_.rend(); ++at) {
        over += at->second.over ? 1 : 0;
    }
    for (auto at = calls_.begin(); over > kept_calls && at != calls_.end();) {
        if (at->second.over) {
            at = calls_.erase(at);
            --over;
        } else {
            ++at;
        }
    }
}

void Record::adopt(const RankSet &failed_set, std::uint32_t survivors_context)
{
    for (const Rank rank : failed_set.members()) {
        process::set_standing(comm_->c_contextid, rank, process::Standing::recognised);
    }
    for (const Rank rank : heard_.minus(failed_set).members()) {
        service().forgive(world_of_[rank]);
    }
    heard_ = {};
    if (recognised_ == failed_set) {
        return;
    }
    recognised_ = failed_set;
    if (survivors_ != nullptr) {
        ompi_comm_free(&survivors_);
        survivors_ = nullptr;
    }
    survivors_context_ = survivors_context;
    survivor_ranks_.assign(size(), -1);
    int next = 0;
    for (Rank rank = 0; rank < size(); ++rank) {
        if (!recognised_.contains(rank)) {
            survivor_ranks_[rank] = next++;
        }
    }
}

ompi_communicator_t *Record::survivors()
{
    if (survivors_ == nullptr) {
        std::vector<int> ranks;
        for (Rank rank = 0; rank < size(); ++rank) {
            if (!recognised_.contains(rank)) {
                ranks.push_back(static_cast<int>(rank));
            }
        }
        survivors_ = make_communicator(comm_, ranks, survivors_context_);
        if (survivors_ != nullptr) {
            std::snprintf(survivors_->c_name, sizeof survivors_->c_name, "survivors of %.40s",
                          comm_->c_name);
        }
    }
    return survivors_;
}

void Record::revoke()
{
    if (revoked) {
        return;
    }
    revoked = true;
    process::revoke(comm_->c_contextid);
    // Everybody tells everybody: whoever lives has heard it when one that lives has.
    for (Rank rank = 0; rank < size(); ++rank) {
        if (rank != self_ && !dead_.contains(rank)) {
            service().post().send(world_of_[rank], Topic::revoked, key_, {});
        }
    }
}

} // namespace ft::validate

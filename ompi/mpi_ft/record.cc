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

std::uint32_t hash_of(const std::vector<ProcessId> &ids)
{
    std::uint32_t hash = 2166136261U; // FNV-1a
    for (ProcessId id : ids) {
        for (std::size_t i = 0; i < sizeof id; ++i) {
            hash = (hash ^ static_cast<std::uint32_t>(id & 0xff)) * 16777619U;
            id >>= 8;
        }
    }
    return hash;
}

std::vector<ProcessId> ids_of(ompi_group_t *group)
{
    std::vector<ProcessId> ids;
    for (int rank = 0; rank < group->grp_proc_count; ++rank) {
        const opal_process_name_t name = ompi_group_get_proc_name(group, rank);
        ids.push_back(id_of(name.jobid, name.vpid));
    }
    return ids;
}

std::uint32_t job_of(ProcessId id)
{
    return static_cast<std::uint32_t>(id >> 32);
}

} // namespace

Record::Record(ompi_communicator_t *communicator)
    : semantics(service().options.semantics),
      comm_(communicator),
      context_(comm_->c_contextid),
      inter_(OMPI_COMM_IS_INTER(comm_))
{
    ids_ = ids_of(comm_->c_local_group);
    rank_count_ = static_cast<Rank>(ids_.size());
    if (inter_) {
        // First the group whose first process has the lower name: the same on both sides.
        const std::vector<ProcessId> others = ids_of(comm_->c_remote_group);
        rank_count_ = static_cast<Rank>(others.size());
        const bool before = ids_.front() < others.front();
        first_rank_ = before ? static_cast<Rank>(ids_.size()) : 0;
        first_local_ = before ? 0 : rank_count_;
        ids_.insert(before ? ids_.end() : ids_.begin(), others.begin(), others.end());
    }
    for (const ProcessId id : ids_) {
        foreign_ = foreign_ || job_of(id) != OMPI_PROC_MY_NAME->jobid;
        member_of_[id] = static_cast<Rank>(member_of_.size());
    }
    self_ = local_member(comm_->c_my_rank);
    key_ = static_cast<std::uint64_t>(context_) << 32 | hash_of(ids_);
    shape_ = consensus::TreeShape::binomial(size());
}

Record::~Record()
{
    drop_inner();
}

void Record::drop_inner()
{
    for (ompi_communicator_t **inner : {&survivors_, &neighbours_}) {
        if (*inner != nullptr) {
            service().free(*inner);
        }
    }
}

void Record::bury()
{
    process::forget_context(context_);
    drop_inner();
    comm_ = nullptr;
}

void Record::inherit(Record &older)
{
    std::swap(calls_, older.calls_);
}

std::vector<int> Record::ranks_in(const RankSet &set) const
{
    std::vector<int> ranks;
    for (const Rank member : set.members()) {
        if (member >= first_rank_ && member - first_rank_ < rank_count_) {
            ranks.push_back(static_cast<int>(member - first_rank_));
        }
    }
    return ranks;
}

std::uint32_t Record::standing_index(Rank member) const
{
    const bool named = member >= first_rank_ && member - first_rank_ < rank_count_;
    return named ? member - first_rank_ : rank_count_ + member - first_local_;
}

RankSet Record::members(const std::vector<ProcessId> &processes) const
{
    RankSet set;
    for (const ProcessId id : processes) {
        if (const auto found = member_of_.find(id); found != member_of_.end()) {
            set.insert(found->second);
        }
    }
    return set;
}

Route Record::route(Rank member) const
{
    const ProcessId id = ids_[member];
    if (job_of(id) == OMPI_PROC_MY_NAME->jobid) {
        return {&ompi_mpi_comm_world.comm, static_cast<int>(static_cast<std::uint32_t>(id))};
    }
    if (comm_ == nullptr) {
        return {};
    }
    const std::uint32_t index = standing_index(member);
    return index < rank_count_ ? Route{comm_, static_cast<int>(index)}
                               : Route{comm_->c_local_comm, static_cast<int>(index - rank_count_)};
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
    return recognised_.empty() || stands_in_ ? Mode::stock : Mode::survivors;
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
    const auto from = member_of_.find(letter.from);
    if (from == member_of_.end()) {
        return;
    }
    if (letter.topic == Topic::revoked) {
        if (comm_ != nullptr) {
            revoke();
        }
        return;
    }
    const auto message = consensus::decode(letter.body, size());
    if (!message || message->instance.context != 0) {
        return;
    }
    const std::uint32_t sequence = message->instance.sequence;
    const std::uint32_t next = service().next_sequence(key_);
    if (calls_.count(sequence) == 0 && (sequence < next || comm_ == nullptr)) {
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
            service().send(route(action.to), topic_of(mine.semantics), key_,
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

std::size_t Record::contexts_for(const RankSet &failed_set) const
{
    // A topology takes another communicator, of all.
    return failed_set == recognised_ ? 0 : contexts_of(inter_) + (comm_->c_topo != nullptr ? 1 : 0);
}

void Record::adopt(const RankSet &failed_set, const std::vector<std::uint32_t> &contexts)
{
    for (const Rank member : failed_set.members()) {
        process::set_standing(context_, standing_index(member), process::Standing::recognised);
    }
    for (const Rank member : heard_.minus(failed_set).members()) {
        service().forgive(ids_[member]);
    }
    heard_ = {};
    if (recognised_ == failed_set) {
        return;
    }
    recognised_ = failed_set;
    process::spread_news(); // the standing of all of them may be what it was
    drop_inner();
    contexts_ = contexts;
    const auto number = [&](Rank first, Rank count) {
        std::vector<int> among(count, -1);
        int next = 0;
        for (const int rank : left_of(first, count)) {
            among[static_cast<std::size_t>(rank)] = next++;
        }
        return among;
    };
    survivor_ranks_ = number(first_rank_, rank_count_);
    local_survivor_ranks_ = inter_ ? number(first_local_, size() - rank_count_) : survivor_ranks_;
}

std::vector<int> Record::left_of(Rank first, Rank count) const
{
    std::vector<int> ranks;
    for (Rank rank = 0; rank < count; ++rank) {
        if (!recognised_.contains(first + rank)) {
            ranks.push_back(static_cast<int>(rank));
        }
    }
    return ranks;
}

bool Record::deserted() const
{
    return inter_ && recognised_.count_in(first_rank_, first_rank_ + rank_count_) == rank_count_;
}

ompi_communicator_t *Record::survivors()
{
    if (survivors_ == nullptr) {
        const std::vector<int> ranks = left_of(first_rank_, rank_count_);
        survivors_ = bring_to_life(
            inter_ ? prepare_inter(comm_, left_of(first_local_, size() - rank_count_), ranks)
                   : prepare_ranks(comm_, ranks),
            contexts_.data());
        if (survivors_ != nullptr) {
            std::snprintf(survivors_->c_name, sizeof survivors_->c_name, "survivors of %.40s",
                          comm_->c_name);
        }
    }
    return survivors_;
}

ompi_communicator_t *Record::neighbours()
{
    if (neighbours_ == nullptr && comm_->c_topo != nullptr) {
        neighbours_ = bring_to_life(prepare_twin(comm_, false), &contexts_[1]);
        if (neighbours_ != nullptr) {
            if (Record *its = service().find(neighbours_); its != nullptr) {
                its->adopt(recognised_, {});
                its->stands_in_ = true;
            }
        }
    }
    return neighbours_;
}

void Record::revoke()
{
    if (revoked) {
        return;
    }
    revoked = true;
    process::revoke(context_);
    // Everybody tells everybody: whoever lives has heard it when one that lives has.
    for (Rank member = 0; member < size(); ++member) {
        if (member != self_ && !dead_.contains(member)) {
            service().send(route(member), Topic::revoked, key_, {});
        }
    }
}

} // namespace ft::validate

#include "ompi/mpi_ft/record.hpp"

#include "ompi/mpi_ft/contexts.hpp"
#include "ompi/mpi_ft/service.hpp"
#include "opal/process/standing.hpp"

namespace ft::validate {

using consensus::Action;
using consensus::Actions;
using consensus::Certainty;

namespace {

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

/// What an engine hears of failures.
void tell(consensus::LazyAgreement &agreement, const RankSet &confirmed, const RankSet &suspected,
          Actions &actions)
{
    if (!confirmed.empty()) {
        agreement.on_suspects(confirmed, Certainty::confirmed, actions);
    }
    if (!suspected.empty()) {
        agreement.on_suspects(suspected, Certainty::unconfirmed, actions);
    }
}

std::uint32_t job_of(ProcessId id)
{
    return static_cast<std::uint32_t>(id >> 32);
}

} // namespace

std::vector<ProcessId> ids_of(ompi_group_t *group)
{
    std::vector<ProcessId> ids;
    for (int rank = 0; rank < group->grp_proc_count; ++rank) {
        const opal_process_name_t name = ompi_group_get_proc_name(group, rank);
        ids.push_back(id_of(name.jobid, name.vpid));
    }
    return ids;
}

Record::Record(ompi_communicator_t *communicator)
    : semantics(service().options.semantics),
      comm_(communicator),
      context_(comm_->c_contextid),
      inter_(OMPI_COMM_IS_INTER(comm_))
{
    ids_ = ids_of(comm_->c_local_group);
    rank_count_ = static_cast<Rank>(ids_.size());
    if (inter_) {
        local_ = comm_->c_local_comm; // which MPI_Comm_free takes away, with requests pending too
        // First the group whose first process has the lower name: the same on both sides.
        const std::vector<ProcessId> others = ids_of(comm_->c_remote_group);
        rank_count_ = static_cast<Rank>(others.size());
        const bool before = ids_.front() < others.front();
        first_rank_ = before ? static_cast<Rank>(ids_.size()) : 0;
        first_local_ = before ? 0 : rank_count_;
        ids_.insert(before ? ids_.end() : ids_.begin(), others.begin(), others.end());
    }
    take_members();
    self_ = local_member(comm_->c_my_rank);
}

Record::Record(std::vector<ProcessId> members, std::uint32_t context, ompi_communicator_t *parent)
    : comm_(nullptr), parent_(parent), guest_(true), context_(context), ids_(std::move(members))
{
    rank_count_ = static_cast<Rank>(ids_.size());
    take_members();
    self_ = member_of(id_of(OMPI_PROC_MY_NAME->jobid, OMPI_PROC_MY_NAME->vpid));
}

void Record::take_members()
{
    for (const ProcessId id : ids_) {
        foreign_ = foreign_ || job_of(id) != OMPI_PROC_MY_NAME->jobid;
        members_[id] = static_cast<Rank>(members_.size());
    }
    key_ = static_cast<std::uint64_t>(context_) << 32 | hash_of(ids_);
    next_sequence_ = &service().next_sequence(key_);
    first_sequence_ = made_until_ = wanted_ = *next_sequence_;
    shape_ = consensus::TreeShape::binomial(size());
}

Record::~Record()
{
    drop_inner();
}

void Record::bury()
{
    if (!guest_) {
        process::forget_context(context_);
        // Open MPI's ids come again, with the same members: each life of a name has numbers of its
        // own, whatever each member has counted in the one before, if all members had it.
        // Late letters of that one are told by it.
        constexpr std::uint32_t life = 1U << 20;
        const std::uint32_t lives = (*next_sequence_ - first_sequence_) / life + 1;
        last_sequence_ = *next_sequence_;
        next_life_ = *next_sequence_ = first_sequence_ + lives * life;
        next_sequence_ = &last_sequence_;
        freed_ = true;
    }
    drop_inner();
    comm_ = nullptr;
    guest_ = false;
    alarm = nullptr;
    divert = nullptr;
}

bool Record::may_be_asked() const
{
    return size() > 1 && (!calls_.empty() || pairings.begun != 0 || (revoked && freed()));
}

void Record::inherit(Record &older)
{
    std::swap(calls_, older.calls_);
    std::swap(over_, older.over_);
    std::swap(waiting_, older.waiting_);
}

Rank Record::member_of(ProcessId process) const
{
    // In MPI_COMM_WORLD, and in its likes, members are in the order of their names.
    const auto likely = static_cast<std::uint32_t>(process);
    if (likely < ids_.size() && ids_[likely] == process) {
        return likely;
    }
    const auto found = members_.find(process);
    return found == members_.end() ? consensus::no_rank : found->second;
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
        if (const Rank member = member_of(id); member != consensus::no_rank) {
            set.insert(member);
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
        const Record *parent = parent_ == nullptr ? nullptr : service().find(parent_);
        const Rank there = parent == nullptr ? consensus::no_rank : parent->member_of(id);
        return there == consensus::no_rank ? Route{} : parent->route(there);
    }
    const std::uint32_t index = standing_index(member);
    return index < rank_count_ ? Route{comm_, static_cast<int>(index)}
                               : Route{local_, static_cast<int>(index - rank_count_)};
}

void Record::learn(const RankSet &told, const RankSet &unreachable,
                   const std::vector<Hearsay> &hearsay)
{
    const RankSet dead = told.united(lost_);
    const RankSet confirmed = dead.minus(dead_);
    const RankSet suspected = unreachable.minus(dead).minus(unconfirmed_);
    if (dead_.unite(dead)) {
        tag_ = consensus::Tag(dead_);
    }
    for (const Rank member : confirmed.united(suspected).minus(unconfirmed_).members()) {
        failed_in_order_.push_back(member);
    }
    unconfirmed_ = unconfirmed_.united(unreachable).minus(dead_);
    hearsay_.clear();
    for (const auto &[who, said_by] : hearsay) {
        if (const Rank member = member_of(who); member != consensus::no_rank) {
            hearsay_.emplace_back(member, members(said_by));
        }
    }
    weigh_hearsay();
    divert_if_needed();
    if (alarm && troubled()) {
        sound_alarm();
    }
    if (confirmed.empty() && suspected.empty()) {
        return;
    }
    // What one call's end sets off may add calls and take some away.
    std::vector<consensus::InstanceId> all;
    for (const auto &call : calls_) {
        all.push_back(call->which);
    }
    for (const consensus::InstanceId &which : all) {
        if (Call *call = find_call(which); call != nullptr) {
            drive(*call, [&](consensus::LazyAgreement &agreement, Actions &actions) {
                tell(agreement, confirmed, suspected, actions);
            });
        }
    }
}

void Record::lose_other_group()
{
    for (Rank rank = 0; rank < rank_count_; ++rank) {
        lost_.insert(first_rank_ + rank);
    }
    std::vector<Hearsay> heard;
    for (const auto &[member, said_by] : hearsay_) {
        Hearsay &one = heard.emplace_back(Hearsay{ids_[member], {}});
        for (const Rank by : said_by.members()) {
            one.said_by.push_back(ids_[by]);
        }
    }
    learn(dead_, unconfirmed_, heard);
}

/// Whoever finds no way to a member gives up on this communicator, and others may wait for it,
/// until one of the two is recognised: so long its word counts. Each agreement in which it takes
/// part has this outcome, but for one that it was in when it found that out.
void Record::weigh_hearsay()
{
    const RankSet gone = dead_.united(recognised_);
    heard_ = {};
    for (const auto &[member, said_by] : hearsay_) {
        if (!dead_.contains(member) && !said_by.is_subset_of(gone)) {
            heard_.insert(member);
        }
    }
}

std::vector<ProcessId> Record::recognised_processes() const
{
    std::vector<ProcessId> processes;
    for (const Rank member : recognised_.members()) {
        processes.push_back(ids_[member]);
    }
    return processes;
}

void Record::presume(const RankSet &recognised)
{
    recognised_ = recognised;
    weigh_hearsay();
}

void Record::sound_alarm()
{
    const auto call = std::move(alarm);
    alarm = nullptr;
    if (call) {
        call();
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

void Record::divert_if_needed() const
{
    if (divert != nullptr && mode() != Mode::stock) {
        divert(collectives);
    }
}

/// The same at all members. Between jobs nobody knows of the other's nodes.
consensus::Algorithm Record::algorithm() const
{
    const bool along_a_tree = service().crowded() && !foreign_ && size() > 2;
    return service().options.algorithm.value_or(along_a_tree ? consensus::Algorithm::tree
                                                             : consensus::Algorithm::fast);
}

Record::Call *Record::find_call(const consensus::InstanceId &which)
{
    // It is among the latest, if not the last one.
    for (auto at = calls_.rbegin(); at != calls_.rend() && !before((*at)->which, which); ++at) {
        if ((*at)->which == which) {
            return at->get();
        }
    }
    return nullptr;
}

/// Of an agreement that is not known here: whether this process is still to begin it.
bool Record::to_come(const consensus::InstanceId &which)
{
    // A call's next attempt begins when the one before is over, which is kept at least as long as
    // somebody may ask; the number of the call says nothing about it.
    return !comes_before(which.sequence, *next_sequence_) ||
           (which.context != 0 && find_call({which.context - 1, which.sequence}) != nullptr);
}

Record::Call &Record::call(const consensus::InstanceId &which, Semantics wanted)
{
    if (Call *there = find_call(which); there != nullptr) {
        return *there;
    }
    auto fresh = spare_ ? std::move(spare_) : std::make_unique<Call>();
    Call &call = *fresh;
    consensus::Settings settings;
    const Options &options = service().options;
    settings.algorithm = algorithm();
    settings.fan_out = options.fan_out;
    settings.majority = options.majority;
    settings.semantics = wanted;
    call.which = which;
    call.semantics = wanted;
    call.done = nullptr;
    call.attempt = nullptr;
    call.recovers = false;
    call.queued.reset();
    call.over = false;
    call.agreement.begin(self_, which, settings, shape_);
    auto at = calls_.end();
    while (at != calls_.begin() && before(which, (*std::prev(at))->which)) {
        --at;
    }
    if (at == calls_.end()) {
        calls_.push_back(std::move(fresh)); // nearly always, and sooner done
    } else {
        calls_.insert(at, std::move(fresh));
    }
    if (!dead_.empty() || !unconfirmed_.empty()) {
        drive(call, [&](consensus::LazyAgreement &agreement, Actions &actions) {
            tell(agreement, dead_, unconfirmed_, actions);
        });
    }
    return call;
}

template <class Input>
void Record::drive(Call &mine, Input input)
{
    // Carrying one input's actions out may bring the next input.
    Actions actions;
    actions.swap(actions_);
    input(mine.agreement, actions);
    carry_out(mine, actions);
    actions.clear();
    actions.swap(actions_);
}

void Record::begin(Call &mine, const Brought &brought, const RankSet &known)
{
    consensus::PlainSteps steps;
    std::uint64_t flags = brought.flags;
    if (revoked) {
        flags &= ~unrevoked;
    }
    const bool acknowledges = brought.acknowledged && !(known.empty() && recognised_.empty());
    // An agreement without an engine has been told of all the dead before it began.
    if (unconfirmed_.empty() && !acknowledges && mine.agreement.tag() == dead_ &&
        mine.agreement.start_plain(flags, steps)) {
        carry_out(mine, steps);
        return;
    }
    consensus::Contribution contribution;
    contribution.suspects = failed();
    contribution.unconfirmed = unconfirmed_;
    contribution.flags = flags;
    if (brought.acknowledged) {
        contribution.acknowledged = known.united(recognised_);
    }
    drive(mine, [&](consensus::LazyAgreement &agreement, Actions &actions) {
        agreement.start(contribution, actions);
    });
}

bool Record::on_letter(const Letter &letter)
{
    if (letter.topic == Topic::pairing) {
        hear_of_pairing(*this, letter.body);
        return true;
    }
    if (letter.topic == Topic::call_off) {
        hear_of_call_off(*this, letter.body);
        return true;
    }
    const Rank from = member_of(letter.from);
    if (from == consensus::no_rank) {
        return true;
    }
    if (letter.topic == Topic::revoked) {
        return on_revoked(letter);
    }
    consensus::InstanceId instance;
    consensus::PlainStep step;
    std::optional<consensus::Message> message;
    const bool plain = consensus::decode_plain(letter.body, tag_, instance, step);
    if (!plain) {
        message = consensus::decode(letter.body, size());
        if (!message) {
            return true;
        }
        instance = message->instance;
    }
    Call *mine = find_call(instance);
    if (mine == nullptr) {
        if (!to_come(instance)) {
            return true; // all have returned from it
        }
        const bool same_life = freed_ && !comes_before(instance.sequence, last_sequence_) &&
                               comes_before(instance.sequence, next_life_);
        if (same_life && foreign_) {
            return true; // that declines nothing
        }
        if (comm_ == nullptr && !guest_ && !same_life) {
            return false; // of one that is to come with the same name
        }
        mine = &call(instance,
                     letter.topic == Topic::loose_agreement ? Semantics::loose : Semantics::strict);
    }
    if (plain) {
        consensus::PlainSteps steps;
        if (mine->agreement.on_plain(from, tag_.set(), step, steps)) {
            carry_out(*mine, steps);
            return true;
        }
        message = consensus::message_of(instance, tag_.set(), step);
    }
    drive(*mine, [&](consensus::LazyAgreement &agreement, Actions &actions) {
        agreement.on_message(from, *message, actions);
    });
    return true;
}

void Record::carry_out(Call &mine, const consensus::PlainSteps &steps)
{
    // No engine, so no death since the first step: what the record has is what the agreement has.
    for (const auto &[to, step] : steps) {
        service().send(route(to), topic_of(mine.semantics), key_, mine.which, tag_, step);
    }
    conclude();
}

void Record::carry_out(Call &mine, const Actions &actions)
{
    bool stop = false;
    for (const Action &action : actions) {
        if (action.kind == Action::Kind::send) {
            service().send(route(action.to), topic_of(mine.semantics), key_, action.message);
        }
        stop = stop || action.kind == Action::Kind::stop;
    }
    if (stop) {
        service().stop_self(); // behind the answers that had to leave
    }
    conclude();
}

} // namespace ft::validate

#include "ompi/mpi_ft/service.hpp"

#include "ompi/mca/error_classes.hpp"

#include <algorithm>
#include <iterator>
#include <thread>

#include "ompi/mpi_ft/contexts.hpp"
#include "opal/ft/consensus/message.hpp"
#include "opal/mca/show_help.hpp"
#include "opal/process/standing.hpp"

namespace ft::validate {

namespace detail {

// Never destroyed: Open MPI may finalize while the program's objects are torn down.
Service *const the_service = new Service;
std::recursive_mutex mutex;
int depth = 0;

} // namespace detail

namespace {

int progress_thunk() noexcept
{
    return service().progress();
}

void receive_thunk(const Letter &letter, bool lasting)
{
    service().on_letter(letter, lasting);
}

/// Whoever has returned from MPI_Comm_validate_all and frees the communicator may be asked by one
/// that has not, for as long as it takes to find out who has failed; nothing says when that is
/// over. So the latest that are gone are answered for: as many as take some tens of MB at most.
constexpr std::size_t kept_buried = 4096;
constexpr std::size_t kept_members = std::size_t{1} << 18; ///< in all of them together
constexpr std::size_t always_kept = 16;

std::uint32_t context_of(std::uint64_t key)
{
    return static_cast<std::uint32_t>(key >> 32);
}

ProcessId id_of(const process::Name &who)
{
    return validate::id_of(who.jobid, who.vpid);
}

process::Name name_of(ProcessId id)
{
    return {static_cast<std::uint32_t>(id >> 32), static_cast<std::uint32_t>(id)};
}

} // namespace

bool Service::open() noexcept
try {
    world_size_ =
        static_cast<std::uint32_t>(ompi_mpi_comm_world.comm.c_local_group->grp_proc_count);
    world_rank_ = static_cast<std::uint32_t>(ompi_mpi_comm_world.comm.c_my_rank);
    job_ = OMPI_PROC_MY_NAME->jobid;
    const auto nodes = static_cast<std::uint32_t>(std::max(ompi_process_info.num_nodes, 1));
    crowded_ = (world_size_ + nodes - 1) / nodes > std::thread::hardware_concurrency();
    const Lock lock;
    post_.open(receive_thunk);
    post_.listen_on(&ompi_mpi_comm_world.comm);
    // Every eighth pass is soon enough: whoever waits in an agreement asks for news by itself.
    return mca::register_error_classes() == OMPI_SUCCESS &&
           opal_progress_register_lp(progress_thunk) == OPAL_SUCCESS;
} catch (...) {
    return false;
}

void Service::close() noexcept
{
    if (!is_open()) {
        return;
    }
    const Lock lock;
    opal_progress_unregister(progress_thunk);
    post_.close();
}

void Service::send(const Route &to, Topic topic, std::uint64_t key)
{
    if (to.comm != nullptr) {
        post_.send(to, topic, key);
    }
}

void Service::send(const Route &to, Topic topic, std::uint64_t key, const Revocation &revocation)
{
    if (to.comm != nullptr) {
        const std::span<std::byte> body = post_.compose(topic, key, sizeof revocation);
        std::memcpy(body.data(), &revocation, sizeof revocation);
        post_.dispatch_body(to, sizeof revocation);
    }
}

void Service::send(const Route &to, Topic topic, std::uint64_t key,
                   const consensus::Message &message)
{
    if (to.comm != nullptr) {
        consensus::encode(message, post_.compose(topic, key));
        post_.dispatch(to);
    }
}

void Service::send(const Route &to, Topic topic, std::uint64_t key,
                   const consensus::InstanceId &instance, const consensus::Tag &tag,
                   const consensus::PlainStep &step)
{
    if (to.comm != nullptr) {
        const std::span<std::byte> body =
            post_.compose(topic, key, consensus::longest_plain + tag.bytes().size());
        post_.dispatch_body(to, consensus::encode_plain(instance, tag, step, body));
    }
}

Record *Service::attach(ompi_communicator_t *comm)
{
    auto record = std::make_unique<Record>(comm);
    Record *const raw = record.get();
    records_[comm] = std::move(record);
    recent_ = nullptr;
    hold(comm);
    introduce(*raw);
    return raw;
}

void Service::introduce(Record &record)
{
    Record *&named = by_key_[record.key()];
    if (named != nullptr) {
        record.inherit(*named);
    }
    named = &record;
    news_ = ~std::uint64_t{0};
    all_anew_ = true; // it must hear what the others have
    // What one of them says may introduce another record, for which others are.
    const auto own =
        std::stable_partition(early_.begin(), early_.end(), [&](const KeptLetter &kept) {
            return kept.letter().key != record.key();
        });
    std::vector<KeptLetter> early(std::make_move_iterator(own),
                                  std::make_move_iterator(early_.end()));
    early_.erase(own, early_.end());
    for (KeptLetter &kept : early) {
        if (!record.on_letter(kept.letter())) {
            early_.push_back(std::move(kept));
        }
    }
}

Record *Service::invite(std::vector<ProcessId> members, std::uint32_t context,
                        ompi_communicator_t *parent)
{
    guests_.push_back(std::make_unique<Record>(std::move(members), context, parent));
    Record *const raw = guests_.back().get();
    introduce(*raw);
    return raw;
}

void Service::dismiss(Record *guest)
{
    const auto found = std::find_if(guests_.begin(), guests_.end(),
                                    [&](const auto &one) { return one.get() == guest; });
    std::unique_ptr<Record> record = std::move(*found);
    guests_.erase(found);
    record->bury();
    bury(std::move(record));
}

bool Service::has_guest(std::uint32_t context, const std::vector<ProcessId> &members) const
{
    return std::any_of(guests_.begin(), guests_.end(),
                       [&](const auto &guest) { return guest->is_of(context, members); });
}

void Service::alarm_guests()
{
    for (const auto &guest : guests_) {
        guest->sound_alarm();
    }
}

void Service::detach(Record *record)
{
    const auto found = records_.find(record->communicator());
    recent_ = nullptr;
    record->bury();
    bury(std::move(found->second));
    records_.erase(found);
}

void Service::bury(std::unique_ptr<Record> record)
{
    if (!record->may_be_asked()) {
        forget(*record);
        return;
    }
    buried_members_ += record->size();
    buried_.push_back(std::move(record));
    if (too_many_buried()) {
        later([this] { // one of them may be at work
            while (too_many_buried()) {
                buried_members_ -= buried_.front()->size();
                forget(*buried_.front());
                buried_.pop_front();
            }
        });
    }
}

bool Service::too_many_buried() const
{
    return buried_.size() > kept_buried ||
           (buried_members_ > kept_members && buried_.size() > always_kept);
}

void Service::forget(const Record &record)
{
    const auto named = by_key_.find(record.key());
    if (named != by_key_.end() && named->second == &record) {
        by_key_.erase(named);
    }
    if (note_gone(context_of(record.key()))) {
        sequences_.erase(record.key());
    }
}

bool Service::comes_too_late(const Letter &letter) const
{
    if (is_gone(context_of(letter.key))) {
        return true;
    }
    const auto next = sequences_.find(letter.key);
    if (next == sequences_.end() || letter.topic == Topic::pairing ||
        letter.topic == Topic::call_off) {
        return false; // Open MPI gives its own context ids again
    }
    if (letter.topic == Topic::revoked) {
        const auto its = revocation_of(letter);
        return !its || comes_before(its->first, next->second);
    }
    const auto instance = consensus::instance_of(letter.body);
    return !instance || comes_before(instance->sequence, next->second);
}

void Service::hold(ompi_communicator_t *comm)
{
    Record *record = find(comm);
    if (record == nullptr) {
        return;
    }
    if (const auto kept = kept_.find(comm); kept != kept_.end()) {
        kept->second.let_go = false;
    }
    if (record->foreign() && process::run_through()) {
        post_.listen_on(comm);
    }
    if (OMPI_COMM_IS_INTER(comm)) {
        hold(comm->c_local_comm);
    }
}

void Service::listen_on_all()
{
    for (const auto &[comm, record] : records_) {
        if (record->foreign()) {
            post_.listen_on(comm);
        }
    }
}

void Service::let_go(ompi_communicator_t *comm) noexcept
{
    if (const auto kept = kept_.find(comm); kept != kept_.end()) {
        kept->second.let_go = true; // when what is under way on it is over
        return;
    }
    post_.hang_up(comm);
    if (OMPI_COMM_IS_INTER(comm)) {
        post_.hang_up(comm->c_local_comm);
    }
}

void Service::keep(ompi_communicator_t *comm)
{
    Kept &kept = kept_[comm];
    if (kept.requests++ == 0) {
        OBJ_RETAIN(comm);
        if (OMPI_COMM_IS_INTER(comm)) {
            kept.local = comm->c_local_comm;
            OBJ_RETAIN(kept.local);
        }
    }
}

void Service::release(ompi_communicator_t *comm)
{
    // Not in the middle of taking a message, nor before a request's error has been handled.
    later([this, comm] { release_now(comm); });
}

void Service::release_now(ompi_communicator_t *comm) noexcept
{
    const auto found = kept_.find(comm);
    if (--found->second.requests != 0) {
        return;
    }
    Kept kept = found->second;
    kept_.erase(found);
    if (kept.let_go) {
        post_.hang_up(comm);
        if (kept.local != nullptr) {
            post_.hang_up(kept.local);
        }
    }
    if (kept.local != nullptr) {
        OBJ_RELEASE(kept.local);
    }
    OBJ_RELEASE(comm);
}

void Service::free(ompi_communicator_t *&comm) noexcept
{
    let_go(comm);
    ompi_comm_free(&comm);
    comm = nullptr;
}

Record *Service::find(ompi_communicator_t *comm) const
{
    if (recent_ != nullptr && recent_->communicator() == comm) {
        return recent_;
    }
    const auto found = records_.find(comm);
    return found == records_.end() ? nullptr : recent_ = found->second.get();
}

void Service::on_letter(const Letter &letter, bool lasting)
{
    // Nobody is in the middle of anything: it need not wait.
    if (lasting && detail::depth == 1 && inbox_.empty()) {
        handle(letter);
    } else {
        inbox_.emplace_back(letter);
    }
}

void Service::handle_letters()
{
    while (!inbox_.empty()) {
        const KeptLetter kept = std::move(inbox_.front());
        inbox_.pop_front();
        handle(kept.letter());
    }
}

void Service::handle(const Letter &letter)
{
    if (letter.topic == Topic::suspected) {
        const ProcessId who = letter.key;
        if (who != validate::id_of(job_, world_rank_)) {
            process::hear_unreachable(name_of(who), name_of(letter.from));
        }
        return;
    }
    if (recent_ != nullptr && recent_->key() == letter.key) {
        recent_->on_letter(letter);
        return;
    }
    const auto found = by_key_.find(letter.key);
    if (found == by_key_.end() ? !comes_too_late(letter) : !found->second->on_letter(letter)) {
        early_.emplace_back(letter);
    }
}

void Service::take_over()
{
    news_ = process::news();
    const std::size_t deaths = process::death_count();
    std::vector<process::Unreachable> now_unreachable = process::unreachable();
    if (!all_anew_ && deaths == deaths_seen_ && now_unreachable == unreachable_seen_) {
        return; // what a failure is to a communicator has changed, and each knows its own
    }
    all_anew_ = false;
    deaths_seen_ = deaths;
    unreachable_seen_ = std::move(now_unreachable);
    std::vector<ProcessId> dead;
    std::vector<ProcessId> unreachable;
    std::vector<Hearsay> hearsay;
    for (std::size_t i = 0; i < deaths; ++i) {
        dead.push_back(id_of(process::death(i).who));
    }
    for (const process::Unreachable &one : unreachable_seen_) {
        const ProcessId id = id_of(one.who);
        if (process::is_dead(one.who)) {
            continue;
        }
        if (!one.own) {
            Hearsay &heard = hearsay.emplace_back(Hearsay{id, {}});
            for (const process::Name &by : one.said_by) {
                heard.said_by.push_back(id_of(by));
            }
            continue;
        }
        unreachable.push_back(id);
        if (told_.insert(id).second) {
            spread(id);
        }
    }
    const auto teach = [&](Record &record) {
        record.learn(record.members(dead), record.members(unreachable), hearsay);
    };
    for (const auto &[comm, record] : records_) {
        teach(*record);
    }
    for (const auto *others : {&guests_, &buried_}) {
        for (const auto &record : *others) {
            teach(*record);
        }
    }
}

void Service::spread(ProcessId suspected)
{
    // Others may wait, in a collective, for this process, which has given it up.
    for (std::uint32_t rank = 0; rank < world_size_; ++rank) {
        const ProcessId id = validate::id_of(job_, rank);
        if (rank != world_rank_ && id != suspected && !process::is_dead(name_of(id))) {
            post_.send({&ompi_mpi_comm_world.comm, static_cast<int>(rank)}, Topic::suspected,
                       suspected);
        }
    }
    for (const auto &[comm, record] : records_) {
        for (Rank member = 0; record->foreign() && member < record->size(); ++member) {
            const ProcessId id = record->process(member);
            const process::Name name = name_of(id);
            if (name.jobid != job_ && id != suspected && !process::is_dead(name)) {
                send(record->route(member), Topic::suspected, suspected);
            }
        }
    }
}

int Service::progress() noexcept
{
    if (!has_news() && post_.all_sent() && later_.empty()) {
        return 0;
    }
    if (opal_using_threads() && !detail::mutex.try_lock()) {
        return 0;
    }
    if (detail::depth == 0) {
        const Lock lock;
        take_news();
        post_.reap();
        std::vector<std::function<void()>> now;
        std::swap(now, later_);
        for (const auto &what : now) {
            what();
        }
    }
    if (opal_using_threads()) {
        detail::mutex.unlock();
    }
    return 0;
}

void Service::stop_self() noexcept
{
    // What was answered must leave; a bound of passes, since nobody may be there to take it.
    constexpr int passes = 100000;
    if (!stopping_) {
        stopping_ = true;
        mca::show_help("help-mpi-ft.txt", "held for failed", static_cast<int>(world_rank_),
                       opal_process_info.nodename);
        for (int i = 0; i < passes; ++i) {
            opal_progress();
        }
    }
    _exit(EXIT_FAILURE);
}

} // namespace ft::validate

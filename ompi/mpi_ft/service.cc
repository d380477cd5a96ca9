#include "ompi/mpi_ft/service.hpp"

#include "opal/mca/show_help.hpp"
#include "opal/process/standing.hpp"

namespace ft::validate {

namespace {

std::recursive_mutex mutex;
int depth = 0;

int progress_thunk() noexcept
{
    return service().progress();
}

void receive_thunk(Letter &&letter)
{
    service().on_letter(std::move(letter));
}

/// Bytes of the longest message of an agreement: five sets as bitmaps and the fixed part.
std::size_t longest(std::size_t size)
{
    constexpr std::size_t fixed = 256;
    constexpr std::size_t sets = 5;
    return fixed + sets * (size / 8 + 16);
}

} // namespace

Lock::Lock()
{
    if (opal_using_threads()) {
        mutex.lock();
    }
    ++depth;
}

Lock::~Lock()
{
    if (depth == 1) {
        service().handle_letters();
    }
    --depth;
    if (opal_using_threads()) {
        mutex.unlock();
    }
}

Service &service() noexcept
{
    // Never destroyed: Open MPI may finalize while the program's objects are torn down.
    static Service *const the_service = new Service;
    return *the_service;
}

bool Service::open() noexcept
try {
    world_size_ =
        static_cast<std::uint32_t>(ompi_mpi_comm_world.comm.c_local_group->grp_proc_count);
    world_rank_ = static_cast<std::uint32_t>(ompi_mpi_comm_world.comm.c_my_rank);
    job_ = OMPI_PROC_MY_NAME->jobid;
    const Lock lock;
    post_.open(longest(world_size_), receive_thunk);
    return opal_progress_register(progress_thunk) == OPAL_SUCCESS;
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

Record *Service::attach(ompi_communicator_t *comm)
{
    auto record = std::make_unique<Record>(comm);
    Record *const raw = record.get();
    records_[comm] = std::move(record);
    if (raw->usable()) {
        by_key_[raw->key()] = raw;
        news_ = ~std::uint64_t{0}; // it must hear what the others have
        std::vector<Letter> early;
        std::swap(early, early_);
        for (Letter &letter : early) {
            if (letter.key == raw->key()) {
                raw->on_letter(std::move(letter));
            } else {
                early_.push_back(std::move(letter));
            }
        }
    }
    return raw;
}

void Service::detach(Record *record)
{
    const auto named = by_key_.find(record->key());
    if (named != by_key_.end() && named->second == record) {
        by_key_.erase(named);
    }
    records_.erase(record->communicator());
}

Record *Service::find(ompi_communicator_t *comm) const
{
    const auto found = records_.find(comm);
    return found == records_.end() ? nullptr : found->second.get();
}

void Service::handle_letters()
{
    while (!inbox_.empty()) {
        Letter letter = std::move(inbox_.front());
        inbox_.pop_front();
        handle(std::move(letter));
    }
}

void Service::handle(Letter &&letter)
{
    if (letter.topic == Topic::suspected) {
        const auto rank = static_cast<std::uint32_t>(letter.key);
        if (rank < world_size_ && rank != world_rank_ && told_.count(rank) == 0) {
            hearsay_.insert(rank);
            process::declare_unreachable({job_, rank});
        }
        return;
    }
    const auto found = by_key_.find(letter.key);
    if (found == by_key_.end()) {
        early_.push_back(std::move(letter));
        return;
    }
    found->second->on_letter(std::move(letter));
}

void Service::take_news()
{
    const std::uint64_t latest = process::news();
    if (latest == news_) {
        return;
    }
    news_ = latest;
    std::vector<std::uint32_t> dead;
    std::vector<std::uint32_t> unreachable;
    for (std::size_t i = 0; i < process::death_count(); ++i) {
        const process::Name who = process::death(i).who;
        if (who.jobid == job_) {
            dead.push_back(who.vpid);
            hearsay_.erase(who.vpid);
        }
    }
    for (const process::Name &who : process::unreachable()) {
        if (who.jobid != job_ || process::is_dead(who) || hearsay_.count(who.vpid) != 0) {
            continue;
        }
        unreachable.push_back(who.vpid);
        if (told_.insert(who.vpid).second) {
            // Others may wait, in a collective, for this process, which has given it up.
            for (std::uint32_t rank = 0; rank < world_size_; ++rank) {
                if (rank != world_rank_ && rank != who.vpid && !process::is_dead({job_, rank})) {
                    post_.send(rank, Topic::suspected, who.vpid, {});
                }
            }
        }
    }
    const std::vector<std::uint32_t> heard(hearsay_.begin(), hearsay_.end());
    for (const auto &[comm, record] : records_) {
        if (record->usable()) {
            record->learn(record->members(dead), record->members(unreachable),
                          record->members(heard));
        }
    }
}

void Service::forgive(std::uint32_t world_rank)
{
    if (hearsay_.erase(world_rank) != 0) {
        process::withdraw_unreachable({job_, world_rank});
    }
}

int Service::progress() noexcept
{
    if (process::news() == news_ && post_.all_sent()) {
        return 0;
    }
    if (opal_using_threads() && !mutex.try_lock()) {
        return 0;
    }
    if (depth == 0) {
        const Lock lock;
        take_news();
        post_.reap();
    }
    if (opal_using_threads()) {
        mutex.unlock();
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

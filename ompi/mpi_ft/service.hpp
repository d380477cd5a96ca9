/// \file
/// The part of the library that belongs to the process: every communicator's record, the messages
/// between processes, and what the process learns of failures.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "ompi/mpi_ft/post.hpp"
#include "ompi/mpi_ft/record.hpp"
#include "opal/process/standing.hpp"

namespace ft::validate {

/// What the user of coll/validate has set.
struct Options {
    /// None: as the machine has cores for all, or not.
    std::optional<consensus::Algorithm> algorithm;
    std::uint32_t fan_out = consensus::most_fan_out; ///< of Algorithm::tree
    Semantics semantics = Semantics::strict;
    bool majority = false;
};

class Service {
  public:
    Options options;

    /// From MPI_COMM_WORLD's first collectives on, until its last. \return false without memory
    bool open() noexcept;
    void close() noexcept;
    bool is_open() const { return post_.is_open(); }
    /// Posts a letter; to nobody when there is no way any more.
    void send(const Route &to, Topic topic, std::uint64_t key);
    void send(const Route &to, Topic topic, std::uint64_t key, const Revocation &revocation);
    void send(const Route &to, Topic topic, std::uint64_t key, const consensus::Message &message);
    void send(const Route &to, Topic topic, std::uint64_t key,
              const consensus::InstanceId &instance, const consensus::Tag &tag,
              const consensus::PlainStep &step);
    Post &post() { return post_; }

    /// A communicator comes to be, and goes.
    Record *attach(ompi_communicator_t *comm);
    void detach(Record *record);
    /// The same for processes that agree on a communicator they do not have yet. A guest that is
    /// dismissed still answers those who ask.
    Record *invite(std::vector<ProcessId> members, std::uint32_t context,
                   ompi_communicator_t *parent);
    void dismiss(Record *guest);
    /// Whether this process is such a guest now.
    bool has_guest(std::uint32_t context, const std::vector<ProcessId> &members) const;
    /// Something may keep a member from hearing that it is one.
    void alarm_guests();
    /// Before a communicator is freed: what the library has posted on it holds it.
    void let_go(ompi_communicator_t *comm) noexcept;
    /// The other way round, when it was not freed.
    void hold(ompi_communicator_t *comm);
    /// The program has turned out to use the library: listens on communicators that it has already.
    void listen_on_all();
    /// While a request of the library's own is about a communicator it stays as it is, although the
    /// program may have freed it, until as many have released it.
    void keep(ompi_communicator_t *comm);
    void release(ompi_communicator_t *comm);
    /// Frees a communicator that the library has made.
    void free(ompi_communicator_t *&comm) noexcept;
    /// nullptr when the communicator is none of those.
    Record *find(ompi_communicator_t *comm) const;
    /// More processes of this job on a node than it has cores: as every process sees it alike,
    /// where all nodes have as many.
    bool crowded() const { return crowded_; }

    /// A letter has come. \param lasting as of Post::Receiver
    void on_letter(const Letter &letter, bool lasting);
    void handle_letters();
    bool has_letters() const { return !inbox_.empty(); }
    /// How many are kept for communicators that are not known here yet.
    std::size_t early_letters() const { return early_.size(); }
    /// Of how many groups the numbers of agreements are kept.
    std::size_t numbered_groups() const { return sequences_.size(); }
    /// Takes over what opal/process knows.
    void take_news()
    {
        if (has_news()) {
            take_over();
        }
    }
    bool has_news() const { return process::news() != news_; }
    int progress() noexcept;
    /// Runs it soon, but not inside a message's callback.
    void later(std::function<void()> what) { later_.push_back(std::move(what)); }

    /// The next number of an agreement on the group that `key` names. Goes on when a communicator
    /// of the same group takes the same context id again, so that late messages find nothing; of
    /// one whose id is used once it goes when nothing else is kept of it.
    std::uint32_t &next_sequence(std::uint64_t key) { return sequences_[key]; }

    /// Others hold this process for failed: it ends here.
    [[noreturn]] void stop_self() noexcept;

  private:
    void introduce(Record &record);
    void bury(std::unique_ptr<Record> record);
    bool too_many_buried() const;
    void forget(const Record &record);
    /// Of a letter for which there is no record: whether it is about a communicator that was here
    /// and is gone.
    bool comes_too_late(const Letter &letter) const;
    void handle(const Letter &letter);
    void take_over();
    void spread(ProcessId suspected);

    struct Kept {
        std::size_t requests = 0;
        ompi_communicator_t *local = nullptr; ///< of an intercommunicator
        bool let_go = false;                  ///< the program has freed it
    };
    void release_now(ompi_communicator_t *comm) noexcept;

    Post post_;
    std::map<ompi_communicator_t *, Kept> kept_;
    std::map<ompi_communicator_t *, std::unique_ptr<Record>> records_;
    std::map<std::uint64_t, Record *> by_key_;
    std::map<std::uint64_t, std::uint32_t> sequences_;
    std::deque<std::unique_ptr<Record>> guests_; ///< not yet of a communicator
    std::vector<std::function<void()>> later_;
    std::deque<std::unique_ptr<Record>> buried_; ///< of communicators that are gone
    std::size_t buried_members_ = 0;             ///< of all of these
    std::vector<KeptLetter> early_;              ///< for communicators that are not known here yet
    std::deque<KeptLetter> inbox_;
    mutable Record *recent_ = nullptr; ///< of those in records_ the one that was asked for last
    std::set<ProcessId> told_;         ///< of which this process has told the others
    std::uint64_t news_ = 0;
    std::size_t deaths_seen_ = 0;
    std::vector<process::Unreachable> unreachable_seen_;
    bool all_anew_ = false; ///< a record has come that knows nothing yet
    std::uint32_t world_size_ = 0;
    std::uint32_t world_rank_ = 0;
    std::uint32_t job_ = 0;
    bool crowded_ = false;
    bool stopping_ = false;
};

namespace detail {
extern Service *const the_service;
extern std::recursive_mutex mutex;
extern int depth; ///< of locks, one in another
} // namespace detail

inline Service &service() noexcept
{
    return *detail::the_service;
}

/// Held while anything of the above is used. May be nested. Whoever lets the outermost one go
/// handles the messages that came meanwhile: sending one may bring others, and an agreement's
/// actions must be carried out before the next message is looked at.
class Lock {
  public:
    Lock()
    {
        if (opal_using_threads()) {
            detail::mutex.lock();
        }
        ++detail::depth;
    }
    ~Lock()
    {
        if (detail::depth == 1 && service().has_letters()) {
            service().handle_letters();
        }
        --detail::depth;
        if (opal_using_threads()) {
            detail::mutex.unlock();
        }
    }
    Lock(const Lock &) = delete;
    Lock &operator=(const Lock &) = delete;
};

} // namespace ft::validate

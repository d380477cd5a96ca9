/// \file
/// Matching within one communicator: receives that wait for a message, messages that wait for a
/// receive. MPI's order: of two that match, the earlier one.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ompi/mca/pml/dr/list.hpp"
#include "ompi/mca/pml/dr/lock.hpp"
#include "ompi/mca/pml/dr/request.hpp"

namespace ft::dr {

/// Job and number in it.
using ProcessKey = std::pair<std::uint32_t, std::uint32_t>;

inline ProcessKey key_of(const opal_process_name_t &name) noexcept
{
    return {name.jobid, name.vpid};
}

/// An envelope, and as much of the message as came with it.
struct Arrival {
    PeerState *peer = nullptr;    ///< nullptr: from this process itself
    SendRequest *local = nullptr; ///< from this process: the send that waits, for a rendezvous
    std::uint32_t context = 0;
    std::int32_t source = 0;
    std::int32_t tag = 0;
    bool rendezvous = false;  ///< the sender waits for a cts
    std::uint64_t length = 0; ///< of the whole message
    std::uint64_t sender_request = 0;
    std::span<const std::byte> payload; ///< its beginning
    /// Whether it counts against the sender's credit: all but a bare request to be asked for.
    bool unasked() const noexcept { return peer != nullptr && (!rendezvous || !payload.empty()); }
};

struct FromSourceTag;
struct FromAllTag;

/// A message that nobody has asked for yet; its payload stands behind it.
struct Unexpected : Hook<FromSourceTag>, Hook<FromAllTag> {
    Arrival arrival;
    std::uint8_t size_class = 0;
    std::uint8_t share = 0; ///< which free lists it came from: its peer's
};

/// Copies an arrival, payload included. \return nullptr when there is no memory
Unexpected *keep(const Arrival &arrival) noexcept;
void release(Unexpected *message) noexcept;
/// Releases a message that no receive will ever take.
void forget(Unexpected *message) noexcept;
void set_up_unexpected() noexcept;
void release_unexpected() noexcept;

/// What failures and revocation mean to a communicator, as of `news` (opal/process/standing.hpp).
struct Trouble {
    std::uint64_t news = 0;
    bool revoked = false;
    bool unrecognised = false;   ///< it holds a failed rank that it has not recognised
    bool unacknowledged = false; ///< and one that nobody has acknowledged
    bool left_behind = false;    ///< it has recognised some: its collectives run elsewhere
    /// By rank, as far as there are any: recognised. Each send asks, so there is no lock to it.
    std::vector<bool> recognised;
    bool recognises(int rank) const noexcept
    {
        const auto at = static_cast<std::size_t>(rank);
        return at < recognised.size() && recognised[at];
    }
    /// A message of the program's, from a rank that is like MPI_PROC_NULL by now: it is nothing to
    /// the communicator. What goes on with Open MPI's own tags is ended by `unrecognised` and
    /// `left_behind`.
    bool ignores(int source, int tag) const noexcept { return tag >= 0 && recognises(source); }
};

/// c_pml_comm of a communicator. `lock` is to be held for everything but construction.
class CommState : public Hook<CommState> {
  public:
    explicit CommState(ompi_communicator_t *comm);
    ~CommState();
    CommState(const CommState &) = delete;
    CommState &operator=(const CommState &) = delete;

    Mutex lock;
    Trouble trouble;
    /// Receives on it call back, which only Open MPI's own layers ask for (osc/pt2pt): they send
    /// from within progress, with locks of theirs held, and must not come to progress again by
    /// that. The agreements' (process::agreement_tag) do not count: they never block. Atomic.
    bool calls_back = false;

    static CommState *of(ompi_communicator_t *comm) noexcept
    {
        return reinterpret_cast<CommState *>(__atomic_load_n(&comm->c_pml_comm, __ATOMIC_ACQUIRE));
    }
    ompi_communicator_t *communicator() const noexcept { return comm_; }
    int size() const noexcept { return static_cast<int>(sources_.size()); }

    /// A message came. \return the receive that it is for, taken off its list, or nullptr
    RecvRequest *match(int source, int tag) noexcept;
    /// A message came that `match` found nobody for; it is kept.
    void add(Unexpected *message) noexcept;
    /// The first message that a receive of (source, tag) matches, or nullptr. From any source it
    /// leaves out what `trouble` ignores, which is to be as of now.
    Unexpected *find(int source, int tag) noexcept;
    /// Takes a message that `find` gave out of the lists.
    void take(Unexpected *message) noexcept;
    /// A receive waits. There must be no message that it matches. \return false: no memory
    bool post(RecvRequest *request) noexcept;
    /// \return true when the receive was waiting still; it is not any more
    bool withdraw(RecvRequest *request) noexcept;
    /// Takes the receives that wait for this source alone. \param into appended to
    void take_posted(int source, std::vector<RecvRequest *> &into);
    /// Takes the receives for which `chosen` is true.
    template <class Chosen>
    void take_posted_if(Chosen chosen, std::vector<RecvRequest *> &into)
    {
        const auto from = [&](List<RecvRequest, PostedTag> &list) {
            for (RecvRequest *request = list.front(); request != nullptr;) {
                RecvRequest *const following = list.next(request);
                if (chosen(*request)) {
                    List<RecvRequest, PostedTag>::remove(request);
                    into.push_back(request);
                }
                request = following;
            }
        };
        from(any_source_);
        for (const auto &source : sources_) {
            if (source) {
                from(source->posted);
            }
        }
    }
    /// Takes the receives from any source.
    void take_posted_any(std::vector<RecvRequest *> &into);
    /// Calls `visit` for each message that nobody has asked for; it may take the message.
    template <class Visit>
    void for_each_unexpected(Visit visit)
    {
        for (Unexpected *message = all_unexpected_.front(); message != nullptr;) {
            Unexpected *const following = all_unexpected_.next(message);
            visit(message);
            message = following;
        }
    }

  private:
    struct Source {
        List<RecvRequest, PostedTag> posted;
        List<Unexpected, FromSourceTag> unexpected;
    };
    Source *source(int rank) noexcept;

    ompi_communicator_t *const comm_;
    std::vector<std::unique_ptr<Source>> sources_; ///< by rank, made at first use
    List<RecvRequest, PostedTag> any_source_;
    List<Unexpected, FromAllTag> all_unexpected_;
    std::uint64_t next_order_ = 0;
};

/// What the matching of tags means: a wildcard does not match Open MPI's own negative tags.
constexpr bool tag_matches(int wanted, int tag) noexcept
{
    return wanted == tag || (wanted == OMPI_ANY_TAG && tag >= 0);
}

/// All communicators, and the messages for those that are not known here yet.
class Comms {
  public:
    int add(ompi_communicator_t *comm) noexcept;
    int remove(ompi_communicator_t *comm) noexcept;
    /// The communicator of a context when it has its CommState; otherwise the arrival is kept until
    /// `add` and nullptr returned. The lock of the peer that it came from is held, and as long as
    /// it is, what was found is there: `remove` waits for that.
    CommState *find_or_keep(const Arrival &arrival) noexcept;
    /// The same, or nullptr.
    static CommState *find(std::uint32_t context) noexcept
    {
        // As ompi_comm_lookup does, but what was found is not freed before it was looked at: who
        // frees a communicator takes it out of this table first.
        opal_pointer_array_t &all = ompi_mpi_communicators;
        CommState *found = nullptr;
        OPAL_THREAD_LOCK(&all.lock);
        if (OPAL_LIKELY(context < static_cast<std::uint32_t>(all.size))) {
            auto *comm = static_cast<ompi_communicator_t *>(all.addr[context]);
            found = comm == nullptr ? nullptr : CommState::of(comm);
        }
        OPAL_THREAD_UNLOCK(&all.lock);
        return found;
    }
    void release() noexcept;
    /// In how many communicators of the program each process of another job is. No lock of one of
    /// them is held. Throws std::bad_alloc.
    std::map<ProcessKey, unsigned> held();
    /// `visit` is called without locks; no communicator may be added or removed meanwhile by it.
    template <class Visit>
    void for_each(Visit visit)
    {
        Guard guard(list_lock_);
        for (CommState *comm = all_.front(); comm != nullptr; comm = all_.next(comm)) {
            visit(*comm);
        }
    }

  private:
    Mutex orphans_lock_; ///< leaf
    List<Unexpected, FromAllTag> orphans_;
    Mutex list_lock_; ///< outermost
    List<CommState, CommState> all_;
};

extern Comms all_comms;
inline Comms &comms() noexcept
{
    return all_comms;
}

} // namespace ft::dr

/// \file
/// All peers of this process, found by name or by Open MPI's process object.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <atomic>
#include <map>
#include <vector>

#include "ompi/mca/pml/dr/comm.hpp"
#include "ompi/mca/pml/dr/lock.hpp"
#include "ompi/mca/pml/dr/peer.hpp"
#include "opal/ft/base/lasting.hpp"

namespace ft::dr {

/// Any thread.
class Peers {
  public:
    /// To be called once, before any traffic.
    void set_up() noexcept;

    /// The peer of a process, made when it is the first contact.
    /// \return nullptr when no path leads there (a message was shown) or there is no memory
    PeerState *of(ompi_proc_t *proc) noexcept
    {
        void *known =
            __atomic_load_n(&proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML], __ATOMIC_ACQUIRE);
        return OPAL_LIKELY(known != nullptr) ? static_cast<PeerState *>(known) : make(proc);
    }
    /// The same without making one.
    static PeerState *existing(const ompi_proc_t *proc) noexcept
    {
        return static_cast<PeerState *>(
            __atomic_load_n(&proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML], __ATOMIC_ACQUIRE));
    }
    /// The peer at a rank of a communicator (its remote group), if it was met. Nothing is made.
    static PeerState *met(ompi_communicator_t *comm, int rank) noexcept;
    /// The peer that a header names, made when a process of that name is known or belongs to this
    /// job. \return nullptr for an unknown name
    PeerState *by_name(const reliability::Name &name) noexcept;
    /// The peer of this rank of this job, if it was met.
    PeerState *met_before(std::uint32_t rank) noexcept
    {
        return OPAL_LIKELY(rank < by_rank_.size())
                   ? __atomic_load_n(&by_rank_[rank], __ATOMIC_ACQUIRE)
                   : nullptr;
    }
    /// The process goes away: nothing more is sent to it.
    void forget(ompi_proc_t *proc) noexcept;

    /// Makes progress call the peer's, at once and until it has nothing to do.
    void mark_busy(PeerState &peer) noexcept;
    /// The same, but not at once: for those after whom PeerState::call_again says when.
    void keep_busy(PeerState &peer) noexcept
    {
        // What it is busy with was put there under its lock, and who takes it out of the list looks
        // again under that lock: either finds the other's doing.
        if (OPAL_UNLIKELY(!__atomic_load_n(&peer.busy, __ATOMIC_RELAXED))) {
            make_busy(peer);
        }
    }
    /// The next pass is to be made at once, or at the latest when it is that time.
    void call_for_pass() noexcept { __atomic_store_n(&pass_wanted_, true, __ATOMIC_RELEASE); }
    void call_for_pass_at(base::Time when) noexcept
    {
        std::int64_t known = __atomic_load_n(&pass_at_, __ATOMIC_RELAXED);
        if (!several_threads()) {
            __atomic_store_n(&pass_at_, std::min(known, when.ns()), __ATOMIC_RELAXED);
            return;
        }
        while (when.ns() < known &&
               !__atomic_compare_exchange_n(&pass_at_, &known, when.ns(), true, __ATOMIC_RELEASE,
                                            __ATOMIC_RELAXED)) {
        }
    }
    /// Whether a pass is to be made at once.
    bool pass_wanted() const noexcept { return __atomic_load_n(&pass_wanted_, __ATOMIC_RELAXED); }
    /// At the latest, when no pass is wanted at once.
    base::Time next_pass() const noexcept
    {
        return base::Time::from_ns(__atomic_load_n(&pass_at_, __ATOMIC_RELAXED));
    }
    /// Whether a pass would find something to do. Without this, who waits for a message would look
    /// at every peer between any two looks at the network.
    bool pass_due(base::Time now) const noexcept
    {
        return pass_wanted() || now.ns() >= __atomic_load_n(&pass_at_, __ATOMIC_RELAXED);
    }
    /// btl/vader had no buffer: before the next pass, those are taken back that dead processes
    /// keep.
    void note_starved() noexcept { __atomic_store_n(&starved_, true, __ATOMIC_RELAXED); }
    /// One pass over all busy peers.
    int progress(base::Time now) noexcept;
    /// Asks silent peers for a sign of life, if the user wants that. From progress only.
    void keep_alive(base::Time now) noexcept;
    bool any_busy() const noexcept { return __atomic_load_n(&busy_count_, __ATOMIC_SEQ_CST) != 0; }
    /// True when no peer has anything of ours unacknowledged; those that failed do not count.
    bool drained() noexcept;
    void flush_acks() noexcept;

    /// MPI_Comm_disconnect of a communicator with these processes begins. Those of other jobs that
    /// are in none but such get no keepalive until there is another.
    void part(opal_list_t &meeting) noexcept;
    /// A communicator is no longer in the list of them.
    void let_go(ompi_communicator_t *comm) noexcept;
    /// A communicator is made.
    void meet(ompi_communicator_t *comm) noexcept;
    reliability::Name self() const noexcept { return self_; }
    /// Every peer ever made. `visit` is called without locks.
    template <class Visit>
    void for_each(Visit visit)
    {
        for (std::size_t i = 0;; ++i) {
            PeerState *peer = nullptr;
            {
                mca::Guard guard(lock_);
                if (i >= all_.size()) {
                    return;
                }
                peer = all_[i].get();
            }
            visit(*peer);
        }
    }

  private:
    void make_busy(PeerState &peer) noexcept;
    PeerState *make(ompi_proc_t *proc) noexcept;
    void take_back_abandoned(base::Time now) noexcept;
    void settle_partings();
    void set_parted(const ProcessKey &who, bool parted) noexcept;

    mca::Mutex lock_; ///< leaf; not even one that reads variables meets a list that grows
    std::vector<std::unique_ptr<PeerState>> all_;
    std::vector<PeerState *> by_rank_;     ///< of this job
    std::atomic<bool> some_parted_{false}; ///< ever, or are about to
    Mutex parting_lock_; ///< before those of the list of communicators, and of peers
    /// With whom MPI_Comm_disconnect has been called, and of how many communicators that are still
    /// there, at least: it is about to come back, or a request holds one.
    std::map<ProcessKey, unsigned> partings_;
    reliability::Name self_;
    Mutex busy_lock_; ///< leaf
    std::vector<PeerState *> busy_;
    std::size_t busy_count_ = 0; ///< of `busy_`, to be read without the lock
    base::Time next_keepalive_;
    base::Time next_taking_back_; ///< at the earliest
    bool starved_ = false;
    bool pass_wanted_ = false;
    std::int64_t pass_at_ = base::Time::never().ns();
};

/// Asked for several times with each message: no call, and no test whether it was made.
extern base::Lasting<Peers> the_peers;
inline Peers &peers() noexcept
{
    return the_peers.object;
}
/// Forgets all of them: no BTL calls back any more.
void release_peers() noexcept;

/// Shows the user that no BTL leads to that process.
void tell_no_path(const ompi_proc_t *proc) noexcept;

} // namespace ft::dr

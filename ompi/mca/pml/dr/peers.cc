#include "ompi/mca/pml/dr/peers.hpp"

#include "ompi/mca/pml/dr/clock.hpp"
#include "ompi/mca/pml/dr/errors.hpp"
#include "ompi/mca/pml/dr/helper.hpp"
#include "ompi/mca/pml/dr/parameters.hpp"
#include "ompi/mpi_ft/mpi_ft.h"
#include "opal/mca/show_help.hpp"

#include <algorithm>
#include <new>
#include <set>

namespace ft::dr {

namespace {

reliability::Name name_of(const opal_process_name_t &name) noexcept
{
    return {name.jobid, name.vpid};
}

bool alike(const ompi_proc_t *proc) noexcept
{
    if (proc->super.proc_arch == ompi_proc_local_proc->super.proc_arch) {
        return true;
    }
    const std::string self = OMPI_NAME_PRINT(OMPI_PROC_MY_NAME);
    const std::string other = OMPI_NAME_PRINT(&proc->super.proc_name);
    const char *host = proc->super.proc_hostname;
    ft::mca::show_help("help-pml-dr.txt", "different representation", self.c_str(),
                       opal_process_info.nodename, other.c_str(),
                       host == nullptr ? "an unknown host" : host);
    return false;
}

} // namespace

void tell_no_path(const ompi_proc_t *proc) noexcept
{
    const std::string self = OMPI_NAME_PRINT(OMPI_PROC_MY_NAME);
    const std::string other = OMPI_NAME_PRINT(&proc->super.proc_name);
    const char *host = proc->super.proc_hostname;
    std::string btls;
    mca_btl_base_selected_module_t *selected = nullptr;
    OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    {
        btls.append(btls.empty() ? "" : " ")
            .append(selected->btl_component->btl_version.mca_component_name);
    }
    ft::mca::show_help("help-pml-dr.txt", "no path", self.c_str(), opal_process_info.nodename,
                       other.c_str(), host == nullptr ? "an unknown host" : host, btls.c_str());
}

base::Lasting<Peers> the_peers;

void Peers::set_up() noexcept
{
    self_ = name_of(*OMPI_PROC_MY_NAME);
    try {
        by_rank_.assign(ompi_process_info.num_procs, nullptr);
    } catch (...) {
        by_rank_.clear(); // by_name takes the longer way then
    }
}

void release_peers() noexcept
{
    the_peers.renew();
    reliability::release_unused_paths();
}

PeerState *Peers::make(ompi_proc_t *proc) noexcept
{
    if (!alike(proc)) {
        return nullptr;
    }
    const reliability::Name name = name_of(proc->super.proc_name);
    std::unique_ptr<PeerState> fresh;
    PeerState *made = nullptr;
    try {
        fresh = std::make_unique<PeerState>(proc, self_);
        if (!add_paths(*fresh, now())) {
            tell_no_path(proc);
            return nullptr;
        }
        mca::Guard guard(lock_);
        made = existing(proc);
        if (made == nullptr) {
            // Not before: who finds that a connection broke puts its peer into the list of those
            // that are busy, and one that another thread was quicker with goes away at once.
            start_watching(*fresh);
            all_.push_back(std::move(fresh));
            made = all_.back().get();
            __atomic_store_n(&proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML], made,
                             __ATOMIC_RELEASE);
            if (name.job == self_.job && name.rank < by_rank_.size()) {
                __atomic_store_n(&by_rank_[name.rank], made, __ATOMIC_RELEASE);
            }
        }
    } catch (...) {
        made = nullptr;
    }
    if (fresh != nullptr) {
        stop_watching(*fresh); // there was no memory
    }
    if (made != nullptr && OPAL_UNLIKELY(death_error(proc->super.proc_name) != MPI_SUCCESS)) {
        // Its first message was read after word of its death, which take_deaths had nobody to tell.
        fail_peer(*made, MPI_ERR_RANK_FAIL_STOP);
    }
    return made;
}

PeerState *Peers::met(ompi_communicator_t *comm, int rank) noexcept
{
    ompi_proc_t *proc = ompi_group_get_proc_ptr_raw(comm->c_remote_group, rank);
    if (ompi_proc_is_sentinel(proc)) {
        // The group knows only its name; it may have become known by another way since.
        proc = reinterpret_cast<ompi_proc_t *>(
            ompi_proc_lookup(ompi_group_get_proc_name(comm->c_remote_group, rank)));
    }
    return proc == nullptr ? nullptr : existing(proc);
}

PeerState *Peers::by_name(const reliability::Name &name) noexcept
{
    const bool own_job = name.job == self_.job;
    if (own_job && name.rank < by_rank_.size()) {
        PeerState *peer = __atomic_load_n(&by_rank_[name.rank], __ATOMIC_ACQUIRE);
        if (OPAL_LIKELY(peer != nullptr)) {
            return peer;
        }
    } else if (own_job) {
        return nullptr;
    }
    if (name == self_) {
        return nullptr;
    }
    opal_process_name_t wanted;
    wanted.jobid = name.job;
    wanted.vpid = name.rank;
    // A process of another job must be known already: the name alone proves nothing.
    opal_proc_t *proc = own_job ? ompi_proc_for_name(wanted) : ompi_proc_lookup(wanted);
    return proc == nullptr ? nullptr : of(reinterpret_cast<ompi_proc_t *>(proc));
}

void Peers::forget(ompi_proc_t *proc) noexcept
{
    PeerState *peer = existing(proc);
    if (peer == nullptr) {
        return;
    }
    __atomic_store_n(&proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML], nullptr, __ATOMIC_RELEASE);
    const reliability::Name name = name_of(proc->super.proc_name);
    if (name.job == self_.job && name.rank < by_rank_.size()) {
        __atomic_store_n(&by_rank_[name.rank], nullptr, __ATOMIC_RELEASE);
    }
    Completions done;
    Guard guard(peer->lock);
    stop_watching(*peer);
    for (auto &path : peer->paths) {
        path->removed = true;
    }
    peer->engine.declare_dead();
    peer->fail_sends(MPIX_ERR_UNREACHABLE, done);
}

void Peers::mark_busy(PeerState &peer) noexcept
{
    keep_busy(peer);
    call_for_pass();
}

void Peers::make_busy(PeerState &peer) noexcept
{
    Guard guard(busy_lock_);
    if (!peer.busy) {
        try {
            busy_.push_back(&peer);
            if (parameters().helper) {
                // Before the look whether the helper sleeps, which it says before it looks at this.
                __atomic_store_n(&busy_count_, busy_.size(), __ATOMIC_SEQ_CST);
            } else {
                __atomic_store_n(&busy_count_, busy_.size(), __ATOMIC_RELAXED);
            }
            __atomic_store_n(&peer.busy, true, __ATOMIC_RELAXED);
            call_for_pass();
            wake_helper();
        } catch (...) {
            // Tried again with the next fragment or request.
        }
    }
}

void Peers::set_parted(const ProcessKey &who, bool parted) noexcept
{
    auto *proc = reinterpret_cast<ompi_proc_t *>(ompi_proc_lookup({who.first, who.second}));
    if (PeerState *peer = proc == nullptr ? nullptr : existing(proc); peer != nullptr) {
        Guard guard(peer->lock);
        const bool back = peer->parted() && !parted;
        peer->set_parted(parted);
        if (back) {
            watch_again(*peer); // behind it: who looks at them after that leaves them
        }
    }
}

/// The communicators that are about to go are still counted: two threads may disconnect the last
/// two at once. `parting_lock_` is held.
void Peers::settle_partings()
{
    const std::map<ProcessKey, unsigned> held = comms().held();
    for (auto at = partings_.begin(); at != partings_.end();) {
        const auto &[who, disconnected] = *at;
        const auto found = held.find(who);
        const unsigned left = found == held.end() ? 0 : found->second;
        if (left <= disconnected) {
            set_parted(who, true);
        }
        at = left == 0 ? partings_.erase(at) : std::next(at);
    }
}

void Peers::part(opal_list_t &meeting) noexcept
try {
    Guard guard(parting_lock_);
    // Before the communicators are counted: one that is added behind that finds it set.
    some_parted_.store(true, std::memory_order_release);
    // Open MPI lists both groups, which are one for an intracommunicator of several jobs.
    std::set<ProcessKey> strangers;
    const opal_namelist_t *entry = nullptr;
    OPAL_LIST_FOREACH(entry, &meeting, opal_namelist_t)
    {
        if (entry->name.jobid != self_.job) {
            strangers.insert(key_of(entry->name));
        }
    }
    for (const ProcessKey &who : strangers) {
        ++partings_[who];
    }
    settle_partings();
} catch (const std::bad_alloc &) {
    // They are asked whether they live.
}

void Peers::let_go(ompi_communicator_t *comm) noexcept
try {
    if (!some_parted_.load(std::memory_order_acquire)) {
        return;
    }
    Guard guard(parting_lock_);
    std::set<ProcessKey> parting; // as in part()
    for (ompi_group_t *group : {comm->c_remote_group, comm->c_local_group}) {
        for (int rank = 0; !partings_.empty() && rank < group->grp_proc_count; ++rank) {
            const ProcessKey who = key_of(ompi_group_get_proc_name(group, rank));
            if (partings_.contains(who)) {
                parting.insert(who);
            }
        }
    }
    for (const ProcessKey &who : parting) {
        // Perhaps it was another one that was disconnected: then the process is asked on.
        unsigned &disconnected = partings_[who];
        disconnected -= std::min(disconnected, 1U);
    }
    if (!parting.empty()) {
        settle_partings();
    }
} catch (const std::bad_alloc &) {
    Guard guard(parting_lock_);
    partings_.clear(); // too few rather than too many
}

void Peers::meet(ompi_communicator_t *comm) noexcept
{
    if (!some_parted_.load(std::memory_order_acquire)) {
        return;
    }
    Guard guard(parting_lock_);
    for (ompi_group_t *group : {comm->c_remote_group, comm->c_local_group}) {
        for (int rank = 0; rank < group->grp_proc_count; ++rank) {
            const opal_process_name_t who = ompi_group_get_proc_name(group, rank);
            if (who.jobid != self_.job) {
                set_parted(key_of(who), false);
            }
        }
    }
}

void Peers::keep_alive(base::Time present) noexcept
{
    const base::Duration interval = parameters().keepalive;
    if (present < next_keepalive_) {
        return;
    }
    next_keepalive_ = present + interval / 4;
    for_each([&](PeerState &peer) {
        {
            Guard guard(peer.lock);
            peer.ping_if_silent(interval, present);
        }
        mark_busy(peer);
    });
}

void Peers::take_back_abandoned(base::Time present) noexcept
{
    // Who only waits for slow receivers is starved, too, at each pass.
    constexpr base::Duration pause = base::Duration::from_ms(1);
    if (present < next_taking_back_ || !any_peer_failed()) {
        return;
    }
    next_taking_back_ = present + pause;
    __atomic_store_n(&starved_, false, __ATOMIC_RELAXED);
    for_each([&](PeerState &peer) {
        // The runtime tells of a death on this node when it has waited for the process.
        if (__atomic_load_n(&peer.error, __ATOMIC_ACQUIRE) != MPI_SUCCESS &&
            death_error(peer.name()) != MPI_SUCCESS) {
            peer.take_back_abandoned(present);
        }
    });
}

int Peers::progress(base::Time present) noexcept
{
    int completed = 0;
    if (OPAL_UNLIKELY(__atomic_load_n(&starved_, __ATOMIC_RELAXED))) {
        take_back_abandoned(present);
    }
    // Whatever is called for from here on is called for anew: each peer does when it is left. Where
    // there are threads, these stores come before all looks at the peers; one alone need not wait
    // for them.
    if (several_threads()) {
        __atomic_store_n(&pass_wanted_, false, __ATOMIC_SEQ_CST);
        __atomic_store_n(&pass_at_, base::Time::never().ns(), __ATOMIC_SEQ_CST);
    } else {
        __atomic_store_n(&pass_wanted_, false, __ATOMIC_RELAXED);
        __atomic_store_n(&pass_at_, base::Time::never().ns(), __ATOMIC_RELAXED);
    }
    for (std::size_t i = 0;;) {
        PeerState *peer = nullptr;
        {
            Guard guard(busy_lock_);
            if (i >= busy_.size()) {
                return completed;
            }
            peer = busy_[i];
        }
        Completions done;
        const bool more = peer->progress(present, done);
        completed += done.run();
        if (more) {
            ++i;
            continue;
        }
        {
            Guard guard(busy_lock_);
            busy_[i] = busy_.back();
            busy_.pop_back();
            __atomic_store_n(&busy_count_, busy_.size(), __ATOMIC_RELAXED);
            __atomic_store_n(&peer->busy, false, __ATOMIC_RELAXED);
        }
        // Work that came between the look and the removal found it marked still.
        peer->lock.lock();
        const bool idle = peer->idle();
        peer->lock.unlock();
        if (!idle) {
            mark_busy(*peer);
        }
    }
}

bool Peers::drained() noexcept
{
    bool all = true;
    for_each([&](PeerState &peer) {
        Guard guard(peer.lock);
        all = all && (peer.error != MPI_SUCCESS || peer.idle());
    });
    return all;
}

void Peers::flush_acks() noexcept
{
    for_each([](PeerState &peer) {
        Guard guard(peer.lock);
        peer.engine.flush_acks();
    });
    call_for_pass();
}

} // namespace ft::dr

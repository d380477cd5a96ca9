#include "ompi/mca/pml/dr/drain.hpp"

#include <atomic>
#include <thread>
#include <type_traits>

#include "ompi/mca/at_finalize.hpp"
#include "ompi/mca/pml/dr/clock.hpp"
#include "ompi/mca/pml/dr/helper.hpp"
#include "ompi/mca/pml/dr/parameters.hpp"
#include "ompi/mca/pml/dr/peers.hpp"
#include "opal/process/quiet_thread.hpp"

namespace ft::dr {

namespace {

/// The blocking calls of the runtime for which ours stand in.
struct Runtime {
    opal_pmix_base_module_fence_fn_t fence = nullptr;     ///< in MPI_Comm_disconnect
    opal_pmix_base_module_connect_fn_t connect = nullptr; ///< in connect, accept and spawn
    opal_pmix_base_module_lookup_fn_t lookup = nullptr; ///< of the port, until the other side came
    opal_pmix_base_module_spawn_fn_t spawn = nullptr;
    bool replaced = false;
};
Runtime runtime;

template <class Done>
void progress_until(Done done) noexcept
{
    const base::Time limit = now() + parameters().drain;
    peers().flush_acks();
    while (!done() && now() < limit) {
        opal_progress();
    }
}

/// MPI_Finalize deletes the attributes of MPI_COMM_SELF before it does anything else. Behind it
/// comes a fence of the runtime in which everybody still makes progress, so a peer that lacks our
/// last acknowledgement gets it when it asks again; what must not happen is that we leave with data
/// of our own unacknowledged.
int drain(MPI_Comm /*comm*/, int /*key*/, void * /*value*/, void * /*state*/) noexcept
{
    progress_until([] { return peers().drained(); });
    stop_helper(); // from here on we are in MPI until the end
    // Communicators with processes of other jobs are left alone, as Open MPI leaves a single one:
    // nobody is waited for who has what we sent. For several it counts them while they are made and
    // freed, and again here, and writes the second number of pointers into room for the first. They
    // differ where it frees one twice, or one stays that a failed collective has not let go.
    ompi_comm_num_dyncomm = 0;
    return MPI_SUCCESS;
}

/// Whether none of the processes that meet has anything of ours to acknowledge. The sends over
/// their communicator have ended, but for those that the program has let go; what goes over another
/// one may wait for a receive to come.
bool acknowledged_by(opal_list_t *meeting) noexcept
{
    const int processes = static_cast<int>(opal_list_get_size(meeting));
    const opal_namelist_t *entry = nullptr;
    OPAL_LIST_FOREACH(entry, meeting, opal_namelist_t)
    {
        auto *proc = reinterpret_cast<ompi_proc_t *>(ompi_proc_lookup(entry->name));
        PeerState *peer = proc == nullptr ? nullptr : Peers::existing(proc);
        if (peer == nullptr) {
            continue;
        }
        Guard guard(peer->lock);
        if (peer->error == MPI_SUCCESS &&
            (peer->unacknowledged() || peer->owes_freed_send(processes))) {
            return false;
        }
    }
    return true;
}

/// Runs a call of the runtime that blocks, on a thread of its own, and makes progress meanwhile.
/// Who sleeps in the runtime sends nothing again and acknowledges nothing: a peer that lacks our
/// last message would never come to where it lets us go on. The runtime's library may be called by
/// any thread; its functions that do not block cannot stand in for all (the look-up reports success
/// for failures).
template <class Call>
int beside_progress(Call call) noexcept
{
    std::atomic<bool> over = false;
    int rc = OPAL_ERROR;
    std::thread caller;
    if (process::start_quiet_thread(caller, [&] {
            rc = call();
            over.store(true, std::memory_order_release);
        })) {
        return call();
    }
    constexpr unsigned pause_us = 100; // as Open MPI pauses where it waits for the runtime
    while (!over.load(std::memory_order_acquire)) {
        opal_progress();
        usleep(pause_us);
    }
    caller.join();
    return rc;
}

int fence(opal_list_t *meeting, int collect_data) noexcept
{
    if (meeting == nullptr) {
        return beside_progress([&] { return runtime.fence(meeting, collect_data); });
    }
    peers().part(*meeting);
    progress_until([&] { return acknowledged_by(meeting); });
    return beside_progress([&] { return runtime.fence(meeting, collect_data); });
}

int connect(opal_list_t *procs) noexcept
{
    return beside_progress([&] { return runtime.connect(procs); });
}

int lookup(opal_list_t *data, opal_list_t *info) noexcept
{
    return beside_progress([&] { return runtime.lookup(data, info); });
}

int spawn(opal_list_t *job_info, opal_list_t *apps, opal_jobid_t *jobid) noexcept
{
    return beside_progress([&] { return runtime.spawn(job_info, apps, jobid); });
}

template <class Function>
void swap_in(Function *&entry, Function *&saved, std::type_identity_t<Function> *ours) noexcept
{
    saved = entry;
    if (entry != nullptr) {
        entry = ours;
    }
}

template <class Function>
void swap_out(Function *&entry, Function *saved, std::type_identity_t<Function> *ours) noexcept
{
    if (entry == ours) {
        entry = saved;
    }
}

} // namespace

int arrange_drain() noexcept
{
    return mca::at_finalize(drain);
}

void progress_beside_runtime() noexcept
{
    if (runtime.replaced) {
        return;
    }
    runtime.replaced = true;
    swap_in(opal_pmix.fence, runtime.fence, fence);
    swap_in(opal_pmix.connect, runtime.connect, connect);
    swap_in(opal_pmix.lookup, runtime.lookup, lookup);
    swap_in(opal_pmix.spawn, runtime.spawn, spawn);
}

void leave_runtime_alone() noexcept
{
    if (!runtime.replaced) {
        return;
    }
    runtime.replaced = false;
    swap_out(opal_pmix.fence, runtime.fence, fence);
    swap_out(opal_pmix.connect, runtime.connect, connect);
    swap_out(opal_pmix.lookup, runtime.lookup, lookup);
    swap_out(opal_pmix.spawn, runtime.spawn, spawn);
}

} // namespace ft::dr

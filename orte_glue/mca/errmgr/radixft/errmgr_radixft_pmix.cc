// The PMIx server of mpirun and of a daemon, and clients that leave or break off.
//
// Four things of the server library are mended here, three of them by going between the runtime and
// its table of PMIx calls. All are about PMIx 4.2.2, which Debian 12 has, and do no harm with
// another.
//
// The runtime takes ranks that have died off the server's list. The server does so itself when it
// sees their connection closed, and only then counts them out of the fences to come; the runtime,
// which hears of the death at about the same time, would get in before, and the next fence under
// this daemon would wait for the dead for ever. It is closed when no child of the rank has it any
// more, so the daemon ends those (daemon_watch.cc).
//
// A rank that has ended well is taken off the list too, and its connection closed, but without
// telling libevent, if the server has not seen by then that the other end is closed. The next rank
// that connects gets the same number, libevent takes it for one that it watches, and that rank
// waits in PMIx_Init for ever. So a rank is taken off when the server has had time to see it.
//
// A client that dies while the server answers its call for a connection is released once too often
// (ptl_base_connection_hdlr.c: the rank's entry, and the peer that holds it), and what takes the
// server down later locks the mutex of an object that is gone: for ever, or it crashes. It cannot
// be told from here at what moment a client died. So what the server knows of a job of which any
// client has broken off stays, and in the end nothing is taken down: the server's thread is
// stopped, the rest ends with the process. Other jobs' entries are sound, and go when those jobs
// are over.
//
// Ranks read what the server has collected from memory that they share with it, under a lock in
// that memory. A rank that is killed while it reads has the lock for ever; the server stops at it
// when it writes the next time, and then no rank under it gets through PMIx_Init. So they share
// none: a rank asks the server, and keeps what it got.
#include "orte_glue/mca/errmgr/radixft/errmgr_radixft.hpp"

#include "orte_glue/radixft/callbacks.hpp"
#include "orte_glue/radixft/daemon.hpp"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>
#include <memory>
#include <set>
#include <thread>

#include <dlfcn.h>

namespace ft::radixft {

namespace {

/// How long the server's thread has to come to a stop. It may stand before such a mutex itself.
constexpr std::chrono::seconds patience{2};
/// After which a rank that has ended is taken off the server's list. Nobody waits for that.
constexpr base::Duration deregister_after = base::Duration::from_ms(1000);

opal_pmix_base_module_server_deregister_client_fn_t deregister_client = nullptr;
opal_pmix_base_module_server_deregister_nspace_fn_t deregister_nspace = nullptr;
opal_pmix_base_module_server_finalize_fn_t finalize_server = nullptr;
std::set<opal_jobid_t> broken; ///< jobs of which a client has ended without saying goodbye
bool broken_off = false;       ///< there is any

void note_broken(opal_jobid_t jobid)
{
    broken_off = true;
    broken.insert(jobid);
}

void answer(opal_pmix_op_cbfunc_t done, void *data)
{
    if (done != nullptr) {
        done(OPAL_SUCCESS, data);
    }
}

/// Whether the server may have lost this client: it tells the runtime of a lost connection as it
/// does of a goodbye, so the flag alone says little.
bool may_have_broken_off(const orte_proc_t &rank)
{
    return !ORTE_FLAG_TEST(&rank, ORTE_PROC_FLAG_HAS_DEREG) || rank.exit_code != 0;
}

void deregister_if_finalized(const opal_process_name_t *name, opal_pmix_op_cbfunc_t done,
                             void *data) noexcept
{
    const orte_proc_t *const rank = orte_get_proc_object(const_cast<opal_process_name_t *>(name));
    if (rank != nullptr && may_have_broken_off(*rank)) {
        note_broken(name->jobid);
        answer(done, data);
        return;
    }
    Callbacks::after(deregister_after, [who = *name] {
        if (!orte_finalizing && !broken.contains(who.jobid)) {
            deregister_client(&who, nullptr, nullptr);
        }
    });
    answer(done, data);
}

/// Those who spawned a job may also ask for its addresses when it has died already. The server lets
/// them wait for ever when it has forgotten the job, so what it knows of it is kept.
void deregister_nspace_if_whole(opal_jobid_t jobid, opal_pmix_op_cbfunc_t done, void *data) noexcept
{
    if (broken.contains(jobid) || Daemon::get().bereaved(jobid)) {
        answer(done, data);
        return;
    }
    deregister_nspace(jobid, done, data);
}

/// The loaded object that holds a symbol, kept in memory from now on, whoever closes it.
void *keep_mapped(const void *symbol)
{
    Dl_info where{};
    return dladdr(symbol, &where) == 0
               ? nullptr
               : dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

int finalize_if_whole() noexcept
{
    broken_off = broken_off || Daemon::get().bereaved();
    for (int i = 0; i < orte_local_children->size && !broken_off; ++i) {
        const auto *const child =
            static_cast<const orte_proc_t *>(opal_pointer_array_get_item(orte_local_children, i));
        // Whom the runtime has killed has no process id any more.
        broken_off = child != nullptr && may_have_broken_off(*child);
    }
    if (!broken_off) {
        return finalize_server();
    }
    // The runtime's component is bound to the server's library, in which the thread runs.
    void *const component = keep_mapped(reinterpret_cast<const void *>(finalize_server));
    auto *const pause = reinterpret_cast<int (*)(const char *)>(
        component == nullptr ? nullptr : dlsym(component, "pmix_progress_thread_pause"));
    if (pause == nullptr) {
        return finalize_server();
    }
    keep_mapped(reinterpret_cast<const void *>(pause));
    keep_mapped(reinterpret_cast<const void *>(&finalize_if_whole));
    story(2, "a client of the PMIx server has broken off: the server is left as it is");
    std::future<void> stopped;
    try {
        const auto promise = std::make_shared<std::promise<void>>();
        stopped = promise->get_future();
        std::thread([pause, promise] {
            pause(nullptr);
            promise->set_value();
        }).detach();
    } catch (const std::exception &) {
        return OPAL_SUCCESS; // no thread to be had: it ends with the process
    }
    if (stopped.wait_for(patience) != std::future_status::ready) {
        story(1, "the PMIx server's thread does not stop; goes on without");
    }
    return OPAL_SUCCESS;
}

} // namespace

void mind_broken_clients() noexcept
{
    if (deregister_client == nullptr) {
        deregister_client =
            std::exchange(opal_pmix.server_deregister_client, deregister_if_finalized);
        deregister_nspace =
            std::exchange(opal_pmix.server_deregister_nspace, deregister_nspace_if_whole);
        finalize_server = std::exchange(opal_pmix.server_finalize, finalize_if_whole);
        // The ranks inherit it; who has set it otherwise knows why.
        setenv("PMIX_MCA_gds", "hash", 0);
    }
}

} // namespace ft::radixft

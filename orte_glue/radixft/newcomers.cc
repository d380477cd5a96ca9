// Daemons that were started on hosts to be added and do not call, because their host does not
// exist, is down, or cannot be reached.
//
// The runtime would wait for them for as long as the remote shell does, and would have each later
// launch try again to start them. A spawn that adds such a host fails; the host is put aside as one
// whose daemon has died, which can be added again.
#include "orte_glue/radixft/daemon.hpp"

#include "orte_glue/radixft/every_job.hpp"

#include <csignal>

#include <sys/wait.h>

namespace ft::radixft {

/// The launcher has begun to start daemons for a spawned job.
void Daemon::wait_for_newcomers()
{
    if (!begun()) {
        return;
    }
    for (NodeId id = 1; id < orte_process_info.num_procs; ++id) {
        const orte_proc_t *const proc = daemon_object(id);
        if (proc != nullptr && proc->node != nullptr && proc->node->daemon == proc &&
            !ORTE_FLAG_TEST(proc->node, ORTE_NODE_FLAG_DAEMON_LAUNCHED) &&
            !session_->engine().view()->contains(id)) {
            called_for_.emplace(id, monotonic_now());
            lost_.erase(id); // also who has failed before can fail
        }
    }
}

/// Who has not called in time does not hold up those who spawn any longer.
void Daemon::check_called_for(base::Time now)
{
    const int wait = parameters().launch_wait_ms;
    for (const auto &[id, since] : called_for_) {
        const orte_proc_t *const proc = daemon_object(id);
        const bool called = proc != nullptr && proc->node != nullptr &&
                            ORTE_FLAG_TEST(proc->node, ORTE_NODE_FLAG_DAEMON_LAUNCHED);
        if (!called && wait != 0 && now - since >= base::Duration::from_ms(wait)) {
            newcomer_failed(id, "has not called within " + std::to_string(wait) +
                                    " ms (errmgr_radixft_launch_wait)");
            return; // with all others
        }
    }
}

/// Nobody waits for this newcomer any longer. If it calls all the same it is told to leave.
void Daemon::put_aside(NodeId id)
{
    orte_proc_t *const proc = daemon_object(id);
    lost_.insert(id);
    unwanted_.insert(id);
    set_down(id);
    if (proc == nullptr || proc->node == nullptr) {
        return;
    }
    ORTE_FLAG_UNSET(proc, ORTE_PROC_FLAG_ALIVE);
    // It comes back like one that has died.
    hosts_.remember(host_name(id), {id, 0});
    if (ORTE_FLAG_TEST(proc->node, ORTE_NODE_FLAG_DAEMON_LAUNCHED)) {
        turns_away(id);
        return;
    }
    // Or each later launch would try again there, and wait for it.
    ORTE_FLAG_SET(proc->node, ORTE_NODE_FLAG_DAEMON_LAUNCHED);
    ++orte_get_job_data_object(ORTE_PROC_MY_NAME->jobid)->num_reported;
    end_launcher(*proc);
    if (contact(id).empty()) {
        // The runtime sends everybody's address to all, and takes one that is not there for a
        // fault.
        remember_contact(id, {});
    }
}

void Daemon::newcomer_failed(NodeId id, const std::string &what)
{
    if (over_ || lost_.contains(id)) {
        return;
    }
    const std::string why = host_name(id) + ": its daemon " + what;
    put_aside(id);
    // Those that were to come with it have no job either.
    for (const auto &[other, since] : std::exchange(called_for_, {})) {
        if (other != id) {
            put_aside(other);
        }
    }
    orte_show_help("help-errmgr-radixft.txt", "not-joined", true, why.c_str());
    for_every_job([&](orte_job_t &job) {
        if (job.jobid != ORTE_PROC_MY_NAME->jobid && job.state == ORTE_JOB_STATE_DAEMONS_LAUNCHED) {
            give_up_launch(job);
        }
    });
}

/// A remote shell that still tries to reach its host would outlast mpirun.
void Daemon::end_launcher(const orte_proc_t &daemon)
{
    siginfo_t info{};
    if (daemon.pid > 0 &&
        waitid(P_PID, static_cast<id_t>(daemon.pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0) {
        ::kill(-daemon.pid, SIGKILL);
    }
}

} // namespace ft::radixft

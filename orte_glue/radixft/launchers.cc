// What mpirun's launchers say of the commands by which they have started daemons: a remote shell
// for each (plm/rsh), or one for many (plm/slurm's srun).
#include "orte_glue/radixft/daemon.hpp"
#include "orte_glue/radixft/every_job.hpp"

namespace ft::radixft {

void Daemon::launcher_reports(orte_proc_t &daemon) noexcept
{
    orte_exit_status = exit_code_;
    if (over_) {
        return;
    }
    if (!begun()) {
        const int code = daemon.exit_code;
        lost_in_launch(daemon.name.vpid,
                       "could not be started, or ended before the job had begun: mpirun's remote "
                       "shell returned " +
                           std::to_string(WIFEXITED(code) ? WEXITSTATUS(code) : code));
        return;
    }
    if (!session_->engine().view()->contains(daemon.name.vpid) &&
        (daemon.node == nullptr || !ORTE_FLAG_TEST(daemon.node, ORTE_NODE_FLAG_DAEMON_LAUNCHED))) {
        // It has never called: it is to join, and its remote shell has failed.
        if (!lost_.contains(daemon.name.vpid)) {
            const int code = daemon.exit_code;
            newcomer_failed(daemon.name.vpid,
                            "could not be started: mpirun's remote shell returned " +
                                std::to_string(WIFEXITED(code) ? WEXITSTATUS(code) : code));
        }
        return;
    }
    // The shell's end says little about the daemon's.
    daemon.state = ORTE_PROC_STATE_RUNNING;
    connection_lost(daemon.name.vpid);
}

void Daemon::launchers_end(bool failed) noexcept
{
    if (over_ || orte_orteds_term_ordered) {
        check_all_gone();
        return;
    }
    // It ends when the last daemon that it has started has, and returns what any of them has: of
    // members that is no news.
    const std::string what =
        failed ? "could not be started, or has ended: the command by which mpirun starts daemons "
                 "(srun, aprun) returned an error"
               : "has ended";
    if (begun()) {
        for (const auto &[id, since] : called_for_) {
            const orte_proc_t *const proc = daemon_object(id);
            if (proc != nullptr && proc->node != nullptr &&
                !ORTE_FLAG_TEST(proc->node, ORTE_NODE_FLAG_DAEMON_LAUNCHED)) {
                newcomer_failed(id, what);
                return; // with all others
            }
        }
        return;
    }
    for (NodeId id = 1; id < orte_process_info.num_procs; ++id) {
        lost_in_launch(id, what + ", before the job had begun");
    }
}

bool Daemon::has_open_job() const noexcept
{
    bool open = false;
    for_every_job([&open](const orte_job_t &job) {
        open = open ||
               (job.jobid != ORTE_PROC_MY_NAME->jobid && job.state < ORTE_JOB_STATE_UNTERMINATED);
    });
    return open && !over_ && !orte_orteds_term_ordered && !orte_job_term_ordered &&
           !orte_abnormal_term_ordered;
}

} // namespace ft::radixft

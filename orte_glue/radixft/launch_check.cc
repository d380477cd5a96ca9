// How long daemons have until the job begins, and what is said when it does not.
#include "orte_glue/radixft/daemon.hpp"
#include "orte_glue/radixft/probe.hpp"

namespace ft::radixft {

using namespace base::literals;

namespace {

/// How long mpirun's host has to answer a daemon that finds the launch to take too long.
constexpr base::Duration mpirun_patience = 1000_ms;

} // namespace

void Daemon::check_launch(base::Time now)
{
    check_mpirun(now);
    const int wait = parameters().launch_wait_ms;
    if (self_ != 0 || begun() || over_ || wait == 0 || orte_process_info.num_procs < 2 ||
        orte_finalizing || orte_orteds_term_ordered ||
        now - launch_since_ < base::Duration::from_ms(wait)) {
        return;
    }
    // Nobody is ready before all have called: who has not is the culprit, if there is one.
    std::vector<NodeId> silent_ones;
    std::string silent;
    std::string missing;
    for (NodeId id = 1; id < orte_process_info.num_procs; ++id) {
        if (ready_.contains(id) || missing_.contains(id)) {
            continue;
        }
        missing += (missing.empty() ? "" : ", ") + host_name(id);
        if (contact(id).empty() || unsure_.contains(id) || owes_hardware(id)) {
            silent_ones.push_back(id);
            silent += (silent.empty() ? "" : ", ") + host_name(id);
        }
    }
    if (parameters().start_without > 0 && !mapped_ && !silent_ones.empty()) {
        launch_since_ = now;
        for (const NodeId id : silent_ones) {
            lost_in_launch(id, (unsure_.contains(id) ? "has not come back within "
                                : owes_hardware(id)  ? "has not told its hardware within "
                                                     : "has not called within ") +
                                   std::to_string(wait) + " ms (errmgr_radixft_launch_wait)");
        }
        return;
    }
    if (!without_key_.empty()) {
        std::string names;
        for (const NodeId id : without_key_) {
            names += (names.empty() ? "" : ", ") + host_name(id);
        }
        launch_failed("the launcher has not passed the job's key on to the daemons on: " + names +
                      ". It must hand mpirun's settings (OMPI_MCA_...) to the daemons; with ssh, "
                      "leave plm_rsh_pass_environ_mca_params on.");
        return;
    }
    launch_failed(
        "no sign of readiness within " + std::to_string(wait) +
        " ms (errmgr_radixft_launch_wait) from: " + (silent.empty() ? missing : silent) +
        ". Is the host up, can mpirun's remote shell start a daemon there, and is ompi-ft "
        "installed there too?");
}

/// At a daemon that was started and waits for the job to begin: mpirun's host may be cut off, of
/// which no connection tells for minutes.
void Daemon::check_mpirun(base::Time now)
{
    const int wait = parameters().launch_wait_ms;
    if (self_ == 0 || begun() || over_ || wait == 0 || orte_orteds_term_ordered ||
        now - std::max(started_at_, looked_for_mpirun_at_) < base::Duration::from_ms(wait)) {
        return;
    }
    looked_for_mpirun_at_ = now;
    if (keyless_ && gather_->waits()) {
        // Nobody will answer the ranks here. Programs that are none of MPI's do not need that. An
        // mpirun that knows of radixft has said by now that its launcher hands no key on.
        orte_show_help("help-errmgr-radixft.txt", "other-mpirun", true, orte_process_info.nodename,
                       wait);
        leave_without_mpirun();
        return;
    }
    knock(addresses_of(0), mpirun_patience, [](Knock answer) {
        Daemon &self = get();
        if (answer != Knock::accepted && answer != Knock::unasked && self.started_ &&
            !self.begun()) {
            self.peer_left(0);
        }
    });
}

void Daemon::launch_failed(const std::string &why)
{
    orte_show_help("help-errmgr-radixft.txt", "launch-failed", true, why.c_str());
    end_job(nullptr, ORTE_JOB_STATE_FAILED_TO_LAUNCH, nullptr, ORTE_ERROR_DEFAULT_EXIT_CODE);
}

} // namespace ft::radixft

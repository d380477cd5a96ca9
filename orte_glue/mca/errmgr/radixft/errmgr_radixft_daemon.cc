// The error manager in a daemon: failures of its ranks, and of the other daemons.
#include "orte_glue/mca/errmgr/radixft/errmgr_radixft.hpp"

#include "orte_glue/radixft/daemon.hpp"

namespace ft::radixft {

namespace {

bool ranks_alive(orte_jobid_t jobid)
{
    for (int i = 0; i < orte_local_children->size; ++i) {
        const auto *child =
            static_cast<const orte_proc_t *>(opal_pointer_array_get_item(orte_local_children, i));
        if (child != nullptr && ORTE_FLAG_TEST(child, ORTE_PROC_FLAG_ALIVE) &&
            (jobid == ORTE_JOBID_WILDCARD || child->name.jobid == jobid)) {
            return true;
        }
    }
    return false;
}

/// Tells mpirun of one rank's state as the stock daemon would: for what ends the whole job.
void report_to_mpirun(orte_proc_t *rank)
{
    opal_buffer_t *alert = OBJ_NEW(opal_buffer_t);
    orte_plm_cmd_flag_t command = ORTE_PLM_UPDATE_PROC_STATE;
    const bool packed = opal_dss.pack(alert, &command, 1, ORTE_PLM_CMD) == ORTE_SUCCESS &&
                        opal_dss.pack(alert, &rank->name.jobid, 1, ORTE_JOBID) == ORTE_SUCCESS &&
                        opal_dss.pack(alert, &rank->name.vpid, 1, ORTE_VPID) == ORTE_SUCCESS &&
                        opal_dss.pack(alert, &rank->pid, 1, OPAL_PID) == ORTE_SUCCESS &&
                        opal_dss.pack(alert, &rank->state, 1, ORTE_PROC_STATE) == ORTE_SUCCESS &&
                        opal_dss.pack(alert, &rank->exit_code, 1, ORTE_EXIT_CODE) == ORTE_SUCCESS;
    const auto conduit = static_cast<orte_rml_conduit_t>(orte_mgmt_conduit);
    if (!packed || orte_rml.send_buffer_nb(conduit, ORTE_PROC_MY_HNP, alert, ORTE_RML_TAG_PLM,
                                           orte_rml_send_callback, nullptr) != ORTE_SUCCESS) {
        OBJ_RELEASE(alert);
    }
}

void on_rank_state(orte_job_t *job, orte_proc_t *rank, orte_proc_state_t state)
{
    const bool started =
        state != ORTE_PROC_STATE_FAILED_TO_START && state != ORTE_PROC_STATE_FAILED_TO_LAUNCH;
    if (!started && is_first(job->jobid)) {
        rank->state = state;
        Daemon::get().job_must_end("a rank could not be started");
        // The state machine reports them together, when the last of this daemon's ranks was tried.
        if (++job->num_terminated == job->num_local_procs) {
            ORTE_ACTIVATE_JOB_STATE(job, state == ORTE_PROC_STATE_FAILED_TO_START
                                             ? ORTE_JOB_STATE_FAILED_TO_START
                                             : ORTE_JOB_STATE_FAILED_TO_LAUNCH);
        }
        return;
    }
    if (!started) {
        Daemon::get().rank_not_started(*rank);
    } else if (state == ORTE_PROC_STATE_CALLED_ABORT) {
        rank->state = state;
        report_to_mpirun(rank);
        Daemon::get().called_abort(*job, *rank);
        if (!ORTE_FLAG_TEST(rank, ORTE_PROC_FLAG_WAITPID)) {
            return; // its end comes by itself
        }
    } else if (failed_rank(*rank, state)) {
        report_rank(*rank, state);
    }
    ORTE_ACTIVATE_PROC_STATE(&rank->name, ORTE_PROC_STATE_WAITPID_FIRED);
    if (orte_orteds_term_ordered) {
        ORTE_FLAG_UNSET(rank, ORTE_PROC_FLAG_ALIVE);
        if (!ORTE_FLAG_TEST(rank, ORTE_PROC_FLAG_RECORDED)) {
            ORTE_FLAG_SET(rank, ORTE_PROC_FLAG_RECORDED);
            ++job->num_terminated;
        }
        if (!ranks_alive(ORTE_JOBID_WILDCARD)) {
            ORTE_ACTIVATE_JOB_STATE(nullptr, ORTE_JOB_STATE_DAEMONS_TERMINATED);
        }
    }
}

void on_proc_error(int, short, void *data) noexcept
{
    auto *caddy = static_cast<orte_state_caddy_t *>(data);
    const orte_process_name_t name = caddy->name;
    const orte_proc_state_t state = caddy->proc_state;
    OBJ_RELEASE(caddy);
    if (orte_finalizing) {
        return;
    }
    story(5, "state %s of %s", orte_proc_state_to_str(state), ORTE_NAME_PRINT(&name));
    if (name.jobid == ORTE_PROC_MY_NAME->jobid) {
        if (name.vpid != ORTE_PROC_MY_NAME->vpid) {
            Daemon::get().peer_left(name.vpid);
        }
        return;
    }
    orte_job_t *const job = orte_get_job_data_object(name.jobid);
    orte_proc_t *const rank =
        job == nullptr ? nullptr
                       : static_cast<orte_proc_t *>(
                             opal_pointer_array_get_item(job->procs, static_cast<int>(name.vpid)));
    if (rank == nullptr || !ORTE_FLAG_TEST(rank, ORTE_PROC_FLAG_LOCAL) || channel_trouble(state)) {
        return;
    }
    on_rank_state(job, rank, state);
}

void on_job_error(int, short, void *data) noexcept
{
    auto *caddy = static_cast<orte_state_caddy_t *>(data);
    orte_job_t *const job = caddy->jdata;
    const orte_job_state_t state = caddy->job_state;
    OBJ_RELEASE(caddy);
    if (orte_finalizing) {
        return;
    }
    if (job == nullptr) {
        ORTE_ACTIVATE_JOB_STATE(nullptr, ORTE_JOB_STATE_FORCED_EXIT);
        return;
    }
    job->state = state;
    for (int i = 0; i < orte_local_children->size; ++i) {
        auto *const child =
            static_cast<orte_proc_t *>(opal_pointer_array_get_item(orte_local_children, i));
        if (child == nullptr || child->name.jobid != job->jobid) {
            continue;
        }
        if (child->state == ORTE_PROC_STATE_FAILED_TO_START ||
            child->state == ORTE_PROC_STATE_FAILED_TO_LAUNCH) {
            // Never forked: neither its output nor its end will be seen.
            ORTE_FLAG_SET(child, ORTE_PROC_FLAG_IOF_COMPLETE);
            ORTE_FLAG_SET(child, ORTE_PROC_FLAG_WAITPID);
            report_to_mpirun(child);
        }
    }
}

/// The runtime's call for trouble from which it knows no way out.
void abort_daemon(int code, char *format, ...) noexcept
{
    va_list arguments;
    va_start(arguments, format);
    const std::optional<std::array<char, 512>> text = fatal_trouble(format, arguments);
    va_end(arguments);
    if (!text) {
        return;
    }
    orte_abnormal_term_ordered = true;
    orte_show_help("help-errmgr-radixft.txt", "runtime-abort", true, orte_process_info.nodename,
                   text->data());
    ORTE_UPDATE_EXIT_STATUS(code);
    // The others see this daemon go, and the job runs on without it.
    orte_odls.kill_local_procs(nullptr);
    orte_quit(0, 0, nullptr);
}

int init() noexcept
{
    return start_daemon(on_job_error, on_proc_error);
}

} // namespace

orte_errmgr_base_module_t daemon_module = module_beside_daemon(init, abort_daemon);

} // namespace ft::radixft

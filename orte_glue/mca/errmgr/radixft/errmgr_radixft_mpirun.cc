// The error manager in mpirun: failures of its own ranks, what daemons report, job accounting.
#include "orte_glue/mca/errmgr/radixft/errmgr_radixft.hpp"

#include "orte_glue/radixft/daemon.hpp"

#include <string>
#include <utility>

namespace ft::radixft {

namespace {

/// Counts each rank's end once: a daemon reports the states of all its ranks when the last one has
/// ended, those that died before among them.
void on_terminated(int fd, short flags, void *data) noexcept
{
    auto *caddy = static_cast<orte_state_caddy_t *>(data);
    const orte_job_t *job = orte_get_job_data_object(caddy->name.jobid);
    orte_proc_t *proc = job == nullptr ? nullptr
                                       : static_cast<orte_proc_t *>(opal_pointer_array_get_item(
                                             job->procs, static_cast<int>(caddy->name.vpid)));
    if (proc != nullptr && proc->name.jobid != ORTE_PROC_MY_NAME->jobid) {
        if (ORTE_FLAG_TEST(proc, ORTE_PROC_FLAG_RECORDED)) {
            OBJ_RELEASE(caddy);
            return;
        }
        ORTE_FLAG_SET(proc, ORTE_PROC_FLAG_RECORDED);
        const DeathSpread *const deaths = Daemon::get().deaths();
        const bool dead =
            deaths != nullptr && deaths->announced({proc->name.jobid, proc->name.vpid});
        if (dead && proc->state < ORTE_PROC_STATE_TERMINATED) {
            proc->state = ORTE_PROC_STATE_TERMINATED;
        }
        if (!dead && proc->exit_code != 0) {
            Daemon::get().set_exit_code(proc->exit_code);
        }
    }
    orte_state_base_track_procs(fd, flags, caddy);
}

/// The job is over: what mpirun returns when ranks died.
void settle_exit_code(const orte_job_t &job)
{
    const DeathSpread *const deaths = Daemon::get().deaths();
    if (deaths == nullptr || orte_exit_status != 0) {
        return;
    }
    std::size_t dead = 0;
    int first_code = 0;
    std::int64_t first = 0;
    for (const auto &[who, death] : deaths->known()) {
        if (who.jobid == job.jobid) {
            if (dead++ == 0 || death.noticed_us < first) {
                first = death.noticed_us;
                first_code = exit_code_of(death);
            }
        }
    }
    const bool fewer = is_first(job.jobid) && Daemon::get().ranks_missing() > 0;
    if (dead == 0 && !fewer) {
        return;
    }
    // A spawned job of which nobody is left has parents that go on.
    const bool nobody = dead >= job.num_procs && ORTE_LOCAL_JOBID(job.jobid) == 1;
    const int code = nobody ? first_code : parameters().failed_exit_code;
    if (code != 0) {
        Daemon::get().set_exit_code(code);
    }
}

void on_job_terminated(int fd, short flags, void *data) noexcept
{
    const auto *caddy = static_cast<const orte_state_caddy_t *>(data);
    if (caddy->jdata != nullptr && caddy->jdata->jobid != ORTE_PROC_MY_NAME->jobid) {
        settle_exit_code(*caddy->jdata);
    }
    orte_state_base_check_all_complete(fd, flags, data);
}

void on_daemon_state(orte_proc_t *daemon, orte_proc_state_t state)
{
    Daemon &self = Daemon::get();
    if (orte_orteds_term_ordered) {
        ORTE_FLAG_UNSET(daemon, ORTE_PROC_FLAG_ALIVE);
        self.has_left(daemon->name.vpid);
        self.check_all_gone();
        return;
    }
    if (state == ORTE_PROC_STATE_FAILED_TO_START || state == ORTE_PROC_STATE_FAILED_TO_LAUNCH ||
        state == ORTE_PROC_STATE_CALLED_ABORT) {
        self.launcher_reports(*daemon);
        return;
    }
    self.connection_lost(daemon->name.vpid);
}

void on_rank_state(orte_job_t *job, orte_proc_t *rank, orte_proc_state_t state)
{
    Daemon &self = Daemon::get();
    const bool local = ORTE_FLAG_TEST(rank, ORTE_PROC_FLAG_LOCAL);
    switch (state) {
    case ORTE_PROC_STATE_CALLED_ABORT:
        if (!self.spawn_aborted(*job, *rank)) {
            self.end_job(job, ORTE_JOB_STATE_CALLED_ABORT, rank, rank->exit_code);
        }
        break;
    case ORTE_PROC_STATE_FAILED_TO_START:
    case ORTE_PROC_STATE_FAILED_TO_LAUNCH:
        if (local && !is_first(job->jobid)) {
            self.rank_not_started(*rank);
            break;
        }
        if (rank->state < ORTE_PROC_STATE_TERMINATED) {
            rank->state = state;
        }
        self.end_job(job, ORTE_JOB_STATE_FAILED_TO_START, rank, rank->exit_code);
        break;
    default:
        if (local && failed_rank(*rank, state)) {
            report_rank(*rank, state);
        }
        break;
    }
    if (local || state == ORTE_PROC_STATE_KILLED_BY_CMD) {
        // However it ended, its end is to be counted.
        ORTE_ACTIVATE_PROC_STATE(&rank->name, ORTE_PROC_STATE_WAITPID_FIRED);
        if (!local) {
            ORTE_FLAG_SET(rank, ORTE_PROC_FLAG_IOF_COMPLETE);
        }
    }
    if (orte_orteds_term_ordered) {
        if (local) {
            ORTE_FLAG_UNSET(rank, ORTE_PROC_FLAG_ALIVE);
        }
        self.check_all_gone();
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
    orte_job_t *const job = orte_get_job_data_object(name.jobid);
    orte_proc_t *const proc =
        job == nullptr ? nullptr
                       : static_cast<orte_proc_t *>(
                             opal_pointer_array_get_item(job->procs, static_cast<int>(name.vpid)));
    if (proc == nullptr) {
        return;
    }
    story(5, "state %s of %s", orte_proc_state_to_str(state), ORTE_NAME_PRINT(&name));
    if (name.jobid == ORTE_PROC_MY_NAME->jobid) {
        if (name.vpid != ORTE_PROC_MY_NAME->vpid) {
            on_daemon_state(proc, state);
        }
    } else if (!channel_trouble(state)) {
        on_rank_state(job, proc, state);
    }
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
    if (job != nullptr && job->jobid == ORTE_PROC_MY_NAME->jobid &&
        state == ORTE_JOB_STATE_ABORTED) {
        Daemon::get().launchers_end(true);
        return;
    }
    const bool not_launched =
        state == ORTE_JOB_STATE_NEVER_LAUNCHED || state == ORTE_JOB_STATE_ALLOC_FAILED ||
        state == ORTE_JOB_STATE_MAP_FAILED || state == ORTE_JOB_STATE_CANNOT_LAUNCH;
    if (job != nullptr && not_launched && job->originator.jobid != ORTE_JOBID_INVALID) {
        // Its state stays as it is: a job in one of these keeps its slots when it counts as ended,
        // and mpirun, which never comes to its completion, would wait for it.
        Daemon::get().give_up_launch(*job);
        return;
    }
    Daemon::get().set_exit_code(ORTE_ERROR_DEFAULT_EXIT_CODE);
    if (job == nullptr) {
        ORTE_ACTIVATE_JOB_STATE(nullptr, ORTE_JOB_STATE_FORCED_EXIT);
        return;
    }
    job->state = state;
    if (not_launched) {
        // Nothing was started: the reason was shown where it arose. The job counts as ended.
        if (ORTE_LOCAL_JOBID(job->jobid) == 1) {
            orte_never_launched = true;
        }
        orte_routing_is_enabled = false;
        job->num_terminated = job->num_procs;
        ORTE_ACTIVATE_JOB_STATE(job, ORTE_JOB_STATE_TERMINATED);
        return;
    }
    Daemon::get().end_job(job, state, nullptr, ORTE_ERROR_DEFAULT_EXIT_CODE);
}

/// All daemons have ended. That is also what plm/slurm says when its srun returns 0: of a job that
/// runs, without some hosts or without all but mpirun's, it is the end of those daemons only.
void on_daemons_terminated(int fd, short flags, void *data) noexcept
{
    auto *caddy = static_cast<orte_state_caddy_t *>(data);
    if (caddy->jdata == nullptr || !Daemon::get().has_open_job()) {
        orte_quit(fd, flags, data);
        return;
    }
    OBJ_RELEASE(caddy);
    Daemon::get().launchers_end(false);
}

/// The place of a launcher's parameter; null when mpirun does not have that launcher.
template <class Value>
Value *parameter_of(const char *launcher, const char *name)
{
    const int index = mca_base_var_find("orte", "plm", launcher, name);
    Value *place = nullptr;
    return index >= 0 && mca_base_var_get_value(index, static_cast<void *>(&place), nullptr,
                                                nullptr) == OPAL_SUCCESS
               ? place
               : nullptr;
}

/// Has the launchers do what a job needs that is to outlive its daemons. They have read their
/// parameters by now, and use them when they start something.
void prepare_launchers()
{
    // In a tree a daemon would be started by another one: below routed/radixft, which knows no
    // tree, none would be, and one that dies would take the remote shells of others with it.
    if (bool *const no_tree = parameter_of<bool>("rsh", "no_tree_spawn"); no_tree != nullptr) {
        *no_tree = true;
    }
    // Slurm ends a step of which a process or a host is lost. What the user wants of srun stands
    // behind this, and srun goes by what comes last.
    if (char **const arguments = parameter_of<char *>("slurm", "args"); arguments != nullptr) {
        const std::string all = std::string("--no-kill --kill-on-bad-exit=0 --wait=0") +
                                (*arguments == nullptr ? "" : std::string(" ") + *arguments);
        std::free(std::exchange(*arguments, strdup(all.c_str())));
    }
}

/// The runtime's call for trouble from which it knows no way out.
void abort_job(int code, char *format, ...) noexcept
{
    va_list arguments;
    va_start(arguments, format);
    const std::optional<std::array<char, 512>> text = fatal_trouble(format, arguments);
    va_end(arguments);
    if (!text) {
        return;
    }
    orte_show_help("help-errmgr-radixft.txt", "runtime-abort", true, orte_process_info.nodename,
                   text->data());
    if (orte_never_launched) {
        Daemon::get().set_exit_code(code);
        orte_quit(0, 0, nullptr);
        return;
    }
    Daemon::get().end_job(nullptr, ORTE_JOB_STATE_FAILED_TO_LAUNCH, nullptr, code);
}

int init() noexcept
{
    const int rc = start_daemon(on_job_error, on_proc_error);
    if (rc != ORTE_SUCCESS) {
        return rc;
    }
    hand_on_parameters();
    prepare_launchers();
    orte_state.set_proc_state_callback(ORTE_PROC_STATE_TERMINATED, on_terminated);
    orte_state.set_job_state_callback(ORTE_JOB_STATE_TERMINATED, on_job_terminated);
    orte_state.set_job_state_callback(ORTE_JOB_STATE_DAEMONS_TERMINATED, on_daemons_terminated);
    Daemon::get().watch_launches();
    return ORTE_SUCCESS;
}

} // namespace

orte_errmgr_base_module_t mpirun_module = module_beside_daemon(init, abort_job);

} // namespace ft::radixft

// The error manager in a rank: learns of deaths, and dies with its daemon.
#include "orte_glue/mca/errmgr/radixft/errmgr_radixft.hpp"

#include "opal/process/deaths.hpp"
#include "opal/process/keys.hpp"
#include "orte_glue/radixft/daemon.hpp"
#include "orte_glue/radixft/life_lines.hpp"
#include "orte_glue/radixft/prompt.hpp"
#include "orte_glue/radixft/spawns.hpp"

#include <sys/prctl.h>

#include <utility>

namespace ft::radixft {

namespace {

std::size_t handler = SIZE_MAX;
/// Never destroyed: a child of this process that calls exit() has no such thread to wait for.
LifeLine &life_line = *new LifeLine;

std::int64_t told_after_us(std::int64_t noticed_us)
{
    return std::max<std::int64_t>(wall_us() - noticed_us, 0);
}

int look_at_board() noexcept
{
    if (death_board.news()) [[unlikely]] {
        take_from_board();
    }
    return 0;
}

void on_event(int status, const opal_process_name_t *source, opal_list_t *info, opal_list_t *,
              opal_pmix_notification_complete_fn_t done, void *data) noexcept
{
    if (status == OPAL_ERR_PROC_ABORTED) {
        process::Death death{{source->jobid, source->vpid}, 0};
        bool ours = false;
        for (opal_list_item_t *item = info == nullptr ? nullptr : opal_list_get_first(info);
             item != nullptr && item != opal_list_get_end(info); item = opal_list_get_next(item)) {
            const auto *value = reinterpret_cast<const opal_value_t *>(item);
            if (value->key == nullptr) {
                continue;
            }
            if (std::strcmp(value->key, OPAL_PMIX_EVENT_AFFECTED_PROC) == 0 &&
                value->type == OPAL_NAME) {
                death.who = {value->data.name.jobid, value->data.name.vpid};
            } else if (std::strcmp(value->key, process::epoch_key) == 0 &&
                       value->type == OPAL_UINT64) {
                death.epoch = value->data.uint64;
                ours = true;
            } else if (std::strcmp(value->key, process::noticed_key) == 0 &&
                       value->type == OPAL_INT64) {
                death.told_after_us = told_after_us(value->data.int64);
            } else if (std::strcmp(value->key, process::stabilized_key) == 0 &&
                       value->type == OPAL_INT64) {
                death.stabilized_us = value->data.int64;
            } else if (std::strcmp(value->key, process::hung_key) == 0 &&
                       value->type == OPAL_BOOL) {
                death.hung = value->data.flag;
            }
        }
        if (ours) {
            process::declare_dead(death);
        }
    }
    // The chain ends here: the handler behind it would abort this rank.
    if (done != nullptr) {
        done(OPAL_ERR_HANDLERS_COMPLETE, nullptr, nullptr, nullptr, data);
    }
}

struct Registration {
    orte_lock_t lock;
    int status = OPAL_ERROR;
};

void on_registered(int status, std::size_t reference, void *data) noexcept
{
    auto *registration = static_cast<Registration *>(data);
    handler = reference;
    // This is PMIx's thread, for which a rank waits that sleeps and does not look at the board.
    run_promptly();
    registration->status = status;
    ORTE_POST_OBJECT(registration);
    ORTE_WAKEUP_THREAD(&registration->lock);
}

int (*convert_name)(opal_process_name_t *, const char *) = nullptr;

/// In place of the runtime's function, which takes a refused spawn for a name that it cannot read.
int convert_name_or_refuse(opal_process_name_t *name, const char *text) noexcept
{
    if (text != nullptr && std::strcmp(text, data_server::refusal) == 0) {
        return spawn_error;
    }
    return convert_name(name, text);
}

void log_error(int code, char *file, int line) noexcept
{
    if (code != spawn_error) { // of which mpirun has told
        orte_errmgr_base_log(code, file, line);
    }
}

/// Whether a daemon of this error manager's has started this rank: it says then where its lines and
/// its board are, or that it has none.
bool started_by_daemon()
{
    return std::getenv(life_lines_place) != nullptr;
}

int init() noexcept
{
    // An orphan would hold its node for ever. The parent may have died before this call: then
    // nothing is owed to anybody any more. Whoever was not started by a daemon is nobody's orphan.
    const pid_t parent = getppid();
    if (started_by_daemon() && (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)) {
        return ORTE_ERROR;
    }
    opal_list_t codes;
    OBJ_CONSTRUCT(&codes, opal_list_t);
    opal_value_t *const code = OBJ_NEW(opal_value_t);
    code->type = OPAL_INT;
    code->data.integer = OPAL_ERR_PROC_ABORTED;
    opal_list_append(&codes, &code->super);
    opal_list_t directives;
    OBJ_CONSTRUCT(&directives, opal_list_t);
    opal_value_t *const name = OBJ_NEW(opal_value_t);
    name->key = strdup(OPAL_PMIX_EVENT_HDLR_NAME);
    name->type = OPAL_STRING;
    name->data.string = strdup("ompi-ft-radixft");
    opal_list_append(&directives, &name->super);
    Registration registration;
    ORTE_CONSTRUCT_LOCK(&registration.lock);
    opal_pmix.register_evhandler(&codes, &directives, on_event, on_registered, &registration);
    ORTE_WAIT_THREAD(&registration.lock);
    ORTE_DESTRUCT_LOCK(&registration.lock);
    OPAL_LIST_DESTRUCT(&codes);
    OPAL_LIST_DESTRUCT(&directives);
    if (registration.status != OPAL_SUCCESS) {
        return ORTE_ERROR;
    }
    const orte_jobid_t jobid = ORTE_PROC_MY_NAME->jobid;
    death_board.open(std::getenv(death_board_place), ORTE_JOB_FAMILY(jobid));
    life_line.hold(std::getenv(life_lines_place), ORTE_JOB_FAMILY(jobid),
                   {jobid, ORTE_PROC_MY_NAME->vpid});
    if (!start_self_check()) {
        opal_progress_register(look_at_board);
    }
    convert_name = std::exchange(opal_convert_string_to_process_name, convert_name_or_refuse);
    connect_by_oneself();
    meet_those_who_live();
    return ORTE_SUCCESS;
}

void on_tick(int, short, void *) noexcept {}

/// Ends the runtime's thread: MPI_Finalize unloads the code with which it takes events before it
/// ends it, and waits for nothing that this thread does. A request to end that falls between two
/// rounds of its loop is lost until the next event, which the timer brings.
void stop_runtime_thread() noexcept
{
    constexpr timeval period{.tv_sec = 0, .tv_usec = 10'000};
    opal_event_t tick;
    opal_event_set(orte_event_base, &tick, -1, OPAL_EV_PERSIST, on_tick, nullptr);
    opal_event_add(&tick, &period);
    opal_progress_thread_pause(nullptr);
    opal_event_del(&tick);
}

int finalize() noexcept
{
    meet_as_usual();
    connect_as_usual();
    if (convert_name != nullptr) {
        opal_convert_string_to_process_name = std::exchange(convert_name, nullptr);
    }
    life_line.release();
    stop_self_check();
    opal_progress_unregister(look_at_board);
    death_board.close();
    if (handler != SIZE_MAX) {
        opal_pmix.deregister_evhandler(std::exchange(handler, SIZE_MAX), nullptr, nullptr);
    }
    stop_runtime_thread();
    return ORTE_SUCCESS;
}

int abort_peers(orte_process_name_t *, orte_std_cntr_t, int code) noexcept
{
    orte_errmgr_base_abort(code, nullptr);
    return ORTE_SUCCESS;
}

} // namespace

DeathReader death_board;

void take_from_board() noexcept
{
    for (const DeathBoardLayout::Entry &e : death_board.take()) {
        process::declare_dead({.who = {e.jobid, e.vpid},
                               .epoch = e.epoch,
                               .told_after_us = told_after_us(e.noticed_us),
                               .stabilized_us = e.stabilized_us,
                               .hung = e.hung != 0});
    }
}

orte_errmgr_base_module_t rank_module = {
    .init = init,
    .finalize = finalize,
    .logfn = log_error,
    .abort = orte_errmgr_base_abort,
    .abort_peers = abort_peers,
};

} // namespace ft::radixft

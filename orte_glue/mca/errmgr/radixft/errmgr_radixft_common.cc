#include "orte_glue/mca/errmgr/radixft/errmgr_radixft.hpp"

#include "orte_glue/radixft/daemon.hpp"

namespace ft::radixft {

namespace {

int finalize() noexcept
{
    Daemon::get().stop();
    return ORTE_SUCCESS;
}

} // namespace

bool channel_trouble(orte_proc_state_t state)
{
    return state == ORTE_PROC_STATE_COMM_FAILED || state == ORTE_PROC_STATE_LIFELINE_LOST ||
           state == ORTE_PROC_STATE_UNABLE_TO_SEND_MSG ||
           state == ORTE_PROC_STATE_NO_PATH_TO_TARGET ||
           state == ORTE_PROC_STATE_FAILED_TO_CONNECT || state == ORTE_PROC_STATE_PEER_UNKNOWN ||
           state == ORTE_PROC_STATE_HEARTBEAT_FAILED;
}

bool failed_rank(const orte_proc_t &rank, orte_proc_state_t state)
{
    // Who has said goodbye to the runtime owes nobody anything; its exit code is still passed on.
    if (ORTE_FLAG_TEST(&rank, ORTE_PROC_FLAG_HAS_DEREG)) {
        return false;
    }
    return state == ORTE_PROC_STATE_ABORTED || state == ORTE_PROC_STATE_ABORTED_BY_SIG ||
           state == ORTE_PROC_STATE_TERM_WO_SYNC || state == ORTE_PROC_STATE_TERM_NON_ZERO ||
           state == ORTE_PROC_STATE_SENSOR_BOUND_EXCEEDED || state == ORTE_PROC_STATE_COMM_FAILED;
}

std::optional<std::array<char, 512>> fatal_trouble(const char *format, va_list arguments) noexcept
{
    if (orte_abnormal_term_ordered) {
        return std::nullopt;
    }
    std::array<char, 512> text{};
    if (format != nullptr) {
        std::vsnprintf(text.data(), text.size(), format, arguments);
    }
    // The text ends with the place in the runtime's source that gave up.
    if (std::strstr(text.data(), "FORCE-TERMINATE") != nullptr &&
        std::strstr(text.data(), "/oob/tcp/") != nullptr) {
        Daemon::get().channel_broke(text.data());
        return std::nullopt;
    }
    // Somebody leaves who was named in a fence that the others have left alone (meet, in a rank),
    // and the PMIx server begins it now, when the job of another one named is forgotten here.
    // Nobody waits for it.
    if (std::strstr(text.data(), "FORCE-TERMINATE") != nullptr &&
        std::strstr(text.data(), "grpcomm_base_stubs") != nullptr) {
        story(1, "a collective names processes that are not known here any more: %s", text.data());
        return std::nullopt;
    }
    return text;
}

int start_daemon(orte_state_cbfunc_t on_job_error, orte_state_cbfunc_t on_proc_error) noexcept
{
    const int rc = Daemon::get().start();
    if (rc != ORTE_SUCCESS) {
        return rc;
    }
    mind_broken_clients();
    orte_state.add_job_state(ORTE_JOB_STATE_ERROR, on_job_error, ORTE_ERROR_PRI);
    // Behind the messages that a daemon sent before its connection broke.
    orte_state.add_proc_state(ORTE_PROC_STATE_COMM_FAILED, on_proc_error, ORTE_MSG_PRI);
    orte_state.add_proc_state(ORTE_PROC_STATE_ERROR, on_proc_error, ORTE_ERROR_PRI);
    return ORTE_SUCCESS;
}

orte_errmgr_base_module_t module_beside_daemon(orte_errmgr_base_module_init_fn_t init,
                                               orte_errmgr_base_module_abort_fn_t abort) noexcept
{
    return {
        .init = init,
        .finalize = finalize,
        .logfn = orte_errmgr_base_log,
        .abort = abort,
        .abort_peers = orte_errmgr_base_abort_peers,
    };
}

void report_rank(const orte_proc_t &rank, orte_proc_state_t state) noexcept
{
    const bool by_signal =
        state == ORTE_PROC_STATE_ABORTED_BY_SIG || state == ORTE_PROC_STATE_ABORTED;
    Daemon::get().rank_died(rank, by_signal ? Cause::signal : Cause::exited);
}

} // namespace ft::radixft

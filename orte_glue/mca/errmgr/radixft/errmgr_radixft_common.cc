#include "orte_glue/mca/errmgr/radixft/errmgr_radixft.hpp"

#include "orte_glue/radixft/daemon.hpp"

namespace ft::radixft {

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

bool channel_broke(const char *text)
{
    // The text ends with the place in the runtime's source that gave up.
    return std::strstr(text, "FORCE-TERMINATE") != nullptr &&
           std::strstr(text, "/oob/tcp/") != nullptr;
}

void report_rank(const orte_proc_t &rank, orte_proc_state_t state) noexcept
{
    const bool by_signal =
        state == ORTE_PROC_STATE_ABORTED_BY_SIG || state == ORTE_PROC_STATE_ABORTED;
    Daemon::get().rank_died(rank, by_signal ? Cause::signal : Cause::exited);
}

} // namespace ft::radixft

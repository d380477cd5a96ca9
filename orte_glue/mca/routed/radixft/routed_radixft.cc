// routed/radixft: every daemon talks to every other directly, and losing one of them is never
// fatal.
//
// The stock trees route the runtime's messages through daemons that may die; the membership tree is
// for the membership protocol alone. So there is nothing to re-route when a daemon dies. mpirun
// counts as its routes the daemons that are alive: it leaves when the last of them has.
#include "orte_glue/orte_prelude.hpp"

#include "orte_glue/radixft/daemon.hpp"
#include "orte_glue/radixft/parameters.hpp"

extern "C" {
extern orte_routed_component_t mca_routed_radixft_component;
}

namespace {

using ft::radixft::Daemon;

int initialize() noexcept
{
    return ORTE_SUCCESS;
}

int finalize() noexcept
{
    return ORTE_SUCCESS;
}

int route_lost(const orte_process_name_t *route) noexcept
{
    if (route->jobid == ORTE_PROC_MY_NAME->jobid) {
        Daemon::get().disconnected(route->vpid);
    }
    // Success says that this was no lifeline: the runtime then leaves the decision to the error
    // manager.
    if (ORTE_PROC_IS_HNP && route->jobid == ORTE_PROC_MY_NAME->jobid &&
        (orte_orteds_term_ordered || orte_abnormal_term_ordered)) {
        if (orte_proc_t *const proc = ft::radixft::daemon_object(route->vpid); proc != nullptr) {
            ORTE_FLAG_UNSET(proc, ORTE_PROC_FLAG_ALIVE);
        }
    }
    return ORTE_SUCCESS;
}

int delete_route(orte_process_name_t *target) noexcept
{
    return route_lost(target);
}

/// The channel calls this when it has a connection to a daemon.
int update_route(orte_process_name_t *target, orte_process_name_t *) noexcept
{
    if (target->jobid == ORTE_PROC_MY_NAME->jobid) {
        Daemon::get().connected(target->vpid);
    }
    return ORTE_SUCCESS;
}

orte_process_name_t get_route(orte_process_name_t *target) noexcept
{
    if (target->jobid == ORTE_JOBID_INVALID || target->vpid == ORTE_VPID_INVALID) {
        return *ORTE_NAME_INVALID;
    }
    // Daemons, tools, and whatever belongs to another mpirun.
    if (target->jobid == ORTE_PROC_MY_NAME->jobid ||
        ORTE_JOB_FAMILY(target->jobid) != ORTE_JOB_FAMILY(ORTE_PROC_MY_NAME->jobid)) {
        return *target;
    }
    orte_process_name_t daemon = *ORTE_PROC_MY_NAME;
    daemon.vpid = orte_get_proc_daemon_vpid(target);
    if (daemon.vpid == ORTE_VPID_INVALID) {
        return *ORTE_NAME_INVALID;
    }
    return daemon.vpid == ORTE_PROC_MY_NAME->vpid ? *target : daemon;
}

bool route_is_defined(const orte_process_name_t *target) noexcept
{
    return orte_get_proc_daemon_vpid(const_cast<orte_process_name_t *>(target)) !=
           ORTE_VPID_INVALID;
}

int set_lifeline(orte_process_name_t *) noexcept
{
    return ORTE_SUCCESS;
}

void update_routing_plan() noexcept
{
    Daemon::get().on_wireup();
}

/// Calls `use` with each daemon object but this one's that is alive.
template <class Use>
void for_each_alive(Use use)
{
    const orte_job_t *daemons = orte_get_job_data_object(ORTE_PROC_MY_NAME->jobid);
    for (int v = 0; daemons != nullptr && v < daemons->procs->size; ++v) {
        const auto *proc =
            static_cast<const orte_proc_t *>(opal_pointer_array_get_item(daemons->procs, v));
        if (proc != nullptr && proc->name.vpid != ORTE_PROC_MY_NAME->vpid &&
            ORTE_FLAG_TEST(proc, ORTE_PROC_FLAG_ALIVE)) {
            use(*proc);
        }
    }
}

/// Only the root has anybody below it.
bool has_routes()
{
    return ORTE_PROC_IS_HNP || ORTE_PROC_MY_HNP->vpid == ORTE_PROC_MY_NAME->vpid;
}

void get_routing_list(opal_list_t *list) noexcept
{
    if (!has_routes()) {
        return;
    }
    for_each_alive([list](const orte_proc_t &proc) {
        orte_namelist_t *const item = OBJ_NEW(orte_namelist_t);
        item->name = proc.name;
        opal_list_append(list, &item->super);
    });
}

size_t num_routes() noexcept
{
    size_t count = 0;
    if (has_routes()) {
        for_each_alive([&count](const orte_proc_t &) { ++count; });
    }
    return count;
}

orte_routed_module_t module = {
    .initialize = initialize,
    .finalize = finalize,
    .delete_route = delete_route,
    .update_route = update_route,
    .get_route = get_route,
    .route_lost = route_lost,
    .route_is_defined = route_is_defined,
    .set_lifeline = set_lifeline,
    .update_routing_plan = update_routing_plan,
    .get_routing_list = get_routing_list,
    .num_routes = num_routes,
    .ft_event = nullptr,
};

int query(mca_base_module_t **mine, int *priority) noexcept
{
    return ft::radixft::offer_to_daemons(&module, mine, priority);
}

} // namespace

extern "C" {
orte_routed_component_t mca_routed_radixft_component = {
    .base_version =
        {
            ORTE_ROUTED_BASE_VERSION_3_0_0,
            .mca_component_name = "radixft",
            .mca_component_major_version = FT_VERSION_MAJOR,
            .mca_component_minor_version = FT_VERSION_MINOR,
            .mca_component_release_version = FT_VERSION_RELEASE,
            .mca_open_component = nullptr,
            .mca_close_component = nullptr,
            .mca_query_component = query,
            .mca_register_component_params = nullptr,
            .mca_component_flags = 0,
            .reserved = {},
        },
    .base_data = {.param_field = MCA_BASE_METADATA_PARAM_NONE, .reserved = {}},
    .priority = 0,
};
}

// In a rank: how it takes part in PMIx_Connect, with which MPI_Comm_spawn, accept and connect
// begin.
//
// The runtime joins nothing by it: each daemon makes sure that its PMIx server knows the jobs, and
// tells its ranks about them. But the server asks its daemon only when all participants under it
// have come; one that died before, or that another's death has turned back, would be waited for by
// all others of its node for ever. What they have to wait for in these calls they wait for in MPI
// itself, where deaths are minded. So each rank connects by itself here: it names its own self, and
// of each job a rank that there is not, for which no server waits.
#include "orte_glue/mca/errmgr/radixft/errmgr_radixft.hpp"

#include <exception>
#include <set>
#include <utility>

namespace ft::radixft {

namespace {

opal_pmix_base_module_connect_fn_t connect_all = nullptr;

opal_namelist_t *add(opal_list_t &to, opal_jobid_t jobid, opal_vpid_t vpid)
{
    opal_namelist_t *const item = OBJ_NEW(opal_namelist_t);
    item->name.jobid = jobid;
    item->name.vpid = vpid;
    opal_list_append(&to, &item->super);
    return item;
}

/// What a server tells all participants of each other's jobs, which it does only of those that are
/// with it in the same call: who of them is on this node.
void learn_of(opal_jobid_t jobid)
{
    opal_process_name_t all{.jobid = jobid, .vpid = OPAL_VPID_WILDCARD};
    opal_list_t how;
    OBJ_CONSTRUCT(&how, opal_list_t);
    opal_value_t *const now = OBJ_NEW(opal_value_t);
    now->key = strdup(OPAL_PMIX_IMMEDIATE);
    now->type = OPAL_BOOL;
    now->data.flag = true;
    opal_list_append(&how, &now->super);
    opal_value_t *peers = nullptr;
    if (opal_pmix.get(&all, OPAL_PMIX_LOCAL_PEERS, &how, &peers) == OPAL_SUCCESS &&
        peers != nullptr) {
        OBJ_RELEASE(peers);
    }
    OPAL_LIST_DESTRUCT(&how);
}

int connect_alone(opal_list_t *participants) noexcept
try {
    std::set<opal_jobid_t> jobs;
    for (opal_list_item_t *item = opal_list_get_first(participants);
         item != opal_list_get_end(participants); item = opal_list_get_next(item)) {
        jobs.insert(reinterpret_cast<opal_namelist_t *>(item)->name.jobid);
    }
    opal_list_t mine;
    OBJ_CONSTRUCT(&mine, opal_list_t);
    add(mine, OPAL_PROC_MY_NAME.jobid, OPAL_PROC_MY_NAME.vpid);
    for (const opal_jobid_t jobid : jobs) {
        add(mine, jobid, OPAL_VPID_INVALID);
    }
    const int rc = connect_all(&mine);
    OPAL_LIST_DESTRUCT(&mine);
    if (rc == OPAL_SUCCESS) {
        for (const opal_jobid_t jobid : jobs) {
            if (jobid != OPAL_PROC_MY_NAME.jobid) {
                learn_of(jobid);
            }
        }
    }
    return rc;
} catch (const std::exception &) {
    return OPAL_ERR_OUT_OF_RESOURCE;
}

} // namespace

void connect_by_oneself() noexcept
{
    if (connect_all == nullptr && opal_pmix.connect != nullptr) {
        connect_all = std::exchange(opal_pmix.connect, connect_alone);
    }
}

void connect_as_usual() noexcept
{
    if (connect_all != nullptr) {
        opal_pmix.connect = std::exchange(connect_all, nullptr);
    }
}

} // namespace ft::radixft

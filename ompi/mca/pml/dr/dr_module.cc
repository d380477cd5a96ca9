#include "ompi/mca/pml/dr/dr_module.hpp"

#include "ompi/mca/context_ids.hpp"
#include "ompi/mca/error_classes.hpp"
#include "ompi/mca/pml/dr/broken_pipe.hpp"
#include "ompi/mca/pml/dr/btl_path.hpp"
#include "ompi/mca/pml/dr/comm.hpp"
#include "ompi/mca/pml/dr/drain.hpp"
#include "ompi/mca/pml/dr/errors.hpp"
#include "ompi/mca/pml/dr/helper.hpp"
#include "ompi/mca/pml/dr/local_help.hpp"
#include "ompi/mca/pml/dr/parameters.hpp"
#include "ompi/mca/pml/dr/peers.hpp"
#include "ompi/mca/pml/dr/probe.hpp"
#include "ompi/mca/pml/dr/progress.hpp"
#include "ompi/mca/pml/dr/pvars.hpp"
#include "ompi/mca/pml/dr/recv.hpp"
#include "ompi/mca/pml/dr/recv_fragment.hpp"
#include "ompi/mca/pml/dr/send.hpp"
#include "opal/mca/show_help.hpp"

#include <unistd.h>

#include <algorithm>

namespace ft::dr {

bool module_enabled = false;

namespace {

/// The longest message of one fragment that any BTL or the user asks for.
std::size_t largest_eager() noexcept
{
    const Parameters &p = parameters();
    std::size_t largest = p.eager_limit;
    if (largest == 0) {
        mca_btl_base_selected_module_t *selected = nullptr;
        OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized,
                          mca_btl_base_selected_module_t)
        {
            largest = std::max(largest, eager_limit_of(*selected->btl_module));
        }
    }
    return std::min<std::size_t>(largest, p.engine.fragment_bytes);
}

/// Whether Open MPI has a BTL of this name, in use or not: a list that serves several jobs may name
/// those that one of them leaves out.
bool there_is_btl(std::string_view name)
{
    mca_btl_base_selected_module_t *selected = nullptr;
    OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    {
        if (name == selected->btl_component->btl_version.mca_component_name) {
            return true;
        }
    }
    const auto **linked = opal_btl_base_framework.framework_static_components;
    for (; linked != nullptr && *linked != nullptr; ++linked) {
        if (name == (*linked)->mca_component_name) {
            return true;
        }
    }
    opal_list_t *found = nullptr;
    if (mca_base_component_repository_get_components(&opal_btl_base_framework, &found) !=
            OPAL_SUCCESS ||
        found == nullptr) {
        return false;
    }
    mca_base_component_repository_item_t *item = nullptr;
    OPAL_LIST_FOREACH(item, found, mca_base_component_repository_item_t)
    {
        if (name == item->ri_name) {
            return true;
        }
    }
    return false;
}

/// A name that is misspelt would take protection away, or leave it on, without a word. One process
/// says so for all, and the job goes on: another host may have that BTL.
void tell_of_unknown_btls() noexcept
try {
    if (OMPI_PROC_MY_NAME->vpid != 0) {
        return;
    }
    for (const auto &[parameter, btl] : parameters().named_btls()) {
        if (!there_is_btl(btl)) {
            mca::show_help("help-pml-dr.txt", "no such btl", parameter, btl.c_str());
        }
    }
} catch (...) {
    return; // no memory: there will be worse to tell
}

int enable(bool on) noexcept
{
    if (!on) {
        return OMPI_SUCCESS;
    }
    if (!parameters().load()) {
        return OMPI_ERR_BAD_PARAM;
    }
    tell_of_unknown_btls();
    if (parameters().helper) {
        allow_helper();
    }
    decide_on_locks();
    int rc = mca::register_error_classes();
    if (rc == OMPI_SUCCESS) {
        rc = set_up_requests();
    }
    if (rc != OMPI_SUCCESS) {
        return rc;
    }
    set_up_descriptors();
    set_up_unexpected();
    set_up_tx_pools(largest_eager());
    peers().set_up();
    survive_broken_pipes();
    show_help_here();
    progress_beside_runtime();
    module_enabled = true;
    let_pvars_be_read(true);
    return OMPI_SUCCESS;
}

/// Has bml/r2 not say that it finds no way to somebody: it announces the end of the job, also when
/// the other one is merely dead.
void hush_bml() noexcept
{
    const mca_base_var_t *var = nullptr;
    const int index = mca_base_var_find("ompi", "bml", "r2", "show_unreach_errors");
    if (index >= 0 && mca_base_var_get(index, &var) == OPAL_SUCCESS) {
        var->mbv_storage->boolval = false;
    }
}

/// Who died in MPI_Init may be gone before it has told its PML, and the news of its death may be
/// still under way here. For how long somebody of whom neither is heard is asked again.
constexpr auto pml_wait = base::Duration::from_ms(10000);
constexpr useconds_t first_pml_pause_us = 1000; // each question costs the daemon some work
constexpr useconds_t longest_pml_pause_us = 50'000;

/// Whether the processes use this PML, too. Those who are dead need not say so.
int check_pmls(ompi_proc_t **procs, std::size_t count)
{
    const std::string self = OMPI_NAME_PRINT(OMPI_PROC_MY_NAME);
    const base::Time end = now() + pml_wait;
    for (std::size_t i = 0; i < count; ++i) {
        // Where the modex gives each everything at once, rank 0 tells it for all.
        opal_process_name_t teller = procs[i]->super.proc_name;
        if (opal_pmix_collect_all_data) {
            teller = *OMPI_PROC_MY_NAME;
            teller.vpid = 0;
        }
        int rc = mca_pml_base_pml_check_selected("dr", procs + i, 1);
        useconds_t pause_us = first_pml_pause_us;
        while (rc == OMPI_ERR_NOT_FOUND && death_error(teller) == MPI_SUCCESS && now() < end) {
            opal_progress(); // which takes note of deaths
            usleep(pause_us);
            pause_us = std::min(2 * pause_us, longest_pml_pause_us);
            rc = mca_pml_base_pml_check_selected("dr", procs + i, 1);
        }
        if (rc == OMPI_ERR_NOT_FOUND && death_error(teller) != MPI_SUCCESS) {
            rc = OMPI_SUCCESS;
        }
        if (rc == OMPI_ERR_NOT_FOUND) {
            const std::string wait = std::to_string(pml_wait.ms());
            mca::show_help("help-pml-dr.txt", "pml not told", wait.c_str(), self.c_str(),
                           opal_process_info.nodename, OMPI_NAME_PRINT(&teller));
        } else if (rc != OMPI_SUCCESS) {
            mca::show_help("help-pml-dr.txt", "mixed pmls", self.c_str(),
                           opal_process_info.nodename);
        }
        if (rc != OMPI_SUCCESS || opal_pmix_collect_all_data) {
            return rc;
        }
    }
    return OMPI_SUCCESS;
}

int add_procs(ompi_proc_t **procs, std::size_t count) noexcept
try {
    if (count == 0) {
        return OMPI_SUCCESS;
    }
    int rc = check_pmls(procs, count);
    if (rc != OMPI_SUCCESS) {
        return rc;
    }
    opal_bitmap_t reachable;
    OBJ_CONSTRUCT(&reachable, opal_bitmap_t);
    hush_bml();
    rc = opal_bitmap_init(&reachable, static_cast<int>(count));
    if (rc == OPAL_SUCCESS) {
        rc = mca_bml.bml_add_procs(count, procs, &reachable);
    }
    OBJ_DESTRUCT(&reachable);
    if (rc == OMPI_ERR_UNREACH) {
        opal_progress(); // which takes note of deaths
        const auto *unreached = std::find_if(procs, procs + count, [](const ompi_proc_t *proc) {
            return proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_BML] == nullptr &&
                   death_error(proc->super.proc_name) == MPI_SUCCESS;
        });
        if (unreached != procs + count) {
            tell_no_path(*unreached);
        } else {
            // Who is spawned and dies has no addresses any more. Some of those that spawn it may
            // have got them before, so all go on, and what is sent there fails.
            rc = OMPI_SUCCESS;
        }
    }
    if (rc == OMPI_SUCCESS) {
        rc = mca_bml.bml_register(btl_tag, on_fragment, nullptr);
    }
    if (rc == OMPI_SUCCESS) {
        rc = mca_bml.bml_register_error(btl_error);
    }
    // Behind the BTLs' own, so that what they bring is answered in the same pass.
    return rc == OMPI_SUCCESS ? start_progress() : rc;
} catch (...) {
    return OMPI_ERR_OUT_OF_RESOURCE;
}

int del_procs(ompi_proc_t **procs, std::size_t count) noexcept
{
    for (std::size_t i = 0; i < count; ++i) {
        peers().forget(procs[i]);
    }
    return mca_bml.bml_del_procs(count, procs);
}

int add_comm(ompi_communicator_t *comm) noexcept
{
    const int rc = comms().add(comm);
    if (rc == OMPI_SUCCESS && comm == &ompi_mpi_comm_self.comm) {
        return arrange_drain();
    }
    return rc;
}

int del_comm(ompi_communicator_t *comm) noexcept
{
    mca::release_ids(comm);
    return comms().remove(comm);
}

int dump(ompi_communicator_t * /*comm*/, int /*verbose*/) noexcept
{
    return OMPI_SUCCESS;
}

int ft_event(int /*state*/) noexcept
{
    return OMPI_SUCCESS;
}

} // namespace

mca_pml_base_module_t module = {
    .pml_add_procs = add_procs,
    .pml_del_procs = del_procs,
    .pml_enable = enable,
    .pml_progress = nullptr,
    .pml_add_comm = add_comm,
    .pml_del_comm = del_comm,
    .pml_irecv_init = irecv_init,
    .pml_irecv = irecv,
    .pml_recv = recv,
    .pml_isend_init = isend_init,
    .pml_isend = isend,
    .pml_send = send,
    .pml_iprobe = iprobe,
    .pml_probe = probe,
    .pml_start = start_requests,
    .pml_improbe = improbe,
    .pml_mprobe = mprobe,
    .pml_imrecv = imrecv,
    .pml_mrecv = mrecv,
    .pml_dump = dump,
    .pml_ft_event = ft_event,
    .pml_max_contextid = UINT32_MAX - 1,
    .pml_max_tag = INT_MAX,
    .pml_flags = 0,
};

} // namespace ft::dr

#include "orte_glue/mca/errmgr/radixft/errmgr_radixft.hpp"

#include "opal/mca/help_dir.hpp"
#include "opal/mca/open_mpi_series.hpp"
#include "orte_glue/radixft/parameters.hpp"

namespace {

int register_params() noexcept
{
    if (!ft::mca::open_mpi_fits(orte_errmgr_base_framework, "radixft")) {
        return ORTE_ERR_NOT_AVAILABLE;
    }
    // The runtime sleeps for this long between the signals with which it ends its ranks, and sleeps
    // again; a daemon that sleeps is silent, and the others would evict it. A user's own setting
    // stands.
    if (ft::radixft::requested()) {
        setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 0);
        const int rc = ft::radixft::register_pvars(&mca_errmgr_radixft_component.base_version);
        if (rc != OPAL_SUCCESS) {
            return rc;
        }
    }
    return ft::radixft::register_parameters(&mca_errmgr_radixft_component.base_version);
}

int query(mca_base_module_t **module, int *priority) noexcept
{
    *module = nullptr;
    *priority = -1;
    if (!ft::radixft::requested()) {
        return ORTE_ERROR; // never by itself: a job must ask
    }
    ft::mca::add_help_dir();
    orte_errmgr_base_module_t *mine = nullptr;
    if (ORTE_PROC_IS_HNP) {
        mine = &ft::radixft::mpirun_module;
    } else if (ORTE_PROC_IS_DAEMON) {
        mine = &ft::radixft::daemon_module;
    } else if (ORTE_PROC_IS_APP) {
        mine = &ft::radixft::rank_module;
    } else {
        return ORTE_ERROR;
    }
    *module = reinterpret_cast<mca_base_module_t *>(mine);
    *priority = 2000;
    return ORTE_SUCCESS;
}

} // namespace

extern "C" {
orte_errmgr_base_component_t mca_errmgr_radixft_component = {
    .base_version =
        {
            ORTE_ERRMGR_BASE_VERSION_3_0_0,
            .mca_component_name = "radixft",
            .mca_component_major_version = FT_VERSION_MAJOR,
            .mca_component_minor_version = FT_VERSION_MINOR,
            .mca_component_release_version = FT_VERSION_RELEASE,
            .mca_open_component = nullptr,
            .mca_close_component = nullptr,
            .mca_query_component = query,
            .mca_register_component_params = register_params,
            .mca_component_flags = 0,
            .reserved = {},
        },
    .base_data = {.param_field = MCA_BASE_METADATA_PARAM_NONE, .reserved = {}},
    .verbose = 0,
    .output_handle = -1,
    .priority = 0,
};
}

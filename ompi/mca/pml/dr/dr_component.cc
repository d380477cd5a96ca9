#include "ompi/mca/ompi_prelude.hpp"

#include "opal/mca/open_mpi_series.hpp"

#include "ompi/mca/pml/dr/added_peers.hpp"
#include "ompi/mca/pml/dr/broken_pipe.hpp"
#include "ompi/mca/pml/dr/btl_path.hpp"
#include "ompi/mca/pml/dr/comm.hpp"
#include "ompi/mca/pml/dr/dr_module.hpp"
#include "ompi/mca/pml/dr/drain.hpp"
#include "ompi/mca/pml/dr/local_help.hpp"
#include "ompi/mca/pml/dr/ofi_errors.hpp"
#include "ompi/mca/pml/dr/parameters.hpp"
#include "ompi/mca/pml/dr/peer_limits.hpp"
#include "ompi/mca/pml/dr/peers.hpp"
#include "ompi/mca/pml/dr/progress.hpp"
#include "ompi/mca/pml/dr/pvars.hpp"
#include "ompi/mca/pml/dr/resting.hpp"
#include "ompi/mca/pml/dr/statistics.hpp"

extern "C" OMPI_DECLSPEC mca_pml_base_component_2_0_0_t mca_pml_dr_component;

namespace ft::dr {

namespace {

/// Without "--mca pml dr" the component is not considered at all; with several PMLs named the
/// highest priority wins, and whoever names this one wants it.
constexpr int priority_when_named = 30;

int register_parameters() noexcept
{
    if (!mca::open_mpi_fits(ompi_pml_base_framework, "dr")) {
        return OMPI_ERR_NOT_AVAILABLE;
    }
    const int rc = Parameters::register_all(mca_pml_dr_component.pmlm_version);
    return rc == OMPI_SUCCESS ? register_pvars(mca_pml_dr_component.pmlm_version) : rc;
}

int open() noexcept
{
    return mca_base_framework_open(&ompi_bml_base_framework, MCA_BASE_OPEN_DEFAULT);
}

int close() noexcept
{
    resting.wake_all();
    const int rc = mca_base_framework_close(&ompi_bml_base_framework);
    // No BTL calls back any more.
    if (module_enabled) {
        module_enabled = false;
        let_pvars_be_read(false);
        die_of_broken_pipes_again();
        comms().release();
        stop_watching();
        release_peers();
        release_descriptors();
        release_unexpected();
        release_tx_pools();
        the_parameters.renew();
    }
    return rc;
}

/// bml/r2 keeps only the BTLs of highest exclusivity to a peer, which would hide slower ones from
/// failover. It looks at the time of add_procs, which is still to come. "self" stays apart: it
/// leads nowhere else.
void let_btls_stand_side_by_side() noexcept
{
    mca_btl_base_selected_module_t *selected = nullptr;
    std::uint32_t highest = 0;
    const auto other = [&] {
        const char *name = selected->btl_component->btl_version.mca_component_name;
        return std::strcmp(name, "self") != 0 &&
               (selected->btl_module->btl_flags & MCA_BTL_FLAGS_SEND) != 0;
    };
    OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    {
        if (other()) {
            highest = std::max(highest, selected->btl_module->btl_exclusivity);
        }
    }
    OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    {
        if (other()) {
            selected->btl_module->btl_exclusivity = highest;
        }
    }
}

mca_pml_base_module_t *init(int *priority, bool progress_threads, bool mpi_threads) noexcept
{
    *priority = priority_when_named;
    if (mca_bml_base_init(progress_threads, mpi_threads) != OMPI_SUCCESS) {
        return nullptr;
    }
    survive_ofi_errors();
    survive_added_peers();
    let_btls_stand_side_by_side();
    publish_limits();
    mca_btl_base_selected_module_t *selected = nullptr;
    OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    {
        if ((selected->btl_module->btl_flags & MCA_BTL_FLAGS_SINGLE_ADD_PROCS) != 0) {
            // Copied by Open MPI when this function returns.
            module.pml_flags |= MCA_PML_BASE_FLAG_REQUIRE_WORLD;
        }
    }
    return &module;
}

int finalize() noexcept
{
    if (module_enabled) {
        leave_runtime_alone();
        stop_progress();
        show_help_there_again();
        print_statistics();
    }
    die_of_added_peers_again();
    die_of_ofi_errors_again(); // what the BTLs have to do is done
    return mca_bml.bml_finalize();
}

} // namespace

} // namespace ft::dr

// The rest of the struct is Open MPI's reserve.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
mca_pml_base_component_2_0_0_t mca_pml_dr_component = {
    .pmlm_version =
        {
            MCA_PML_BASE_VERSION_2_0_0,
            .mca_component_name = "dr",
            .mca_component_major_version = FT_VERSION_MAJOR,
            .mca_component_minor_version = FT_VERSION_MINOR,
            .mca_component_release_version = FT_VERSION_RELEASE,
            .mca_open_component = ft::dr::open,
            .mca_close_component = ft::dr::close,
            .mca_register_component_params = ft::dr::register_parameters,
        },
    .pmlm_data = {MCA_BASE_METADATA_PARAM_NONE},
    .pmlm_init = ft::dr::init,
    .pmlm_finalize = ft::dr::finalize,
};

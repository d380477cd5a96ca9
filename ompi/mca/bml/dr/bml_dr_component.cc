/// \file
/// Lets btl/tcp carry fragments as large as pml/dr's where pml/dr is asked for by name.
///
/// btl/tcp makes its buffers when it is initialised, both for what it sends and for what it
/// receives, and MPI_Init initialises the BTLs before it opens a PML: what pml/dr itself could
/// change comes too late. A component of the framework that opens the BTLs is opened in time. This
/// one is no BML: it does its work while it is opened and has itself taken out at once, so bml/r2
/// is chosen as always.
#include "ompi/mca/ompi_prelude.hpp"

#include <string_view>

#include "ompi/mca/pml/dr/fragment_size.hpp"
#include "opal/mca/open_mpi_series.hpp"

extern "C" OMPI_DECLSPEC mca_bml_base_component_2_0_0_t mca_bml_dr_component;

namespace ft::dr {

namespace {

bool names_dr(int variable) noexcept
{
    const mca_base_var_t *known = nullptr;
    if (mca_base_var_get(variable, &known) != OPAL_SUCCESS || known->mbv_storage == nullptr ||
        known->mbv_storage->stringval == nullptr) {
        return false;
    }
    // Of several names Open MPI takes the first only.
    const std::string_view names(known->mbv_storage->stringval);
    return names == "dr" || names.starts_with("dr,");
}

/// The PMLs' framework is opened later, unless the program has used MPI_T. Its parameter is
/// registered here in the same words, which finds what was set, be it in a file, and taken back.
bool dr_is_named() noexcept
{
    if (const int known = mca_base_var_find("ompi", "pml", nullptr, nullptr); known >= 0) {
        return names_dr(known);
    }
    static char *names = nullptr; // Open MPI frees what it puts there
    const int early = mca_base_var_register(
        "ompi", "pml", nullptr, nullptr,
        "Default selection set of components for the pml framework (<none> means use all "
        "components that can be found)",
        MCA_BASE_VAR_TYPE_STRING, nullptr, 0, MCA_BASE_VAR_FLAG_SETTABLE, OPAL_INFO_LVL_2,
        MCA_BASE_VAR_SCOPE_ALL_EQ, &names);
    if (early < 0) {
        return false;
    }
    const bool named = names_dr(early);
    mca_base_var_deregister(early);
    return named;
}

/// Nothing that a user, or an administrator, has set is changed.
void enlarge_tcp() noexcept
{
    const mca_base_var_t *size = nullptr;
    const int found = mca_base_var_find("opal", "btl", "tcp", "max_send_size");
    if (found >= 0 && mca_base_var_get(found, &size) == OPAL_SUCCESS &&
        size->mbv_source == MCA_BASE_VAR_SOURCE_DEFAULT &&
        size->mbv_type == MCA_BASE_VAR_TYPE_SIZE_T && size->mbv_storage != nullptr) {
        size->mbv_storage->sizetval =
            std::max(size->mbv_storage->sizetval, default_fragment_bytes + fragment_overhead);
    }
}

/// A BTL was named that there is none of. Open MPI ends the job for that when it registers the
/// framework itself, but it dies of the second registration of what the first has left.
void unregister_btls() noexcept
{
    const int group = mca_base_var_group_find("opal", "btl", nullptr);
    if (group >= 0) {
        mca_base_var_group_deregister(group);
    }
}

int open() noexcept
{
    if (mca::open_mpi_fits() && dr_is_named()) {
        // The framework of the BTLs is opened next. It reads the BTLs' parameters now, then finds
        // that done; it counts its users, and this one goes again.
        const bool registered =
            mca_base_framework_register(&opal_btl_base_framework, MCA_BASE_REGISTER_DEFAULT) ==
            OPAL_SUCCESS;
        --opal_btl_base_framework.framework_refcnt;
        if (registered) {
            enlarge_tcp();
        } else {
            unregister_btls();
        }
    }
    return OMPI_ERR_NOT_AVAILABLE; // which Open MPI takes for "not needed", without a word
}

} // namespace

} // namespace ft::dr

// The rest of the struct is Open MPI's reserve.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
mca_bml_base_component_2_0_0_t mca_bml_dr_component = {
    .bml_version =
        {
            MCA_BML_BASE_VERSION_2_0_0,
            .mca_component_name = "dr",
            .mca_component_major_version = FT_VERSION_MAJOR,
            .mca_component_minor_version = FT_VERSION_MINOR,
            .mca_component_release_version = FT_VERSION_RELEASE,
            .mca_open_component = ft::dr::open,
        },
    .bml_data = {MCA_BASE_METADATA_PARAM_NONE},
    .bml_init = nullptr,
};

/// \file
/// Does what pml/dr needs before the BTLs are initialised, where pml/dr is asked for by name: lets
/// btl/tcp carry fragments as large as pml/dr's, and switches Open MPI's locks on for the helper
/// thread (pml_dr_progress thread).
///
/// btl/tcp makes its buffers when it is initialised, both for what it sends and for what it
/// receives, and MPI_Init initialises the BTLs before it opens a PML: what pml/dr itself could
/// change comes too late. A component of the framework that opens the BTLs is opened in time. This
/// one is no BML: it does its work while it is opened and has itself taken out at once, so bml/r2
/// is chosen as always.
#include "ompi/mca/ompi_prelude.hpp"

#include <string_view>

#include "ompi/mca/pml/dr/fragment_size.hpp"
#include "ompi/mca/pml/dr/progress_mode.hpp"
#include "opal/mca/open_mpi_series.hpp"

extern "C" OMPI_DECLSPEC mca_bml_base_component_2_0_0_t mca_bml_dr_component;

namespace ft::dr {

namespace {

/// \return the text of a registered parameter, empty when there is none
std::string_view text_of(int variable) noexcept
{
    const mca_base_var_t *known = nullptr;
    return mca_base_var_get(variable, &known) != OPAL_SUCCESS || known->mbv_storage == nullptr ||
                   known->mbv_storage->stringval == nullptr
               ? std::string_view{}
               : std::string_view(known->mbv_storage->stringval);
}

/// Looks at a parameter of the PMLs, or of one of them. Their framework is opened later, unless the
/// program has used MPI_T. It is registered here in the same words, which finds what was set, be it
/// in a file, and taken back.
template <class Test>
bool set_early(const char *component, const char *name, const char *help, int flags,
               mca_base_var_info_lvl_t level, mca_base_var_scope_t scope, Test test) noexcept
{
    if (const int known = mca_base_var_find("ompi", "pml", component, name); known >= 0) {
        return test(text_of(known));
    }
    static char *text = nullptr; // Open MPI frees what it puts there
    const int early = mca_base_var_register(
        "ompi", "pml", component, name, help, MCA_BASE_VAR_TYPE_STRING, nullptr, 0,
        static_cast<mca_base_var_flag_t>(flags), level, scope, &text);
    if (early < 0) {
        return false;
    }
    const bool found = test(text_of(early));
    mca_base_var_deregister(early);
    return found;
}

bool dr_is_named() noexcept
{
    return set_early(
        nullptr, nullptr,
        "Default selection set of components for the pml framework (<none> means use "
        "all components that can be found)",
        MCA_BASE_VAR_FLAG_SETTABLE, OPAL_INFO_LVL_2, MCA_BASE_VAR_SCOPE_ALL_EQ,
        // Of several names Open MPI takes the first only.
        [](std::string_view names) { return names == "dr" || names.starts_with("dr,"); });
}

/// The helper thread that pml/dr starts later, if the user wants it, calls the BTLs beside the
/// program's own: they are to find Open MPI's locks switched on when they set themselves up.
void switch_on_locks() noexcept
{
    // As Open MPI registers a component's: it goes away with the component.
    constexpr int flags = MCA_BASE_VAR_FLAG_SETTABLE | MCA_BASE_VAR_FLAG_DWG;
    if (set_early(progress_component, progress_name, progress_help, flags, progress_level,
                  progress_scope, [](std::string_view mode) { return mode == progress_thread; })) {
        opal_set_using_threads(true);
    }
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
        switch_on_locks();
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

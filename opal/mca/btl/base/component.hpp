/// \file
/// What Open MPI is told of a BTL when it loads it.
#pragma once
#include "opal/mca/opal_prelude.hpp"

#include "opal/mca/help_dir.hpp"

#include <cstdio>

namespace ft::btl {

inline int open_component() noexcept
{
    mca::add_help_dir();
    return OPAL_SUCCESS;
}

inline int close_component() noexcept
{
    return OPAL_SUCCESS;
}

/// The component of that name, for the variable mca_btl_NAME_component. \param progress null where
/// there is nothing to be done in it
inline mca_btl_base_component_t
component(const char *name, mca_base_register_component_params_2_0_0_fn_t register_parameters,
          mca_btl_base_component_init_fn_t init,
          mca_btl_base_component_progress_fn_t progress) noexcept
{
    mca_btl_base_component_t component{};
    // C++ wants every member named or none; what is not set here is zero.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
    component.btl_version = {
        MCA_BTL_BASE_VERSION_3_1_0,
        MCA_BASE_MAKE_VERSION(component, FT_VERSION_MAJOR, FT_VERSION_MINOR, FT_VERSION_RELEASE),
        .mca_open_component = open_component, .mca_close_component = close_component,
        .mca_register_component_params = register_parameters};
#pragma GCC diagnostic pop
    std::snprintf(component.btl_version.mca_component_name,
                  sizeof component.btl_version.mca_component_name, "%s", name);
    component.btl_data.param_field = MCA_BASE_METADATA_PARAM_CHECKPOINT;
    component.btl_init = init;
    component.btl_progress = progress;
    return component;
}

} // namespace ft::btl

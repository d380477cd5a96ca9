/// \file
/// Which PML a process has, for a BTL whose ways differ with it.
#pragma once
#include "opal/mca/opal_prelude.hpp"

#include <dlfcn.h>

namespace ft::mca {

/// A PML is chosen before it asks for peers, and after the BTLs are initialised. OPAL does not know
/// of PMLs, but in a process of MPI the name is there. \return nullptr where there is none
inline const char *selected_pml() noexcept
{
    const auto *component = static_cast<const mca_base_component_t *>(
        dlsym(RTLD_DEFAULT, "mca_pml_base_selected_component"));
    return component == nullptr ? nullptr : component->mca_component_name;
}

/// Whether that PML sends again what is lost; so does one that is not there. Asked for the first
/// time when a PML has asked for peers, never before.
inline bool pml_retransmits() noexcept
{
    static const bool does = [] {
        const char *name = selected_pml();
        return name == nullptr || std::strcmp(name, "dr") == 0;
    }();
    return does;
}

} // namespace ft::mca

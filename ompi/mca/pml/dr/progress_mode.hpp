/// \file
/// pml_dr_progress, as it is registered: by pml/dr, and before that by bml/dr, which looks at it
/// while the BTLs are not initialised yet.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <string_view>

namespace ft::dr {

inline constexpr const char *progress_component = "dr";
inline constexpr const char *progress_name = "progress";
inline constexpr const char *progress_help =
    "Who sends again what was lost: app, the program whenever it calls MPI, or thread, also a "
    "thread of this component while it does not. app: who computes for long keeps a receiver "
    "waiting that long for a fragment that was lost. thread: locks, some tens of nanoseconds "
    "for each message, and a thread that wakes every pml_dr_rto_min_us while anything is "
    "unacknowledged.";
inline constexpr mca_base_var_info_lvl_t progress_level = OPAL_INFO_LVL_3;
inline constexpr mca_base_var_scope_t progress_scope = MCA_BASE_VAR_SCOPE_LOCAL;
inline constexpr std::string_view progress_app = "app";
inline constexpr std::string_view progress_thread = "thread";

} // namespace ft::dr

/// Makes the help texts of this project's components findable.
///
/// Open MPI's show_help looks in its own data folder only, where a component built outside its tree
/// must not write. It takes further folders through opal_show_help_add_dir; ours is fixed when this
/// project is configured (FT_HELP_DIR, from --prefix). The text is rendered in the process that
/// calls show_help, so one call in that process is enough.
#pragma once

#include "opal/mca/opal_prelude.hpp"

namespace ft::mca {

/// To be called from a component's open or register function, before it can show any help. The
/// folder is added once for each shared object that calls, however often; the search tries them in
/// turn.
inline void add_help_dir() noexcept
{
    static const int added = opal_show_help_add_dir(FT_HELP_DIR);
    static_cast<void>(added);
}

} // namespace ft::mca

/// The only place that includes headers of Open MPI's ORTE layer; it brings OPAL's with it.
///
/// The rules of opal/mca/opal_prelude.hpp hold here too. A component that lives in ORTE includes
/// this file before anything else. When another header of ORTE is needed, it is added here. One
/// cannot be: orte/mca/iof/base/base.h (and orte/mca/odls/base/odls_private.h, which includes it)
/// is no C++.
#pragma once

#include "opal/mca/opal_prelude.hpp"

#include <csignal>

#include <sys/wait.h>

// The order matters.
// clang-format off
#include "orte_config.h"

extern "C" {

#include "opal/class/opal_bitmap.h"
#include "opal/dss/dss.h"
#include "opal/dss/dss_types.h"
#include "opal/mca/base/mca_base_pvar.h"
#include "opal/runtime/opal_progress_threads.h"
#include "opal/util/error.h"
#include "opal/util/opal_environ.h"
#include "orte/constants.h"
#include "orte/types.h"
#include "orte/mca/errmgr/errmgr.h"
#include "orte/mca/errmgr/base/base.h"
#include "orte/mca/errmgr/base/errmgr_private.h"
#include "orte/mca/ess/ess.h"
#include "orte/mca/grpcomm/grpcomm.h"
#include "orte/mca/grpcomm/base/base.h"
#include "orte/mca/iof/iof.h"
#include "orte/mca/iof/iof_types.h"
#include "orte/mca/odls/odls.h"
#include "orte/mca/odls/odls_types.h"
#include "orte/mca/oob/oob.h"
#include "orte/mca/oob/base/base.h"
#include "orte/mca/plm/plm.h"
#include "orte/mca/plm/base/base.h"
#include "orte/mca/plm/base/plm_private.h"
#include "orte/mca/ras/base/base.h"
#include "orte/mca/rmaps/rmaps_types.h"
#include "orte/mca/rmaps/base/base.h"
#include "orte/mca/rmaps/base/rmaps_private.h"
#include "orte/mca/rml/rml.h"
#include "orte/mca/rml/rml_types.h"
#include "orte/mca/rml/base/base.h"
#include "orte/mca/routed/routed.h"
#include "orte/mca/routed/base/base.h"
#include "orte/mca/state/state.h"
#include "orte/mca/state/base/base.h"
#include "orte/mca/state/base/state_private.h"
#include "orte/orted/pmix/pmix_server_internal.h"
#include "orte/runtime/orte_data_server.h"
#include "orte/runtime/orte_globals.h"
#include "orte/runtime/orte_quit.h"
#include "orte/runtime/orte_wait.h"
#include "orte/util/attr.h"
#include "orte/util/name_fns.h"
#include "orte/util/proc_info.h"
#include "orte/util/session_dir.h"
#include "orte/util/show_help.h"
#include "orte/util/threads.h"

} // extern "C"
// clang-format on

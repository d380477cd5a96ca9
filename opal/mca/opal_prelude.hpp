/// The only place that includes headers of Open MPI's OPAL layer.
///
/// Open MPI's internal headers are C. Some lack `extern "C"`, and a name mangled by mistake shows
/// only at the first call; so the standard headers that they pull in come first, as C++, and
/// everything of Open MPI's follows inside one `extern "C"`. A component that lives in OPAL (a BTL)
/// includes this file before anything else, one that lives in OMPI includes
/// ompi/mca/ompi_prelude.hpp instead. When another header of OPAL is needed, it is added here.
#pragma once

// Whatever the C headers include must have been seen outside extern "C": C++'s own have templates.
#include <algorithm>
#include <cassert>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <strings.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

// mpi.h would bring in the C++ bindings of MPI-2.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif

// The order matters.
// clang-format off
#include "opal_config.h"

extern "C" {

// One macro of this header casts its second argument to void * where the function wants void **,
// which C lets pass. It must be replaced before any header uses it.
#include "opal/threads/thread_usage.h"
#undef OPAL_THREAD_COMPARE_EXCHANGE_STRONG_PTR
#define OPAL_THREAD_COMPARE_EXCHANGE_STRONG_PTR(address, expected, desired)                        \
    opal_thread_compare_exchange_strong_ptr((volatile intptr_t *)(address), (void **)(expected),   \
                                            (void *)(desired))

#include "opal/class/opal_free_list.h"
#include "opal/class/opal_hash_table.h"
#include "opal/class/opal_list.h"
#include "opal/class/opal_pointer_array.h"
#include "opal/constants.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/mca/allocator/allocator.h"
#include "opal/mca/allocator/base/base.h"
#include "opal/mca/base/base.h"
#include "opal/mca/base/mca_base_component_repository.h"
#include "opal/mca/base/mca_base_framework.h"
#include "opal/mca/base/mca_base_pvar.h"
#include "opal/mca/base/mca_base_var.h"
#include "opal/mca/btl/base/base.h"
#include "opal/mca/btl/base/btl_base_error.h"
#include "opal/mca/btl/btl.h"
#include "opal/mca/event/event.h"
#include "opal/mca/mpool/base/base.h"
#include "opal/mca/pmix/pmix.h"
#include "opal/mca/rcache/base/base.h"
#include "opal/runtime/opal.h"
#include "opal/runtime/opal_params.h"
#include "opal/runtime/opal_progress.h"
#include "opal/threads/mutex.h"
#include "opal/threads/threads.h"
#include "opal/util/argv.h"
#include "opal/util/output.h"
#include "opal/util/proc.h"
#include "opal/util/show_help.h"

} // extern "C"
// clang-format on

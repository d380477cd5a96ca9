/// The only place that includes headers of Open MPI's OMPI layer; it brings OPAL's with it.
///
/// The rules of opal/mca/opal_prelude.hpp hold here too. A component that lives in OMPI (a PML, a
/// collective) includes this file before anything else. When another header of OMPI is needed, it
/// is added here.
#pragma once

#include "opal/mca/opal_prelude.hpp"

// The order matters.
// clang-format off
#include "ompi_config.h"

extern "C" {

// ompi/peruse/peruse.h is included by Open MPI's headers and not installed with them. Its guard and
// empty trace macros stand in for it: Debian's build has PERUSE off.
#define _PERUSE_INTERNAL_H_
#define PERUSE_TRACE_COMM_EVENT(event, base_req, op)
#define PERUSE_TRACE_COMM_OMPI_EVENT(event, base_req, size, op)
#define PERUSE_TRACE_MSG_EVENT(event, comm_ptr, hdr_peer, hdr_tag, op)

#include "ompi/attribute/attribute.h"
#include "ompi/communicator/communicator.h"
#include "ompi/constants.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/errhandler/errcode-internal.h"
#include "ompi/errhandler/errcode.h"
#include "ompi/errhandler/errhandler.h"
#include "ompi/group/group.h"
#include "ompi/info/info.h"
#include "ompi/mca/bml/base/base.h"
#include "ompi/mca/bml/bml.h"
#include "ompi/mca/coll/base/base.h"
#include "ompi/mca/coll/coll.h"
#include "ompi/mca/pml/base/base.h"
#include "ompi/mca/pml/base/pml_base_bsend.h"
#include "ompi/mca/pml/base/pml_base_recvreq.h"
#include "ompi/mca/pml/base/pml_base_request.h"
#include "ompi/mca/pml/base/pml_base_sendreq.h"
#include "ompi/mca/pml/pml.h"
#include "ompi/mca/pml/pml_constants.h"
#include "ompi/mca/topo/base/base.h"
#include "ompi/mca/topo/topo.h"
#include "ompi/message/message.h"
#include "ompi/proc/proc.h"
#include "ompi/request/grequest.h"
#include "ompi/request/request.h"
#include "ompi/request/request_default.h"
#include "ompi/runtime/mpiruntime.h"
#include "ompi/runtime/params.h"
#include "ompi/win/win.h"

} // extern "C"
// clang-format on

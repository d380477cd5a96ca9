/// \file
/// The locks of this component.
///
/// Order, outermost first: who parts, peer, communicator, then the leaves (peer table and behind it
/// the watched paths, busy list, pools, resting buffers, orphans). Requests are completed with none
/// held, since their callbacks may call MPI. With threads no lock is held across btl_send, which
/// may call back, but for BTLs that gather fragments.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include "opal/mca/lock.hpp"

namespace ft::dr {

using mca::Guard;
using mca::Mutex;
using mca::Turn;

} // namespace ft::dr

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
#include "opal/mca/pool.hpp"

namespace ft::dr {

namespace detail {
inline bool one_thread_at_a_time = false; ///< set once
}

/// Whether several threads may be in here at a time: not where the program has said that one does
/// all calls, or one after the other (MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED), and nobody else
/// calls in. Open MPI's own locks, and those of BTLs, are real there all the same: whether one may
/// be held while a BTL calls back is asked of opal_using_threads.
inline bool several_threads() noexcept
{
    return opal_using_threads() && !detail::one_thread_at_a_time;
}
/// To be called once the BTLs have said which threads they have, before any lock is taken.
void decide_on_locks() noexcept;

using Mutex = mca::MutexIf<several_threads>;
using Guard = std::lock_guard<Mutex>;
using Turn = mca::TurnIf<several_threads>;
using BlockPool = mca::BasicBlockPool<Mutex>;

} // namespace ft::dr

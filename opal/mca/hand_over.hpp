/// \file
/// What one thread leaves and another one finds by way of Open MPI's own atomics, which the thread
/// sanitizer does not see: libmpi is not instrumented, and its free lists and waits are built of
/// fences. Nothing in other builds.
#pragma once

#ifdef __SANITIZE_THREAD__
extern "C" {
void __tsan_acquire(void *place); // NOLINT(bugprone-reserved-identifier)
void __tsan_release(void *place); // NOLINT(bugprone-reserved-identifier)
}
#endif

namespace ft::mca {

/// This thread is done with the object: a free list or a waiting thread has it next.
inline void hand_over([[maybe_unused]] void *object) noexcept
{
#ifdef __SANITIZE_THREAD__
    __tsan_release(object);
#endif
}

/// The object came from a free list, or is known to be complete.
inline void take_over([[maybe_unused]] void *object) noexcept
{
#ifdef __SANITIZE_THREAD__
    __tsan_acquire(object);
#endif
}

} // namespace ft::mca

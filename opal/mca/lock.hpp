/// \file
/// Locks that cost one test of a flag where the process has one thread.
#pragma once
#include "opal/mca/opal_prelude.hpp"

#include <mutex>

namespace ft::mca {

/// Whether Open MPI's own locks are real: for every level of threads but MPI_THREAD_SINGLE.
inline bool using_threads() noexcept
{
    return opal_using_threads();
}

/// \param real whether it is to lock; does not change while somebody has it
template <bool (*real)() noexcept>
class MutexIf {
  public:
    MutexIf() = default;
    MutexIf(const MutexIf &) = delete;
    MutexIf &operator=(const MutexIf &) = delete;

    void lock() noexcept
    {
        if (OPAL_UNLIKELY(real())) {
            mutex_.lock();
        }
    }
    void unlock() noexcept
    {
        if (OPAL_UNLIKELY(real())) {
            mutex_.unlock();
        }
    }

  private:
    std::mutex mutex_;
};

using Mutex = MutexIf<using_threads>;
using Guard = std::lock_guard<Mutex>;

/// A flag that one caller at a time can take; works for re-entry by one thread as well as between
/// threads.
template <bool (*real)() noexcept>
class TurnIf {
  public:
    bool take() noexcept
    {
        if (!real()) {
            const bool was = taken_;
            taken_ = true;
            return !was;
        }
        return !__atomic_test_and_set(&taken_, __ATOMIC_ACQUIRE);
    }
    void give_back() noexcept { __atomic_clear(&taken_, __ATOMIC_RELEASE); }

  private:
    bool taken_ = false;
};

using Turn = TurnIf<using_threads>;

} // namespace ft::mca

/// \file
/// Locks that cost one test of a flag where the process has one thread.
#pragma once
#include "opal/mca/opal_prelude.hpp"

#include <mutex>

namespace ft::mca {

class Mutex {
  public:
    Mutex() = default;
    Mutex(const Mutex &) = delete;
    Mutex &operator=(const Mutex &) = delete;

    void lock() noexcept
    {
        if (OPAL_UNLIKELY(opal_using_threads())) {
            mutex_.lock();
        }
    }
    void unlock() noexcept
    {
        if (OPAL_UNLIKELY(opal_using_threads())) {
            mutex_.unlock();
        }
    }

  private:
    std::mutex mutex_;
};

using Guard = std::lock_guard<Mutex>;

/// A flag that one caller at a time can take; works for re-entry by one thread as well as between
/// threads.
class Turn {
  public:
    bool take() noexcept
    {
        if (!opal_using_threads()) {
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

} // namespace ft::mca

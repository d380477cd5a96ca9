#include "ompi/mca/pml/dr/helper.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "ompi/mca/pml/dr/clock.hpp"
#include "ompi/mca/pml/dr/parameters.hpp"
#include "ompi/mca/pml/dr/peers.hpp"
#include "opal/ft/base/lasting.hpp"
#include "opal/process/quiet_thread.hpp"

namespace ft::dr {

namespace {

/// Periods for which nothing must have been to do before it sleeps for longer: to be woken costs
/// the program a system call.
constexpr unsigned linger = 50;
/// It sleeps for this part of a period at least, however near the next deadline is.
constexpr int shortest_part = 32;

/// For how long it sleeps. A program that calls MPI looks at its deadlines by itself.
base::Duration nap(bool program_computes) noexcept
{
    const base::Duration period = parameters().engine.rto_min;
    return program_computes
               ? std::clamp(peers().next_pass() - now(), period / shortest_part, period)
               : period;
}

class Helper {
  public:
    int start() noexcept;
    void stop() noexcept;
    void wake() noexcept
    {
        if (OPAL_UNLIKELY(dozing_.load(std::memory_order_seq_cst))) {
            const std::lock_guard guard(mutex_);
            dozing_.store(false, std::memory_order_relaxed);
            waker_.notify_one();
        }
    }
    void note() noexcept
    {
        // Of several threads one may overwrite the other's: it has changed all the same.
        passes_.store(passes_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }

  private:
    void run() noexcept;
    /// Both: \return false when it is to end
    bool doze() noexcept;
    bool sleep(base::Duration longest) noexcept;

    std::thread thread_;
    std::mutex mutex_;
    std::condition_variable waker_;
    bool stop_ = false;               ///< guarded by mutex_
    std::atomic<bool> dozing_{false}; ///< until a peer is busy
    std::atomic<std::uint64_t> passes_{0};
};

int Helper::start() noexcept
{
    stop_ = false;
    return process::start_quiet_thread(thread_, [this] { run(); }) ? OMPI_ERR_OUT_OF_RESOURCE
                                                                   : OMPI_SUCCESS;
}

void Helper::stop() noexcept
{
    if (!thread_.joinable()) {
        return;
    }
    {
        const std::lock_guard guard(mutex_);
        stop_ = true;
        waker_.notify_one();
    }
    thread_.join();
}

/// Until a peer is busy.
bool Helper::doze() noexcept
{
    std::unique_lock held(mutex_);
    dozing_.store(true, std::memory_order_seq_cst);
    // Whoever became busy before this look was not told that we sleep.
    if (peers().any_busy()) {
        dozing_.store(false, std::memory_order_relaxed);
    }
    waker_.wait(held, [this] { return stop_ || !dozing_.load(std::memory_order_relaxed); });
    return !stop_;
}

bool Helper::sleep(base::Duration longest) noexcept
{
    std::unique_lock held(mutex_);
    waker_.wait_for(held, std::chrono::nanoseconds(longest.ns()), [this] { return stop_; });
    return !stop_;
}

void Helper::run() noexcept
{
    pthread_setname_np(pthread_self(), "pml_dr_helper"); // as top -H and debuggers show it
    unsigned calm = 0;
    bool computes = false;
    for (;;) {
        if (calm >= linger) {
            if (!doze()) {
                return;
            }
            calm = 0;
        }
        const std::uint64_t seen = passes_.load(std::memory_order_relaxed);
        if (!sleep(nap(computes))) {
            return;
        }
        const bool busy = peers().any_busy();
        computes = busy && seen == passes_.load(std::memory_order_relaxed);
        calm = busy ? 0 : calm + 1;
        // Also when nothing is due: an acknowledgement that is not read until the timeout makes the
        // round trip look as long as the timeout, and the next timeout longer.
        if (computes) {
            opal_progress();
        }
    }
}

/// A child of this process that calls exit() has no such thread to wait for.
base::Lasting<Helper> the_helper;
constinit Helper &helper = the_helper.object;

} // namespace

void allow_helper() noexcept
{
    opal_set_using_threads(true);
}

int start_helper() noexcept
{
    return helper.start();
}

void stop_helper() noexcept
{
    helper.stop();
}

void note_progress() noexcept
{
    helper.note();
}

void wake_helper() noexcept
{
    helper.wake();
}

} // namespace ft::dr

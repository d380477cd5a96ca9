// The self-checking thread of a rank: reports to the daemon whether the progress engine moves.
//
// Two functions of the progress engine, its first and its last, count its turns in one word, which
// is odd between them. So a word that is odd and stands still means that what was registered
// between them (a BTL, the PML, a nonblocking collective) does not come back. A rank that computes
// leaves the word even, one that waits for a message leaves it moving.
//
// Sockets' handlers run behind the last function (opal_progress_events), with the word even. It
// cannot be left odd for them: nothing of ours runs between their end and opal_progress's return,
// after which the program may compute for hours. An event of our own that is made active in each
// turn, with the lowest priority, would run behind them, but costs each turn a pass of libevent's
// queues, also where no socket is; one that is only made active when a socket's is would need
// libevent's own lists, whose layout is no interface. So those whom the handlers call mark their
// own entry and return: pml/dr does, for the fragments that btl/tcp brings. Under another PML, and
// in what a BTL does by itself, a handler that does not come back is not seen.
#include "orte_glue/mca/errmgr/radixft/errmgr_radixft.hpp"

#include "opal/process/deaths.hpp"
#include "opal/process/handlers.hpp"
#include "opal/process/quiet_thread.hpp"
#include "orte_glue/radixft/daemon.hpp"
#include "orte_glue/radixft/local_queue.hpp"
#include "orte_glue/radixft/prompt.hpp"
#include "orte_glue/radixft/self_check_record.hpp"
#include "orte_glue/radixft/watch.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <fcntl.h>

namespace ft::radixft {

namespace {

using detector::RankState;

std::atomic<std::uint64_t> turns{0};
std::atomic<bool> last_to_move{false};

int leave_progress() noexcept
{
    const std::uint64_t now = turns.load(std::memory_order_relaxed);
    turns.store((now + 1) & ~std::uint64_t{1}, std::memory_order_relaxed);
    return 0;
}

int enter_progress() noexcept
{
    const std::uint64_t now = (turns.load(std::memory_order_relaxed) + 2) | 1;
    turns.store(now, std::memory_order_relaxed);
    if (death_board.news()) [[unlikely]] {
        take_from_board();
    }
    // Also now and then without having been told: the first report may come after a function that
    // was registered in MPI_Init and does not come back.
    const bool power_of_two = ((now >> 1) & ((now >> 1) - 1)) == 0;
    if (power_of_two || (last_to_move.load(std::memory_order_relaxed) &&
                         last_to_move.exchange(false))) [[unlikely]] {
        // What was registered behind the last one would go unwatched. Done here and not in the
        // thread: another turn may miss the last one meanwhile, but this one meets it afterwards,
        // so the word is not left odd.
        opal_progress_unregister(leave_progress);
        opal_progress_register(leave_progress);
    }
    return 0;
}

class SelfCheck {
  public:
    /// False when the record cannot be written or no thread is to be had.
    bool start(const std::string &folder, base::Duration period)
    {
        path_ = self_check_path(folder, ORTE_PROC_MY_NAME->jobid, ORTE_PROC_MY_NAME->vpid);
        file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (file_ < 0) {
            return false;
        }
        period_ = period;
        opal_progress_register(enter_progress);
        opal_progress_register(leave_progress);
        // Without a thread the rank runs unwatched, like one that asked for none.
        return !process::start_quiet_thread(thread_, [this] { run(); });
    }

    ~SelfCheck()
    {
        if (thread_.joinable()) {
            {
                const std::lock_guard lock(mutex_);
                stop_ = true;
            }
            wake_.notify_one();
            thread_.join();
            opal_progress_unregister(enter_progress);
            opal_progress_unregister(leave_progress);
            write({}, SelfCheckRecord::left);
        }
        if (file_ >= 0) {
            ::close(file_);
            ::unlink(path_.c_str()); // the daemon has done so, if it has seen it
        }
    }

  private:
    void run()
    {
        // The kernel tells the daemon of this process's end when the last thread has ended.
        run_promptly();
        detector::SelfCheckReporter reporter({.period = period_});
        std::unique_lock lock(mutex_);
        base::Duration pause;
        do {
            const RankState state = look();
            if (reporter.due(monotonic_now(), state)) {
                write(state, 0);
                last_to_move.store(true, std::memory_order_relaxed);
            }
            pause = mend() ? base::Duration::from_ms(1) : period_;
        } while (
            !wake_.wait_for(lock, std::chrono::nanoseconds(pause.ns()), [this] { return stop_; }));
    }

    /// \return whether to come back soon
    bool mend()
    try {
        if (const std::size_t deaths = process::death_count(); deaths != deaths_) {
            // One at a time. Segments may have come since, or gone.
            queue_.reset();
            queue_ = std::make_unique<LocalQueue>(ORTE_PROC_MY_NAME->jobid,
                                                  orte_process_info.my_local_rank);
            deaths_ = deaths;
            mender_.on_death();
        }
        if (queue_ != nullptr && queue_->usable() && mender_.step(*queue_)) {
            opal_output_verbose(1, orte_errmgr_base_framework.framework_output,
                                "radixft: rank %s: a dead writer's gap in the queue is closed",
                                ORTE_VPID_PRINT(ORTE_PROC_MY_NAME->vpid));
        }
        if (queue_ != nullptr && !(queue_->usable() && mender_.looking())) {
            queue_.reset();
        }
        return queue_ != nullptr;
    } catch (const std::exception &) {
        return true; // no memory to look: again
    }

    RankState look()
    {
        RankState state;
        const std::uint64_t passes = turns.load(std::memory_order_relaxed);
        const std::uint64_t handled = process::InHandler::get();
        state.in_mpi = ((passes | handled) & 1) != 0;
        const std::uint64_t now = passes + handled;
        state.progress = now;
        // Asked for only when it matters.
        state.traced = state.in_mpi && now == last_turns_ && process_state(getpid()).traced;
        last_turns_ = now;
        std::atomic_ref<int> announced(parameters().announce_ms);
        state.announced = base::Duration::from_ms(announced.exchange(0));
        return state;
    }

    void write(const RankState &state, std::uint32_t flags)
    {
        SelfCheckRecord record;
        record.flags = flags | (state.in_mpi ? SelfCheckRecord::in_mpi : 0U) |
                       (state.traced ? SelfCheckRecord::traced : 0U);
        record.pid = getpid();
        record.number = record.number_again = ++number_;
        record.progress = state.progress;
        record.announced_ns = state.announced.ns();
        // A full disk makes this rank a silent one, of which nothing is believed.
        [[maybe_unused]] const auto written = ::pwrite(file_, &record, sizeof record, 0);
    }

    std::string path_;
    int file_ = -1;
    base::Duration period_;
    std::uint64_t number_ = 0;
    std::uint64_t last_turns_ = 0;
    std::size_t deaths_ = 0; ///< known when the queue was looked at
    std::unique_ptr<LocalQueue> queue_;
    QueueMender mender_;
    std::mutex mutex_;
    std::condition_variable wake_;
    bool stop_ = false;
    std::thread thread_;
};

/// Never destroyed: a child of this process that calls exit() has no such thread to wait for, and
/// would write to its parent's record that it has left.
auto &self_check = *new std::unique_ptr<SelfCheck>;

} // namespace

bool start_self_check() noexcept
{
    const char *const folder = std::getenv(self_check_folder);
    const int period = parameters().self_check_ms;
    if (folder == nullptr || period <= 0 || !parameters().fault().empty()) {
        return false;
    }
    try {
        self_check = std::make_unique<SelfCheck>();
        if (self_check->start(folder, base::Duration::from_ms(period))) {
            return true;
        }
    } catch (const std::exception &) {
        // No thread is to be had: the rank runs unwatched, like one that asked for none.
    }
    self_check.reset();
    return false;
}

void stop_self_check() noexcept
{
    self_check.reset();
}

} // namespace ft::radixft

/// How a daemon learns that one of its ranks is dying while the kernel still takes it apart.
///
/// A parent hears of a child's end when the kernel has given all of its memory back: one or two
/// milliseconds after a SIGKILL for a small program on a core of its own, many where other
/// processes poll on the same core. Before that it ends the threads, and for each of them walks the
/// list of the robust futexes that it holds (set_robust_list(2)). So every rank has a thread that
/// sleeps, and holds a word in memory which it shares with its daemon; the daemon sleeps on the
/// words of all its ranks (futex_waitv(2), Linux 5.16 and later). A sleeping thread is given a core
/// before those that compute, so the daemon is woken some 60 microseconds after the kill, on busy
/// cores too.
///
/// What is left to the kernel is work, and others are not to wait for it: a process that was killed
/// gives way (give_way() in prompt.hpp) while its memory is freed.
///
/// The end of one thread is no proof: who is told of it here asks the system whether the process
/// was killed (fatal_signal() in watch.hpp) or has ended. That need not be the daemon's child: a
/// script may have started the rank, and go on after it. So each line says which process holds it.
/// Ranks can write to the memory of all ranks of their daemon, which are of one user and one job:
/// the worst that comes of it by chance is a question in vain, or a death that is noticed as late
/// as without. Knows nothing of the runtime.
#pragma once

#include "orte_glue/radixft/daemon_memory.hpp"
#include "orte_glue/radixft/types.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <linux/futex.h>

namespace ft::radixft {

/// Environment variable: where the lines are. Set by the daemon for its ranks.
inline constexpr char life_lines_place[] = "FT_RADIXFT_LINES";

/// What both sides see.
struct LifeLinesLayout {
    static constexpr std::uint32_t expected_magic = 0x6c746672; // "rftl"
    static constexpr std::uint32_t expected_format = 3;
    /// As many as one thread can sleep on, less the word for changes. Ranks beyond that have none.
    static constexpr std::size_t capacity = 127;

    struct Line {
        std::atomic<std::uint64_t> owner{}; ///< job and number of a rank; 0: free
        /// The number of the thread that holds it and FUTEX_WAITERS; the kernel puts
        /// FUTEX_OWNER_DIED there. 0: nobody holds it.
        std::atomic<std::uint32_t> word{};
        /// Of the owner, as the daemon numbers it; 0: in numbers of its own (pid_namespaces(7)).
        /// Only good when somebody holds it.
        std::atomic<std::uint32_t> process{};
    };

    SharedHead head;
    std::atomic<std::uint32_t> changes{}; ///< counts, and wakes the daemon, when a line changes
    std::uint32_t unused = 0;
    std::uint64_t processes = 0; ///< by which numbers the daemon knows them; 0: it cannot tell
    std::array<Line, capacity> lines{};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
              sizeof(std::atomic<std::uint32_t>) == 4);

/// The daemon's side.
class LifeLines {
  public:
    LifeLines() = default;
    ~LifeLines() { stop(); }
    LifeLines(const LifeLines &) = delete;
    LifeLines &operator=(const LifeLines &) = delete;

    /// Makes the lines of a daemon whose jobs have this family, and starts the thread that watches
    /// them. False, and errno says why, when the system does not offer what it takes: deaths are
    /// noticed by the runtime's own means then.
    bool start(std::uint32_t family, std::uint64_t number) noexcept;
    /// Ends that thread.
    void stop() noexcept;
    /// What life_lines_place is to say; empty without lines.
    const std::string &place() const { return memory_.place(); }
    /// Becomes readable when take() has something; -1 without lines. To be waited for, not read.
    int readable() const { return event_; }

    struct Broken {
        Rank who;
        std::uint32_t process = 0; ///< that held it; 0: not known
        /// What was seen to end it when the line broke, or 0. Its parent may have reaped it since.
        int signal = 0;
        /// How else it ends, as wait(2) has it, seen at the same moment; -1: it was not seen.
        int status = -1;

        bool operator==(const Broken &) const = default;
    };
    /// Whose lines broke since the last call. Any thread.
    std::vector<Broken> take() noexcept;
    /// Whether some process holds a line as this rank now. Any thread.
    bool held_by(Rank who) const noexcept;
    /// This rank is dead: a line that it has not released is free. Any thread.
    void forget(Rank who) noexcept;

  private:
    void watch() noexcept;
    std::vector<Broken> collect() noexcept;

    DaemonMemory memory_;
    LifeLinesLayout *lines_ = nullptr;
    int event_ = -1;
    std::atomic<bool> stop_{false};
    std::mutex mutex_;
    std::vector<Broken> broken_;
    std::thread thread_;
};

/// A rank's side. One thread.
class LifeLine {
  public:
    LifeLine() = default;
    ~LifeLine() { release(); }
    LifeLine(const LifeLine &) = delete;
    LifeLine &operator=(const LifeLine &) = delete;

    /// Takes a line of the daemon at `place`, as `self`, with a thread that holds it from then on.
    /// False when there is no such daemon of this family, no free line, or no thread to be had: the
    /// rank runs without.
    bool hold(const char *place, std::uint32_t family, Rank self) noexcept;
    /// From now on this process may end without anybody's being told so.
    void release() noexcept;

  private:
    void run() noexcept;

    LifeLinesLayout *lines_ = nullptr;
    LifeLinesLayout::Line *line_ = nullptr;
    std::atomic<int> stop_{0};
    std::atomic<int> held_yet_{0}; ///< -1: no, and not to be
    robust_list_head held_{};
    robust_list entry_{};
    std::thread thread_;
};

} // namespace ft::radixft

/// The shared memory by which a daemon tells its ranks of deaths.
///
/// An event of PMIx reaches a rank through a thread of its own, which has to wait for the core on
/// which its rank polls: milliseconds. So the daemon also writes each death behind the last one on
/// a board that its ranks have mapped, and a rank looks with one load whenever the progress engine
/// turns. The board only grows, and holds what the events hold: whoever has none, or does not poll,
/// or finds it full, learns the same by the event, and whoever learned it twice knows it once.
///
/// Where it lies, and whose it is, says daemon_memory.hpp; it is sealed so that nobody but the
/// daemon, whose mapping is older than the seals, can ever write to it. Knows nothing of the
/// runtime.
#pragma once

#include "orte_glue/radixft/daemon_memory.hpp"
#include "orte_glue/radixft/drops.hpp"
#include "orte_glue/radixft/types.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>

namespace ft::radixft {

/// Environment variable: where the board is. Set by the daemon for its ranks. Not called OMPI_...:
/// those of mpirun's go to the ranks of all hosts.
inline constexpr char death_board_place[] = "FT_RADIXFT_DEATHS";

/// What both sides see.
struct DeathBoardLayout {
    static constexpr std::uint32_t expected_magic = 0x64746672; // "rftd"
    static constexpr std::uint32_t expected_format = 2;
    /// Deaths beyond that are told by events alone. 160 KiB.
    static constexpr std::size_t capacity = 4096;

    struct Entry {
        std::uint32_t jobid = 0;
        std::uint32_t vpid = 0;
        std::uint64_t epoch = 0;
        std::int64_t noticed_us = 0; ///< as in RankDeath
        std::int64_t stabilized_us = 0;
        std::uint32_t hung = 0; ///< 1: its daemon ended it
        std::uint32_t unused = 0;
    };

    SharedHead head;
    std::atomic<std::uint64_t> count{};   ///< of entries that are complete
    std::atomic<std::uint64_t> dropped{}; ///< messages that the daemon did not use
    std::atomic<std::uint64_t> strange{}; ///< of these, those that are malformed or forged
    std::array<Entry, capacity> entries{};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// The daemon's side. One thread.
class DeathBoard {
  public:
    /// Makes the board of a daemon whose jobs have this family. False, and errno says why, when the
    /// system does not offer what it takes: ranks then learn by events alone.
    bool make(std::uint32_t family, std::uint64_t number) noexcept;
    /// What death_board_place is to say; empty without a board.
    const std::string &place() const { return memory_.place(); }
    /// Appends one death. False, and nothing changed, without a board or when it is full.
    bool post(const RankDeath &death) noexcept;
    /// Shows what has been dropped so far.
    void post(const Drops &drops) noexcept;

  private:
    DaemonMemory memory_;
    DeathBoardLayout *board_ = nullptr;
};

/// A rank's side. opened() and close() before and after all else; otherwise any thread.
class DeathReader {
  public:
    DeathReader() = default;
    ~DeathReader() { close(); }
    DeathReader(const DeathReader &) = delete;
    DeathReader &operator=(const DeathReader &) = delete;

    /// False when there is no board at `place`, or one that is not of a daemon of this family.
    bool open(const char *place, std::uint32_t family) noexcept;
    void close() noexcept;

    /// Whether there are deaths that take() has not returned. Two loads.
    bool news() const noexcept
    {
        return count_->load(std::memory_order_acquire) != seen_.load(std::memory_order_relaxed);
    }
    /// The deaths since the last call. Two threads that call at once may both get the same.
    std::span<const DeathBoardLayout::Entry> take() noexcept;
    /// What the daemon has dropped so far; 0 without a board.
    std::uint64_t dropped() const noexcept;
    std::uint64_t strange() const noexcept;

  private:
    static constexpr std::atomic<std::uint64_t> nothing{0};

    const DeathBoardLayout *board_ = nullptr;
    const std::atomic<std::uint64_t> *count_ = &nothing; ///< never null, for news()
    std::atomic<std::uint64_t> seen_{0};
};

} // namespace ft::radixft

/// Memory that a daemon shares with its ranks.
///
/// It is anonymous (memfd_create), and a rank opens it through its daemon's entry in /proc: that is
/// for processes of the same user only. It is sealed, so that nobody can cut it short under those
/// who have it mapped, and begins with a number drawn by chance, which the daemon puts into the
/// environment of its ranks only. A rank that finds anything else there goes without. Knows nothing
/// of the runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ft::radixft {

/// The beginning of whatever is shared so.
struct SharedHead {
    std::uint32_t magic = 0;
    std::uint32_t format = 0;
    std::uint32_t family = 0; ///< the number that all jobs of this mpirun share
    std::uint32_t unused = 0;
    std::uint64_t number = 0; ///< as in the environment

    bool operator==(const SharedHead &) const = default;
};

/// The daemon's side. One thread.
class DaemonMemory {
  public:
    DaemonMemory() = default;
    ~DaemonMemory();
    DaemonMemory(const DaemonMemory &) = delete;
    DaemonMemory &operator=(const DaemonMemory &) = delete;

    /// `size` bytes of zeros that this process can write to, with these seals and that against more
    /// of them. Null, and errno says why, when the system does not offer what it takes, and at a
    /// second call. `number` is part of place().
    void *make(const char *name, std::size_t size, int seals, std::uint64_t number) noexcept;
    /// What the ranks are told; empty without memory.
    const std::string &place() const { return place_; }

  private:
    void *memory_ = nullptr;
    std::size_t size_ = 0;
    int file_ = -1;
    std::string place_;
};

/// A rank's side: maps what a daemon's place() names, for reading or, with `writable`, for writing
/// too. Null unless it is a file of this user with exactly this size and at least these seals that
/// begins with `head`, whose number the place tells. To be unmapped by the caller.
void *map_daemon_memory(const char *place, std::size_t size, int seals, bool writable,
                        SharedHead head) noexcept;

} // namespace ft::radixft

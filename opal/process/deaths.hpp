/// Which processes of the job are dead, as far as this process knows.
///
/// The one place where the components of a process (error manager, PML, collectives, the public
/// calls) share that knowledge. It lives in a small shared library, so each of them sees the same
/// state whatever it links. The error manager writes, the others read. Deaths are only ever added:
/// a reader remembers how many it has seen and takes the rest. Any thread may call anything; asking
/// whether there is something new is one atomic load.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ft::process {

/// The runtime's name of a process. For a process of this program's MPI_COMM_WORLD, vpid is the
/// rank.
struct Name {
    std::uint32_t jobid = 0;
    std::uint32_t vpid = 0;

    bool operator==(const Name &) const = default;
};

/// One death. The epoch is that of the membership view in which it was announced; two processes
/// that know of a death know it with the same epoch.
struct Death {
    Name who;
    std::uint64_t epoch = 0;
    /// From the moment at which its daemon, or the neighbour of its daemon, noticed until this
    /// process was told, microseconds, by the hosts' wall clocks; 0: not known.
    std::int64_t told_after_us = 0;
    /// It died with its daemon: how long the daemons took to agree on the view without it (T_s),
    /// microseconds. 0: it died alone, or the daemon that knows has died since.
    std::int64_t stabilized_us = 0;
    /// Its daemon ended it, because it hung inside MPI or had been stopped.
    bool hung = false;
};

/// Adds a death. False, and nothing changed, when it is known already.
bool declare_dead(const Death &death) noexcept;

/// How many deaths are known. Only rises.
std::size_t death_count() noexcept;

/// Death number `index`, in the order in which they were declared. `index` must be below a value
/// that death_count() has returned.
Death death(std::size_t index) noexcept;

/// Whether this process is known to be dead.
bool is_dead(Name who) noexcept;

/// The highest epoch heard of, with a death or without.
std::uint64_t epoch() noexcept;

/// Records that a view with this epoch is installed.
void set_epoch(std::uint64_t epoch) noexcept;

namespace detail {
extern std::atomic<std::uint64_t> news;
void add_news() noexcept;
} // namespace detail

/// Rises with every death and with whatever changes in standing.hpp. Each pass of Open MPI's
/// progress asks, several times: so it is one load, and no call.
inline std::uint64_t news() noexcept
{
    return detail::news.load(std::memory_order_acquire);
}

/// Sleeps until news() is another than `seen`. For a thread that is not inside Open MPI: the news
/// comes by another one.
inline void wait_for_news(std::uint64_t seen) noexcept
{
    detail::news.wait(seen, std::memory_order_acquire);
}

} // namespace ft::process

/// How the communicators of this process stand towards failed ranks.
///
/// The calls of mpi_ft.h write, the PML and the collectives read. Like deaths.hpp, this lives in
/// the small shared library so that each of them sees the same state. A communicator is named by
/// its context id. Any thread may call anything.
#pragma once

#include "opal/process/deaths.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ft::process {

/// Tag of the messages by which the processes agree. They travel on MPI_COMM_WORLD and are exempt
/// from everything that happens to a communicator's own traffic when a rank fails. Below what the
/// stock collectives use, above what HCOLL ends at.
inline constexpr int agreement_tag = -(2147483647 - 7);

/// What a failed rank is to one communicator. Rises only.
enum class Standing : std::uint8_t {
    unknown,      ///< a failure, if there is one, is an error
    acknowledged, ///< wildcard receives leave it out
    recognised,   ///< like MPI_PROC_NULL to point-to-point calls
};

void set_standing(std::uint32_t context, std::uint32_t rank, Standing standing) noexcept;
Standing standing(std::uint32_t context, std::uint32_t rank) noexcept;
/// The ranks of a communicator that are recognised, ascending. Others can become so only with news.
std::vector<std::uint32_t> recognised(std::uint32_t context);

/// Every operation on the communicator ends with MPIX_ERR_REVOKED from now on.
void revoke(std::uint32_t context) noexcept;
bool is_revoked(std::uint32_t context) noexcept;

/// A communicator with recognised ranks is one for collectives that reach these (those of
/// neighbours): they are like MPI_PROC_NULL to Open MPI's own messages there. On every other one
/// with recognised ranks these messages are errors.
void let_stand_in(std::uint32_t context) noexcept;
bool stands_in(std::uint32_t context) noexcept;

/// The communicator is gone; its number may be given out again.
void forget_context(std::uint32_t context) noexcept;

/// A process to which no way leads any more. It may live.
struct Unreachable {
    Name who;
    bool own = false; ///< this process's PML has found that; else only others have said so
    /// Those who have. What they say counts for a communicator only while one of them is a member
    /// of it, lives, and is not recognised there: others may wait in a collective for that one,
    /// which has given up. Nobody waits for the dead, nor for who is not in it or is counted out.
    /// None takes it back: what a PML has found stays.
    std::vector<Name> said_by;

    bool operator==(const Unreachable &) const = default;
};
/// The PML of this process has found it. False, and nothing changed, when it had before; not when
/// that was only heard.
bool declare_unreachable(Name who) noexcept;
/// Another process says so. False, and nothing changed, when it had said so before, or when this
/// process has found it itself.
bool hear_unreachable(Name who, Name by) noexcept;
std::vector<Unreachable> unreachable() noexcept;

/// Raises news(): something has changed that those who watch it ask for elsewhere.
void spread_news() noexcept;

/// The program has the library of mpi_ft.h: a receive from any source ends with an error when a
/// rank of its communicator has failed and nobody has acknowledged it. In other programs it does so
/// where errors are fatal.
void use_run_through() noexcept;
bool run_through() noexcept;

} // namespace ft::process

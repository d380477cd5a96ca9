/// \file
/// Context ids for new communicators, agreed upon in the same agreement as the failures.
///
/// Open MPI's own way (ompi_comm_nextcid) is a series of reductions, and waits for ever when a
/// process fails in it. Here every process offers the ids of a window of its own that are free to
/// it as a bit mask, the agreement yields the AND of all masks, and the lowest bits that are left
/// are free everywhere. An id is used once in the life of a process: a late message of a
/// communicator that is gone must not meet another.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <cstdint>
#include <vector>

namespace ft::validate {

/// The highest bits of an agreement's flags are not ids. They are brought by whoever can say so of
/// itself, so that they are left when all can.
///
/// Where one process has met a failure and calls what comes after it, another may still be in a
/// call that makes a communicator: both take part in the same agreement. With neither of the second
/// and the third bit left it was nobody's, as all see: what makes ends with an error, and what
/// recovers takes the next agreement, in which it meets the others.
inline constexpr std::uint64_t all_well = std::uint64_t{1} << 63;
inline constexpr std::uint64_t all_make = std::uint64_t{1} << 62;
inline constexpr std::uint64_t all_recover = std::uint64_t{1} << 61;
inline constexpr std::uint64_t unrevoked = std::uint64_t{1} << 60; ///< the communicator, it knows
inline constexpr std::uint64_t all_ids = unrevoked - 1;

/// Whether no other communicator of this process ever has this context id.
bool used_once(std::uint32_t context) noexcept;
/// Keeps in mind that this process had a communicator with such an id, and what becomes of that.
/// The service's lock is held. \return false: it is one that Open MPI gives, which may come again;
/// nothing is kept
bool note_gone(std::uint32_t context);
bool is_gone(std::uint32_t context) noexcept;

/// How many windows there are: the PML bounds what a context id may be. The last one may be
/// smaller.
std::uint32_t window_count() noexcept;

/// What this process offers in one agreement. The service's lock is held.
class Offer {
  public:
    explicit Offer(std::uint32_t window);
    /// The agreement is over without it: what was offered may be offered again.
    ~Offer();
    Offer(const Offer &) = delete;
    Offer &operator=(const Offer &) = delete;

    std::uint64_t mask() const { return mask_; }
    /// Takes the first `count` ids of what all have offered. Fewer, when there are no more: then
    /// another window must be tried, which everybody finds out alike.
    std::vector<std::uint32_t> take(std::uint64_t agreed, std::size_t count);

  private:
    std::uint32_t window_;
    std::uint64_t mask_ = 0;
};

/// A communicator that has no context id yet: what can fail is done, nothing is sent. nullptr when
/// that fails. Freed by ompi_comm_free.
using Prepared = ompi_communicator_t *;
/// \param ranks of the communicator or of the own group of an intercommunicator
Prepared prepare_ranks(ompi_communicator_t *parent, const std::vector<int> &ranks) noexcept;
/// \param group which may hold failed ranks
Prepared prepare_group(ompi_communicator_t *parent, ompi_group_t *group) noexcept;
/// An intercommunicator of these ranks of both groups of `parent`.
/// \param own its second half, if it may have been freed: Open MPI forgets that then
Prepared prepare_inter(ompi_communicator_t *parent, const std::vector<int> &local_ranks,
                       const std::vector<int> &remote_ranks,
                       ompi_communicator_t *own = nullptr) noexcept;
/// An intercommunicator of all of an intracommunicator and of these ranks of MPI_COMM_WORLD.
Prepared prepare_pair(ompi_communicator_t *own, const std::vector<int> &world_ranks) noexcept;
/// The same ranks and topology; with the attributes, when the copy is the program's.
Prepared prepare_twin(ompi_communicator_t *parent, bool with_attributes) noexcept;

/// How many context ids a communicator takes: an intercommunicator has one of the own group beside
/// it, which takes the same id on both sides.
constexpr std::size_t contexts_of(bool inter)
{
    return inter ? 2 : 1;
}
/// Its second half: from now on it can be used. Takes the first of the context ids.
/// \return the communicator; nullptr, and it is freed, when that fails or it is nullptr
ompi_communicator_t *bring_to_life(Prepared comm, const std::uint32_t *contexts) noexcept;

} // namespace ft::validate

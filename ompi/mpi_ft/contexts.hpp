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

/// The highest bit of an agreement's flags is not an id but says whether all is well so far.
inline constexpr std::uint64_t all_well = std::uint64_t{1} << 63;

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
    /// the next window must be tried, which everybody finds out alike.
    std::vector<std::uint32_t> take(std::uint64_t agreed, std::size_t count);

  private:
    std::uint32_t window_;
    std::uint64_t mask_ = 0;
};

/// A communicator of these ranks of `parent`, of which this process is one, with a context id that
/// all of them agree upon. Nothing is sent. \return nullptr when that fails
ompi_communicator_t *make_communicator(ompi_communicator_t *parent, const std::vector<int> &ranks,
                                       std::uint32_t context) noexcept;
/// Its second half, for a communicator that was made by ompi_comm_set.
bool bring_to_life(ompi_communicator_t *comm, std::uint32_t context) noexcept;

} // namespace ft::validate

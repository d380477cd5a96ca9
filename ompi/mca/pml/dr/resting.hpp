/// \file
/// Buffers of btl/vader that came back and are not to be used again at once.
///
/// Open MPI's free lists give out first what came back last, so a stream of fragments would go
/// through the same few buffers. Their lines lie in the nearest caches of the receiver's core then,
/// which has just read them, and the sender has to call each of them back before it can write. A
/// buffer that rested while a second-level cache full of others went by has left that cache, and is
/// written at several times the rate (docs/speed.md, "Where the time of a long message goes").
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <array>

#include "ompi/mca/pml/dr/lock.hpp"

namespace ft::dr {

/// First in, first out, for one BTL module and fragments of its largest size. Any thread.
class Resting {
  public:
    /// The one that has rested longest, or one that the BTL never gave out yet. It comes back
    /// without MCA_BTL_DES_FLAGS_BTL_OWNERSHIP: who is called back for it gives it to `put`.
    /// \param bytes more than the BTL's eager limit \return nullptr when the BTL has none left
    mca_btl_base_descriptor_t *get(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint,
                                   std::size_t bytes, std::uint32_t flags) noexcept;
    /// A descriptor that the BTL is done with.
    void put(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *des) noexcept;
    /// Gives all of them back to the BTL, before it goes.
    void wake_all() noexcept;

  private:
    static constexpr std::size_t most = 64;
    /// So many bytes rest at most. Vader has 72 buffers of 32 KiB, for all receivers; some are left
    /// to whoever else sends.
    static constexpr std::size_t most_bytes = std::size_t{1920} * 1024;

    /// With the lock. \return the one that has rested longest, nullptr when none does
    mca_btl_base_descriptor_t *oldest() noexcept;
    bool full(const mca_btl_base_module_t &btl) const noexcept
    {
        return count_ == most || count_ * btl.btl_max_send_size >= most_bytes;
    }

    Mutex lock_; ///< leaf
    mca_btl_base_module_t *btl_ = nullptr;
    std::array<mca_btl_base_descriptor_t *, most> ring_{};
    std::size_t first_ = 0;
    std::size_t count_ = 0;
    std::size_t spare_ = 0; ///< it was given back so many since
    bool all_out_ = false;  ///< the BTL had none left once, or as many rested as may
};

extern Resting resting;

} // namespace ft::dr

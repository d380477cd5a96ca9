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
    struct Buffer {
        mca_btl_base_descriptor_t *des = nullptr; ///< nullptr when the BTL has none left
        bool used_before = false;                 ///< its pages have been touched
    };
    /// The one that has rested longest, or another of the BTL's as long as there are few. It comes
    /// back without MCA_BTL_DES_FLAGS_BTL_OWNERSHIP: who is called back for it gives it to `put`.
    /// \param bytes more than the BTL's eager limit
    Buffer get(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint, std::size_t bytes,
               std::uint32_t flags) noexcept;
    /// A descriptor that the BTL is done with, or has no receiver for any more.
    void put(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *des) noexcept;
    /// Gives all of them back to the BTL, before it goes.
    void wake_all() noexcept;

  private:
    static constexpr std::size_t most = 64;
    /// So many bytes take turns. Vader has 72 buffers of 32 KiB, for all receivers; the others are
    /// left to whoever else sends, and to us only when none rests.
    static constexpr std::size_t turn_bytes = std::size_t{1920} * 1024;
    static std::size_t turns(const mca_btl_base_module_t &btl) noexcept;

    /// With the lock. \return the one that has rested longest, nullptr when none does
    mca_btl_base_descriptor_t *oldest() noexcept;

    Mutex lock_; ///< innermost: the BTL allocates and frees under it, which calls nobody back
    mca_btl_base_module_t *btl_ = nullptr;
    std::array<mca_btl_base_descriptor_t *, most> ring_{};
    std::size_t first_ = 0;
    std::size_t count_ = 0;
    std::size_t owned_ = 0;    ///< that rest or are under way
    std::size_t limit_ = most; ///< as many as the BTL was seen to have, and at most `turns`
};

extern Resting resting;

} // namespace ft::dr

/// \file
/// The fragments of a BTL that copies: a descriptor, one segment, and the bytes behind them.
#pragma once
#include "opal/mca/opal_prelude.hpp"

#include "opal/mca/pool.hpp"

namespace ft::btl {

/// Makes it a descriptor of `bytes` at its data().
template <typename Fragment>
void describe(Fragment &fragment, std::size_t bytes, std::uint32_t flags) noexcept
{
    fragment.segments[0].seg_addr.pval = fragment.data();
    fragment.segments[0].seg_len = bytes;
    fragment.descriptor.des_segments = fragment.segments;
    fragment.descriptor.des_segment_count = 1;
    fragment.descriptor.des_flags = flags;
    fragment.descriptor.order = MCA_BTL_NO_ORDER;
    fragment.descriptor.des_cbfunc = nullptr;
}

/// Fragments of two sizes. `Fragment` has a `descriptor` as its first member, one of `segments`, a
/// flag `small`, and data() behind its end, where there is room for the bytes; if its bytes may be
/// elsewhere, too, bytes_behind() says that they are there. Any thread.
template <typename Fragment>
class FragmentPools {
  public:
    static constexpr std::size_t small_bytes = 2048;

    /// \param largest bytes of the largest fragment
    void set_up(std::size_t largest) noexcept
    {
        largest_ = largest;
        small_.set_up(sizeof(Fragment) + small_bytes, 64);
        large_.set_up(sizeof(Fragment) + std::max(largest, small_bytes), 8);
    }
    /// \return nullptr when so much does not fit, or the system has no memory
    Fragment *get(std::size_t bytes, std::uint32_t flags) noexcept
    {
        if (bytes > largest_) {
            return nullptr;
        }
        const bool small = bytes <= small_bytes;
        void *memory = (small ? small_ : large_).get();
        if (memory == nullptr) {
            return nullptr;
        }
        auto *fragment = static_cast<Fragment *>(memory);
        fragment->small = small;
        if constexpr (requires { fragment->bytes_behind(); }) {
            fragment->bytes_behind();
        }
        describe(*fragment, bytes, flags);
        return fragment;
    }
    void put(Fragment *fragment) noexcept { (fragment->small ? small_ : large_).put(fragment); }
    /// Gives everything back to the system, fragments in use included.
    void release() noexcept
    {
        small_.release();
        large_.release();
    }

  private:
    std::size_t largest_ = 0;
    mca::BlockPool small_;
    mca::BlockPool large_;
};

} // namespace ft::btl

/// \file
/// What btl/vader does not tell: that a fragment whose receiver is dead will never come back, and
/// that nobody will touch it any more.
///
/// A fragment of vader lies in its sender's shared memory and is free again when its receiver has
/// put it into the sender's queue. The buffers are few (72 of 32 KiB for all receivers), and those
/// that a dead receiver has not put back are lost. Whether one may be taken back stands in the
/// header before it. Three may write there once it was sent:
/// - Its receiver, which says in `flags` that it is done before it puts the fragment back.
/// - Who adds to the receiver's queue, where a fragment is the last: any process of the node, at
///   any time, even when the receiver is dead. It writes `next`, once, and the fragment is not the
///   last from then on.
/// - Who adds to this process's queue behind a fragment that the receiver has put there, the same.
///
/// So `next` is given a value of our own before a fragment is sent. Vader writes it only when it
/// puts the fragment into a queue: then it stands for "the last one" until the next one is added.
/// Through a fast box `next` stays ours. Vader's headers are not installed, so the layout is
/// repeated here, and believed only where the header points back at its descriptor and the payload
/// follows it.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <sys/uio.h>

namespace ft::dr {

/// Laid over the header of a fragment of btl/vader; never made.
class VaderFragment {
  public:
    /// \param des of btl/vader
    /// \return nullptr when it is of another layout
    static VaderFragment *of(const mca_btl_base_descriptor_t &des) noexcept
    {
        auto *const header = static_cast<VaderFragment *>(des.super.ptr);
        return header != nullptr && header->descriptor_ == &des &&
                       des.des_segments[0].seg_addr.pval == header + 1
                   ? header
                   : nullptr;
    }

    /// Between its allocation and btl_send.
    void mark() noexcept
    {
        next_ = ours;
        tag_ = 0;
    }

    /// Of a marked one that was sent with this tag, when its receiver is known to be dead: whether
    /// nobody has it or will write to it. False also while that is open: it may become true later.
    bool abandoned(mca_btl_base_tag_t tag) const noexcept
    {
        // Who adds behind it does so after the receiver's death, too.
        const std::intptr_t next = __atomic_load_n(&next_, __ATOMIC_ACQUIRE);
        return tag_ == tag && (flags_ & done) == 0 && next != last;
    }

  private:
    static constexpr std::intptr_t last = -2;
    static constexpr std::intptr_t ours = 0;
    static constexpr std::uint8_t done = 2;

    std::intptr_t next_;
    const mca_btl_base_descriptor_t *descriptor_;
    mca_btl_base_tag_t tag_;
    std::uint8_t flags_;
    std::int32_t length_;
    iovec single_copy_;
    std::intptr_t box_;
};
static_assert(sizeof(VaderFragment) == 48);

} // namespace ft::dr

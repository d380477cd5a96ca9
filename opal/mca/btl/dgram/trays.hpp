/// \file
/// The fragments of btl/dgram, and memory where many of them lie one behind the other.
///
/// The kernel takes a piece of 44 datagrams out of one stretch of memory in 168 ns for each, where
/// it takes 198 ns out of 44 stretches. So fragments that fill a datagram are handed out in the
/// order in which their bytes lie, and a transport that finds one to begin where the one before
/// ends gives both as one.
#pragma once
#include "opal/mca/opal_prelude.hpp"

#include <array>
#include <memory>
#include <vector>

#include "opal/ft/datagram/datagram.hpp"
#include "opal/mca/btl/base/fragments.hpp"
#include "opal/mca/lock.hpp"

namespace ft::dgram {

/// A fragment of the PML's with room for the header in front of it.
struct Fragment {
    static constexpr std::uint8_t no_tray = 0xff;

    mca_btl_base_descriptor_t descriptor;
    mca_btl_base_segment_t segments[1];
    std::byte *wire; ///< the header, and its bytes behind it
    std::uint8_t tag;
    std::uint8_t tray; ///< that `wire` is in; no_tray: it is `front`
    bool small;        ///< else, which pool it came from
    alignas(4) std::byte front[whole_bytes];

    [[nodiscard]] std::byte *data() noexcept { return wire + whole_bytes; }
    void bytes_behind() noexcept
    {
        wire = front;
        tray = no_tray;
    }
};

/// Hands out fragments whose bytes follow each other. A tray is used again once all that was taken
/// from it has come back, which a flush of a batch brings about: so it is one tray over and over,
/// in the nearest caches. The others are there for what the network does not take at once. Any
/// thread.
class Trays {
  public:
    /// \param count fragments in a tray \param largest bytes of the largest one
    void set_up(std::size_t count, std::size_t largest)
    {
        const std::size_t bytes = room_for(largest) * count;
        for (Tray &tray : trays_) {
            tray.bytes = std::make_unique_for_overwrite<std::byte[]>(bytes);
            tray.fragments.resize(count);
        }
        count_ = count;
        largest_ = largest;
    }

    /// \return nullptr when it is so small that its memory does not matter, when all trays are in
    /// use, or when there are none
    Fragment *get(std::size_t bytes, std::uint32_t flags) noexcept
    {
        if (bytes > largest_ || bytes < largest_ / 2 || count_ == 0) {
            return nullptr;
        }
        const mca::Guard guard(lock_);
        std::size_t tries = 0;
        while (trays_[current_].live != 0 && trays_[current_].next == count_) {
            if (++tries == trays_.size()) {
                return nullptr;
            }
            current_ = (current_ + 1) % trays_.size();
        }
        Tray &tray = trays_[current_];
        if (tray.live == 0) {
            tray.next = 0;
            tray.end = 0;
        }
        Fragment &fragment = tray.fragments[tray.next++];
        ++tray.live;
        fragment.tray = static_cast<std::uint8_t>(current_);
        fragment.wire = tray.bytes.get() + tray.end;
        tray.end += room_for(bytes);
        btl::describe(fragment, bytes, flags);
        return &fragment;
    }
    void put(const Fragment *fragment) noexcept
    {
        const mca::Guard guard(lock_);
        --trays_[fragment->tray].live;
    }

  private:
    struct Tray {
        std::unique_ptr<std::byte[]> bytes;
        std::vector<Fragment> fragments;
        std::size_t next = 0; ///< of `fragments`, to be handed out
        std::size_t end = 0;  ///< of the bytes that are
        std::size_t live = 0; ///< handed out, and not back
    };
    /// Full fragments lie without a gap: with dr's headers they are as long as a multiple of this.
    static constexpr std::size_t room_for(std::size_t bytes) noexcept
    {
        return (whole_bytes + bytes + 3) & ~std::size_t{3};
    }

    mca::Mutex lock_; ///< behind the module's
    std::array<Tray, 3> trays_;
    std::size_t current_ = 0;
    std::size_t count_ = 0;
    std::size_t largest_ = 0;
};

} // namespace ft::dgram

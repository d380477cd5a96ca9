/// \file
/// The sender's descriptors: an engine VFRAG with the storage of its bytes.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <array>

#include "ompi/mca/pml/dr/fragment_size.hpp"
#include "ompi/mca/pml/dr/lock.hpp"
#include "ompi/mca/pml/dr/upper_header.hpp"
#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/lasting.hpp"
#include "opal/ft/reliability/compressed.hpp"
#include "opal/ft/reliability/vfrag.hpp"

namespace ft::dr {

struct SendRequest;

/// Base of both kinds. Belongs to its peer's engine between submit and next_finished.
struct TxVfrag {
    reliability::Vfrag vfrag;
    TxVfrag *next = nullptr; ///< in the queue of those that wait for the window, or of the idle
    SendRequest *request = nullptr;   ///< what it is part of; nullptr when nobody waits for it
    const std::byte *bytes = nullptr; ///< its payload, contiguous
    std::byte *packed = nullptr;      ///< data of a scattered type, packed; to be freed
    std::uint64_t message_offset = 0; ///< data: place of the first byte in the message
    std::uint64_t remote_request = 0; ///< data: the receiver's number for the message
    std::byte *room = nullptr;        ///< ordered: header, upper header and payload in one piece
    std::uint32_t payload_crc = 0;    ///< ordered: valid when `crc_known`
    bool crc_known = false;
    /// Ordered: in which form it stands in `room`; other than full see TxPools::spread.
    reliability::Form form = reliability::Form::full;
    std::uint8_t upper_bytes = 0; ///< ordered: what stands in `room`
    std::uint8_t size_class = 0;  ///< ordered: pool it came from
    /// Ordered: transmissions that do not count as having brought it: given back by a BTL, or made
    /// before a path of it broke, be it over another one.
    std::uint8_t in_vain = 0;
};

/// A match, rts or cts: one fragment, its bytes behind the struct.
struct TxOrdered : TxVfrag {
    reliability::FragmentRecord record[1];
};

/// A piece of a long message: up to 64 fragments from the user's buffer or from `packed`.
struct TxData : TxVfrag {
    reliability::FragmentRecord records[reliability::max_fragments];
};

/// Both kinds' free lists. Any thread; with several threads each peer takes from lists of its own.
class alignas(64) TxPools {
  public:
    /// \param largest_payload of an ordered VFRAG
    void set_up(std::size_t largest_payload) noexcept;

    /// An ordered VFRAG with its upper header written; `payload` bytes of room follow at `bytes`.
    /// \return nullptr when there is no memory
    TxOrdered *get_ordered(const UpperHeader &upper, std::size_t payload) noexcept;
    /// The same for a match.
    TxOrdered *get_match(std::uint32_t context, int source, int tag, std::size_t payload) noexcept
    {
        TxOrdered *tx = nullptr;
        if (OPAL_LIKELY(payload <= small_brief)) {
            // A brief one has room for it, and most of what stands in it need not be written again.
            tx = get_brief(payload);
            if (OPAL_LIKELY(tx != nullptr)) {
                tx->form = reliability::Form::full;
                tx->bytes = tx->room + reliability::header_bytes + match_bytes;
            }
        } else {
            tx = get_room(payload, match_bytes);
        }
        if (OPAL_LIKELY(tx != nullptr)) {
            write_match(context, source, tag,
                        std::span<std::byte, match_bytes>(tx->room + reliability::header_bytes,
                                                          match_bytes));
        }
        return tx;
    }
    /// A match in its brief form, of at most most_brief_payload: header and payload are to be
    /// written to `brief_of` it.
    TxOrdered *get_brief(std::size_t payload) noexcept
    {
        if (OPAL_LIKELY(payload <= small_brief)) {
            Guard guard(idle_lock_);
            if (OPAL_LIKELY(idle_brief_ != nullptr)) {
                auto *tx = static_cast<TxOrdered *>(idle_brief_);
                idle_brief_ = tx->next;
                tx->vfrag.length = payload;
                tx->vfrag.fragment_bytes = static_cast<std::uint32_t>(payload);
                return tx;
            }
        }
        return make_brief(payload);
    }
    static std::span<std::byte> brief_of(const TxVfrag &tx) noexcept
    {
        return {tx.room + brief_place, reliability::brief_bytes + tx.vfrag.length};
    }
    /// The same for the compressed form; the payload stands where it stands in the brief one.
    static std::span<std::byte> compressed_of(const TxVfrag &tx) noexcept
    {
        return {tx.room + compressed_place, reliability::compressed_bytes + tx.vfrag.length};
    }
    /// Turns it into what get_match gives, to be sent again.
    static void spread(TxVfrag &tx) noexcept;
    TxData *get_data() noexcept;
    void put(TxVfrag *tx) noexcept
    {
        if (OPAL_LIKELY(tx->size_class == brief_class)) {
            if (tx->form == reliability::Form::full) {
                make_brief_again(*tx);
            }
            Guard guard(idle_lock_);
            tx->next = idle_brief_;
            idle_brief_ = tx;
            return;
        }
        put_back(tx);
    }

  private:
    TxOrdered *make_brief(std::size_t payload) noexcept;
    /// What get_match, or `spread` and sending again, have changed.
    static void make_brief_again(TxVfrag &tx) noexcept
    {
        tx.bytes = tx.room + brief_place + reliability::brief_bytes;
        tx.crc_known = false;
        tx.in_vain = 0;
        tx.form = reliability::Form::brief;
    }
    void put_back(TxVfrag *tx) noexcept;
    /// The pool from which an ordered VFRAG of this payload comes.
    std::uint8_t class_for(std::size_t payload) const noexcept
    {
        FT_ASSERT(payload <= capacity_[classes - 1]);
        std::uint8_t c = 0;
        while (payload > capacity_[c]) {
            ++c;
        }
        return c;
    }
    /// An ordered VFRAG whose upper header is still to be written.
    TxOrdered *get_room(std::size_t payload, std::size_t upper_bytes) noexcept;

    static constexpr std::uint8_t classes = 3;
    static constexpr std::uint8_t data_class = classes;
    static constexpr std::uint8_t brief_class = classes + 1;
    /// Its front and 8 bytes of payload lie in one cache line here.
    static constexpr std::size_t brief_place = 16;
    static constexpr std::size_t compressed_place =
        brief_place + reliability::brief_bytes - reliability::compressed_bytes;
    BlockPool ordered_[classes];
    std::size_t capacity_[classes] = {};
    /// For payloads of at most `small_brief`. A window of 64 of them stays in a processor's nearest
    /// cache: their blocks are small, and do not all begin in the same few of its sets.
    BlockPool brief_;
    static constexpr std::size_t small_brief = 72;
    /// Those that are not in use. They stay objects: most of what stands in one is the same for
    /// each message, and is not written again.
    TxVfrag *idle_brief_ = nullptr;
    Mutex idle_lock_;
    BlockPool data_;
};

/// So many sets of free lists there are. With one thread the first one serves all peers, so that
/// what was used last is used next. With several each peer keeps to one, in turn, so that threads
/// with different peers do not wait for each other: up to so many peers nobody shares.
constexpr std::uint8_t pool_shares = 16;
extern base::Lasting<std::array<TxPools, pool_shares>> the_pools;
inline TxPools &tx_pools(std::uint8_t share) noexcept
{
    return the_pools.object[share];
}
/// For the next peer.
std::uint8_t next_pool_share() noexcept;
/// \param largest_payload of an ordered VFRAG
void set_up_tx_pools(std::size_t largest_payload) noexcept;
std::size_t largest_tx_payload() noexcept;
void release_tx_pools() noexcept;

} // namespace ft::dr

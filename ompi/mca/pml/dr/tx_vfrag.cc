#include "ompi/mca/pml/dr/tx_vfrag.hpp"

#include "ompi/mca/pml/dr/process_window.hpp"

#include <atomic>
#include <cstring>

namespace ft::dr {

base::Lasting<std::array<TxPools, pool_shares>> the_pools;

namespace {

std::size_t largest = 0;
std::atomic<std::uint8_t> shares_given{0};

} // namespace

std::uint8_t next_pool_share() noexcept
{
    if (!several_threads()) {
        return 0;
    }
    const unsigned given = shares_given.fetch_add(1, std::memory_order_relaxed);
    return static_cast<std::uint8_t>(given % pool_shares);
}

void set_up_tx_pools(std::size_t largest_payload) noexcept
{
    largest = largest_payload;
    for (TxPools &pools : the_pools.object) {
        pools.set_up(largest_payload);
    }
}

std::size_t largest_tx_payload() noexcept
{
    return largest;
}

void release_tx_pools() noexcept
{
    the_pools.renew();
}

void TxPools::set_up(std::size_t largest_payload) noexcept
{
    capacity_[0] = 192;
    capacity_[1] = 4096;
    capacity_[2] = std::max<std::size_t>(largest_payload, 4096);
    const std::size_t per_slab[classes] = {64, 32, 8};
    for (std::uint8_t c = 0; c < classes; ++c) {
        ordered_[c].set_up(sizeof(TxOrdered) + fragment_overhead + capacity_[c], per_slab[c]);
    }
    static_assert(brief_place + reliability::brief_bytes <= fragment_overhead);
    brief_.set_up(sizeof(TxOrdered) + reliability::header_bytes + match_bytes + small_brief, 64);
    data_.set_up(sizeof(TxData), 16);
}

TxOrdered *TxPools::get_ordered(const UpperHeader &upper, std::size_t payload) noexcept
{
    std::byte bytes[largest_upper_bytes];
    const std::size_t length = write_upper(upper, bytes);
    TxOrdered *tx = get_room(payload, length);
    if (tx != nullptr) {
        std::memcpy(tx->room + reliability::header_bytes, bytes, length);
    }
    return tx;
}

TxOrdered *TxPools::get_room(std::size_t payload, std::size_t upper_bytes) noexcept
{
    const std::uint8_t c = class_for(payload);
    void *memory = ordered_[c].get();
    if (memory == nullptr) {
        return nullptr;
    }
    auto *tx = new (memory) TxOrdered;
    tx->size_class = c;
    tx->room = reinterpret_cast<std::byte *>(tx + 1);
    tx->upper_bytes = static_cast<std::uint8_t>(upper_bytes);
    tx->bytes = tx->room + reliability::header_bytes + upper_bytes;
    tx->vfrag.ordered = true;
    tx->vfrag.length = payload;
    tx->vfrag.fragment_bytes = static_cast<std::uint32_t>(payload);
    tx->vfrag.fragments = tx->record;
    tx->vfrag.user = tx;
    return tx;
}

TxOrdered *TxPools::make_brief(std::size_t payload) noexcept
{
    const bool small = payload <= small_brief;
    const std::uint8_t c = small ? brief_class : class_for(payload);
    void *memory = small ? brief_.get() : ordered_[c].get();
    if (memory == nullptr) {
        return nullptr;
    }
    auto *tx = new (memory) TxOrdered;
    tx->size_class = c;
    tx->room = reinterpret_cast<std::byte *>(tx + 1);
    tx->upper_bytes = match_bytes;
    tx->form = reliability::Form::brief;
    tx->bytes = tx->room + brief_place + reliability::brief_bytes;
    tx->vfrag.length = payload;
    tx->vfrag.fragment_bytes = static_cast<std::uint32_t>(payload);
    tx->vfrag.fragments = tx->record;
    tx->vfrag.user = tx;
    return tx;
}

void TxPools::spread(TxVfrag &tx) noexcept
{
    const std::size_t upper_place = tx.form == reliability::Form::compressed
                                        ? compressed_place + reliability::compressed_upper_place
                                        : brief_place + reliability::brief_upper_place;
    std::uint64_t word = 0;
    std::memcpy(&word, tx.room + upper_place, sizeof word);
    const UpperHeader upper = unpack_brief(base::detail::little_endian(word));
    std::byte *const payload = tx.room + reliability::header_bytes + match_bytes;
    std::memmove(payload, tx.bytes, tx.vfrag.length);
    tx.bytes = payload;
    write_match(upper.context, upper.source, upper.tag,
                std::span<std::byte, match_bytes>(payload - match_bytes, match_bytes));
    tx.form = reliability::Form::full;
}

TxData *TxPools::get_data() noexcept
{
    void *memory = data_.get();
    if (memory == nullptr) {
        return nullptr;
    }
    auto *tx = new (memory) TxData;
    tx->size_class = data_class;
    tx->vfrag.ordered = false;
    tx->vfrag.user = tx;
    return tx;
}

void TxPools::put_back(TxVfrag *tx) noexcept
{
    if (tx->packed != nullptr) {
        std::free(tx->packed);
    }
    if (tx->size_class == data_class) {
        process_window.remove(tx->vfrag.length); // 0 when it was never given to an engine
        data_.put(tx);
    } else {
        ordered_[tx->size_class].put(tx);
    }
}

} // namespace ft::dr

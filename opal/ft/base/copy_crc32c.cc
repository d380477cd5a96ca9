// Copying and summing: see crc32c.hpp. In one pass where the processor can (fold.hpp).
#include "opal/ft/base/crc32c.hpp"

#include <algorithm>
#include <cstring>

#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/copy.hpp"
#include "opal/ft/base/fold.hpp"

namespace ft::base {

namespace {

/// Bytes that are copied and then summed out of the first-level cache, where there is nothing
/// better.
constexpr std::size_t piece_bytes = 4096;

template <typename Copy>
void copy_then_sum(Crc32c &sum, std::span<std::byte> to, std::span<const std::byte> from, Copy copy,
                   Summed summed)
{
    while (!from.empty()) {
        const std::size_t bytes = std::min(from.size(), piece_bytes);
        copy(to.data(), from.first(bytes));
        sum.update(summed == Summed::source ? from.first(bytes) : to.first(bytes));
        from = from.subspan(bytes);
        to = to.subspan(bytes);
    }
}

/// In one pass, where that can be done.
/// \return whether it was done; `state` and `to` are as they were if not
bool fold(Store store, std::uint32_t &state, std::span<std::byte> to,
          std::span<const std::byte> from)
{
#if defined(__x86_64__)
    const std::size_t least = least_in_one_pass + (store == Store::usual ? 0 : 64);
    if (from.size() >= least && can_fold(Width::bits_256)) {
        const Width width = can_fold(Width::bits_512) ? Width::bits_512 : Width::bits_256;
        state = copy_folding(width, store, state, to.data(), from);
        return true;
    }
#endif
    return false;
}

} // namespace

Crc32c &Crc32c::copy(std::span<std::byte> to, std::span<const std::byte> from)
{
    FT_ASSERT(to.size() >= from.size());
    if (!fold(Store::usual, state_, to, from)) {
        const auto copy = [](std::byte *place, std::span<const std::byte> piece) {
            std::memcpy(place, piece.data(), piece.size());
        };
        copy_then_sum(*this, to, from, copy, Summed::source);
    }
    return *this;
}

Crc32c &Crc32c::copy_shared(std::span<std::byte> to, std::span<const std::byte> from, Summed summed)
{
    FT_ASSERT(to.size() >= from.size());
    if (!fold(Store::usual, state_, to, from)) {
        copy_then_sum(*this, to, from, copy_by_vectors, summed);
    }
    return *this;
}

Crc32c &Crc32c::copy_past_caches(std::span<std::byte> to, std::span<const std::byte> from)
{
    FT_ASSERT(to.size() >= from.size());
    if (!fold(Store::past_caches, state_, to, from)) {
        copy_then_sum(*this, to, from, base::copy_past_caches, Summed::source);
    }
    return *this;
}

std::uint32_t copy_crc32c(std::span<std::byte> to, std::span<const std::byte> from)
{
    return Crc32c().copy(to, from).value();
}

std::uint32_t copy_crc32c_shared(std::span<std::byte> to, std::span<const std::byte> from,
                                 Summed summed)
{
    return Crc32c().copy_shared(to, from, summed).value();
}

std::uint32_t copy_crc32c_past_caches(std::span<std::byte> to, std::span<const std::byte> from)
{
    return Crc32c().copy_past_caches(to, from).value();
}

} // namespace ft::base

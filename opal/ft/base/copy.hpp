/// \file
/// A copy of few bytes, without a call. Pure function; any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace ft::base {

/// memcpy, for what is mostly of 8 to 16 bytes. \param to room for `from`, which it must not
/// overlap
[[gnu::always_inline]] inline void copy_short(std::byte *to,
                                              std::span<const std::byte> from) noexcept
{
    constexpr std::size_t word = sizeof(std::uint64_t);
    if (from.size() - word <= word) [[likely]] {
        // The first word and the last one, which may be the same.
        std::uint64_t first = 0;
        std::uint64_t last = 0;
        const std::size_t behind = from.size() - word;
        std::memcpy(&first, from.data(), word);
        std::memcpy(&last, from.data() + behind, word);
        std::memcpy(to, &first, word);
        std::memcpy(to + behind, &last, word);
    } else if (!from.empty()) {
        std::memcpy(to, from.data(), from.size());
    }
}

} // namespace ft::base

/// \file
/// Copies that memcpy is not best at: of few bytes, and into memory that another core has in its
/// cache. Pure functions; any thread.
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

/// memcpy without string instructions, which glibc takes for some KiB and more (2112 bytes, on
/// processors that say they are quick at short ones; GLIBC_TUNABLES, x86_rep_movsb_threshold). What
/// a core reads by them out of another one's cache seems to stay in its own: the other one waits
/// when it writes there again, as if nothing had gone by since (docs/speed.md, "Where the time of a
/// long message goes"). For memory that another core uses, at either end; elsewhere memcpy is as
/// quick or quicker. By AVX on x86-64; memcpy where there is none. \param to room for `from`, which
/// it must not overlap
void copy_by_vectors(std::byte *to, std::span<const std::byte> from) noexcept;

/// memcpy with stores that go to memory past all caches (non-temporal ones, on x86-64; elsewhere
/// memcpy itself). A usual store waits until no other cache holds the line; from a core that shares
/// none with this one that takes hundreds of nanoseconds, and few are waited for at a time. The
/// bytes are visible in order with whatever is stored afterwards. \param to room for `from`, which
/// it must not overlap
void copy_past_caches(std::byte *to, std::span<const std::byte> from) noexcept;

} // namespace ft::base

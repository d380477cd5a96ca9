#include "opal/ft/base/copy.hpp"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace ft::base {

#if defined(__SSE2__)

namespace {

constexpr std::size_t line = 64; ///< of a cache: only a whole one goes out at once
constexpr std::size_t word = sizeof(__m128i);

} // namespace

void copy_past_caches(std::byte *to, std::span<const std::byte> from) noexcept
{
    const std::size_t before = -reinterpret_cast<std::uintptr_t>(to) % line;
    if (from.size() < before + line) {
        if (!from.empty()) {
            std::memcpy(to, from.data(), from.size());
        }
        return;
    }
    std::memcpy(to, from.data(), before);
    const std::byte *source = from.data() + before;
    std::byte *place = to + before;
    std::size_t left = from.size() - before;
    const auto load = [&source](std::size_t at) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i *>(source + at));
    };
    const auto store = [&place](std::size_t at, __m128i bytes) {
        _mm_stream_si128(reinterpret_cast<__m128i *>(place + at), bytes);
    };
    for (; left >= line; source += line, place += line, left -= line) {
        const __m128i a = load(0);
        const __m128i b = load(word);
        const __m128i c = load(2 * word);
        const __m128i d = load(3 * word);
        store(0, a);
        store(word, b);
        store(2 * word, c);
        store(3 * word, d);
    }
    std::memcpy(place, source, left);
    _mm_sfence(); // such stores are not in the order of all others
}

#else

void copy_past_caches(std::byte *to, std::span<const std::byte> from) noexcept
{
    if (!from.empty()) {
        std::memcpy(to, from.data(), from.size());
    }
}

#endif

} // namespace ft::base

#include "opal/ft/base/copy.hpp"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ft::base {

#if defined(__x86_64__)

namespace {

const bool have_avx = __builtin_cpu_supports("avx") != 0;

/// Lines to be written are asked for so many bytes ahead, but not beyond what is copied, which may
/// be another core's. (A processor that does not know PREFETCHW does nothing for it.)
constexpr std::size_t ahead = 1024;

__attribute__((target("avx,prfchw"))) void copy_lines(std::byte *to, const std::byte *from,
                                                      std::size_t left)
{
    constexpr std::size_t word = sizeof(__m256i);
    constexpr std::size_t step = 4 * word;
    const auto load = [&from](std::size_t at) __attribute__((target("avx")))
    {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from + at));
    };
    const auto store = [&to](std::size_t at, __m256i bytes) __attribute__((target("avx")))
    {
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(to + at), bytes);
    };
    for (; left >= step; left -= step, from += step, to += step) {
        if (left >= ahead + step) {
            __builtin_prefetch(to + ahead, 1);
            __builtin_prefetch(to + ahead + step / 2, 1);
        }
        const __m256i a = load(0);
        const __m256i b = load(word);
        const __m256i c = load(2 * word);
        const __m256i d = load(3 * word);
        store(0, a);
        store(word, b);
        store(2 * word, c);
        store(3 * word, d);
    }
    _mm256_zeroupper();
    std::memcpy(to, from, left);
}

} // namespace

void copy_by_vectors(std::byte *to, std::span<const std::byte> from) noexcept
{
    if (have_avx && !from.empty()) {
        copy_lines(to, from.data(), from.size());
    } else if (!from.empty()) {
        std::memcpy(to, from.data(), from.size());
    }
}

#else

void copy_by_vectors(std::byte *to, std::span<const std::byte> from) noexcept
{
    if (!from.empty()) {
        std::memcpy(to, from.data(), from.size());
    }
}

#endif

} // namespace ft::base

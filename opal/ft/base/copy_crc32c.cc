// Copying and summing in one pass over the bytes: see crc32c.hpp. Folding by carry-less
// multiplication after Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ"
// (Intel, 2009), in 512-bit registers; what is left at the end is summed by the processor's own
// instruction instead of a Barrett reduction.
#include "opal/ft/base/crc32c.hpp"

#include <algorithm>
#include <cstring>

#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/copy.hpp"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ft::base {

namespace {

/// Bytes that are copied and then summed out of the first-level cache, where there is nothing
/// better.
constexpr std::size_t piece_bytes = 4096;

template <typename Copy>
std::uint32_t copy_then_sum(std::span<std::byte> to, std::span<const std::byte> from, Copy copy,
                            Summed summed)
{
    Crc32c sum;
    while (!from.empty()) {
        const std::size_t bytes = std::min(from.size(), piece_bytes);
        copy(to.data(), from.first(bytes));
        sum.update(summed == Summed::source ? from.first(bytes) : to.first(bytes));
        from = from.subspan(bytes);
        to = to.subspan(bytes);
    }
    return sum.value();
}

#if defined(__x86_64__)

/// x^power modulo the polynomial, in the reflected order of bits and one place up, as a carry-less
/// product of reflected factors wants it.
consteval std::uint64_t reflected_power(unsigned power)
{
    constexpr std::uint32_t polynomial = 0x1edc6f41U;
    std::uint32_t r = 1;
    for (unsigned i = 0; i < power; ++i) {
        r = (r << 1) ^ ((r >> 31) != 0 ? polynomial : 0);
    }
    std::uint64_t reflected = 0;
    for (unsigned i = 0; i < 32; ++i) {
        reflected |= static_cast<std::uint64_t>(r >> i & 1U) << (31 - i);
    }
    return reflected << 1;
}

constexpr std::size_t block = 64;
constexpr std::size_t stride = 4 * block;
/// What moves 128 bits by so many places: for the lower and the upper half.
constexpr std::uint64_t by_stride_low = reflected_power(8 * stride + 32);
constexpr std::uint64_t by_stride_high = reflected_power(8 * stride - 32);
constexpr std::uint64_t by_block_low = reflected_power(8 * block + 32);
constexpr std::uint64_t by_block_high = reflected_power(8 * block - 32);

#define FT_FOLDING_TARGET __attribute__((target("avx512f,vpclmulqdq,sse4.2")))

FT_FOLDING_TARGET __m512i halves(std::uint64_t low, std::uint64_t high)
{
    const auto h = static_cast<long long>(high);
    const auto l = static_cast<long long>(low);
    return _mm512_set_epi64(h, l, h, l, h, l, h, l);
}

/// `sum` moved on by the distance of `by`, and `next` added.
FT_FOLDING_TARGET __m512i fold(__m512i sum, __m512i by, __m512i next)
{
    const __m512i low = _mm512_clmulepi64_epi128(sum, by, 0x00);
    const __m512i high = _mm512_clmulepi64_epi128(sum, by, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96); // exclusive-or of all three
}

FT_FOLDING_TARGET std::uint32_t copy_folding(std::byte *to, const std::byte *from, std::size_t left)
{
    const __m512i by_stride = halves(by_stride_low, by_stride_high);
    const __m512i by_block = halves(by_block_low, by_block_high);
    const auto move = [&](std::size_t at) FT_FOLDING_TARGET {
        const __m512i bytes = _mm512_loadu_si512(from + at);
        _mm512_storeu_si512(to + at, bytes);
        return bytes;
    };
    __m512i a = move(0);
    __m512i b = move(block);
    __m512i c = move(2 * block);
    __m512i d = move(3 * block);
    // The register's initial value is the same as its inversion on the first four bytes.
    a = _mm512_xor_si512(a, _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0, 0xffffffff));
    for (from += stride, to += stride, left -= stride; left >= stride;
         from += stride, to += stride, left -= stride) {
        a = fold(a, by_stride, move(0));
        b = fold(b, by_stride, move(block));
        c = fold(c, by_stride, move(2 * block));
        d = fold(d, by_stride, move(3 * block));
    }
    a = fold(fold(fold(a, by_block, b), by_block, c), by_block, d);
    for (; left >= block; from += block, to += block, left -= block) {
        a = fold(a, by_block, move(0));
    }
    std::uint64_t words[block / sizeof(std::uint64_t)];
    _mm512_storeu_si512(words, a);
    // As in crc32c.cc. Without optimisation for speed the compiler does not do so by itself.
    _mm256_zeroupper();
    std::uint64_t wide = 0;
    for (const std::uint64_t word : words) {
        wide = _mm_crc32_u64(wide, word);
    }
    for (; left >= sizeof wide; from += sizeof wide, to += sizeof wide, left -= sizeof wide) {
        std::uint64_t word = 0;
        std::memcpy(&word, from, sizeof word);
        std::memcpy(to, &word, sizeof word);
        wide = _mm_crc32_u64(wide, word);
    }
    auto narrow = static_cast<std::uint32_t>(wide);
    for (; left != 0; --left, ++from, ++to) {
        *to = *from;
        narrow = _mm_crc32_u8(narrow, std::to_integer<unsigned char>(*from));
    }
    return ~narrow;
}

const bool can_fold = __builtin_cpu_supports("avx512f") != 0 &&
                      __builtin_cpu_supports("vpclmulqdq") != 0 &&
                      __builtin_cpu_supports("sse4.2") != 0;

#endif

} // namespace

std::uint32_t copy_crc32c(std::span<std::byte> to, std::span<const std::byte> from)
{
    FT_ASSERT(to.size() >= from.size());
#if defined(__x86_64__)
    if (from.size() >= stride && can_fold) {
        return copy_folding(to.data(), from.data(), from.size());
    }
#endif
    const auto copy = [](std::byte *place, std::span<const std::byte> piece) {
        std::memcpy(place, piece.data(), piece.size());
    };
    return copy_then_sum(to, from, copy, Summed::source);
}

std::uint32_t copy_crc32c_shared(std::span<std::byte> to, std::span<const std::byte> from,
                                 Summed summed)
{
    FT_ASSERT(to.size() >= from.size());
#if defined(__x86_64__)
    if (from.size() >= stride && can_fold) {
        return copy_folding(to.data(), from.data(), from.size());
    }
#endif
    return copy_then_sum(to, from, copy_by_vectors, summed);
}

} // namespace ft::base

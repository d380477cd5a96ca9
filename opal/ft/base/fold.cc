#include "opal/ft/base/fold.hpp"

#if defined(__x86_64__)
#include <array>
#include <cstring>

#include <immintrin.h>

#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/crc32c.hpp"

namespace ft::base {

namespace {

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

/// What moves 128 bits by so many bytes: for their lower and their upper half.
struct Distance {
    std::uint64_t low;
    std::uint64_t high;
};

consteval Distance by(unsigned bytes)
{
    return {reflected_power(8 * bytes + 32), reflected_power(8 * bytes - 32)};
}

/// What is still to be copied.
struct Run {
    std::byte *to;
    const std::byte *from;
    std::size_t left;

    void advance(std::size_t bytes)
    {
        to += bytes;
        from += bytes;
        left -= bytes;
    }
};

#define FT_WITH_512 __attribute__((target("avx512f,vpclmulqdq,sse4.2,prfchw")))
#define FT_WITH_256 __attribute__((target("avx2,vpclmulqdq,sse4.2,prfchw")))

constexpr std::size_t line = 64; ///< of a cache

/// What is multiplied fills the processor's window, so that few of the loads and of the stores
/// behind it are under way at once: lines are asked for so many bytes ahead, to be written ones for
/// themselves, and these not beyond what is copied: what stands there may be another core's.
constexpr std::size_t ahead = 1024;

template <Store store>
[[gnu::always_inline]] inline __attribute__((target("prfchw"))) void
ask_for_places(const Run &run, std::size_t stride)
{
    if (store == Store::usual && run.left >= ahead + stride) {
        for (std::size_t at = 0; at < stride; at += line) {
            __builtin_prefetch(run.to + ahead + at, 1);
        }
    }
}

/// A register as long as a block, moved on by the distance of `by`, and `next` added.
FT_WITH_512 __m512i fold(__m512i sum, __m512i by, __m512i next)
{
    const __m512i low = _mm512_clmulepi64_epi128(sum, by, 0x00);
    const __m512i high = _mm512_clmulepi64_epi128(sum, by, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96); // exclusive-or of all three
}

FT_WITH_256 __m256i fold(__m256i sum, __m256i by, __m256i next)
{
    const __m256i low = _mm256_clmulepi64_epi128(sum, by, 0x00);
    const __m256i high = _mm256_clmulepi64_epi128(sum, by, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(low, next), high);
}

FT_WITH_512 __m512i spread_512(Distance distance)
{
    const auto h = static_cast<long long>(distance.high);
    const auto l = static_cast<long long>(distance.low);
    return _mm512_set_epi64(h, l, h, l, h, l, h, l);
}

FT_WITH_256 __m256i spread_256(Distance distance)
{
    const auto h = static_cast<long long>(distance.high);
    const auto l = static_cast<long long>(distance.low);
    return _mm256_set_epi64x(h, l, h, l);
}

template <Store store>
FT_WITH_512 __m512i move_512(const Run &run, std::size_t at)
{
    const __m512i bytes = _mm512_loadu_si512(run.from + at);
    if constexpr (store == Store::past_caches) {
        _mm512_stream_si512(reinterpret_cast<__m512i *>(run.to + at), bytes);
    } else {
        _mm512_storeu_si512(run.to + at, bytes);
    }
    return bytes;
}

template <Store store>
FT_WITH_256 __m256i move_256(const Run &run, std::size_t at)
{
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(run.from + at));
    auto *const to = reinterpret_cast<__m256i *>(run.to + at);
    if constexpr (store == Store::past_caches) {
        _mm256_stream_si256(to, bytes);
    } else {
        _mm256_storeu_si256(to, bytes);
    }
    return bytes;
}

/// Copies whole blocks. \return the words whose sum, from a register of 0, is that of the state and
/// all blocks
template <Store store>
FT_WITH_512 std::array<std::uint64_t, 8> copy_blocks_512(std::uint32_t state, Run &run)
{
    constexpr std::size_t block = sizeof(__m512i);
    constexpr std::size_t stride = 4 * block;
    const __m512i by_stride = spread_512(by(stride));
    const __m512i by_block = spread_512(by(block));
    __m512i a = move_512<store>(run, 0);
    __m512i b = move_512<store>(run, block);
    __m512i c = move_512<store>(run, 2 * block);
    __m512i d = move_512<store>(run, 3 * block);
    // The register's value is the same as its exclusive-or with the first four bytes.
    a = _mm512_xor_si512(a, _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0, state));
    for (run.advance(stride); run.left >= stride; run.advance(stride)) {
        ask_for_places<store>(run, stride);
        a = fold(a, by_stride, move_512<store>(run, 0));
        b = fold(b, by_stride, move_512<store>(run, block));
        c = fold(c, by_stride, move_512<store>(run, 2 * block));
        d = fold(d, by_stride, move_512<store>(run, 3 * block));
    }
    a = fold(fold(fold(a, by_block, b), by_block, c), by_block, d);
    for (; run.left >= block; run.advance(block)) {
        a = fold(a, by_block, move_512<store>(run, 0));
    }
    std::array<std::uint64_t, 8> words;
    _mm512_storeu_si512(words.data(), a);
    // As in crc32c.cc. Without optimisation for speed the compiler does not do so by itself.
    _mm256_zeroupper();
    return words;
}

/// The same with half of it at a time.
template <Store store>
FT_WITH_256 std::array<std::uint64_t, 4> copy_blocks_256(std::uint32_t state, Run &run)
{
    constexpr std::size_t block = sizeof(__m256i);
    constexpr std::size_t stride = 4 * block;
    const __m256i by_stride = spread_256(by(stride));
    const __m256i by_block = spread_256(by(block));
    __m256i a = move_256<store>(run, 0);
    __m256i b = move_256<store>(run, block);
    __m256i c = move_256<store>(run, 2 * block);
    __m256i d = move_256<store>(run, 3 * block);
    a = _mm256_xor_si256(a, _mm256_set_epi64x(0, 0, 0, state));
    for (run.advance(stride); run.left >= stride; run.advance(stride)) {
        _mm_prefetch(run.from + ahead, _MM_HINT_T0);
        _mm_prefetch(run.from + ahead + line, _MM_HINT_T0);
        ask_for_places<store>(run, stride);
        a = fold(a, by_stride, move_256<store>(run, 0));
        b = fold(b, by_stride, move_256<store>(run, block));
        c = fold(c, by_stride, move_256<store>(run, 2 * block));
        d = fold(d, by_stride, move_256<store>(run, 3 * block));
    }
    a = fold(fold(fold(a, by_block, b), by_block, c), by_block, d);
    for (; run.left >= block; run.advance(block)) {
        a = fold(a, by_block, move_256<store>(run, 0));
    }
    std::array<std::uint64_t, 4> words;
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(words.data()), a);
    _mm256_zeroupper();
    return words;
}

__attribute__((target("sse4.2"))) std::uint32_t
copy_rest(std::uint32_t state, std::span<const std::uint64_t> of_blocks, Run run)
{
    std::uint64_t wide = state;
    for (const std::uint64_t word : of_blocks) {
        wide = _mm_crc32_u64(wide, word);
    }
    for (; run.left >= sizeof wide; run.advance(sizeof wide)) {
        std::uint64_t word = 0;
        std::memcpy(&word, run.from, sizeof word);
        std::memcpy(run.to, &word, sizeof word);
        wide = _mm_crc32_u64(wide, word);
    }
    auto narrow = static_cast<std::uint32_t>(wide);
    for (; run.left != 0; run.advance(1)) {
        *run.to = *run.from;
        narrow = _mm_crc32_u8(narrow, std::to_integer<unsigned char>(*run.from));
    }
    return narrow;
}

template <Store store>
std::uint32_t copy_by(Width width, std::uint32_t state, Run run)
{
    if (width == Width::bits_512) {
        const auto words = copy_blocks_512<store>(state, run);
        return copy_rest(0, words, run);
    }
    const auto words = copy_blocks_256<store>(state, run);
    return copy_rest(0, words, run);
}

bool have(Width width)
{
    // All that have the first of these have PREFETCHW, which does nothing where it is not known.
    return __builtin_cpu_supports("vpclmulqdq") != 0 && __builtin_cpu_supports("sse4.2") != 0 &&
           (width == Width::bits_512 ? __builtin_cpu_supports("avx512f")
                                     : __builtin_cpu_supports("avx2")) != 0;
}

const bool have_512 = have(Width::bits_512);
const bool have_256 = have(Width::bits_256);

} // namespace

bool can_fold(Width width) noexcept
{
    return width == Width::bits_512 ? have_512 : have_256;
}

std::uint32_t copy_folding(Width width, Store store, std::uint32_t state, std::byte *to,
                           std::span<const std::byte> from) noexcept
{
    FT_ASSERT(can_fold(width) && from.size() >= least_in_one_pass);
    Run run{to, from.data(), from.size()};
    if (store == Store::usual) {
        return copy_by<Store::usual>(width, state, run);
    }
    // Only a whole line goes out at once.
    const std::size_t before = -reinterpret_cast<std::uintptr_t>(to) % line;
    state = copy_rest(state, {}, {run.to, run.from, before});
    run.advance(before);
    state = copy_by<Store::past_caches>(width, state, run);
    _mm_sfence(); // such stores are not in the order of all others
    return state;
}

} // namespace ft::base

#endif

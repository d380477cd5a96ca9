#include "opal/ft/base/crc32c.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <isa-l/crc.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "opal/ft/base/wire.hpp"

namespace ft::base {

namespace {

#if defined(__x86_64__)

/// isa-l sets up its folding before it looks at the length, which costs 12 to 18 ns; up to here the
/// processor's own instruction is done sooner (64 bytes: 11 ns against 17). A header is that short,
/// and is summed twice for every message.
constexpr std::size_t short_run = 128;

const bool have_instruction = __builtin_cpu_supports("sse4.2") != 0;

__attribute__((target("sse4.2"))) std::uint32_t sum_short(std::uint32_t state,
                                                          std::span<const std::byte> data)
{
    std::uint64_t wide = state;
    const std::byte *at = data.data();
    std::size_t left = data.size();
    const auto word = [](const std::byte *from) {
        std::uint64_t value = 0;
        std::memcpy(&value, from, sizeof value);
        return value;
    };
    for (; left >= 2 * sizeof wide; left -= 2 * sizeof wide, at += 2 * sizeof wide) {
        wide = _mm_crc32_u64(wide, word(at));
        wide = _mm_crc32_u64(wide, word(at + sizeof wide));
    }
    if (left >= sizeof wide) {
        wide = _mm_crc32_u64(wide, word(at));
        left -= sizeof wide;
        at += sizeof wide;
    }
    auto narrow = static_cast<std::uint32_t>(wide);
    if (left >= sizeof narrow) { // the upper header of data ends so
        std::uint32_t half = 0;
        std::memcpy(&half, at, sizeof half);
        narrow = _mm_crc32_u32(narrow, half);
        left -= sizeof half;
        at += sizeof half;
    }
    for (; left != 0; --left, ++at) {
        narrow = _mm_crc32_u8(narrow, std::to_integer<unsigned char>(*at));
    }
    return narrow;
}

/// Pieces of whole words, as headers are: without a look at what may be left of a word.
__attribute__((target("sse4.2"))) std::uint64_t sum_words(std::uint64_t state, const std::byte *at,
                                                          std::size_t words)
{
    for (; words != 0; --words, at += sizeof state) {
        std::uint64_t word = 0;
        std::memcpy(&word, at, sizeof word);
        state = _mm_crc32_u64(state, word);
    }
    return state;
}

__attribute__((target("sse4.2"))) std::uint32_t sum_two_short(std::span<const std::byte> first,
                                                              std::span<const std::byte> second)
{
    if (((first.size() | second.size()) % sizeof(std::uint64_t)) == 0) {
        const std::uint64_t state =
            sum_words(0xffffffffU, first.data(), first.size() / sizeof(std::uint64_t));
        return ~static_cast<std::uint32_t>(
            sum_words(state, second.data(), second.size() / sizeof(std::uint64_t)));
    }
    return ~sum_short(sum_short(0xffffffffU, first), second);
}

__attribute__((target("sse4.2"))) std::uint32_t
sum_front_and_rest(const std::byte *front, std::uint64_t last, std::span<const std::byte> rest)
{
    const auto word = [](const std::byte *from) {
        std::uint64_t value = 0;
        std::memcpy(&value, from, sizeof value);
        return value;
    };
    std::uint64_t state = _mm_crc32_u64(0xffffffffU, word(front));
    state = _mm_crc32_u64(state, word(front + 8));
    state = _mm_crc32_u64(state, word(front + 16));
    state = _mm_crc32_u64(state, word(front + 24));
    state = _mm_crc32_u64(state, word(front + 32));
    state = _mm_crc32_u64(state, last);
    if (rest.size() == sizeof state) { // what programs send most is as long as a number
        return ~static_cast<std::uint32_t>(_mm_crc32_u64(state, word(rest.data())));
    }
    if (rest.size() == 2 * sizeof state) { // and the upper header of a message is two words
        state = _mm_crc32_u64(state, word(rest.data()));
        return ~static_cast<std::uint32_t>(_mm_crc32_u64(state, word(rest.data() + sizeof state)));
    }
    return ~sum_short(static_cast<std::uint32_t>(state), rest);
}

__attribute__((target("sse4.2"))) std::uint32_t
sum_words_and_rest(const std::array<std::uint64_t, 3> &words, std::span<const std::byte> rest)
{
    std::uint64_t state = 0xffffffffU;
    for (const std::uint64_t word : words) {
        state = _mm_crc32_u64(state, word);
    }
    if (rest.size() == sizeof state) { // as above
        std::uint64_t word = 0;
        std::memcpy(&word, rest.data(), sizeof word);
        return ~static_cast<std::uint32_t>(_mm_crc32_u64(state, word));
    }
    if (rest.empty()) {
        return ~static_cast<std::uint32_t>(state);
    }
    return ~sum_short(static_cast<std::uint32_t>(state), rest);
}

const bool have_avx = __builtin_cpu_supports("avx") != 0;

/// isa-l returns with the upper parts of the vector registers in use. From then on the program's
/// own SSE instructions have to keep them: some become half as slow again, wherever they are, until
/// somebody clears the parts.
__attribute__((target("avx"))) void clear_upper_parts()
{
    _mm256_zeroupper();
}

#endif

} // namespace

Crc32c &Crc32c::update(std::span<const std::byte> data)
{
#if defined(__x86_64__)
    if (data.size() <= short_run && have_instruction) {
        state_ = sum_short(state_, data);
        return *this;
    }
#endif
    // isa-l counts in int, wants a pointer to non-const that it never writes through, and leaves
    // both inversions to its caller.
    constexpr std::size_t most_at_once = std::size_t{1} << 30;
    while (!data.empty()) {
        const auto piece = data.first(std::min(data.size(), most_at_once));
        auto *start = reinterpret_cast<unsigned char *>(const_cast<std::byte *>(piece.data()));
        state_ = crc32_iscsi(start, static_cast<int>(piece.size()), state_);
        data = data.subspan(piece.size());
    }
#if defined(__x86_64__)
    if (have_avx) {
        clear_upper_parts();
    }
#endif
    return *this;
}

std::uint32_t crc32c(std::span<const std::byte> data)
{
#if defined(__x86_64__)
    if (data.size() == sizeof(std::uint64_t) && have_instruction) { // a number
        return ~static_cast<std::uint32_t>(sum_words(0xffffffffU, data.data(), 1));
    }
#endif
    return Crc32c().update(data).value();
}

std::uint32_t crc32c(std::span<const std::byte> first, std::span<const std::byte> second)
{
#if defined(__x86_64__)
    if (first.size() <= short_run && second.size() <= short_run && have_instruction) {
        return sum_two_short(first, second);
    }
#endif
    return Crc32c().update(first).update(second).value();
}

std::uint32_t crc32c(std::span<const std::byte, 40> front, std::uint64_t last,
                     std::span<const std::byte> rest)
{
#if defined(__x86_64__)
    if (rest.size() <= short_run && have_instruction) {
        return sum_front_and_rest(front.data(), last, rest);
    }
#endif
    std::array<std::byte, sizeof last> bytes{};
    WireWriter(bytes).u64(last);
    return Crc32c().update(front).update(bytes).update(rest).value();
}

std::uint32_t crc32c(const std::array<std::uint64_t, 3> &words, std::span<const std::byte> rest)
{
#if defined(__x86_64__)
    if (rest.size() <= short_run && have_instruction) {
        return sum_words_and_rest(words, rest);
    }
#endif
    std::array<std::byte, sizeof words> bytes{};
    WireWriter writer(bytes);
    for (const std::uint64_t word : words) {
        writer.u64(word);
    }
    return Crc32c().update(bytes).update(rest).value();
}

std::uint32_t crc32c(std::span<const std::span<const std::byte>> pieces)
{
    Crc32c sum;
    for (const auto &piece : pieces) {
        sum.update(piece);
    }
    return sum.value();
}

std::uint32_t crc32c(std::initializer_list<std::span<const std::byte>> pieces)
{
    return crc32c(std::span<const std::span<const std::byte>>(pieces.begin(), pieces.size()));
}

} // namespace ft::base

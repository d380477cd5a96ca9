#include "opal/ft/base/copy.hpp"
#include "opal/ft/base/crc32c.hpp"
#include "opal/ft/base/fold.hpp"
#include "opal/ft/base/rng.hpp"
#include "test/unit/cmocka.hpp"

#include <array>
#include <cstring>
#include <string_view>

using namespace ft::base;

namespace {

std::span<const std::byte> bytes_of(std::string_view text)
{
    return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

/// The definition, bit by bit.
std::uint32_t by_definition(std::span<const std::byte> data)
{
    std::uint32_t r = 0xffffffffU;
    for (const std::byte b : data) {
        r ^= static_cast<std::uint32_t>(b);
        for (int i = 0; i < 8; ++i) {
            r = (r >> 1) ^ ((r & 1U) != 0 ? 0x82f63b78U : 0);
        }
    }
    return ~r;
}

template <std::size_t N>
std::array<std::byte, N> random_bytes(std::uint64_t seed)
{
    std::array<std::byte, N> data;
    Rng rng(seed);
    for (auto &b : data) {
        b = static_cast<std::byte>(rng.below(256));
    }
    return data;
}

void known_values(void **)
{
    assert_int_equal(crc32c(bytes_of("123456789")), 0xE3069283U);
    assert_int_equal(crc32c(std::span<const std::byte>{}), 0U);
    assert_int_equal(Crc32c().value(), 0U);
    // RFC 3720, appendix B.4.
    std::array<std::byte, 32> data{};
    assert_int_equal(crc32c(data), 0x8A9136AAU);
    data.fill(std::byte{0xff});
    assert_int_equal(crc32c(data), 0x62A8AB43U);
    for (std::size_t i = 0; i < data.size(); ++i) {
        data[i] = static_cast<std::byte>(i);
    }
    assert_int_equal(crc32c(data), 0x46DD794EU);
    for (std::size_t i = 0; i < data.size(); ++i) {
        data[i] = static_cast<std::byte>(31 - i);
    }
    assert_int_equal(crc32c(data), 0x113FDB5CU);
}

void every_length_matches_the_definition(void **)
{
    const auto data = random_bytes<1100>(1);
    for (std::size_t offset = 0; offset < 16; ++offset) {
        for (std::size_t length = 0; length <= 1024; length += offset == 0 ? 1 : 61) {
            const auto part = std::span(data).subspan(offset, length);
            assert_int_equal(crc32c(part), by_definition(part));
            const std::size_t first = length / 3;
            assert_int_equal(crc32c(part.first(first), part.subspan(first)), by_definition(part));
        }
    }
}

void pieces_give_the_sum_of_the_whole(void **)
{
    const auto data = random_bytes<300>(2);
    const std::uint32_t whole = crc32c(data);
    for (std::size_t cut = 0; cut <= data.size(); ++cut) {
        const auto head = std::span<const std::byte>(data).first(cut);
        const auto tail = std::span<const std::byte>(data).subspan(cut);
        const std::uint32_t stepwise = Crc32c().update(head).update({}).update(tail).value();
        const std::uint32_t at_once = crc32c({head, std::span<const std::byte>{}, tail});
        assert_int_equal(stepwise, whole);
        assert_int_equal(at_once, whole);
    }
}

void words_before_the_rest_are_summed_as_their_bytes(void **)
{
    const auto data = random_bytes<24 + 300>(4);
    const std::array<std::uint64_t, 3> words = [&] {
        std::array<std::uint64_t, 3> w{};
        for (std::size_t i = 0; i < 24; ++i) {
            w[i / 8] |= std::to_integer<std::uint64_t>(data[i]) << i % 8 * 8;
        }
        return w;
    }();
    for (std::size_t rest = 0; rest <= 300; ++rest) {
        const std::span whole(data.data(), 24 + rest);
        assert_int_equal(crc32c(words, whole.subspan(24)), by_definition(whole));
    }
}

/// All lengths around the blocks of the folding, at all places within a word, and long ones.
void copying_gives_the_bytes_and_their_sum(void **)
{
    constexpr std::size_t most = 70'000;
    static const auto data = random_bytes<most + 16>(11);
    static std::array<std::byte, most + 32> to;
    std::size_t wrong = 0;
    const auto check = [&](std::size_t length, std::size_t from_at, std::size_t to_at) {
        const auto from = std::span(data).subspan(from_at, length);
        to.fill(std::byte{0x5a});
        const std::uint32_t right = by_definition(from);
        const auto place = std::span(to).subspan(to_at, length);
        const auto look = [&](std::uint32_t sum) {
            const bool whole = std::memcmp(place.data(), from.data(), length) == 0;
            const bool kept = (to_at == 0 || to[to_at - 1] == std::byte{0x5a}) &&
                              to[to_at + length] == std::byte{0x5a};
            wrong += sum != right || !whole || !kept ? 1 : 0;
            to.fill(std::byte{0x5a});
        };
        look(copy_crc32c(place, from));
        look(copy_crc32c_shared(place, from, Summed::source));
        look(copy_crc32c_shared(place, from, Summed::copy));
        look(copy_crc32c_past_caches(place, from));
        copy_by_vectors(place.data(), from);
        look(right);
        const std::size_t front = length / 3;
        std::memcpy(place.data(), from.data(), front);
        look(Crc32c()
                 .update(from.first(front))
                 .copy(place.subspan(front), from.subspan(front))
                 .value());
#if defined(__x86_64__)
        // The wider registers hide the others where the processor has both.
        for (const Width width : {Width::bits_256, Width::bits_512}) {
            if (length >= least_in_one_pass + 64 && can_fold(width)) {
                look(~copy_folding(width, Store::usual, 0xffffffffU, place.data(), from));
                look(~copy_folding(width, Store::past_caches, 0xffffffffU, place.data(), from));
            }
        }
#endif
    };
    for (std::size_t length = 0; length < 1100; ++length) {
        check(length, length % 9, length % 7);
    }
    for (const std::size_t length : {4095UL, 4096UL, 4097UL, 32'640UL, 65'536UL, most}) {
        for (std::size_t shift = 0; shift < 3; ++shift) {
            check(length, shift, 5 * shift);
        }
    }
    assert_int_equal(wrong, 0);
}

void every_flip_of_one_or_two_bits_is_seen(void **)
{
    auto data = random_bytes<40>(3);
    const std::uint32_t good = crc32c(data);
    const auto flip = [&data](std::size_t i) {
        data[i / 8] ^= static_cast<std::byte>(1U << (i % 8));
    };
    std::size_t missed = 0;
    for (std::size_t i = 0; i < data.size() * 8; ++i) {
        flip(i);
        missed += crc32c(data) == good ? 1 : 0;
        for (std::size_t j = i + 1; j < data.size() * 8; ++j) {
            flip(j);
            missed += crc32c(data) == good ? 1 : 0;
            flip(j);
        }
        flip(i);
    }
    assert_int_equal(missed, 0);
}

#if defined(__x86_64__)

#define FT_UPPER_PART(number)                                                                      \
    asm volatile("vextractf128 $1, %%ymm" #number ", %0" : "=m"(part));                            \
    any |= part[0] | part[1];

/// What the upper parts of the vector registers hold, or'ed.
__attribute__((target("avx"), noinline)) std::uint64_t upper_parts()
{
    std::array<std::uint64_t, 2> part{};
    std::uint64_t any = 0;
    FT_UPPER_PART(0)
    FT_UPPER_PART(1)
    FT_UPPER_PART(2)
    FT_UPPER_PART(3)
    FT_UPPER_PART(4)
    FT_UPPER_PART(5)
    FT_UPPER_PART(6)
    FT_UPPER_PART(7)
    FT_UPPER_PART(8)
    FT_UPPER_PART(9)
    FT_UPPER_PART(10)
    FT_UPPER_PART(11)
    FT_UPPER_PART(12)
    FT_UPPER_PART(13)
    FT_UPPER_PART(14)
    FT_UPPER_PART(15)
    return any;
}

/// Whatever is left there makes SSE instructions of the program slower from then on.
void the_upper_parts_of_vector_registers_are_left_clear(void **)
{
    std::uint64_t left = 0;
    if (__builtin_cpu_supports("avx") != 0) {
        const auto data = random_bytes<8192>(11);
        std::array<std::byte, 8192> copy{};
        for (const std::size_t length : {64U, 200U, 1000U, 8192U}) {
            volatile std::uint32_t sum = crc32c(std::span(data).first(length));
            left |= upper_parts();
            sum = copy_crc32c(copy, std::span(data).first(length));
            left |= upper_parts();
            sum = copy_crc32c_past_caches(copy, std::span(data).first(length));
            left |= upper_parts();
            (void)sum;
        }
    }
    assert_int_equal(left, 0);
}

#endif

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(every_length_matches_the_definition),
        cmocka_unit_test(pieces_give_the_sum_of_the_whole),
        cmocka_unit_test(words_before_the_rest_are_summed_as_their_bytes),
        cmocka_unit_test(copying_gives_the_bytes_and_their_sum),
        cmocka_unit_test(every_flip_of_one_or_two_bits_is_seen),
#if defined(__x86_64__)
        cmocka_unit_test(the_upper_parts_of_vector_registers_are_left_clear),
#endif
    };
    return cmocka_run_group_tests_name("crc32c", tests, nullptr, nullptr);
}

#include "test/mpi/programs/payload.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace ring {

namespace {

constexpr std::uint64_t top_bits = 0x8080808080808080U;

std::uint64_t key_of(const MessageName &name)
{
    std::uint64_t key = mix(name.seed);
    key = mix(key ^ static_cast<std::uint64_t>(name.source));
    key = mix(key ^ static_cast<std::uint64_t>(name.target));
    key = mix(key ^ static_cast<std::uint64_t>(name.round));
    return mix(key ^ static_cast<std::uint64_t>(name.index));
}

std::uint64_t word_of(std::uint64_t key, std::size_t number)
{
    return mix(key + number) | top_bits;
}

} // namespace

void fill(std::span<std::byte> buffer, const MessageName &name)
{
    const std::uint64_t key = key_of(name);
    std::size_t number = 0;
    for (std::size_t at = 0; at < buffer.size(); at += sizeof(std::uint64_t)) {
        const std::uint64_t word = word_of(key, number++);
        std::memcpy(&buffer[at], &word, std::min(sizeof word, buffer.size() - at));
    }
}

Difference check(std::span<const std::byte> buffer, const MessageName &name)
{
    const std::uint64_t key = key_of(name);
    Difference result;
    std::size_t number = 0;
    for (std::size_t at = 0; at < buffer.size(); at += sizeof(std::uint64_t)) {
        std::array<std::byte, sizeof(std::uint64_t)> expected{};
        const std::uint64_t word = word_of(key, number++);
        std::memcpy(expected.data(), &word, sizeof word);
        const std::size_t count = std::min(sizeof word, buffer.size() - at);
        if (std::memcmp(&buffer[at], expected.data(), count) == 0) {
            continue;
        }
        for (std::size_t i = 0; i < count; ++i) {
            if (buffer[at + i] == expected[i]) {
                continue;
            }
            if (result.wrong_bytes++ == 0) {
                result.first = at + i;
                result.expected = expected[i];
                result.found = buffer[at + i];
            }
        }
    }
    return result;
}

} // namespace ring

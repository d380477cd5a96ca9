/* Payloads whose every byte can be foretold by both ends. */
#ifndef TEST_MPI_PROGRAMS_PAYLOAD_HPP
#define TEST_MPI_PROGRAMS_PAYLOAD_HPP

#include <cstddef>
#include <cstdint>
#include <span>

namespace ring {

/* Names one message of a run. Two different messages have unrelated payloads, so that one delivered
 * twice, late, or in the place of another is seen as wrong. */
struct MessageName {
    std::uint64_t seed;
    int source;
    int target;
    long round;
    int index;
};

/* Fills the buffer with the message's bytes.
 *
 * The top bit of every byte is set. Headers never look like that for eight bytes in a row, so a
 * rule that rewrites packets on the wire can tell payload from the headers of layers which check
 * nothing.
 */
void fill(std::span<std::byte> buffer, const MessageName &name);

/* What check found: the number of wrong bytes, and the first of them. */
struct Difference {
    std::size_t wrong_bytes = 0;
    std::size_t first = 0;
    std::byte expected{};
    std::byte found{};
};

/* Compares every byte of the buffer with what fill gives for the name. */
Difference check(std::span<const std::byte> buffer, const MessageName &name);

/* The mixing step of splitmix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
 * generators", figure 17); also the source of every choice a run makes. */
constexpr std::uint64_t mix(std::uint64_t x)
{
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
}

} // namespace ring

#endif

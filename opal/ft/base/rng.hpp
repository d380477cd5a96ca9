/// Random numbers that a seed repeats, on every machine and with every compiler.
///
/// xoshiro256** 1.0 (Blackman and Vigna, "Scrambled linear pseudorandom number generators", ACM
/// TOMS 47, 2021), its state filled by splitmix64 (Steele, Lea and Flood, OOPSLA 2014). Not for
/// secrets. The standard library's distributions are not used because they differ between
/// libraries. One object belongs to one thread.
#pragma once

#include "opal/ft/base/assert.hpp"

#include <array>
#include <bit>
#include <cstdint>

namespace ft::base {

/// One step of splitmix64: moves `state` on and returns the next number. Every seed is a good one.
constexpr std::uint64_t splitmix64(std::uint64_t &state)
{
    state += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

/// A stream of random numbers.
class Rng {
  public:
    explicit constexpr Rng(std::uint64_t seed) : seed_(seed)
    {
        for (auto &word : state_) {
            word = splitmix64(seed);
        }
    }

    /// 64 random bits.
    constexpr std::uint64_t next()
    {
        const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
        const std::uint64_t t = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= t;
        state_[3] = std::rotl(state_[3], 45);
        return result;
    }

    /// Uniform over 0 .. bound - 1, without bias (Lemire, ACM TOMACS 29, 2019). bound must not be
    /// 0.
    constexpr std::uint64_t below(std::uint64_t bound)
    {
        FT_ASSERT(bound != 0);
        __extension__ using Wide = unsigned __int128;
        Wide product = static_cast<Wide>(next()) * bound;
        if (static_cast<std::uint64_t>(product) < bound) {
            const std::uint64_t threshold = (0 - bound) % bound;
            while (static_cast<std::uint64_t>(product) < threshold) {
                product = static_cast<Wide>(next()) * bound;
            }
        }
        return static_cast<std::uint64_t>(product >> 64);
    }

    /// Uniform over low .. high, both included. low must not exceed high.
    constexpr std::uint64_t between(std::uint64_t low, std::uint64_t high)
    {
        FT_ASSERT(low <= high);
        const std::uint64_t span = high - low;
        return span == ~std::uint64_t{0} ? next() : low + below(span + 1);
    }

    /// Uniform over [0, 1), in steps of 2^-53.
    constexpr double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

    /// True with probability `p`. Always draws one number, so that runs with different p stay
    /// comparable; p <= 0 is never, p >= 1 always.
    constexpr bool chance(double p) { return uniform() < p; }

    /// Another stream, independent for practical purposes. It depends on this stream's seed and on
    /// `stream` alone, not on what was drawn, and nothing is drawn from this one: each link of a
    /// simulated network can have its own, and what happens on one does not disturb the others.
    constexpr Rng fork(std::uint64_t stream) const
    {
        std::uint64_t mix = stream;
        std::uint64_t seed = std::rotl(splitmix64(mix), 23) ^ seed_;
        return Rng(splitmix64(seed));
    }

    /// What the stream was started with: print it with a failure.
    constexpr std::uint64_t seed() const { return seed_; }

  private:
    std::array<std::uint64_t, 4> state_{};
    std::uint64_t seed_;
};

} // namespace ft::base

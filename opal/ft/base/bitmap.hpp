/// Sets of small numbers: helpers for a 64-bit mask, and a bitmap whose size is known at run time.
///
/// Pure functions and plain values; one `DynamicBitmap` belongs to one thread at a time.
#pragma once

#include "opal/ft/base/assert.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ft::base {

/// The mask with the lowest `n` bits set, 0 <= n <= 64.
constexpr std::uint64_t full_mask(unsigned n)
{
    return n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
}

/// The mask with only bit `i` set, 0 <= i < 64.
constexpr std::uint64_t bit(unsigned i)
{
    return std::uint64_t{1} << i;
}

/// How many bits are set, 0 to 64.
constexpr unsigned popcount(std::uint64_t mask)
{
    return static_cast<unsigned>(std::popcount(mask));
}

/// The number of the lowest set bit; 64 for the empty mask.
constexpr unsigned lowest(std::uint64_t mask)
{
    return static_cast<unsigned>(std::countr_zero(mask));
}

/// The number of the highest set bit plus one: the width of the mask; 0 for the empty mask.
constexpr unsigned width(std::uint64_t mask)
{
    return static_cast<unsigned>(std::bit_width(mask));
}

/// Calls `f(unsigned)` for each set bit, lowest first. `f` sees the mask as it was at the call.
template <typename F>
constexpr void for_each_bit(std::uint64_t mask, F &&f)
{
    for (; mask != 0; mask &= mask - 1) {
        f(lowest(mask));
    }
}

/// A set of numbers 0 .. size() - 1, one bit each. Operations on two bitmaps need equal sizes.
/// Invariant: bits of the last word beyond size() are zero.
class DynamicBitmap {
  public:
    /// What the `find` functions return when there is none.
    static constexpr std::size_t npos = ~std::size_t{0};

    DynamicBitmap() = default;
    explicit DynamicBitmap(std::size_t size) : words_(words_for(size)), size_(size) {}

    std::size_t size() const { return size_; }

    /// Grows with zeros or cuts off.
    void resize(std::size_t size)
    {
        words_.resize(words_for(size));
        size_ = size;
        trim();
    }

    bool test(std::size_t i) const
    {
        FT_ASSERT(i < size_);
        return (words_[i / 64] >> (i % 64) & 1U) != 0;
    }
    void set(std::size_t i)
    {
        FT_ASSERT(i < size_);
        words_[i / 64] |= bit(i % 64);
    }
    void reset(std::size_t i)
    {
        FT_ASSERT(i < size_);
        words_[i / 64] &= ~bit(i % 64);
    }
    void set_all()
    {
        std::fill(words_.begin(), words_.end(), ~std::uint64_t{0});
        trim();
    }
    void reset_all() { std::fill(words_.begin(), words_.end(), 0); }

    /// How many numbers are in the set.
    std::size_t count() const
    {
        std::size_t n = 0;
        for (const std::uint64_t w : words_) {
            n += popcount(w);
        }
        return n;
    }
    bool any() const
    {
        return std::any_of(words_.begin(), words_.end(), [](std::uint64_t w) { return w != 0; });
    }
    bool none() const { return !any(); }
    /// True when every number 0 .. size() - 1 is in the set, so also when size() is 0.
    bool all() const { return find_first_unset() == npos; }

    /// The smallest number in the set that is at least `from`, or npos.
    std::size_t find_first(std::size_t from = 0) const { return find(from, 0); }
    /// The smallest number not in the set that is at least `from` and below size(), or npos.
    std::size_t find_first_unset(std::size_t from = 0) const
    {
        return find(from, ~std::uint64_t{0});
    }

    /// Calls `f(std::size_t)` for each number in the set, smallest first. `f` must not resize.
    template <typename F>
    void for_each(F &&f) const
    {
        for (std::size_t w = 0; w < words_.size(); ++w) {
            for_each_bit(words_[w], [&](unsigned b) { f(w * 64 + b); });
        }
    }

    DynamicBitmap &operator|=(const DynamicBitmap &other)
    {
        return combine(other, [](std::uint64_t a, std::uint64_t b) { return a | b; });
    }
    DynamicBitmap &operator&=(const DynamicBitmap &other)
    {
        return combine(other, [](std::uint64_t a, std::uint64_t b) { return a & b; });
    }
    /// Takes the other's members out of this set.
    DynamicBitmap &operator-=(const DynamicBitmap &other)
    {
        return combine(other, [](std::uint64_t a, std::uint64_t b) { return a & ~b; });
    }
    friend DynamicBitmap operator|(DynamicBitmap a, const DynamicBitmap &b) { return a |= b; }
    friend DynamicBitmap operator&(DynamicBitmap a, const DynamicBitmap &b) { return a &= b; }
    friend DynamicBitmap operator-(DynamicBitmap a, const DynamicBitmap &b) { return a -= b; }

    bool operator==(const DynamicBitmap &) const = default;

    /// True when every member of `other` is in this set.
    bool contains(const DynamicBitmap &other) const
    {
        FT_ASSERT(size_ == other.size_);
        for (std::size_t w = 0; w < words_.size(); ++w) {
            if ((other.words_[w] & ~words_[w]) != 0) {
                return false;
            }
        }
        return true;
    }

    /// The set as words of 64 bits, lowest numbers first, for the wire.
    const std::vector<std::uint64_t> &words() const { return words_; }
    /// Sets one word, as it came from the wire. Bits beyond size() are dropped.
    void set_word(std::size_t index, std::uint64_t word)
    {
        FT_ASSERT(index < words_.size());
        words_[index] = word;
        trim();
    }

  private:
    static std::size_t words_for(std::size_t size) { return size / 64 + (size % 64 != 0); }

    void trim()
    {
        if (size_ % 64 != 0) {
            words_.back() &= full_mask(size_ % 64);
        }
    }

    /// First number from `from` on whose bit, exclusive-or `flip`, is set.
    std::size_t find(std::size_t from, std::uint64_t flip) const
    {
        if (from >= size_) {
            return npos;
        }
        std::uint64_t mask = ~full_mask(from % 64);
        for (std::size_t w = from / 64; w < words_.size(); ++w) {
            const std::uint64_t candidates = (words_[w] ^ flip) & mask;
            if (candidates != 0) {
                const std::size_t found = w * 64 + lowest(candidates);
                return found < size_ ? found : npos;
            }
            mask = ~std::uint64_t{0};
        }
        return npos;
    }

    template <typename F>
    DynamicBitmap &combine(const DynamicBitmap &other, F f)
    {
        FT_ASSERT(size_ == other.size_);
        for (std::size_t w = 0; w < words_.size(); ++w) {
            words_[w] = f(words_[w], other.words_[w]);
        }
        return *this;
    }

    std::vector<std::uint64_t> words_;
    std::size_t size_ = 0;
};

} // namespace ft::base

/// The radix tree over positions 0 .. n-1: who is whose parent, without any message or memory.
///
/// Varma et al., "Scalable, Fault-Tolerant Membership for MPI Tasks on HPC Systems", ICS 2006,
/// sections 3.1 and 3.2: the routing is encoded in the number. The children of position p are
/// arity*p+1 .. arity*p+arity, so parent and children take constant time, and the path from the
/// root to p is spelled by the digits, base arity, of p's place within its level. The arity is a
/// power of two so that all of it is shifts and masks. Pure functions of plain values; any thread.
#pragma once

#include "opal/ft/membership/types.hpp"

#include <bit>
#include <cstdint>

namespace ft::membership {

/// The shape of a tree of `arity` (a power of two, 2 .. 1024).
class RadixTree {
  public:
    static constexpr unsigned max_arity = 1024;

    static constexpr bool valid_arity(unsigned arity)
    {
        return arity >= 2 && arity <= max_arity && std::has_single_bit(arity);
    }

    /// `arity` must be valid_arity().
    explicit constexpr RadixTree(unsigned arity)
        : shift_(static_cast<unsigned>(std::countr_zero(arity)))
    {
    }

    constexpr unsigned arity() const { return 1U << shift_; }

    /// The parent of `p`, which must not be the root (0).
    constexpr Position parent(Position p) const { return (p - 1) >> shift_; }

    /// The first child of `p` if it exists in a tree of `n`; the others follow it.
    constexpr std::uint64_t first_child(Position p) const
    {
        return (static_cast<std::uint64_t>(p) << shift_) + 1;
    }

    /// How many children `p` has in a tree of `n` positions: 0 .. arity.
    constexpr unsigned child_count(Position p, Position n) const
    {
        const std::uint64_t first = first_child(p);
        if (first >= n) {
            return 0;
        }
        const std::uint64_t rest = n - first;
        return rest < arity() ? static_cast<unsigned>(rest) : arity();
    }

    /// Edges between the root and `p`.
    constexpr unsigned depth(Position p) const
    {
        unsigned d = 0;
        while (p != 0) {
            p = parent(p);
            ++d;
        }
        return d;
    }

    /// Levels of a tree of `n` positions: 0 for none, 1 for the root alone. The paper's H.
    constexpr unsigned height(Position n) const { return n == 0 ? 0 : depth(n - 1) + 1; }

  private:
    unsigned shift_;
};

/// The mirror of position `p` among `n`: the tree counted from the end. Leaves of the tree are
/// inner there and the other way round, so work down the tree and then down its mirror falls on
/// different members (the idea is SplitStream's, Castro et al., SOSP 2003).
constexpr Position mirrored(Position p, Position n)
{
    return n - 1 - p;
}

} // namespace ft::membership

/// A set of ranks that costs nothing when it is empty and little when it is small.
///
/// Sorted runs of neighbouring ranks, shared between copies: a million processes that hold the same
/// set of failures hold it once. Behaves as a value; changing one copy leaves the others alone.
/// One object belongs to one thread; copies may go to other threads.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

namespace ft::consensus {

/// Rank of a process within the group that agrees: 0 .. size - 1.
using Rank = std::uint32_t;

/// No rank at all.
inline constexpr Rank no_rank = ~Rank{0};

class RankSet {
  public:
    /// Ranks first .. end - 1. `before` counts the members of all earlier runs.
    struct Run {
        Rank first;
        Rank end;
        Rank before;
        bool operator==(const Run &) const = default;
    };

    RankSet() = default;
    RankSet(std::initializer_list<Rank> ranks);
    /// The ranks first .. end - 1.
    static RankSet range(Rank first, Rank end);

    bool empty() const { return runs_ == nullptr; }
    /// Number of members.
    Rank count() const { return runs_ ? count_of(*runs_) : 0; }
    bool contains(Rank rank) const { return runs_ && contains_in(*runs_, rank); }
    /// Members below `rank`.
    Rank count_below(Rank rank) const { return runs_ ? count_below_in(*runs_, rank) : 0; }
    /// Members in begin .. end - 1.
    Rank count_in(Rank begin, Rank end) const;
    /// The k-th rank (from 0) that is not a member.
    Rank absent(Rank k) const { return runs_ ? absent_in(*runs_, k) : k; }
    /// The lowest rank that is not a member.
    Rank lowest_absent() const { return absent(0); }
    bool is_subset_of(const RankSet &other) const { return !runs_ || all_in(other); }

    /// Adds a rank; true if it was not a member.
    bool insert(Rank rank);
    /// Adds all of `other`; true if the set grew.
    bool unite(const RankSet &other) { return other.runs_ && take_in(other); }
    RankSet united(const RankSet &other) const
    {
        return !runs_ ? other : !other.runs_ ? *this : merged(other);
    }
    RankSet minus(const RankSet &other) const
    {
        return !runs_ || !other.runs_ ? *this : without(other);
    }
    RankSet common(const RankSet &other) const
    {
        return !runs_ || !other.runs_ ? RankSet{} : minus(minus(other));
    }

    /// The runs in rising order, not touching each other.
    const std::vector<Run> &runs() const;
    /// The members in rising order.
    std::vector<Rank> members() const;

    bool operator==(const RankSet &other) const
    {
        return runs_ == other.runs_ || (runs_ && other.runs_ && *runs_ == *other.runs_);
    }

    /// Builds a set from rising runs; runs that touch or overlap are joined.
    class Builder {
      public:
        void add(Rank first, Rank end);
        RankSet take();

      private:
        std::vector<Run> runs_;
    };

  private:
    using Runs = std::vector<Run>;
    explicit RankSet(Runs runs);
    // What is above for sets that are not empty: with no failure, nothing of it is called.
    static Rank count_of(const Runs &runs);
    static bool contains_in(const Runs &runs, Rank rank);
    static Rank count_below_in(const Runs &runs, Rank rank);
    static Rank absent_in(const Runs &runs, Rank k);
    bool all_in(const RankSet &other) const;
    bool take_in(const RankSet &other);
    RankSet merged(const RankSet &other) const;
    RankSet without(const RankSet &other) const;
    std::shared_ptr<const Runs> runs_;
};

} // namespace ft::consensus

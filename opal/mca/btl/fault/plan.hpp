/// \file
/// Decides what happens to each fragment, and when a path dies and comes back. Pure: no clock, no
/// I/O, no Open MPI header; one object belongs to one caller at a time.
///
/// A decision is a function of the seed, the rank, the path's name, the direction and the number of
/// the fragment on that path in that direction, and of nothing else: what happened to the fragments
/// before, what they held and when they came changes nothing. So a run in which the fragments come
/// in another order is met by the same faults at the same places.
#pragma once

#include "opal/ft/base/rng.hpp"
#include "opal/ft/base/time.hpp"
#include "opal/mca/btl/fault/settings.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ft::fault {

/// The fate of one fragment. A fragment that is dropped suffers nothing else; of delay and
/// reordering, delay goes first. Corruption strikes the first copy of a duplicated fragment only.
struct Decision {
    bool drop = false;
    bool duplicate = false;
    bool corrupt = false;
    bool delay = false;
    /// How many later fragments on the same path overtake this one; 0: none.
    unsigned overtaken_by = 0;
    /// Where and how to corrupt: see `corrupt_bits`.
    std::uint64_t damage = 0;

    [[nodiscard]] bool harmless() const noexcept
    {
        return !drop && !duplicate && !corrupt && !delay && overtaken_by == 0;
    }
};

/// Flips at least one bit of `fragment`: one anywhere, and in half of all cases others within the
/// 32 bits from there on (a burst). Does nothing to an empty fragment.
/// \param damage random bits that choose place and pattern
/// \return true when something was changed
bool corrupt_bits(std::uint64_t damage, std::span<std::byte> fragment) noexcept;

/// The decisions for one direction of one path.
class Plan {
  public:
    static constexpr unsigned most_overtaking = 8;

    /// \param path the path's name, like "tcp:1"
    Plan(const Settings &settings, std::uint32_t rank, std::string_view path, Direction direction);

    /// The fate of fragment `number`, counted from 0.
    [[nodiscard]] Decision decide(std::uint64_t number) const;

  private:
    double drop_;
    double duplicate_;
    double corrupt_;
    double reorder_;
    double delay_;
    base::Rng stream_;
};

/// Whether one path is alive. It dies, in both directions at once, when one of its directions has
/// carried as many fragments as the user allows, and lives again after the time the user set;
/// then the count begins anew.
class PathLife {
  public:
    /// \param kill_after fragments in one direction that pass; 0: immortal
    /// \param revive_after zero: dead for good
    PathLife(std::uint64_t kill_after, base::Duration revive_after)
        : kill_after_(kill_after), revive_after_(revive_after)
    {
    }

    /// One more fragment wants to pass in `direction` at `now`.
    /// \return true when the path is dead and the fragment is lost
    [[nodiscard]] bool strikes(Direction direction, base::Time now);

    /// The fragment that passed last in `direction` was not sent after all.
    void take_back(Direction direction);

    /// Whether a path that is dead stays so at `now`; brings it back when its time has come.
    [[nodiscard]] bool dead(base::Time now);

    /// How many times the path has died.
    [[nodiscard]] std::uint64_t deaths() const { return deaths_; }
    /// False when the path can never die: no time need be read for it.
    [[nodiscard]] bool mortal() const { return kill_after_ != 0; }

  private:
    std::uint64_t kill_after_;
    base::Duration revive_after_;
    std::uint64_t passed_[2] = {0, 0};
    std::uint64_t deaths_ = 0;
    bool dead_ = false;
    base::Time back_at_ = base::Time::never();
};

} // namespace ft::fault

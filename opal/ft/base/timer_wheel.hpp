/// Many timers at little cost: a hierarchical timing wheel.
///
/// Source: Varghese and Lauck, "Hashed and hierarchical timing wheels", SOSP 1987, scheme 7. Time
/// is cut into ticks (16 us unless told otherwise). Five levels of 64 slots each cover 2^30 ticks;
/// what lies beyond (4.7 hours at 16 us) waits in a list of its own. A timer stands at the level of
/// the highest base-64 digit in which its tick differs from the present one, so everything at a
/// lower level is due before anything at a higher one, and it moves down a level when the present
/// reaches its slot, at most five times in its life. Arming and cancelling cost a few instructions
/// whatever the number of timers; advancing costs what is due plus those moves, whatever the time
/// that went by.
///
/// Guarantees: a timer never fires before its deadline, and fires at the first `advance()` whose
/// `now` is a tick or more past it. Timers of one tick fire in the order they were armed. A wheel
/// is about 2.6 KiB. One thread at a time.
#pragma once

#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/time.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace ft::base {

class TimerWheel;

/// One timer, a member or base class of what it belongs to; the wheel allocates nothing. It leaves
/// its wheel by itself when it is destroyed, and a wheel that is destroyed first disarms it.
class Timer {
  public:
    Timer() = default;
    Timer(const Timer &) = delete;
    Timer &operator=(const Timer &) = delete;
    ~Timer();

    /// True from arm() until it fires or is cancelled; false while its callback runs.
    bool armed() const { return wheel_ != nullptr; }
    /// The deadline it was last armed with, exact; meaningless before.
    Time deadline() const { return deadline_; }

  private:
    friend class TimerWheel;

    TimerWheel *wheel_ = nullptr;
    Timer *next_ = nullptr;
    Timer *previous_ = nullptr;
    Time deadline_;
    std::uint64_t tick_ = 0;
    std::uint8_t list_ = 0;
};

/// The wheel. See the top of this file.
class TimerWheel {
  public:
    static constexpr Duration default_tick = Duration::from_us(16);

    /// `start` is the present; no later call may name an earlier one. `tick` must be positive.
    explicit TimerWheel(Time start, Duration tick = default_tick);
    TimerWheel(const TimerWheel &) = delete;
    TimerWheel &operator=(const TimerWheel &) = delete;
    ~TimerWheel();

    /// Arms `timer`, or moves it if it was armed already in this wheel. A deadline that has passed
    /// fires at the next advance(); `Time::never()` is allowed and does not fire.
    void arm(Timer &timer, Time deadline);

    /// Disarms `timer`; nothing happens if it is not armed.
    void cancel(Timer &timer);

    /// How many timers are armed.
    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }

    /// When to call advance() next, `Time::never()` for an empty wheel. No timer is due before it,
    /// and advance() at that time makes progress. It is the very time the next timer fires if that
    /// lies within the present run of 64 ticks (or is overdue); else it may be earlier, when timers
    /// must move down a level, and the answer after that advance() is a better one.
    Time next_deadline() const;

    /// Fires every timer that is due at `now`: calls `callback(Timer &)` for each, earliest tick
    /// first, already disarmed. The callback may arm, cancel and destroy any timer, the one it was
    /// called for included, but not call advance(). A timer that it arms for a time between the one
    /// being fired and `now` still fires in this call; one armed for a tick that is past or present
    /// fires in the next, so the call ends. A `now` before an earlier one counts as that one.
    /// Returns how many fired.
    template <typename F>
    std::size_t advance(Time now, F &&callback)
    {
        FT_ASSERT(!advancing_);
        advancing_ = true;
        const std::uint64_t target = begin_advance(now);
        std::size_t fired = 0;
        do {
            while (Timer *timer = pop_firing()) {
                ++fired;
                callback(*timer);
            }
        } while (step_towards(target));
        advancing_ = false;
        return fired;
    }

  private:
    friend class Timer;

    static constexpr unsigned levels = 5;
    static constexpr unsigned digit_bits = 6;
    static constexpr unsigned slots = 1U << digit_bits;
    // Timer::list_ is the level, or one of these.
    static constexpr std::uint8_t far_list = levels;         // beyond the highest level
    static constexpr std::uint8_t overdue_list = levels + 1; // for the next advance()
    static constexpr std::uint8_t firing_list = levels + 2;  // in the present advance()
    static constexpr std::uint8_t dormant_list = levels + 3; // armed for Time::never()

    static unsigned digit(std::uint64_t tick, unsigned level)
    {
        return static_cast<unsigned>(tick >> (level * digit_bits)) & (slots - 1);
    }

    std::uint64_t tick_at_or_after(Time t) const;
    std::uint64_t tick_at_or_before(Time t) const;
    Time time_of(std::uint64_t tick) const;

    Timer *&head_of(const Timer &timer);
    void link(Timer &timer, std::uint8_t list);
    void unlink(Timer &timer);
    void place(Timer &timer);
    void place_all(Timer *&list);

    std::uint64_t next_tick() const;
    std::uint64_t begin_advance(Time now);
    bool step_towards(std::uint64_t target);
    Timer *pop_firing();

    // Every list is circular, its head pointer null when empty; occupied_ has a bit per slot.
    std::array<std::array<Timer *, slots>, levels> wheel_{};
    std::array<std::uint64_t, levels> occupied_{};
    Timer *far_ = nullptr;
    Timer *overdue_ = nullptr;
    Timer *firing_ = nullptr;
    Timer *dormant_ = nullptr;

    Time start_;
    Duration tick_;
    std::uint64_t now_ = 0; // every timer of this tick and before has fired
    std::size_t size_ = 0;
    bool advancing_ = false;
};

} // namespace ft::base

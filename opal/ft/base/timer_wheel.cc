#include "opal/ft/base/timer_wheel.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace ft::base {

namespace {

constexpr std::uint64_t no_tick = std::numeric_limits<std::uint64_t>::max();

} // namespace

Timer::~Timer()
{
    if (wheel_ != nullptr) {
        wheel_->cancel(*this);
    }
}

TimerWheel::TimerWheel(Time start, Duration tick) : start_(start), tick_(tick)
{
    FT_ASSERT(tick > Duration::zero());
}

TimerWheel::~TimerWheel()
{
    const auto disarm_all = [](Timer *head) {
        for (Timer *t = head; t != nullptr;) {
            Timer *next = t->next_ == head ? nullptr : t->next_;
            t->wheel_ = nullptr;
            t = next;
        }
    };
    for (const auto &level : wheel_) {
        std::for_each(level.begin(), level.end(), disarm_all);
    }
    disarm_all(far_);
    disarm_all(overdue_);
    disarm_all(firing_);
    disarm_all(dormant_);
}

void TimerWheel::arm(Timer &timer, Time deadline)
{
    FT_ASSERT(timer.wheel_ == nullptr || timer.wheel_ == this);
    if (timer.wheel_ != nullptr) {
        unlink(timer);
    } else {
        timer.wheel_ = this;
        ++size_;
    }
    timer.deadline_ = deadline;
    timer.tick_ = deadline.is_never() ? no_tick : tick_at_or_after(deadline);
    if (deadline.is_never()) {
        link(timer, dormant_list);
    } else if (timer.tick_ <= now_) {
        link(timer, overdue_list);
    } else {
        place(timer);
    }
}

void TimerWheel::cancel(Timer &timer)
{
    if (timer.wheel_ == nullptr) {
        return;
    }
    FT_ASSERT(timer.wheel_ == this);
    unlink(timer);
    timer.wheel_ = nullptr;
    --size_;
}

Time TimerWheel::next_deadline() const
{
    if (firing_ != nullptr || overdue_ != nullptr) {
        return time_of(now_);
    }
    const std::uint64_t tick = next_tick();
    return tick == no_tick ? Time::never() : time_of(tick);
}

/// The first tick that begins no earlier than `t`: a timer fires there and not a moment early.
std::uint64_t TimerWheel::tick_at_or_after(Time t) const
{
    if (t <= start_) {
        return 0;
    }
    const std::uint64_t ns =
        static_cast<std::uint64_t>(t.ns()) - static_cast<std::uint64_t>(start_.ns());
    const auto tick = static_cast<std::uint64_t>(tick_.ns());
    return ns / tick + (ns % tick != 0);
}

std::uint64_t TimerWheel::tick_at_or_before(Time t) const
{
    if (t <= start_) {
        return 0;
    }
    const std::uint64_t ns =
        static_cast<std::uint64_t>(t.ns()) - static_cast<std::uint64_t>(start_.ns());
    return ns / static_cast<std::uint64_t>(tick_.ns());
}

Time TimerWheel::time_of(std::uint64_t tick) const
{
    const auto size = static_cast<std::uint64_t>(tick_.ns());
    const auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (tick > most / size) {
        return Time::never();
    }
    return start_ + Duration::from_ns(static_cast<std::int64_t>(tick * size));
}

Timer *&TimerWheel::head_of(const Timer &timer)
{
    switch (timer.list_) {
    case far_list:
        return far_;
    case overdue_list:
        return overdue_;
    case firing_list:
        return firing_;
    case dormant_list:
        return dormant_;
    default:
        FT_ASSERT(timer.list_ < levels);
        return wheel_[timer.list_][digit(timer.tick_, timer.list_)];
    }
}

/// Puts the timer at the end of a list.
void TimerWheel::link(Timer &timer, std::uint8_t list)
{
    timer.list_ = list;
    Timer *&head = head_of(timer);
    if (head == nullptr) {
        head = timer.next_ = timer.previous_ = &timer;
        if (list < levels) {
            occupied_[list] |= std::uint64_t{1} << digit(timer.tick_, list);
        }
        return;
    }
    timer.next_ = head;
    timer.previous_ = head->previous_;
    head->previous_->next_ = &timer;
    head->previous_ = &timer;
}

void TimerWheel::unlink(Timer &timer)
{
    Timer *&head = head_of(timer);
    FT_ASSERT(head != nullptr);
    if (timer.next_ == &timer) {
        head = nullptr;
        if (timer.list_ < levels) {
            occupied_[timer.list_] &= ~(std::uint64_t{1} << digit(timer.tick_, timer.list_));
        }
        return;
    }
    timer.next_->previous_ = timer.previous_;
    timer.previous_->next_ = timer.next_;
    if (head == &timer) {
        head = timer.next_;
    }
}

/// Finds the list for a timer by its tick, which must not be past; the present tick is for firing.
void TimerWheel::place(Timer &timer)
{
    FT_ASSERT(timer.tick_ >= now_);
    if (timer.tick_ == now_) {
        link(timer, firing_list);
        return;
    }
    const auto highest_bit = static_cast<unsigned>(std::bit_width(timer.tick_ ^ now_)) - 1;
    link(timer, static_cast<std::uint8_t>(std::min(highest_bit / digit_bits, levels)));
}

/// Places every timer of a list anew, in order: the present has changed.
void TimerWheel::place_all(Timer *&list)
{
    Timer *const head = std::exchange(list, nullptr);
    for (Timer *t = head; t != nullptr;) {
        Timer *next = t->next_ == head ? nullptr : t->next_;
        place(*t);
        t = next;
    }
}

/// The next tick at which something fires or moves down; no_tick for an empty wheel.
std::uint64_t TimerWheel::next_tick() const
{
    for (unsigned level = 0; level < levels; ++level) {
        if (occupied_[level] != 0) {
            const auto slot = static_cast<std::uint64_t>(std::countr_zero(occupied_[level]));
            const unsigned shift = level * digit_bits;
            const std::uint64_t run = now_ >> (shift + digit_bits) << (shift + digit_bits);
            const std::uint64_t tick = run | slot << shift;
            FT_ASSERT(tick > now_);
            return tick;
        }
    }
    if (far_ != nullptr) {
        constexpr unsigned shift = levels * digit_bits;
        return ((now_ >> shift) + 1) << shift;
    }
    return no_tick;
}

/// Lets overdue timers fire first and gives the tick to go to.
std::uint64_t TimerWheel::begin_advance(Time now)
{
    Timer *const head = std::exchange(overdue_, nullptr);
    for (Timer *t = head; t != nullptr;) {
        Timer *next = t->next_ == head ? nullptr : t->next_;
        link(*t, firing_list);
        t = next;
    }
    return std::max(now_, tick_at_or_before(now));
}

/// Goes to the next tick where there is something to do, not beyond `target`. False when nothing is
/// left to do and the present is `target`.
bool TimerWheel::step_towards(std::uint64_t target)
{
    const std::uint64_t tick = next_tick();
    if (tick > target) {
        now_ = target;
        return false;
    }
    unsigned level = 0;
    while (level < levels && occupied_[level] == 0) {
        ++level;
    }
    now_ = tick;
    if (level == levels) {
        place_all(far_);
    } else {
        const unsigned slot = digit(tick, level);
        occupied_[level] &= ~(std::uint64_t{1} << slot);
        place_all(wheel_[level][slot]);
    }
    return true;
}

Timer *TimerWheel::pop_firing()
{
    Timer *timer = firing_;
    if (timer != nullptr) {
        unlink(*timer);
        timer->wheel_ = nullptr;
        --size_;
    }
    return timer;
}

} // namespace ft::base

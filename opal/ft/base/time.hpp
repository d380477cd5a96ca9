/// Time as the engines know it: a point and a distance, in nanoseconds of an abstract clock.
///
/// Engines never read a clock: the caller passes the present as a `Time`. The origin means nothing
/// (a component uses the machine's monotonic clock, the simulator starts at zero), only differences
/// do. Both types are 64-bit counts of nanoseconds, so they span 292 years in both directions.
/// Arithmetic saturates: a deadline of `Time::never()` stays never whatever is added to it, and no
/// sum overflows. Values are plain data: any thread may copy them.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace ft::base {

namespace detail {

/// a + b, held at the ends of the 64-bit range.
constexpr std::int64_t saturating_add(std::int64_t a, std::int64_t b)
{
    std::int64_t sum = 0;
    if (!__builtin_add_overflow(a, b, &sum)) {
        return sum;
    }
    return b > 0 ? std::numeric_limits<std::int64_t>::max()
                 : std::numeric_limits<std::int64_t>::min();
}

/// a - b, held at the ends of the 64-bit range.
constexpr std::int64_t saturating_sub(std::int64_t a, std::int64_t b)
{
    std::int64_t difference = 0;
    if (!__builtin_sub_overflow(a, b, &difference)) {
        return difference;
    }
    return b < 0 ? std::numeric_limits<std::int64_t>::max()
                 : std::numeric_limits<std::int64_t>::min();
}

/// a * b, held at the ends of the 64-bit range.
constexpr std::int64_t saturating_mul(std::int64_t a, std::int64_t b)
{
    std::int64_t product = 0;
    if (!__builtin_mul_overflow(a, b, &product)) {
        return product;
    }
    return (a > 0) == (b > 0) ? std::numeric_limits<std::int64_t>::max()
                              : std::numeric_limits<std::int64_t>::min();
}

} // namespace detail

/// A distance in time, negative ones included. Zero when default constructed.
class Duration {
  public:
    constexpr Duration() = default;

    static constexpr Duration from_ns(std::int64_t ns) { return Duration(ns); }
    static constexpr Duration from_us(std::int64_t us)
    {
        return Duration(detail::saturating_mul(us, 1'000));
    }
    static constexpr Duration from_ms(std::int64_t ms)
    {
        return Duration(detail::saturating_mul(ms, 1'000'000));
    }
    static constexpr Duration from_s(std::int64_t s)
    {
        return Duration(detail::saturating_mul(s, 1'000'000'000));
    }
    static constexpr Duration zero() { return Duration(0); }
    static constexpr Duration max() { return Duration(std::numeric_limits<std::int64_t>::max()); }

    constexpr std::int64_t ns() const { return ns_; }
    /// Whole microseconds, the rest cut off.
    constexpr std::int64_t us() const { return ns_ / 1'000; }
    /// Whole milliseconds, the rest cut off.
    constexpr std::int64_t ms() const { return ns_ / 1'000'000; }
    /// For printing and statistics only.
    constexpr double seconds() const { return static_cast<double>(ns_) * 1e-9; }

    constexpr auto operator<=>(const Duration &) const = default;

    constexpr Duration operator-() const { return Duration(detail::saturating_sub(0, ns_)); }
    constexpr Duration &operator+=(Duration d) { return *this = *this + d; }
    constexpr Duration &operator-=(Duration d) { return *this = *this - d; }

    friend constexpr Duration operator+(Duration a, Duration b)
    {
        return Duration(detail::saturating_add(a.ns_, b.ns_));
    }
    friend constexpr Duration operator-(Duration a, Duration b)
    {
        return Duration(detail::saturating_sub(a.ns_, b.ns_));
    }
    friend constexpr Duration operator*(Duration d, std::int64_t factor)
    {
        return Duration(detail::saturating_mul(d.ns_, factor));
    }
    friend constexpr Duration operator*(std::int64_t factor, Duration d) { return d * factor; }
    /// Cut off towards zero. `divisor` must not be 0.
    friend constexpr Duration operator/(Duration d, std::int64_t divisor)
    {
        // The one quotient that does not fit: min / -1.
        return divisor == -1 ? -d : Duration(d.ns_ / divisor);
    }
    /// How many times `b` fits into `a`. `b` must not be zero.
    friend constexpr std::int64_t operator/(Duration a, Duration b)
    {
        return b.ns_ == -1 ? (-a).ns_ : a.ns_ / b.ns_;
    }

  private:
    explicit constexpr Duration(std::int64_t ns) : ns_(ns) {}

    std::int64_t ns_ = 0;
};

/// A point in time on the caller's clock.
class Time {
  public:
    /// The origin of the abstract clock.
    constexpr Time() = default;

    static constexpr Time from_ns(std::int64_t ns) { return Time(ns); }
    static constexpr Time zero() { return Time(0); }
    /// Later than every time that occurs: the deadline of something that has none.
    static constexpr Time never() { return Time(std::numeric_limits<std::int64_t>::max()); }

    constexpr std::int64_t ns() const { return ns_; }
    constexpr bool is_never() const { return *this == never(); }

    constexpr auto operator<=>(const Time &) const = default;

    constexpr Time &operator+=(Duration d) { return *this = *this + d; }
    constexpr Time &operator-=(Duration d) { return *this = *this - d; }

    friend constexpr Time operator+(Time t, Duration d)
    {
        return t.is_never() ? t : Time(detail::saturating_add(t.ns_, d.ns()));
    }
    friend constexpr Time operator+(Duration d, Time t) { return t + d; }
    friend constexpr Time operator-(Time t, Duration d)
    {
        return t.is_never() ? t : Time(detail::saturating_sub(t.ns_, d.ns()));
    }
    friend constexpr Duration operator-(Time a, Time b)
    {
        return Duration::from_ns(detail::saturating_sub(a.ns_, b.ns_));
    }

  private:
    explicit constexpr Time(std::int64_t ns) : ns_(ns) {}

    std::int64_t ns_ = 0;
};

/// `using namespace ft::base::literals;` gives 10_ns, 16_us, 5_ms, 2_s.
inline namespace literals {

constexpr Duration operator""_ns(unsigned long long v)
{
    return Duration::from_ns(static_cast<std::int64_t>(v));
}
constexpr Duration operator""_us(unsigned long long v)
{
    return Duration::from_us(static_cast<std::int64_t>(v));
}
constexpr Duration operator""_ms(unsigned long long v)
{
    return Duration::from_ms(static_cast<std::int64_t>(v));
}
constexpr Duration operator""_s(unsigned long long v)
{
    return Duration::from_s(static_cast<std::int64_t>(v));
}

} // namespace literals

} // namespace ft::base

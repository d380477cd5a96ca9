#include "ompi/mca/pml/dr/clock.hpp"

#include <cstring>
#include <mutex>

#include <fcntl.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "opal/mca/clock.hpp"

namespace ft::dr::detail {

ClockScale clock_scale;

namespace {

#if defined(__x86_64__)

/// A first scale is made after this time: reading both clocks takes some 50 ns, so it is right to a
/// few millionths.
constexpr std::int64_t first_after = 10'000'000;
/// A scale is used for this time.
constexpr std::int64_t renew_after = 100'000'000;
/// By more than this the two clocks part only if the counter jumped.
constexpr std::int64_t jump = 1'000'000;
/// Counts within which both clocks are read when nobody interrupts: some microseconds at most.
constexpr std::uint64_t undisturbed = 10'000;
constexpr int readings = 4;

bool counter_is_trusted() noexcept
{
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    if (__get_cpuid(0x80000007, &a, &b, &c, &d) == 0 || (d & 1U << 8) == 0) {
        return false;
    }
    const int file = open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                          O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    char name[4] = {};
    const ssize_t bytes = read(file, name, sizeof name);
    close(file);
    return bytes == sizeof name && std::memcmp(name, "tsc\n", sizeof name) == 0;
}

/// Both clocks at one moment.
struct Moment {
    std::uint64_t count = 0;
    std::int64_t ns = 0;
};

/// \return false when this thread was interrupted between the two clocks each time: a scale made
/// of that would be wrong by as long as the interruption took
bool read_both(Moment &moment) noexcept
{
    for (int i = 0; i < readings; ++i) {
        const std::uint64_t before = __rdtsc();
        moment.ns = mca::now().ns();
        moment.count = __rdtsc();
        if (moment.count - before < undisturbed) {
            return true;
        }
    }
    return false;
}

void publish(std::uint64_t count, std::int64_t ns, std::uint64_t rate, std::uint64_t valid) noexcept
{
    ClockScale &scale = clock_scale;
    const std::uint32_t turn = scale.turn.load(std::memory_order_relaxed);
    scale.turn.store(turn + 1, std::memory_order_relaxed);
    // Stores with release are not moved before the odd turn, nor behind the even one.
    scale.count.store(count, std::memory_order_release);
    scale.ns.store(ns, std::memory_order_release);
    scale.rate.store(rate, std::memory_order_release);
    scale.valid.store(valid, std::memory_order_release);
    scale.turn.store(turn + 2, std::memory_order_release);
}

#endif

} // namespace

base::Time read_system_clock() noexcept
{
#if defined(__x86_64__)
    static const bool trusted = counter_is_trusted();
    if (!trusted) {
        return mca::now();
    }
    static std::mutex mutex;
    static Moment origin; ///< where the measurement of the counter's rate began
    const std::lock_guard<std::mutex> guard(mutex);
    Moment present;
    if (!read_both(present)) {
        return mca::now();
    }
    const base::Time time = base::Time::from_ns(present.ns);
    ClockScale &scale = clock_scale;
    if (scale.valid.load(std::memory_order_relaxed) != 0) {
        // Who slept long has a long `passed`: in floating point it does not overflow.
        const double passed =
            static_cast<double>(present.count - scale.count.load(std::memory_order_relaxed));
        const double predicted =
            static_cast<double>(scale.ns.load(std::memory_order_relaxed)) +
            passed * static_cast<double>(scale.rate.load(std::memory_order_relaxed)) / 4294967296.0;
        const double off = predicted - static_cast<double>(present.ns);
        if (off > static_cast<double>(jump) || off < -static_cast<double>(jump)) {
            origin = {};
            publish(0, 0, 0, 0);
        }
    }
    if (origin.ns == 0 || present.count <= origin.count) {
        origin = present;
        return time;
    }
    const std::int64_t elapsed = present.ns - origin.ns;
    if (elapsed >= first_after) {
        const double per_count =
            static_cast<double>(elapsed) / static_cast<double>(present.count - origin.count);
        publish(present.count, present.ns, static_cast<std::uint64_t>(per_count * 4294967296.0),
                static_cast<std::uint64_t>(static_cast<double>(renew_after) / per_count));
    }
    return time;
#else
    return mca::now();
#endif
}

} // namespace ft::dr::detail

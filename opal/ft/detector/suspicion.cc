#include "opal/ft/detector/suspicion.hpp"

#include "opal/ft/base/assert.hpp"

#include <algorithm>
#include <cmath>

namespace ft::detector {

using base::Duration;
using base::Time;

namespace {

// A window of about 30 heartbeats, as exponential averages: constant size.
constexpr double weight = 1.0 / 32.0;
// The longest gap halves in about 700 heartbeats: a spell of load is remembered for a minute or so.
constexpr double forget = 0.999;

} // namespace

double z_of_phi(double phi)
{
    FT_ASSERT(phi >= 1.0 && phi <= 16.0);
    // Newton steps on log10 of the tail probability, from the tail's leading term.
    const double p = std::pow(10.0, -phi);
    double z = std::sqrt(2.0 * phi * std::log(10.0));
    for (int i = 0; i < 20; ++i) {
        const double tail = 0.5 * std::erfc(z / std::sqrt(2.0));
        const double density = std::exp(-z * z / 2.0) / std::sqrt(2.0 * std::acos(-1.0));
        z += std::log(tail / p) * tail / density;
    }
    return z;
}

Suspicion::Suspicion(Time now, Duration interval)
    : last_(now),
      last_arrival_(now),
      mean_(interval.seconds()),
      variance_(mean_ * mean_ / 16.0),
      longest_(mean_)
{
}

void Suspicion::on_arrival(Time now)
{
    now = std::max(now, last_arrival_);
    const double gap = (now - last_arrival_).seconds();
    const double off = gap - mean_;
    mean_ += weight * off;
    variance_ = (1.0 - weight) * (variance_ + weight * off * off);
    longest_ = std::max(longest_ * forget, gap);
    last_arrival_ = now;
    last_ = std::max(last_, now);
}

void Suspicion::on_life(Time now)
{
    last_ = std::max(last_, now);
}

void Suspicion::on_own_pause(Time now, Duration pause)
{
    last_ = std::min(now, last_ + pause);
}

Duration Suspicion::timeout(const SuspicionConfig &config) const
{
    // The usual threshold once, not in every call.
    static const double z8 = z_of_phi(8.0);
    const double z = config.phi == 8.0 ? z8 : z_of_phi(config.phi);
    const double deviation = std::max(std::sqrt(variance_), mean_ / 4.0);
    const double seconds = std::max(mean_ + z * deviation, 2.0 * longest_);
    const Duration d = Duration::from_ns(static_cast<std::int64_t>(std::min(seconds, 1e6) * 1e9));
    return std::clamp(d, config.floor, std::max(config.floor, config.ceiling));
}

double Suspicion::phi(Time now) const
{
    const double deviation = std::max(std::sqrt(variance_), mean_ / 4.0);
    const double z = ((now - last_).seconds() - mean_) / deviation;
    const double tail = 0.5 * std::erfc(z / std::sqrt(2.0));
    return tail > 0 ? std::max(0.0, -std::log10(tail)) : 1e3;
}

} // namespace ft::detector

/// \file
/// Smoothed round-trip time and the timeout that follows from it (RFC 6298, sections 2 and 5).
#pragma once
#include <algorithm>

#include "opal/ft/base/time.hpp"

namespace ft::reliability {

/// One estimator per path for round trips, and one for local completions. No allocation, no clock;
/// not synchronised.
class RttEstimator {
  public:
    /// Takes one sample. Karn's rule is the caller's: only samples of an unambiguous transmission.
    /// Negative samples are ignored.
    void sample(base::Duration round_trip) noexcept;

    /// RTO = SRTT + max(granularity, 4 RTTVAR), within [floor, ceiling]; `initial` before the first
    /// sample.
    [[nodiscard]] base::Duration timeout(base::Duration initial, base::Duration floor,
                                         base::Duration ceiling) const noexcept
    {
        if (!has_sample()) {
            return std::clamp(initial, floor, ceiling);
        }
        constexpr auto granularity = base::Duration::from_us(1);
        return std::clamp(smoothed_ + std::max(granularity, variance_ * 4), floor, ceiling);
    }

    [[nodiscard]] bool has_sample() const noexcept { return minimum_ != base::Duration::max(); }
    [[nodiscard]] base::Duration smoothed() const noexcept { return smoothed_; }
    [[nodiscard]] base::Duration variance() const noexcept { return variance_; }
    /// The smallest sample seen, for latency comparisons between paths.
    [[nodiscard]] base::Duration minimum() const noexcept
    {
        return has_sample() ? minimum_ : base::Duration{};
    }

  private:
    base::Duration smoothed_{};
    base::Duration variance_{};
    base::Duration minimum_ = base::Duration::max(); ///< max: there was no sample yet
};

} // namespace ft::reliability

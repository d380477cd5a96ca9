#include "opal/ft/reliability/rtt.hpp"

#include <algorithm>

namespace ft::reliability {

void RttEstimator::sample(base::Duration round_trip) noexcept
{
    if (round_trip < base::Duration{}) {
        return;
    }
    if (!has_sample()) {
        smoothed_ = round_trip;
        variance_ = round_trip / 2;
        minimum_ = round_trip;
        return;
    }
    minimum_ = std::min(minimum_, round_trip);
    const base::Duration error = round_trip - smoothed_;
    const base::Duration magnitude = error < base::Duration{} ? -error : error;
    // alpha = 1/8, beta = 1/4; RTTVAR first, as it uses the old SRTT.
    variance_ += (magnitude - variance_) / 4;
    smoothed_ += error / 8;
}

} // namespace ft::reliability

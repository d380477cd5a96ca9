/// When silence becomes suspicious: an adaptive timeout for one peer's heartbeats.
///
/// The phi accrual failure detector (Hayashibara, Defago, Yared, Katayama, SRDS 2004): the time
/// since the last heartbeat is judged against the distribution of the gaps between earlier ones;
/// phi is minus the decimal logarithm of the chance that a longer gap comes. With a normal
/// distribution the time at which phi reaches a threshold has a closed form, mean + z(phi) *
/// deviation, so a deadline can be armed instead of polling. Gaps made by a loaded scheduler have a
/// heavier tail than that, so twice the longest recent gap is a lower bound too. Plain value of
/// constant size; one object belongs to one thread.
#pragma once

#include "opal/ft/base/time.hpp"

#include <cstdint>

namespace ft::detector {

struct SuspicionConfig {
    /// What phi must reach: 8 accuses falsely once in 10^8 gaps of a normal distribution. 1 .. 16.
    double phi = 8.0;
    /// Never suspicious before this, however regular the peer is: bounds false accusations.
    base::Duration floor = base::Duration::from_ms(500);
    /// Suspicious after this, however irregular the peer is: bounds the detection time.
    base::Duration ceiling = base::Duration::from_s(20);
};

/// z with P(X > mean + z * deviation) = 10^-phi for normal X, phi in 1 .. 16; within 1 %.
double z_of_phi(double phi);

class Suspicion {
  public:
    /// The peer is new: it counts as heard at `now`, with gaps of `interval` expected.
    Suspicion(base::Time now, base::Duration interval);

    /// A heartbeat arrived. A time before the last one counts as the last one.
    void on_arrival(base::Time now);
    /// Something else shows life: moves the deadline, does not touch the statistics.
    void on_life(base::Time now);
    /// The observer itself did not run for `pause`: silence in that time proves nothing.
    void on_own_pause(base::Time now, base::Duration pause);

    base::Time last() const { return last_; }
    /// The present timeout.
    base::Duration timeout(const SuspicionConfig &config) const;
    /// When silence becomes suspicious.
    base::Time deadline(const SuspicionConfig &config) const { return last_ + timeout(config); }
    /// The suspicion level now, 0 when just heard.
    double phi(base::Time now) const;

  private:
    base::Time last_;
    base::Time last_arrival_;
    double mean_;     // of the gaps, seconds
    double variance_; // of the gaps
    double longest_;  // recent longest gap, seconds, forgotten slowly
};

} // namespace ft::detector

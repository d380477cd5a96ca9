/// Finding ranks that hang inside MPI: the self-checking thread of MPI/FT as a state machine.
///
/// Batchu, Dandass, Skjellum, Beddhu: "MPI/FT: a model-based approach to low-overhead fault
/// tolerant message-passing middleware", Cluster Computing 7, 2004, section 4.1. A thread in each
/// rank watches the progress engine through shared memory and reports to the daemon (their internal
/// and external heartbeats). An operation that will keep the progress engine from answering
/// announces itself with its expected length, which extends the deadline.
///
/// Hung means: inside one and the same MPI call, the progress counter frozen past the deadline,
/// while the reports themselves keep coming. A rank that computes, or that a debugger holds, is
/// never hung. A rank whose reports stop is silent: the thread cannot run, so nothing is known
/// about MPI, and the operating system is the one to ask. Pure state machines; one object belongs
/// to one thread.
#pragma once

#include "opal/ft/base/time.hpp"

#include <cstdint>
#include <string>

namespace ft::detector {

/// What the thread reads from the rank's shared counters.
struct RankState {
    bool in_mpi = false;        ///< a thread of the rank is inside an MPI call
    bool traced = false;        ///< a debugger is attached
    std::uint64_t call = 0;     ///< number of MPI calls entered so far
    std::uint64_t progress = 0; ///< turns of the progress engine so far
    /// How long from this report on the rank will not make progress and that is all right; zero:
    /// none announced.
    base::Duration announced = base::Duration::zero();

    bool operator==(const RankState &) const = default;
};

struct SelfCheckConfig {
    /// Between reports of a rank.
    base::Duration period = base::Duration::from_ms(500);
    /// How long the progress counter may stand still inside one MPI call. The progress engine turns
    /// also while a receive waits for its message, so it stands still only when something is wrong,
    /// or a callback runs long.
    base::Duration frozen_limit = base::Duration::from_s(10);
    /// How long reports may be missing before the rank counts as silent.
    base::Duration silent_limit = base::Duration::from_s(5);
    /// The longest extension that one announcement can get.
    base::Duration announced_limit = base::Duration::from_s(3600);

    /// Empty if the values make sense together; else what is wrong and what to do, for the user.
    std::string fault() const;
};

/// In the rank: when to report. At a change of what the daemon's deadline depends on at once, else
/// every period.
class SelfCheckReporter {
  public:
    explicit SelfCheckReporter(const SelfCheckConfig &config) : config_(config) {}

    /// Whether to send `state` now.
    bool due(base::Time now, const RankState &state);
    base::Time next_deadline() const { return next_; }

  private:
    SelfCheckConfig config_;
    base::Time next_ = base::Time::zero();
    base::Duration announced_ = base::Duration::zero();
};

/// In the daemon: what to think of one rank.
class SelfCheckMonitor {
  public:
    enum class Verdict : std::uint8_t { healthy, hung, silent };

    /// The rank exists from `now` on and is taken for healthy until reports or their absence say
    /// otherwise.
    SelfCheckMonitor(base::Time now, const SelfCheckConfig &config)
        : config_(config), last_report_(now), frozen_since_(now)
    {
    }

    void on_report(base::Time now, const RankState &state);
    Verdict verdict(base::Time now) const;
    /// The next time at which the verdict can change by itself; never when it cannot.
    base::Time next_deadline() const;
    /// The daemon itself did not run for `pause`: missing reports in that time prove nothing.
    void on_own_pause(base::Time now, base::Duration pause);

  private:
    bool can_hang() const { return state_.in_mpi && !state_.traced; }
    base::Time hung_at() const;

    SelfCheckConfig config_;
    RankState state_;
    base::Time last_report_;
    base::Time frozen_since_;                 // since when call and progress are what they are
    base::Time excused_ = base::Time::zero(); // announced operations end then
    base::Duration excused_silence_;
    bool reported_ = false;
};

} // namespace ft::detector

#include "opal/ft/detector/self_check.hpp"

#include <algorithm>

namespace ft::detector {

using base::Duration;
using base::Time;

std::string SelfCheckConfig::fault() const
{
    if (period <= Duration::zero()) {
        return "the reporting period must be positive";
    }
    if (frozen_limit < period * 2 || silent_limit < period * 2) {
        return "the limits for frozen and silent ranks must be at least twice the reporting period "
               "(" +
               std::to_string(period.ms()) + " ms), or healthy ranks are accused: raise the limits";
    }
    if (announced_limit < Duration::zero()) {
        return "the limit for announced operations must not be negative";
    }
    return {};
}

bool SelfCheckReporter::due(Time now, const RankState &state)
{
    // A new announcement must be there before the deadline that it extends.
    const bool announces = state.announced > announced_;
    announced_ = state.announced;
    if (!announces && now < next_) {
        return false;
    }
    next_ = now + config_.period;
    return true;
}

void SelfCheckMonitor::on_report(Time now, const RankState &state)
{
    now = std::max(now, last_report_);
    // A rank that a debugger held, or that was silent, starts from anew.
    const bool gap = now > last_report_ + config_.silent_limit;
    if (!reported_ || gap || !state.in_mpi || state.traced || state_.traced || !state_.in_mpi ||
        state.call != state_.call || state.progress != state_.progress) {
        frozen_since_ = now;
    }
    excused_ = std::max(excused_, state.announced > Duration::zero()
                                      ? now + std::min(state.announced, config_.announced_limit)
                                      : Time::zero());
    state_ = state;
    last_report_ = now;
    excused_silence_ = Duration::zero();
    reported_ = true;
}

Time SelfCheckMonitor::hung_at() const
{
    return std::max(frozen_since_, excused_) + config_.frozen_limit;
}

SelfCheckMonitor::Verdict SelfCheckMonitor::verdict(Time now) const
{
    // Silence first: without reports, a frozen counter is only an old one. Hung needs the reports
    // to have shown it frozen up to the deadline.
    if (can_hang() && last_report_ >= hung_at()) {
        return Verdict::hung;
    }
    return now > last_report_ + excused_silence_ + config_.silent_limit ? Verdict::silent
                                                                        : Verdict::healthy;
}

Time SelfCheckMonitor::next_deadline() const
{
    if (can_hang() && last_report_ >= hung_at()) {
        return Time::never();
    }
    return last_report_ + excused_silence_ + config_.silent_limit + Duration::from_ns(1);
}

void SelfCheckMonitor::on_own_pause(Time now, Duration pause)
{
    // Not last_report_: that reports went on would be a lie, and make a frozen counter look
    // observed.
    excused_silence_ = std::min(now - last_report_, excused_silence_ + pause);
}

} // namespace ft::detector

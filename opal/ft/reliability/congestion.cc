#include "opal/ft/reliability/congestion.hpp"

#include <algorithm>

#include "opal/ft/reliability/header.hpp"

namespace ft::reliability {

namespace {

/// Loss above both of these is overrun, not chance: this share of the bytes of a round ...
constexpr double much_loss = 0.05;
/// ... and so many times the usual share.
constexpr double above_usual = 2;
constexpr double shrink = 0.7;
/// A round trip beyond eight of the shortest and this is a queue that does not drain. Less is what
/// a process takes that shares its core.
constexpr auto queued = base::Duration::from_ms(20);
constexpr std::int64_t queued_factor = 8;

} // namespace

base::Duration Congestion::time_for(std::uint64_t bytes) const noexcept
{
    return base::Duration::from_ns(static_cast<std::int64_t>(static_cast<double>(smoothed_.ns()) /
                                                             2 * static_cast<double>(bytes) /
                                                             static_cast<double>(window_)));
}

bool Congestion::pausing(base::Time now) noexcept
{
    pausing_ = pausing_ ? now < next_send_
                        : next_send_ - now > time_for(std::min(burst_bytes, window_ / 4));
    return pausing_;
}

void Congestion::on_sent(std::uint64_t bytes, std::uint32_t tx, bool asked, base::Time now) noexcept
{
    unasked_ = asked ? 0 : unasked_ + bytes;
    if (!round_.open) {
        round_ = Round{};
        round_.open = true;
        round_.until = tx;
    }
    next_send_ = std::max(next_send_, now) + time_for(bytes);
}

void Congestion::on_acked(std::uint64_t bytes, std::uint64_t in_flight, std::uint32_t tx,
                          std::uint32_t next_tx) noexcept
{
    round_.acked += bytes;
    round_.limited = round_.limited || in_flight >= window_ - window_ / 4;
    if (starting_ && round_.limited) {
        window_ = std::min(window_ + bytes, most_window);
    }
    if (round_.open && tx_diff(tx, round_.until) >= 0) {
        end_round();
        round_ = Round{};
        round_.open = in_flight > bytes;
        round_.until = next_tx;
    }
}

void Congestion::end_round() noexcept
{
    const double share =
        static_cast<double>(round_.lost) /
        static_cast<double>(std::max<std::uint64_t>(round_.lost + round_.acked, 1));
    const bool overrun = share > much_loss && share > above_usual * usual_loss_;
    usual_loss_ += (share - usual_loss_) / 16;
    if (overrun) {
        window_ = static_cast<std::uint64_t>(static_cast<double>(window_) * shrink);
        starting_ = false;
    } else if (smoothed_ > std::max(shortest_ * queued_factor, queued)) {
        starting_ = false;
    } else if (!starting_ && round_.limited) {
        window_ += window_ / 16;
    }
    window_ = std::clamp(window_, least_window, most_window);
}

} // namespace ft::reliability

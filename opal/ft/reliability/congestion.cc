#include "opal/ft/reliability/congestion.hpp"

#include <algorithm>
#include <cmath>

#include "opal/ft/reliability/header.hpp"

namespace ft::reliability {

namespace {

/// Loss up to this share of a round is chance, whatever is usual ...
constexpr double much_loss = 0.05;
/// ... and beyond what is usual so many standard deviations ...
constexpr double deviations = 3;
/// ... but never more than this and those, or a large share could not be passed at all. It is not
/// taken for usual, either, where the window could be smaller.
constexpr double most_usual = 0.4;
/// Of a few packets no number is beyond that: small rounds are judged together, by about so many.
constexpr double some_packets = 256;
constexpr double shrink_overrun = 0.7;
constexpr double shrink_cubic = 0.7; ///< RFC 9438, beta
constexpr double cubic_c = 0.4;      ///< RFC 9438, C: segments per second cubed
constexpr double segment = 1448;     ///< what TCP on Ethernet has: its competitor
/// The first rounds tell what is usual. Later on less is believed at once and more only slowly: a
/// window that stays too large must not become usual. It is believed where the window is smallest,
/// for there it is not to blame.
constexpr std::uint32_t rounds_to_learn = 16;
constexpr double learn_less = 1.0 / 4;
constexpr double learn_more = 1.0 / 64;
constexpr double learn_at_least = 1.0 / 8;
/// Bytes more in the first round near the window that was too much, or one packet if that is more,
/// twice as many in the second ...
constexpr std::uint64_t careful_step = 4 * 1400;
/// A queue stands when no round trip of a round was shorter than the shortest of all and this, or
/// twice the shortest. Less is what a process takes that shares its core.
constexpr auto standing = base::Duration::from_ms(1);
/// No network within a cluster takes longer than this by itself. A shortest round trip above it was
/// measured behind a queue that stood already when the path was first used: who comes second must
/// not take that queue for the way's own length, or it yields to nobody.
constexpr auto longest_without_queue = base::Duration::from_ms(4);
/// Round trips longer than the way by that, or by this, meet a queue, be it one that is allowed
/// for: what is lost then may be what it refused, and tells nothing of chance.
constexpr auto some_queue = base::Duration::from_us(50);
/// A way is taken to have become longer when for so long no round trip was shorter, and those of
/// all rounds were nearly alike: by this part of what they are longer. A queue that somebody fills
/// is not alike: even CUBIC's, which is near its full length most of the time, is shorter than that
/// by a third or more of its least, in the mean of what it takes to shrink and come back; but where
/// that is longer than the ten seconds, as with queues of milliseconds on ways of tens of Gbit/s, a
/// piece of it may be. There are to be rounds in each part of that time.
constexpr auto longer_way = base::Duration::from_s(10);
constexpr unsigned watched_in = 8;
constexpr std::int64_t alike = 8;
/// A process that shares its core, or whose peer does, runs at the same time as that peer once in
/// so many absences, and then round trips are the network's. No longer than what senders that do
/// fill a queue take to fill it again.
constexpr std::int64_t absences = 16;
constexpr auto longest_look = base::Duration::from_ms(200);
/// Transmissions after a window shrank until which its number still means something.
constexpr std::int32_t forget_recovery = 1 << 22;
/// As RFC 9406: so much more than in the rounds before is a queue of our own making; an eighth of
/// the round trip, but within `standing` and this.
constexpr auto most_rise = base::Duration::from_ms(16);

} // namespace

void Congestion::set_pace() noexcept
{
    ns_per_byte_ = static_cast<double>(smoothed_.ns()) / 2 / static_cast<double>(window_);
    ahead_ = time_for(std::min(burst_bytes, window_ / (queued_ ? 16 : 4)));
}

base::Duration Congestion::time_for(std::uint64_t bytes) const noexcept
{
    return base::Duration::from_ns(
        static_cast<std::int64_t>(ns_per_byte_ * static_cast<double>(bytes)));
}

bool Congestion::pausing(base::Time now) noexcept
{
    // What went out at a slower pace than that of now does not count as it did then.
    next_send_ = std::min(next_send_, now + ahead_ + time_for(burst_bytes));
    pausing_ = pausing_ ? now < next_send_ : next_send_ - now > ahead_;
    return pausing_;
}

std::uint64_t Congestion::run(std::uint64_t in_flight, std::uint32_t bytes,
                              base::Time now) const noexcept
{
    const std::uint64_t quarter = window_ / 4;
    if (bytes == 0 || unasked_ + bytes >= quarter ||
        in_flight + 2 * std::uint64_t{bytes} > window_) {
        return 0;
    }
    const std::uint64_t unasked = (quarter - unasked_ - 1) / bytes;
    const std::uint64_t free = (window_ - in_flight) / bytes - 1;
    std::uint64_t most = std::min(unasked, free);
    const std::int64_t each = time_for(bytes).ns();
    const std::int64_t left = (ahead_ - (std::max(next_send_, now) - now)).ns();
    if (each > 0) {
        most =
            std::min(most, static_cast<std::uint64_t>(std::max<std::int64_t>(left, 0) / each) + 1);
    }
    return most;
}

bool Congestion::round_ends_with(std::uint32_t tx) const noexcept
{
    return round_.open && tx_diff(tx, round_.until) >= 0;
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

void Congestion::on_sent_run(unsigned count, std::uint32_t bytes, std::uint32_t last,
                             std::uint32_t tx, base::Time now) noexcept
{
    on_sent(last, tx, false, now);
    unasked_ += std::uint64_t{count - 1} * bytes;
    next_send_ += time_for(bytes) * static_cast<std::int64_t>(count - 1); // each as by itself
}

void Congestion::on_acked_run(std::uint64_t bytes, std::uint64_t packet, std::uint64_t in_flight,
                              std::uint32_t tx, std::uint32_t next_tx, base::Time now) noexcept
{
    round_.acked += bytes;
    round_.packet = std::max(round_.packet, static_cast<std::uint32_t>(packet));
    next_tx_ = next_tx;
    // Kept beyond the acknowledgement that ends it: that one tells of losses from before. Numbers
    // wrap.
    recovering_ = recovering_ && tx_diff(tx, recovered_at_) < forget_recovery;
    // Of large packets the window may hold one, and be less than two: it is as full as it can be.
    round_.limited =
        round_.limited || in_flight >= window_ - window_ / 4 || in_flight + packet > window_;
    if (starting_ && round_.limited && window_ < most_window) {
        window_ = std::min(window_ + bytes, most_window);
        set_pace();
    }
    if (round_ends_with(tx)) {
        end_round(now);
        round_ = Round{};
        round_.open = in_flight > bytes;
        round_.until = next_tx;
    }
}

void Congestion::on_lost(std::uint64_t bytes, std::uint32_t tx) noexcept
{
    note_lost(bytes);
    if (!answered_for(tx)) {
        round_.lost_anew += bytes;
    }
}

bool Congestion::answered_for(std::uint32_t tx) const noexcept
{
    return recovering_ && tx_diff(tx, recovered_at_) < 0;
}

bool Congestion::far_above_usual(double lost, double count) const noexcept
{
    if (lost <= 0) {
        return false;
    }
    const double usual = std::max(usual_loss_, much_loss / 2);
    const double above = std::max(much_loss / 2, usual * (1 - usual));
    return lost > count * std::min(usual + above, most_usual) +
                      deviations * std::sqrt(count * usual * (1 - usual));
}

bool Congestion::overrun() const noexcept
{
    return far_above_usual(packets(round_.lost), packets(round_.lost + round_.acked)) ||
           far_above_usual(some_lost_, some_);
}

void Congestion::learn_usual_loss(base::Duration trip) noexcept
{
    if (round_.lost == 0 && all_loss_ == 0 && rounds_ == rounds_to_learn) {
        return; // nothing to learn, and a round of a short message and its answer is as short
    }
    const double share =
        static_cast<double>(round_.lost) /
        static_cast<double>(std::max<std::uint64_t>(round_.lost + round_.acked, 1));
    const bool least = window_ <= least_window;
    const double more = least ? learn_at_least : learn_more;
    const double first = rounds_ < rounds_to_learn ? 1.0 / ++rounds_ : 0; // those count alike
    const auto learn = [&](double &loss, double weight) {
        loss += (share - loss) * std::max(weight, first);
    };
    learn(all_loss_, share < all_loss_ ? learn_less : more);
    const bool behind_queue =
        trip != base::Duration::max() && trip > way() + std::max(way(), some_queue);
    if (share < usual_loss_) {
        learn(usual_loss_, least ? learn_at_least : learn_less);
    } else if (!behind_queue && (share <= most_usual || least)) {
        learn(usual_loss_, more);
    }
}

void Congestion::watch_start() noexcept
{
    // Not the queue that stands there ends the start, but one that our own growth makes longer: who
    // comes second to a full queue and stops at once would take seconds of CUBIC's growth to its
    // part. No round of slower growth follows (RFC 9406's CSS): the first of two jobs would fill
    // the queue with it before the second comes.
    const base::Duration trip = round_.shortest;
    if (trip == base::Duration::max()) {
        return;
    }
    starting_ = trip - start_trip_ < std::clamp(start_trip_ / 8, standing, most_rise);
    start_trip_ = std::min(start_trip_, trip);
}

void Congestion::shrink(double factor, base::Time now) noexcept
{
    ceiling_ = window_;
    reno_grows_slowly_until_ = static_cast<double>(window_);
    window_ = static_cast<std::uint64_t>(static_cast<double>(window_) * factor);
    floor_ = window_;
    reno_window_ = static_cast<double>(window_);
    epoch_ = now;
    careful_ = 0;
    some_ = some_lost_ = 0; // answered for
    starting_ = false;
    ++congestion_events_;
    recovering_ = true;
    recovered_at_ = next_tx_;
}

void Congestion::shrink_as_cubic(base::Time now) noexcept
{
    const std::uint64_t last = ceiling_;
    shrink(shrink_cubic, now);
    if (ceiling_ < last) {
        // 4.7, fast convergence: who has not come back to where it shrank last has lost room to
        // another, who is to find it free.
        ceiling_ =
            static_cast<std::uint64_t>(static_cast<double>(ceiling_) * (1 + shrink_cubic) / 2);
    }
}

void Congestion::grow_by_chance() noexcept
{
    // Quickly to where it was too much last time, or CUBIC lingered. From there carefully and by
    // sums: jobs that all grow by a share never become equal.
    std::uint64_t step = window_ / 16;
    if (ceiling_ != 0 && window_ >= ceiling_ - ceiling_ / 8) {
        careful_ += std::max<std::uint64_t>(careful_step, round_.packet);
        step = std::min(step, careful_);
    }
    window_ += step;
}

void Congestion::grow_as_cubic(base::Time now) noexcept
{
    if (epoch_ == base::Time{}) {
        // It left the start without a loss: nothing is known that it should linger at.
        epoch_ = now;
        ceiling_ = window_;
        reno_window_ = static_cast<double>(window_);
        floor_ = window_;
    }
    const double top = static_cast<double>(ceiling_) / segment;
    const double floor = static_cast<double>(floor_) / segment;
    const double until_top = std::cbrt(std::max(top - floor, 0.0) / cubic_c);
    const double since = static_cast<double>((now - epoch_).ns()) * 1e-9 - until_top;
    const double cubic = (cubic_c * since * since * since + top) * segment;
    // 4.3: slower than Reno only up to where it shrank; a part of a window grows a part of a step.
    const double part = std::min(static_cast<double>(round_.acked) /
                                     static_cast<double>(std::max<std::uint64_t>(window_, 1)),
                                 1.0);
    reno_window_ +=
        (reno_window_ < reno_grows_slowly_until_ ? 3 * (1 - shrink_cubic) / (1 + shrink_cubic)
                                                 : 1.0) *
        segment * part;
    const double wanted = std::max(cubic, reno_window_);
    const auto now_is = static_cast<double>(window_);
    window_ = static_cast<std::uint64_t>(std::clamp(wanted, now_is, now_is * 1.5));
}

base::Duration Congestion::shortest_lately(base::Time now) noexcept
{
    const base::Duration away =
        absence_ == nullptr ? base::Duration::zero() : absence_->lately(now);
    if (const base::Duration span = std::min(away * absences, longest_look);
        now - halved_ > span / 2) {
        older_ = span == base::Duration::zero() ? base::Duration::max() : newer_;
        newer_ = base::Duration::max();
        halved_ = now;
    }
    newer_ = std::min(newer_, round_.shortest);
    return std::min(newer_, older_);
}

base::Duration Congestion::way() const noexcept
{
    return std::min(shortest_, longest_without_queue);
}

void Congestion::forget_way() noexcept
{
    shortest_ = base::Duration::max();
    watched_shortest_ = base::Duration::max();
    watched_sum_ = base::Duration::zero();
    watched_rounds_ = 0;
    watched_parts_ = 0;
    watched_ = base::Time{};
    some_ = some_lost_ = 0;
}

void Congestion::watch_way(base::Time now) noexcept
{
    if (now - watched_ > longer_way) {
        if (watched_parts_ == (1U << watched_in) - 1) {
            const base::Duration mean = watched_sum_ / watched_rounds_;
            const base::Duration longer = watched_shortest_ - shortest_;
            if (mean - watched_shortest_ < longer / alike) {
                shortest_ = watched_shortest_;
            }
        }
        watched_shortest_ = base::Duration::max();
        watched_sum_ = base::Duration::zero();
        watched_rounds_ = 0;
        watched_parts_ = 0;
        watched_ = now;
    }
    if (round_.shortest != base::Duration::max()) {
        const std::int64_t part = (now - watched_).ns() * watched_in / longer_way.ns();
        watched_parts_ |=
            static_cast<std::uint8_t>(1U << std::clamp<std::int64_t>(part, 0, watched_in - 1));
        watched_shortest_ = std::min(watched_shortest_, round_.shortest);
        watched_sum_ += round_.shortest;
        ++watched_rounds_;
    }
}

void Congestion::end_round(base::Time now) noexcept
{
    watch_way(now);
    const base::Duration fast = std::min(way() + std::max(way(), standing), longest_without_queue);
    const base::Duration trip = shortest_lately(now);
    const bool queue = trip != base::Duration::max() && trip > fast;
    const bool same_ahead = queued_ == queue;
    const std::uint64_t before = window_;
    queued_ = queue;
    some_lost_ += packets(round_.lost);
    some_ += packets(round_.lost + round_.acked);
    const bool overran = overrun();
    for (; some_ > some_packets; some_ /= 2) {
        some_lost_ /= 2;
    }
    learn_usual_loss(trip);
    if (starting_) {
        watch_start();
    }
    if (control_ == CongestionControl::delay && queue) {
        const auto excess =
            static_cast<double>((trip - fast).ns()) / static_cast<double>(trip.ns());
        shrink(std::max(1 - excess / 2, shrink_overrun), now);
    } else if (control_ == CongestionControl::cubic ||
               (control_ == CongestionControl::hybrid && queue)) {
        if (round_.lost_anew != 0) {
            shrink_as_cubic(now);
        } else if (!starting_ && round_.limited) {
            grow_as_cubic(now);
        }
    } else if (overran) {
        shrink(shrink_overrun, now);
    } else if (!starting_ && round_.limited) {
        grow_by_chance();
    }
    window_ = std::clamp(window_, least_window, most_window);
    if (!same_ahead || window_ != before) {
        set_pace();
    }
}

} // namespace ft::reliability

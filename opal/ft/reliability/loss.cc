// The part of the sender that decides what is lost: by what was acknowledged after it, by its
// timers, by its path.
#include <algorithm>

#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/bitmap.hpp"
#include "opal/ft/reliability/sender.hpp"

namespace ft::reliability {

namespace {

base::Duration age_of(const FragmentRecord &record, base::Time now)
{
    const auto stamp = static_cast<std::uint32_t>(now.ns() >> stamp_shift);
    return base::Duration::from_ns(std::int64_t{stamp - record.stamp} << stamp_shift);
}

} // namespace

void Sender::mark_lost(Vfrag &v, unsigned index, LossReason reason)
{
    FragmentRecord &record = v.fragments[index];
    FT_ASSERT(record.state == FragmentState::in_flight);
    Path &path = paths_[record.path];
    path.in_flight -= v.bytes_of(index);
    if (path.congestion != nullptr) {
        path.congestion->on_lost(v.bytes_of(index));
    }
    ++counters_.declared_lost;
    record.state = FragmentState::lost;
    record.reason = reason;
    if (v.lost_mask_ == 0) {
        // Kept oldest first: what the receiver waits for longest goes out first.
        auto place = lost_.end();
        while (place != lost_.begin() &&
               serial_diff((*std::prev(place))->sequence_, v.sequence_) > 0) {
            --place;
        }
        lost_.insert(place, &v);
    }
    v.lost_mask_ |= base::bit(index);
}

LossReason Sender::judge(const FragmentRecord &record, base::Time now) const noexcept
{
    const Path &path = paths_[record.path];
    if (path.any_acked && tx_diff(path.largest_acked_tx, record.tx) >=
                              static_cast<std::int32_t>(path.reorder_threshold)) {
        return LossReason::gap;
    }
    if (path.any_echo) {
        // RFC 8985: a quarter of the round trip is left to reordering; more, in proportion, once
        // reordering was seen.
        const std::int64_t window = std::max<std::int64_t>(
            path.rtt.smoothed().ns() * path.reorder_threshold / (4 * config_.reorder_threshold),
            50'000);
        if (serial_diff(path.largest_acked_stamp, record.stamp) > (window >> stamp_shift)) {
            return LossReason::gap;
        }
    }
    if (path.state != PathState::up && paths_.other_up(record.path) &&
        age_of(record, now) > paths_.rto(record.path) && !config_.disable_failover) {
        return LossReason::failover;
    }
    return LossReason::none;
}

void Sender::detect_losses(std::uint32_t end, base::Time now)
{
    for (std::uint32_t s = base_; serial_diff(s, end) < 0; ++s) {
        Vfrag *v = at(s);
        if (v == nullptr) {
            continue;
        }
        for (unsigned index = 0; index < v->next_unsent_; ++index) {
            const FragmentRecord &record = v->fragments[index];
            if (record.state != FragmentState::in_flight) {
                continue;
            }
            const LossReason reason = judge(record, now);
            if (reason != LossReason::none) {
                mark_lost(*v, index, reason);
            }
        }
    }
}

void Sender::lose_old_on(Vfrag &v, PathId path, LossReason reason, base::Time now)
{
    for (unsigned index = 0; index < v.next_unsent_; ++index) {
        const FragmentRecord &record = v.fragments[index];
        if (record.state == FragmentState::in_flight && record.path == path &&
            age_of(record, now) > paths_.rto(path)) {
            mark_lost(v, index, reason);
        }
    }
}

PathId Sender::expire(Vfrag &v, base::Time now)
{
    v.backoff_ = static_cast<std::uint8_t>(std::min<int>(v.backoff_ + 1, max_backoff));
    backoff_ = std::max(backoff_, v.backoff_);
    unsigned index = v.count();
    while (index > 0 && v.fragments[index - 1].state != FragmentState::in_flight) {
        --index;
    }
    if (index == 0) {
        // All that is missing waits to be sent again: paths are full, and their own watchdogs run.
        v.ack_deadline_ = now + ack_timeout(v, v.fragments[0].path);
        return no_path;
    }
    --index;
    const PathId path = v.fragments[index].path;
    v.ack_deadline_ = now + ack_timeout(v, path);
    paths_.on_timeout(path, now);
    mark_lost(v, index, LossReason::timeout);
    urgent_ = true; // its answer tells what is lost; until then all of that counts as in flight
    if (paths_[path].state != PathState::up && paths_.other_up(path)) {
        lose_old_on(v, path, LossReason::failover, now);
    } else if (paths_[path].info.unreliable && v.backoff_ > 1) {
        // The answer to the first try did not describe this VFRAG (an ack has room for some only),
        // or was lost. What is counted as in flight and is not must not keep a window full.
        lose_old_on(v, path, LossReason::timeout, now);
    }
    return path;
}

void Sender::expire_watchdog(Vfrag &v, base::Time now)
{
    std::uint32_t blamed = 0;
    PathId newest = no_path;
    for (unsigned index = 0; index < v.next_unsent_; ++index) {
        FragmentRecord &record = v.fragments[index];
        if (record.held == 0) {
            continue;
        }
        newest = record.path;
        if ((blamed >> record.path & 1U) == 0) {
            blamed |= 1U << record.path;
            paths_.on_timeout(record.path, now);
        }
        if (record.state == FragmentState::in_flight && paths_.other_up(record.path) &&
            !config_.disable_failover) {
            mark_lost(v, index, LossReason::watchdog);
        }
    }
    v.backoff_ = static_cast<std::uint8_t>(std::min<int>(v.backoff_ + 1, max_backoff));
    v.watchdog_deadline_ =
        now + (newest == no_path ? config_.rto_max * 2 : completion_timeout(v, newest));
}

void Sender::on_path_gone(PathId path, base::Time /*now*/)
{
    for (std::uint32_t s = base_; s != next_; ++s) {
        Vfrag *v = at(s);
        if (v == nullptr) {
            continue;
        }
        for (unsigned index = 0; index < v->next_unsent_; ++index) {
            const FragmentRecord &record = v->fragments[index];
            if (record.state == FragmentState::in_flight && record.path == path) {
                mark_lost(*v, index, LossReason::failover);
            }
        }
    }
}

void Sender::on_time(base::Time now)
{
    if (now < next_deadline_) {
        return;
    }
    next_deadline_ = base::Time::never();
    std::uint32_t expired = 0; // paths that were blamed at this moment: once is enough
    for (std::uint32_t s = base_; s != next_; ++s) {
        Vfrag *v = at(s);
        if (v == nullptr) {
            continue;
        }
        if (v->watchdog_deadline_ <= now) {
            expire_watchdog(*v, now);
        }
        if (v->ack_deadline_ <= now) {
            const PathId path = v->fragments[std::max<unsigned>(v->next_unsent_, 1) - 1].path;
            if ((expired >> path & 1U) == 0) {
                // One that waits for a window to open blames nobody, and must not keep the timers
                // of those still that fill the window.
                if (const PathId blamed = expire(*v, now); blamed != no_path) {
                    expired |= 1U << blamed;
                }
            } else {
                // One probe a path and timeout: its answer tells about all the others.
                v->ack_deadline_ = now + ack_timeout(*v, path);
            }
        }
        arm(std::min(v->ack_deadline_, v->watchdog_deadline_));
    }
    // Acknowledged by whatever way, while a descriptor sits in a BTL that does not move: the
    // message need not wait for it.
    std::erase_if(draining_, [&](Vfrag *v) {
        if (v->watchdog_deadline_ > now) {
            arm(v->watchdog_deadline_);
            return false;
        }
        finish(*v);
        return true;
    });
}

} // namespace ft::reliability

// The part of the sender that decides what is lost: by what was acknowledged after it, by its
// timers, by its path.
#include <algorithm>

#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/bitmap.hpp"
#include "opal/ft/reliability/sender.hpp"

namespace ft::reliability {

namespace {

/// So many gaps without a fragment that was overtaken, and less reordering is tolerated again.
constexpr std::uint8_t gaps_to_forget = 255;

base::Duration age_of(const FragmentRecord &record, base::Time now)
{
    return between(record.stamp, stamp_of(now));
}

} // namespace

void Sender::mark_lost(Vfrag &v, unsigned index, LossReason reason)
{
    FragmentRecord &record = v.fragments[index];
    FT_ASSERT(record.state == FragmentState::in_flight);
    Path &path = paths_.use(record.path);
    paths_.take_off(record.path, v.bytes_of(index));
    if (path.congestion != nullptr) {
        // Where a queue stands a first timeout asks, and its answer tells whether anything was lost
        // (RFC 8985, section 7); what was sent instead being lost, too, nothing tells, and both
        // count. Where none does, a loss more changes nothing.
        const bool was_in_question = record.question != 0;
        const bool asks = reason == LossReason::timeout && v.backoff_ <= 1 && !was_in_question &&
                          path.congestion->queued() && !path.congestion->answered_for(record.tx);
        record.question =
            asks ? static_cast<std::uint8_t>(path.congestion->shrinks() + 1) : std::uint8_t{0};
        if (!asks) {
            path.congestion->on_lost(std::uint64_t{v.bytes_of(index)} * (was_in_question ? 2 : 1),
                                     record.tx);
        }
    }
    ++counters_.rare().declared_lost;
    v.untouched_ = false;
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
    // Of what a BTL holds later ones may be done with sooner.
    const bool told = path.info.acknowledged;
    if (told && path.any_acked &&
        tx_diff(path.largest_acked_tx, record.tx) >=
            static_cast<std::int32_t>(path.reorder_threshold)) {
        return LossReason::gap;
    }
    if (told && path.any_echo) {
        // RFC 8985: a quarter of the round trip is left to reordering; more, in proportion, once
        // reordering was seen, but not for all that a long window allows.
        const std::int64_t window = std::max<std::int64_t>(
            path.rtt.smoothed().ns() *
                std::min(path.reorder_threshold,
                         std::max(PathSet::most_threshold, config_.reorder_threshold)) /
                (4 * config_.reorder_threshold),
            50'000);
        const std::uint32_t stamp = stamp_of(now);
        if (later(path.largest_acked_stamp, record.stamp, stamp) &&
            between(record.stamp, path.largest_acked_stamp).ns() > window) {
            return later(path.largest_acked_stamp, newest_stamp_, stamp) ? LossReason::tail
                                                                         : LossReason::gap;
        }
    }
    if (path.state != PathState::up && paths_.other_ready(record.path) &&
        age_of(record, now) > paths_.rto(record.path) && !config_.disable_failover) {
        return LossReason::failover;
    }
    return LossReason::none;
}

void Sender::detect_losses(std::uint32_t end, base::Time now)
{
    // While no path is in doubt only what was sent later and has arrived proves a loss: of a full
    // window nearly all VFRAGs are younger than anything that has, and need no look.
    const bool calm = paths_.none_in_doubt();
    const std::uint32_t stamp = stamp_of(now);
    for (std::uint32_t s = base_; serial_diff(s, end) < 0; ++s) {
        Vfrag *v = at(s);
        if (v == nullptr || (calm && v->untouched_ &&
                             (!any_heard_ || later(v->first_stamp_, newest_heard_, stamp)))) {
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

bool Sender::one_asks_for_all(PathId id) const noexcept
{
    const Congestion *congestion = paths_[id].congestion.get();
    return congestion != nullptr && !congestion->often_loses();
}

void Sender::lose_passed(Vfrag &v, PathId id, base::Time now)
{
    const Path &path = paths_[id];
    for (unsigned index = 0; index < v.next_unsent_ && path.any_echo; ++index) {
        const FragmentRecord &record = v.fragments[index];
        if (record.state == FragmentState::in_flight && record.path == id &&
            later(path.largest_acked_stamp, record.stamp, stamp_of(now))) {
            mark_lost(v, index, LossReason::timeout);
        }
    }
}

void Sender::lose_overdue(Vfrag &v, PathId blamed, base::Time now)
{
    for (unsigned index = 0; index < v.next_unsent_ && any_heard_; ++index) {
        const FragmentRecord &record = v.fragments[index];
        if (record.state != FragmentState::in_flight || record.path == blamed ||
            !later(newest_heard_, record.stamp, stamp_of(now))) {
            continue;
        }
        const base::Duration most = paths_.rto(record.path) + config_.ack_delay;
        if (between(record.stamp, newest_heard_) > most * 2) {
            mark_lost(v, index, LossReason::timeout);
        }
    }
}

PathId Sender::expire(Vfrag &v, base::Time now)
{
    unsigned index = v.count();
    while (index > 0 && v.fragments[index - 1].state != FragmentState::in_flight) {
        --index;
    }
    // The newest in flight has not left its BTL: the peer cannot have it yet, and that is the
    // watchdog's business. Once that has run out, or something was sent again, what a BTL holds
    // proves nothing: its path may be dead.
    if (index > 0 && v.fragments[index - 1].held != 0 && v.backoff_ == 0 && v.untouched_) {
        v.ack_deadline_ = now + ack_timeout(v, v.fragments[index - 1].path);
        return no_path;
    }
    if (index > 0 && one_asks_for_all(v.fragments[index - 1].path)) {
        // Until what was sent again is answered, or its own time is over, the timers of others over
        // that path tell nothing new (RFC 9002, 6.2.1: one timer for all). A peer that stands still
        // for a moment would be sent one of each.
        const Path &path = paths_[v.fragments[index - 1].path];
        const base::Time asked_at = path.congestion->asked_at();
        const base::Time answered_by = asked_at + ack_timeout(v, v.fragments[index - 1].path);
        if (asked_at > path.last_ack && now < answered_by) {
            v.ack_deadline_ = answered_by;
            return no_path;
        }
        path.congestion->note_asked(now);
    }
    v.backoff_ = static_cast<std::uint8_t>(std::min<int>(v.backoff_ + 1, max_backoff));
    backoff_ = std::max(backoff_, v.backoff_);
    if (index == 0) {
        // All that is missing waits to be sent again: paths are full, and their own watchdogs run.
        v.ack_deadline_ = now + ack_timeout(v, v.fragments[0].path);
        return no_path;
    }
    --index;
    const PathId path = v.fragments[index].path;
    v.ack_deadline_ = now + ack_timeout(v, path);
    paths_.on_timeout(path, now, now - age_of(v.fragments[index], now));
    paths_.on_unanswered(path, now);
    doubt(v, index);
    mark_lost(v, index, LossReason::timeout);
    lose_overdue(v, path, now);
    urgent_ = true; // its answer tells what is lost; until then all of that counts as in flight
    if (v.backoff_ > 1) {
        // The answer to the first try did not describe this VFRAG (an ack has room for some only),
        // or was lost. What is counted as in flight and is not must not keep a window full.
        if (paths_[path].state != PathState::up && paths_.other_ready(path)) {
            lose_old_on(v, path, LossReason::failover, now);
        } else if (paths_[path].info.unreliable) {
            if (one_asks_for_all(path)) {
                lose_passed(v, path, now); // of a peer that is silent altogether nothing is known
            } else {
                lose_old_on(v, path, LossReason::timeout, now);
            }
        }
    }
    return path;
}

base::Duration Sender::patience() const noexcept
{
    const Path &path = paths_[newest_path_];
    // Whoever is in MPI acknowledges an ordered VFRAG within ack_delay. That is not waited for
    // where a question costs next to nothing, as in shared memory.
    const bool wait = newest_ordered_ && path.info.keeps_order;
    const base::Duration once = path.rtt.smoothed() * 2 +
                                (wait ? config_.ack_delay : base::Duration{}) +
                                config_.rto_min / 16;
    // A path may carry questions and answers, and never a fragment of full size.
    return std::min(once * (std::int64_t{1} << std::min<int>(questions_, max_backoff)),
                    config_.rto_max);
}

void Sender::consider_question(base::Time now) noexcept
{
    const base::Duration late = now - question_at_;
    question_at_ = base::Time::never();
    if (idle() || asked_) {
        return;
    }
    // It was away itself, and the answer may lie unread. Who comes by seldom is always late.
    question_put_off_ = late > paths_.away() && !question_put_off_;
    if (question_put_off_) {
        question_at_ = now + paths_.away();
        return;
    }
    const Path &path = paths_[newest_path_];
    if (path.info.unreliable || !path.info.acknowledged || path.state != PathState::up ||
        !path.rtt.has_sample()) {
        return; // it asks by itself, or its timers and probes are at work
    }
    const base::Duration silent = between(newest_stamp_, stamp_of(now));
    const base::Duration wait = patience();
    Choice more;
    if (path.held != 0 || choose(more)) {
        // More goes out soon, or its BTL has not sent it yet. The longer that lasts the less often
        // it is looked: a BTL that does not move may hold it for minutes.
        question_at_ = now + std::max(wait, std::min(silent / 4, config_.rto_max));
    } else if (silent < wait) {
        question_at_ = now + (wait - silent);
    } else {
        asked_ = true;
        question_due_ = true;
        questions_ = static_cast<std::uint8_t>(std::min<int>(questions_ + 1, max_backoff));
    }
}

void Sender::doubt(const Vfrag &v, unsigned index) noexcept
{
    const FragmentRecord &record = v.fragments[index];
    // Over datagrams a timeout is a loss as a rule, and duplicates say that acknowledgements were
    // lost: to wait for longer after them would cost more than it saves.
    if (record.tries != 1 || paths_[record.path].info.unreliable ||
        (doubt_.path != no_path && !doubt_.answered)) {
        return;
    }
    doubt_ = Doubt{};
    doubt_.sequence = v.sequence_;
    doubt_.first = record.stamp;
    doubt_.index = static_cast<std::uint8_t>(index);
    doubt_.path = record.path;
}

void Sender::settle_doubt(const FragHeader &h, std::int32_t duplicates, base::Time now)
{
    bool spurious = false;
    if (doubt_.answered) {
        // A duplicate that is told of later than this is of something else.
        if (between(doubt_.answer, stamp_of(now)) > config_.rto_min * 16) {
            doubt_.path = no_path;
            return;
        }
    } else {
        if (serial_diff(doubt_.sequence, base_) >= 0) {
            const Vfrag *v = at(doubt_.sequence);
            if (v != nullptr && v->fragments[doubt_.index].state != FragmentState::acked) {
                return;
            }
        }
        doubt_.answered = true;
        doubt_.answer = stamp_of(now);
        // The newest fragment that the peer had seen tells, as in RFC 3522: if it is the first
        // transmission, or was sent over the second's path before the second, then the second had
        // not arrived. The second may not even have been sent.
        spurious = doubt_.second_path == no_path ||
                   (h.has(flag_echo) &&
                    ((h.echo_path == doubt_.path && h.echo_timestamp == doubt_.first) ||
                     (h.echo_path == doubt_.second_path &&
                      later(doubt_.second, h.echo_timestamp, stamp_of(now)))));
    }
    if (!spurious && duplicates > 0) {
        // Both had come (RFC 3708). If that is since the first one's acknowledgement was lost, then
        // the second was answered in an ordinary round trip; if the peer was away, hardly.
        const base::Duration ordinary =
            config_.rto_min / 2 + paths_[doubt_.second_path].rtt.minimum() * 2;
        spurious = between(doubt_.second, doubt_.answer) > ordinary;
    }
    if (spurious) {
        const PathId path = doubt_.path;
        doubt_.path = no_path;
        paths_.on_spurious_timeout(path, between(doubt_.first, doubt_.answer), now);
    }
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
            paths_.on_timeout(record.path, now, now - age_of(record, now));
        }
        if (record.state == FragmentState::in_flight && paths_.other_ready(record.path) &&
            !paths_.waits_for_peer(record.path) && !config_.disable_failover) {
            mark_lost(v, index, LossReason::watchdog);
        }
    }
    v.backoff_ = static_cast<std::uint8_t>(std::min<int>(v.backoff_ + 1, max_backoff));
    v.watchdog_deadline_ =
        now + (newest == no_path ? config_.rto_max * 2 : completion_timeout(v, newest));
}

bool Sender::looks_first(Vfrag &v, base::Time now) const noexcept
{
    const base::Duration away = paths_.away();
    if (v.looked_ || now - std::min(v.ack_deadline_, v.watchdog_deadline_) <= away) {
        v.looked_ = false;
        return false;
    }
    v.looked_ = true;
    for (base::Time *deadline : {&v.ack_deadline_, &v.watchdog_deadline_}) {
        if (*deadline <= now) {
            *deadline = now + away;
        }
    }
    return true;
}

void Sender::on_path_gone(PathId path, base::Time /*now*/)
{
    for (std::uint32_t s = base_; s != next_; ++s) {
        Vfrag *v = at(s);
        if (v == nullptr) {
            continue;
        }
        for (unsigned index = 0; index < v->next_unsent_; ++index) {
            FragmentRecord &record = v->fragments[index];
            if (record.path != path) {
                continue;
            }
            if (record.state == FragmentState::in_flight) {
                mark_lost(*v, index, LossReason::broken);
            } else if (record.state == FragmentState::lost) {
                record.reason = LossReason::broken; // a timer was sooner
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
        // Who was away himself finds timers long expired, and what they wait for perhaps unread.
        const bool expires =
            std::min(v->ack_deadline_, v->watchdog_deadline_) <= now && !looks_first(*v, now);
        if (expires && v->watchdog_deadline_ <= now) {
            expire_watchdog(*v, now);
        }
        if (expires && v->ack_deadline_ <= now) {
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
    if (question_at_ <= now) {
        consider_question(now);
    }
    arm(question_at_);
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

bool Sender::first_came(const FragmentRecord &again, base::Time now) const noexcept
{
    return duplicates_told_ ||
           (newest_told_ != 0 && later(again.stamp, newest_told_, stamp_of(now)));
}

std::int32_t Sender::on_spurious(std::uint32_t told)
{
    const std::int32_t more = serial_diff(told, spurious_seen_);
    if (more <= 0) {
        return 0;
    }
    spurious_seen_ = told;
    counters_.rare().retransmitted_spurious += static_cast<std::uint32_t>(more);
    const RareCounters &counted = counters_.rare();
    const auto gaps = static_cast<std::uint16_t>(counted.retransmitted_gap);
    const auto others =
        static_cast<std::uint16_t>(counted.retransmitted_timeout + counted.retransmitted_watchdog +
                                   counted.retransmitted_tail + counted.retransmitted_failover);
    const bool by_a_gap = gaps != gaps_at_spurious_ && others == others_at_spurious_;
    gaps_at_spurious_ = gaps;
    others_at_spurious_ = others;
    if (by_a_gap) { // else a timer may have been wrong, not the reordering threshold
        gaps_since_change_ = 0;
        paths_.tolerate_more_reordering();
    }
    return more;
}

void Sender::note_gap()
{
    ++counters_.rare().retransmitted_gap;
    if (++gaps_since_change_ == gaps_to_forget) {
        gaps_since_change_ = 0;
        paths_.tolerate_less_reordering();
    }
}

} // namespace ft::reliability

#include "opal/ft/reliability/sender.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/bitmap.hpp"

namespace ft::reliability {

namespace {

/// What an acknowledgement proved lost so many times is tried over another path.
constexpr unsigned tries_by_chance = 3;
/// Where round trips are shorter than this, not each is measured: small messages bring millions a
/// second, and the timeout is at its floor.
constexpr base::Duration sample_interval = base::Duration::from_us(16);

/// All of them as new. By hand, for the compiler writes each record in two stores that overlap.
void clear(std::span<FragmentRecord> records) noexcept
{
    static_assert(std::is_trivially_copyable_v<FragmentRecord> &&
                  FragmentState{} == FragmentState::unsent && LossReason{} == LossReason::none);
    std::memset(static_cast<void *>(records.data()), 0, records.size_bytes());
}

} // namespace

void Sender::List::push(Vfrag &vfrag) noexcept
{
    vfrag.next_ = nullptr;
    (tail != nullptr ? tail->next_ : head) = &vfrag;
    tail = &vfrag;
}

Vfrag *Sender::List::pop() noexcept
{
    Vfrag *first = head;
    if (first != nullptr) {
        head = first->next_;
        if (head == nullptr) {
            tail = nullptr;
        }
        first->next_ = nullptr;
    }
    return first;
}

void Sender::grow_ring()
{
    constexpr std::size_t first = 8; // an idle peer is to be small
    std::vector<Vfrag *> larger(std::max(ring_.size() * 2, first), nullptr);
    for (std::uint32_t s = base_; s != next_; ++s) {
        larger[s & (larger.size() - 1)] = at(s);
    }
    ring_.swap(larger);
}

void Sender::submit(Vfrag &v, base::Time /*now*/)
{
    FT_ASSERT(has_room(v.length, v.ordered));
    FT_ASSERT(v.state_ == Vfrag::State::idle || v.state_ == Vfrag::State::finished);
    FT_ASSERT(v.count() >= 1 && v.count() <= max_fragments);
    FT_ASSERT(v.count() == Vfrag::count_for(v.length, v.fragment_bytes));
    FT_ASSERT(!v.ordered || v.count() == 1);
    clear(v.fragments);
    enter(v, 0, Vfrag::State::queued);
    (v.ordered ? unsent_ordered_ : unsent_data_).push(v);
}

void Sender::await_ack(Vfrag &v, PathId path, base::Time now) noexcept
{
    v.ack_deadline_ = now + ack_timeout(v, path);
    v.looked_ = false;
    arm(v.ack_deadline_);
}

bool Sender::choose(Choice &choice) const noexcept
{
    if (!lost_.empty() && !config_.disable_retransmit) {
        Vfrag &v = *lost_.front();
        const unsigned index = base::lowest(v.lost_mask_);
        const FragmentRecord &record = v.fragments[index];
        // The path that just failed to carry it is the last to be tried again; so is one that lets
        // pass what tells of losses, and never this.
        const bool by_chance = record.reason == LossReason::gap ||
                               record.reason == LossReason::tail ||
                               record.reason == LossReason::nack;
        const bool blamed = !by_chance || record.tries >= tries_by_chance;
        const PathId avoid =
            blamed && (by_chance || !paths_.waits_for_peer(record.path)) ? record.path : no_path;
        PathId path = paths_.pick(v.bytes_of(index), avoid, urgent_);
        if (config_.disable_failover && paths_[record.path].state != PathState::gone) [[unlikely]] {
            path = record.path;
        }
        choice = {&v, static_cast<std::uint8_t>(index), path, true};
        return path != no_path;
    }
    Vfrag *v = unsent_ordered_.head != nullptr ? unsent_ordered_.head : unsent_data_.head;
    if (v == nullptr) {
        return false;
    }
    const PathId path = paths_.pick(v->bytes_of(v->next_unsent_), no_path);
    choice = {v, v->next_unsent_, path, false};
    return path != no_path;
}

base::Duration Sender::ack_timeout(const Vfrag &v, PathId path) const noexcept
{
    const base::Duration once = paths_.rto(path) + config_.ack_delay;
    const int doublings = std::min<int>(std::max(v.backoff_, backoff_), max_backoff);
    if (doublings == 0) [[likely]] {
        return std::min(once, config_.rto_max);
    }
    return std::min(once * (std::int64_t{1} << doublings), config_.rto_max);
}

base::Duration Sender::completion_timeout(const Vfrag &v, PathId path) const noexcept
{
    const int doublings = std::min<int>(v.backoff_, 6);
    return std::min(paths_.watchdog(path) * (std::int64_t{1} << doublings), config_.rto_max * 2);
}

void Sender::sent(const Choice &choice, std::uint32_t stamp, bool complete, base::Time now)
{
    Vfrag &v = *choice.vfrag;
    FragmentRecord &record = v.fragments[choice.index];
    urgent_ = false;
    Path &path = paths_.use(choice.path);
    const std::uint32_t bytes = v.bytes_of(choice.index);
    if (choice.retransmission) {
        FT_ASSERT(record.state == FragmentState::lost);
        switch (record.reason) {
        case LossReason::timeout:
            ++counters_.rare().retransmitted_timeout;
            break;
        case LossReason::watchdog:
            ++counters_.rare().retransmitted_watchdog;
            break;
        case LossReason::gap:
            note_gap();
            break;
        case LossReason::tail:
            ++counters_.rare().retransmitted_tail;
            break;
        case LossReason::nack:
            ++counters_.rare().retransmitted_nack;
            break;
        case LossReason::failover:
        case LossReason::broken:
            ++counters_.rare().retransmitted_failover;
            break;
        case LossReason::none:
            break;
        }
        v.lost_mask_ &= ~base::bit(choice.index);
        if (v.lost_mask_ == 0) {
            unlink_lost(v);
        }
    } else {
        FT_ASSERT(record.state == FragmentState::unsent && choice.index == v.next_unsent_);
        v.state_ = Vfrag::State::sending;
        if (v.next_unsent_ == 0) {
            v.first_stamp_ = stamp;
        }
        if (++v.next_unsent_ == v.count()) {
            v.state_ = Vfrag::State::waiting;
            List &list = v.ordered ? unsent_ordered_ : unsent_data_;
            FT_ASSERT(list.head == &v);
            (void)list.pop();
        }
    }
    if (doubt_.path != no_path && doubt_.sequence == v.sequence_ && doubt_.index == choice.index &&
        doubt_.second_path == no_path) {
        doubt_.second = stamp;
        doubt_.second_path = choice.path;
    }
    if (record.question != 0 && record.path != choice.path) {
        // Another way tells nothing of this one: the timer is believed.
        paths_.use(record.path).congestion->on_repaired(bytes, record.question - 1U);
        record.question = 0;
    }
    record.tx = path.next_tx;
    record.stamp = stamp;
    record.path = choice.path;
    record.tries = static_cast<std::uint8_t>(std::min(record.tries + 1, 255));
    record.state = FragmentState::in_flight;
    record.reason = LossReason::none;
    const bool trusted = trusts(v, path);
    if (!trusted) [[likely]] {
        note_sent(choice.path, stamp, v.ordered, now);
    }
    path.next_tx = (path.next_tx + 1) & tx_mask;
    path.in_flight += bytes;
    paths_.on_sent_bytes(choice.path, now);
    ++path.fragments_sent;
    path.bytes_sent += bytes;
    ++counters_.fragments_sent;
    counters_.bytes_sent += bytes;
    if (!complete) {
        hold(v, choice.index, choice.path, now);
    }
    if (trusted) [[unlikely]] {
        if (complete) {
            take_for_arrived(v, record, bytes);
        }
        if (v.acknowledged() || paths_.size() == 1) {
            return; // nothing else of it needs an acknowledgement
        }
    }
    // A window that is full of what was lost, or paths that are given no more until something is
    // acknowledged, let the rest of the VFRAG never be sent: the timer runs from its first
    // fragment.
    if (v.state_ == Vfrag::State::waiting || path.info.unreliable ||
        (paths_.size() > 1 && !config_.disable_early_timer)) {
        await_ack(v, choice.path, now);
    }
}

void Sender::hold(Vfrag &v, unsigned index, PathId path, base::Time now)
{
    ++v.fragments[index].held;
    ++v.held_;
    Path &its = paths_.use(path);
    ++its.held;
    // A pass whose time is from before the path was replaced sends by the fresh transport all the
    // same, and will say that time when it is done.
    its.revived_at = std::min(its.revived_at, now);
    v.watchdog_deadline_ = now + completion_timeout(v, path);
    arm(v.watchdog_deadline_);
}

void Sender::take_for_arrived(Vfrag &v, FragmentRecord &record, std::uint32_t bytes)
{
    // No sign of life: the BTL has it, and the peer may not run.
    note_believed(v.sequence_, paths_.use(record.path));
    paths_.take_off(record.path, bytes);
    ++paths_.use(record.path).fragments_acked;
    ++counters_.fragments_acknowledged;
    counters_.bytes_acknowledged += bytes;
    record.state = FragmentState::acked;
    if (++v.acked_count_ == v.count()) {
        complete(v);
        advance();
    }
}

unsigned Sender::run(const Choice &choice) const noexcept
{
    return choice.retransmission || choice.vfrag->ordered ? 1
                                                          : choice.vfrag->count() - choice.index;
}

void Sender::sent_run(const Choice &choice, unsigned count, std::uint32_t stamp, base::Time now)
{
    Vfrag &v = *choice.vfrag;
    FT_ASSERT(choice.index == v.next_unsent_ && count >= 1 && count <= run(choice));
    Path &path = paths_.use(choice.path);
    urgent_ = false;
    if (v.next_unsent_ == 0) {
        v.first_stamp_ = stamp;
    }
    for (FragmentRecord &record : v.fragments.subspan(choice.index, count)) {
        FT_ASSERT(record.state == FragmentState::unsent);
        record = {.tx = path.next_tx,
                  .stamp = stamp,
                  .path = choice.path,
                  .tries = 1,
                  .state = FragmentState::in_flight};
        path.next_tx = (path.next_tx + 1) & tx_mask;
    }
    v.next_unsent_ = static_cast<std::uint8_t>(v.next_unsent_ + count);
    const unsigned last = v.next_unsent_ - 1U;
    const std::uint64_t bytes = v.offset_of(last) + v.bytes_of(last) - v.offset_of(choice.index);
    v.state_ = Vfrag::State::sending;
    if (v.next_unsent_ == v.count()) {
        v.state_ = Vfrag::State::waiting;
        FT_ASSERT(unsent_data_.head == &v);
        (void)unsent_data_.pop();
    }
    note_sent(choice.path, stamp, false, now);
    path.in_flight += bytes;
    paths_.on_sent_bytes(choice.path, now);
    path.fragments_sent += count;
    path.bytes_sent += bytes;
    counters_.fragments_sent += count;
    counters_.bytes_sent += bytes;
    await_ack(v, choice.path, now); // as for each by itself: see sent
}

base::Duration Sender::still_held_timeout(const Vfrag &v, PathId done) const noexcept
{
    bool elsewhere = false;
    for (PathId id = 0; id < paths_.size(); ++id) {
        elsewhere = elsewhere || (id != done && paths_[id].held != 0);
    }
    if (!elsewhere) {
        return paths_.watchdog(done);
    }
    // What one path takes says nothing of another: one that was stuck itself teaches long times,
    // and the one that holds the rest may be dead.
    std::uint32_t looked = 0;
    base::Duration longest{};
    for (const FragmentRecord &record : v.fragments.first(v.next_unsent_)) {
        if (record.held != 0 && (looked >> record.path & 1U) == 0) {
            looked |= 1U << record.path;
            longest = std::max(longest, paths_.watchdog(record.path));
        }
    }
    return longest;
}

void Sender::locally_complete(Vfrag &v, unsigned index, PathId id, base::Time sent_at,
                              base::Time now, bool carried)
{
    FragmentRecord &record = v.fragments[index];
    FT_ASSERT(v.held_ > 0 && record.held > 0);
    --v.held_;
    --record.held;
    paths_.release(id, sent_at);
    paths_.use(id).completion.sample(now - sent_at);
    v.watchdog_deadline_ = v.held_ == 0 ? base::Time::never() : now + still_held_timeout(v, id);
    arm(v.watchdog_deadline_); // it may be sooner than the one before
    if (carried && trusts(v, paths_[id]) && v.state_ != Vfrag::State::draining) [[unlikely]] {
        note_believed(v.sequence_, paths_.use(id));
        acknowledge(v, base::bit(index), now);
        advance();
    }
    if (v.held_ == 0 && v.state_ == Vfrag::State::draining) {
        std::erase(draining_, &v);
        finish(v);
    }
}

void Sender::finish(Vfrag &v)
{
    v.state_ = Vfrag::State::finished;
    finished_.push(v);
}

Vfrag *Sender::next_finished() noexcept
{
    return finished_.pop();
}

void Sender::complete(Vfrag &v)
{
    ring_[v.sequence_ & (ring_.size() - 1)] = nullptr;
    window_bytes_ -= v.length;
    ++counters_.vfrags_completed;
    v.ack_deadline_ = base::Time::never();
    v.state_ = Vfrag::State::draining;
    if (v.held_ == 0) {
        finish(v);
    } else {
        draining_.push_back(&v);
        arm(v.watchdog_deadline_);
    }
}

void Sender::sample_echo(const FragHeader &h, base::Time now)
{
    if (!h.has(flag_echo) || h.echo_path >= paths_.size()) {
        return;
    }
    if (paths_[h.echo_path].fragments_sent == 0 && paths_[h.echo_path].probe_nonce == 0) {
        return; // an echo of what was never sent
    }
    Path &path = paths_.use(h.echo_path);
    paths_.on_alive(h.echo_path, now);
    const std::uint32_t stamp = stamp_of(now);
    note_heard(h.echo_timestamp, now);
    if (!path.any_echo || later(h.echo_timestamp, path.largest_acked_stamp, stamp)) {
        path.any_echo = true;
        path.largest_acked_stamp = h.echo_timestamp;
    }
    if (h.echo_delay_us == no_delay) {
        return;
    }
    if (path.congestion == nullptr && now - path.sampled_at < sample_interval &&
        path.rtt.smoothed() < sample_interval && path.rtt.has_sample()) [[likely]] {
        return;
    }
    // A clock that was read before the echoed fragment went, or before what answers it, makes a
    // sample look negative. It says nothing, and as a shortest round trip of zero it would stay.
    const auto sample = between(h.echo_timestamp, stamp) - base::Duration::from_us(h.echo_delay_us);
    if (sample < base::Duration{} || stamp_age(h.echo_timestamp, stamp) < detail::stamp_ahead) {
        return;
    }
    path.sampled_at = now;
    const base::Duration sensible = std::min(sample, config_.rto_max);
    path.rtt.sample(sensible);
    if (path.congestion != nullptr) {
        path.congestion->on_round_trip(sensible, path.rtt.smoothed());
    }
}

bool Sender::on_body(std::uint32_t cumulative, const AckBody &body, base::Time now)
{
    bool sane = true;
    for (unsigned w = 0; w < body.words; ++w) {
        base::for_each_bit(body.whole[w], [&](unsigned i) {
            const std::uint32_t s = cumulative + 64 * w + i;
            if (serial_diff(next_, s) <= 0) {
                sane = false;
                return;
            }
            Vfrag *v = unacknowledged(s);
            if (v == nullptr) {
                return;
            }
            if (v->next_unsent_ != v->count()) {
                sane = false;
                return;
            }
            acknowledge(*v, base::full_mask(v->count()), now);
        });
    }
    for (unsigned p = 0; p < body.partials; ++p) {
        const AckBody::Partial &partial = body.partial[p];
        const std::uint32_t s = cumulative + partial.offset;
        if (serial_diff(next_, s) <= 0) {
            sane = false;
            continue;
        }
        Vfrag *v = unacknowledged(s);
        if (v == nullptr) {
            continue;
        }
        const std::uint64_t known = base::full_mask(v->next_unsent_);
        sane = sane && ((partial.received | partial.broken) & ~known) == 0;
        base::for_each_bit(partial.broken & ~partial.received & known, [&](unsigned index) {
            if (v->fragments[index].state == FragmentState::in_flight) {
                mark_lost(*v, index, LossReason::nack);
            }
        });
        acknowledge(*v, partial.received & known, now);
    }
    return sane;
}

void Sender::on_ack(const FragHeader &h, const AckBody *body, base::Time now)
{
    if (!h.has(flag_ack)) {
        return;
    }
    if (serial_diff(h.cumulative, next_) > 0) {
        ++counters_.rare().malformed;
        return;
    }
    sample_echo(h, now);
    told_ = serial_diff(h.cumulative, told_) > 0 ? h.cumulative : told_;
    // Stale, a newer one has been here; or the peer has yet to look for what came over a path whose
    // BTL is believed, and tells of what came over others.
    const bool behind = serial_diff(h.cumulative, base_) < 0;
    if (behind && (body == nullptr || !paths_.any_trusted())) {
        return;
    }
    newest_told_ = h.has(flag_echo) ? h.echo_timestamp : 0;
    duplicates_told_ = body != nullptr && serial_diff(body->spurious, spurious_seen_) > 0;
    Run run;
    for (std::uint32_t s = base_; s != h.cumulative && !behind; ++s) {
        Vfrag *v = at(s);
        if (v == nullptr) {
            continue;
        }
        if (v->next_unsent_ != v->count()) {
            ++counters_.rare().malformed; // acknowledges what was never sent
            settle(run, now);
            return;
        }
        if (!acknowledge_short(*v, run, now)) {
            settle(run, now);
            acknowledge(*v, base::full_mask(v->count()), now);
        }
    }
    settle(run, now);
    base_ = behind ? base_ : h.cumulative;
    std::uint32_t described_end = next_;
    std::int32_t duplicates = 0;
    if (body != nullptr) {
        if (!on_body(h.cumulative, *body, now)) {
            ++counters_.rare().malformed;
        }
        if (body->partials == AckBody::max_partials) {
            // There may be more incomplete VFRAGs than it had room for: it says nothing of those
            // beyond.
            const std::uint32_t last = h.cumulative + body->partial[body->partials - 1U].offset + 1;
            described_end = serial_diff(last, next_) < 0 ? last : next_;
        }
        duplicates = on_spurious(body->spurious);
    }
    advance();
    if (doubt_.path != no_path) {
        settle_doubt(h, duplicates, now);
    }
    if (body != nullptr) {
        detect_losses(described_end, now);
    }
}

void Sender::unlink_lost(Vfrag &v)
{
    const auto found = std::find(lost_.begin(), lost_.end(), &v);
    FT_ASSERT(found != lost_.end());
    lost_.erase(found);
}

void Sender::fail_all()
{
    for (Vfrag *v : draining_) {
        finish(*v);
    }
    draining_.clear();
    lost_.clear();
    unsent_ordered_ = {};
    unsent_data_ = {};
    for (std::uint32_t s = base_; s != next_; ++s) {
        Vfrag *v = at(s);
        if (v == nullptr) {
            continue;
        }
        for (unsigned index = 0; index < v->count(); ++index) {
            FragmentRecord &record = v->fragments[index];
            if (record.state == FragmentState::in_flight) {
                paths_.take_off(record.path, v->bytes_of(index));
                ++counters_.rare().declared_lost;
                record.state = FragmentState::lost;
            }
        }
        ++counters_.rare().vfrags_failed;
        window_bytes_ -= v->length;
        ring_[s & (ring_.size() - 1)] = nullptr;
        v->lost_mask_ = 0;
        finish(*v);
    }
    base_ = next_;
    question_due_ = false;
    question_at_ = base::Time::never();
    next_deadline_ = base::Time::never();
}

} // namespace ft::reliability

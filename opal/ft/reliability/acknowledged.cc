// The part of the sender that takes note of what has arrived.
#include <algorithm>

#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/bitmap.hpp"
#include "opal/ft/reliability/sender.hpp"

namespace ft::reliability {

bool Sender::acknowledge_short(Vfrag &v, Run &run, base::Time now)
{
    FragmentRecord &record = v.fragments[0];
    if (v.count() != 1 || record.state != FragmentState::in_flight || record.tries != 1 ||
        v.held_ != 0) {
        return false;
    }
    if (record.path != run.path) {
        settle(run, now);
        Path &path = paths_.use(record.path);
        run = {.path = record.path,
               .windowed = path.congestion != nullptr ? &path : nullptr,
               .tx = record.tx,
               .stamp = record.stamp};
    }
    if (run.windowed != nullptr) {
        // One by one: the round may end with any of them.
        run.windowed->congestion->on_acked(v.length, run.windowed->in_flight - run.bytes, record.tx,
                                           run.windowed->next_tx, now);
    }
    ++run.count;
    run.bytes += v.length;
    run.tx = tx_diff(record.tx, run.tx) > 0 ? record.tx : run.tx;
    run.stamp = later(record.stamp, run.stamp, stamp_of(now)) ? record.stamp : run.stamp;
    record.state = FragmentState::acked;
    v.acked_count_ = 1;
    v.backoff_ = 0;
    v.ack_deadline_ = base::Time::never();
    ring_[v.sequence_ & (ring_.size() - 1)] = nullptr;
    finish(v);
    return true;
}

void Sender::settle(Run &run, base::Time now)
{
    if (run.count == 0) {
        return;
    }
    Path &path = paths_.use(run.path);
    path.in_flight -= run.bytes;
    path.fragments_acked += run.count;
    if (!path.any_acked || tx_diff(run.tx, path.largest_acked_tx) > 0) {
        path.any_acked = true;
        path.largest_acked_tx = run.tx;
    }
    note_heard(run.stamp, now);
    paths_.on_alive(run.path, now);
    paths_.on_acked_bytes(run.path, run.bytes, now);
    counters_.fragments_acknowledged += run.count;
    counters_.bytes_acknowledged += run.bytes;
    counters_.vfrags_completed += run.count;
    window_bytes_ -= run.bytes;
    backoff_ = 0;
    questions_ = 0;
    run = {};
}

bool Sender::acknowledge_whole(Vfrag &v, base::Time now)
{
    if (!v.untouched_ || v.acked_count_ != 0 || v.count() < 2) {
        return false;
    }
    const FragmentRecord &first = v.fragments.front();
    const FragmentRecord &last = v.fragments.back();
    Path &path = paths_.use(first.path);
    if (path.congestion != nullptr && path.congestion->round_ends_with(last.tx)) {
        return false; // what comes behind the end of a round is of the next one
    }
    for (FragmentRecord &record : v.fragments) {
        if (record.path != first.path) {
            return false;
        }
    }
    for (FragmentRecord &record : v.fragments) {
        FT_ASSERT(record.state == FragmentState::in_flight && record.tries == 1);
        record.state = FragmentState::acked;
    }
    if (path.congestion != nullptr) {
        path.congestion->on_acked_run(v.length, v.bytes_of(0), path.in_flight, last.tx,
                                      path.next_tx, now);
    }
    path.fragments_acked += v.count();
    if (!path.any_acked || tx_diff(last.tx, path.largest_acked_tx) > 0) {
        path.any_acked = true;
        path.largest_acked_tx = last.tx;
    }
    note_heard(last.stamp, now);
    paths_.on_alive(first.path, now);
    path.in_flight -= v.length;
    paths_.on_acked_bytes(first.path, v.length, now);
    v.acked_count_ = static_cast<std::uint8_t>(v.count());
    counters_.fragments_acknowledged += v.count();
    counters_.bytes_acknowledged += v.length;
    v.backoff_ = 0;
    backoff_ = 0;
    questions_ = 0;
    complete(v);
    return true;
}

void Sender::acknowledge(Vfrag &v, std::uint64_t mask, base::Time now)
{
    if (mask == base::full_mask(v.count()) && acknowledge_whole(v, now)) [[likely]] {
        return;
    }
    bool progress = false;
    base::for_each_bit(mask, [&](unsigned index) {
        FragmentRecord &record = v.fragments[index];
        if (record.state == FragmentState::acked) {
            return;
        }
        const std::uint32_t bytes = v.bytes_of(index);
        Path &path = paths_.use(record.path);
        if (record.state == FragmentState::in_flight) {
            if (path.congestion != nullptr) {
                if (record.question != 0 && !first_came(record, now)) {
                    path.congestion->on_repaired(bytes, record.question - 1U);
                }
                path.congestion->on_acked(bytes, path.in_flight, record.tx, path.next_tx, now);
            }
            ++path.fragments_acked;
            // Karn: after a retransmission nobody knows which copy came; then only the echo speaks
            // for a path, and no bytes do for its bandwidth.
            if (record.tries != 1) {
                paths_.take_off(record.path, bytes);
            } else {
                path.in_flight -= bytes;
                if (!path.any_acked || tx_diff(record.tx, path.largest_acked_tx) > 0) {
                    path.any_acked = true;
                    path.largest_acked_tx = record.tx;
                }
                note_heard(record.stamp, now);
                paths_.on_alive(record.path, now);
                paths_.on_acked_bytes(record.path, bytes, now);
            }
        } else {
            ++counters_.rare().acknowledged_late;
            v.lost_mask_ &= ~base::bit(index);
            if (v.lost_mask_ == 0) {
                unlink_lost(v);
            }
        }
        record.state = FragmentState::acked;
        ++v.acked_count_;
        ++counters_.fragments_acknowledged;
        counters_.bytes_acknowledged += bytes;
        progress = true;
    });
    if (!progress) {
        return;
    }
    v.backoff_ = 0;
    backoff_ = 0;
    questions_ = 0;
    if (v.acked_count_ == v.count()) {
        complete(v);
    }
}

} // namespace ft::reliability

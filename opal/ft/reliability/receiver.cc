#include "opal/ft/reliability/receiver.hpp"

#include <algorithm>
#include <utility>

#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/bitmap.hpp"

namespace ft::reliability {

Receiver::Open *Receiver::find(std::uint32_t sequence) noexcept
{
    return open_.empty() ? nullptr : &open_[sequence & (open_.size() - 1)];
}

Receiver::Open &Receiver::reach(std::uint32_t sequence)
{
    const std::uint32_t ahead = sequence - cumulative_;
    while (ahead >= open_.size()) {
        std::vector<Open> larger(std::max<std::size_t>(open_.size() * 2, 16));
        for (std::uint32_t s = cumulative_; s != highest_; ++s) {
            larger[s & (larger.size() - 1)] = *find(s);
        }
        open_.swap(larger);
    }
    if (serial_diff(sequence, highest_) >= 0) {
        highest_ = sequence + 1;
    }
    return *find(sequence);
}

namespace {

/// What the program may take from a message's arrival to its answer, which takes the
/// acknowledgement along; and at how many bytes per nanosecond the payload is moved meanwhile.
constexpr std::int64_t answer_ns = 5000;
constexpr std::int64_t moved_per_ns = 8;

} // namespace

Verdict Receiver::classify(const FragHeader &h)
{
    const std::int32_t ahead = serial_diff(h.sequence, cumulative_);
    if (ahead >= static_cast<std::int32_t>(max_window)) {
        ++counters_.rare().outside_window;
        return Verdict::refused;
    }
    bool there = ahead < 0;
    if (!there && !open_.empty() && ahead < static_cast<std::int32_t>(open_.size())) {
        const Open &open = *find(h.sequence);
        if (open.count != 0 && open.count != h.count) {
            ++counters_.rare().malformed;
            return Verdict::refused;
        }
        there = (open.received >> h.index & 1U) != 0;
    }
    if (there && config_.disable_duplicate) {
        return Verdict::fresh;
    }
    if (there) {
        ++counters_.rare().duplicates;
        if (h.has(flag_retransmission)) {
            ++spurious_;
        }
        // Its acknowledgement was lost, or comes too late: either way the sender waits for it now.
        selective_ = true;
        ack_now_ = true;
        return Verdict::duplicate;
    }
    if (h.kind == Kind::ordered && !config_.disable_order) {
        const std::int32_t turn = serial_diff(h.order, next_order_);
        if (turn < 0 || turn >= static_cast<std::int32_t>(max_window)) {
            ++counters_.rare()
                  .malformed; // a new VFRAG with an old order, or one that no window allows
            return Verdict::refused;
        }
        if (turn > 0) {
            const std::size_t bytes = header_bytes + h.upper_bytes + h.payload_bytes;
            if (held_bytes_ + bytes > config_.reorder_bytes && !is_trusted(arrival_)) {
                ++counters_.rare().outside_window; // no room: it will come again
                return Verdict::refused;
            }
            return Verdict::early;
        }
    }
    return Verdict::fresh;
}

void Receiver::mark(const FragHeader &h, base::Time now)
{
    ++counters_.fragments_received;
    counters_.bytes_received += h.payload_bytes;
    const std::int32_t ahead = serial_diff(h.sequence, cumulative_);
    if (ahead < 0) {
        FT_ASSERT(config_.disable_duplicate);
        return;
    }
    if (ahead == 0 && h.count == 1 && highest_ == cumulative_) {
        // The common case: next in line, whole, nothing else open.
        highest_ = ++cumulative_;
        owe_for(arrival_, now);
        return;
    }
    Open &open = reach(h.sequence);
    open.count = h.count;
    open.received |= base::bit(h.index);
    open.broken &= ~base::bit(h.index);
    if (is_trusted(arrival_) && (h.count == 1 || all_trusted_)) {
        advance(); // its sender waits for nothing: all of it came so
        return;
    }
    if (open.received == base::full_mask(open.count)) {
        owe(now);
        if (open.count > 1) {
            ack_now_ = true;
        }
    } else if (owed_ == 0) {
        owe(now); // so that a VFRAG that stays incomplete is reported in the end
    }
    advance();
    selective_ = selective_ || highest_ != cumulative_;
}

void Receiver::advance() noexcept
{
    while (cumulative_ != highest_) {
        Open &open = *find(cumulative_);
        if (open.count == 0 || open.received != base::full_mask(open.count)) {
            return;
        }
        open = Open{};
        ++cumulative_;
    }
}

void Receiver::accept(const FragHeader &h, base::Time now)
{
    mark(h, now);
    if (h.kind == Kind::data && h.count == 1) {
        // A request of the sender's is complete only when this is acknowledged, and its program may
        // wait for that with nothing under way in the other direction.
        ack_at_ = std::min(
            ack_at_, now + base::Duration::from_ns(answer_ns + h.payload_bytes / moved_per_ns));
    }
    if (h.kind == Kind::ordered && h.order == next_order_) {
        ++next_order_;
    }
}

void Receiver::hold(const FragHeader &h, std::span<const std::byte> fragment, base::Time now)
{
    FT_ASSERT(serial_diff(h.order, next_order_) > 0);
    ++counters_.rare().early;
    const std::size_t bytes = header_bytes + h.upper_bytes + h.payload_bytes;
    const auto whole = fragment.first(bytes);
    if (early_ == nullptr) {
        early_ = std::make_unique<Early>();
    }
    const bool inserted =
        early_->try_emplace(h.order, std::vector<std::byte>(whole.begin(), whole.end())).second;
    if (!inserted) {
        ++counters_.rare().malformed; // two VFRAGs claim one place in the order
        return;
    }
    held_bytes_ += bytes;
    mark(h, now);
}

bool Receiver::next_ready(std::vector<std::byte> &fragment)
{
    if (early_ == nullptr) {
        return false;
    }
    const auto found = early_->find(next_order_);
    if (found == early_->end()) {
        return false;
    }
    fragment = std::move(found->second);
    held_bytes_ -= fragment.size();
    early_->erase(found);
    ++next_order_;
    return true;
}

void Receiver::reject_payload(const FragHeader &h)
{
    ++counters_.rare().corrupt_payload;
    const std::int32_t ahead = serial_diff(h.sequence, cumulative_);
    FT_ASSERT(ahead >= 0 || config_.disable_duplicate);
    ack_now_ = true;
    selective_ = true;
    if (ahead < 0) {
        return;
    }
    Open &open = reach(h.sequence);
    open.count = h.count;
    open.broken |= base::bit(h.index);
}

void Receiver::on_arrival(const FragHeader &h, PathId arrival, base::Time now)
{
    note_echo(h, arrival, now);
    if (h.form == Form::brief &&
        (!context_.valid || serial_diff(h.sequence, context_.sequence) > 0 ||
         serial_diff(context_.sequence, highest_) >= 0)) {
        // One that is late must not take the newer one's place. But a context beyond all that has
        // come is half the numbers old.
        context_ = context_of(h);
    }
    if (h.has(flag_ack_wanted)) {
        if (h.kind == Kind::ack && is_trusted(arrival)) {
            // The other end has another opinion of this path, and would ask again and again.
            trusted_ = static_cast<std::uint16_t>(trusted_ & ~(1U << arrival));
            all_trusted_ = false;
        }
        selective_ = true;
        ack_now_ = true;
    }
    if (h.kind != Kind::ordered && h.kind != Kind::data) {
        return; // control fragments have no tx of their own
    }
    if (seen_.size() <= h.path) {
        seen_.resize(h.path + 1U);
    }
    Seen &seen = seen_[h.path];
    if (seen.any && seen.countdown == 0 && h.tx == ((seen.last_tx + 1) & tx_mask)) [[likely]] {
        seen.last_tx = h.tx; // the next one, and none is missed
        return;
    }
    const std::int32_t step = seen.any ? tx_diff(h.tx, seen.last_tx) : 1;
    seen.any = true;
    if (step > 0) {
        seen.last_tx = h.tx;
    }
    if (is_trusted(arrival)) {
        return; // nothing is missing: another one has overtaken it
    }
    if (seen.countdown != 0 && step > 0 && --seen.countdown == 0) {
        ack_now_ = true;
        if (std::exchange(seen.again, false)) {
            seen.countdown = static_cast<std::uint8_t>(config_.reorder_threshold);
        }
    }
    if (step > 1) {
        selective_ = true;
        ack_now_ = true;
        if (seen.countdown == 0) {
            seen.countdown = static_cast<std::uint8_t>(config_.reorder_threshold);
        } else {
            seen.again = true;
        }
    }
}

void Receiver::on_time(base::Time now)
{
    if (owed_ != 0 && now >= ack_at_) {
        ack_now_ = true;
    }
}

void Receiver::fill(AckBody &body) const noexcept
{
    body.spurious = spurious_;
    body.words = 0;
    body.partials = 0;
    const std::uint32_t span = highest_ - cumulative_;
    for (std::uint32_t i = 0; i < span; ++i) {
        const Open &open = open_[(cumulative_ + i) & (open_.size() - 1)];
        if (open.count == 0) {
            continue;
        }
        if (open.received == base::full_mask(open.count)) {
            const unsigned word = i / 64;
            while (body.words <= word) {
                body.whole[body.words++] = 0;
            }
            body.whole[word] |= base::bit(i % 64);
        } else if (body.partials < AckBody::max_partials) {
            body.partial[body.partials++] = {static_cast<std::uint16_t>(i), open.received,
                                             open.broken};
        }
    }
}

void Receiver::forget_broken() noexcept
{
    for (std::uint32_t s = cumulative_; s != highest_; ++s) {
        find(s)->broken = 0;
    }
}

} // namespace ft::reliability

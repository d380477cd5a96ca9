#include "opal/ft/reliability/peer.hpp"

#include <algorithm>
#include <utility>

#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/crc32c.hpp"

namespace ft::reliability {

Peer::Peer(const Config &config, Name self) noexcept
    : config_(config),
      self_(self),
      paths_(config),
      sender_(config, paths_, counters_),
      receiver_(config, counters_)
{
    paths_.counters = &counters_;
}

PathId Peer::add_path(const PathInfo &info, base::Time /*now*/)
{
    lane_ = false;
    const PathId id = paths_.add(info);
    if (id != no_path) {
        receiver_.add_path(id, info.acknowledged);
    }
    return id;
}

void Peer::start_at(std::uint32_t sequence, std::uint32_t order, std::uint32_t tx) noexcept
{
    for (PathId id = 0; id < paths_.size(); ++id) {
        paths_.use(id).next_tx = tx & tx_mask;
    }
    sender_.start_at(sequence, order);
    receiver_.start_at(sequence, order);
}

void Peer::path_error(PathId path, base::Time now)
{
    catch_up();
    lane_ = false;
    const bool believed = !paths_[path].info.acknowledged && paths_[path].state != PathState::gone;
    paths_.on_error(path, now);
    follow_transitions(now);
    if (paths_.all_gone()) {
        become_unreachable();
    } else if (believed) {
        if (put_off_ == nullptr && !make_rare()) {
            become_unreachable(); // nobody could find out what has arrived
            return;
        }
        static_cast<Broken &>(*put_off_) = {.ask_again = now,
                                            .believed_until = sender_.believed_end(paths_[path]),
                                            .any = true,
                                            .known = put_off_->known};
    }
}

void Peer::on_broken(base::Time now)
{
    if (!paths_.any_trusted() || (put_off_ == nullptr && !make_rare())) {
        return; // the other end has another opinion of all paths; or it says so again
    }
    put_off_->known = true;
    if (std::exchange(put_off_->any, true)) {
        return;
    }
    for (PathId id = 0; id < paths_.size(); ++id) {
        if (!paths_[id].info.acknowledged && paths_[id].state != PathState::gone) {
            path_error(id, now);
        }
    }
}

void Peer::look_for_believed(base::Time now)
{
    // An answer that leaves something out may have come before the peer looked for what lay in the
    // path: the last of several does not. Who does not answer is not judged. What was not believed
    // is sent again meanwhile, and is left out until it has come; but a peer may refuse that for
    // what is lost before it.
    Broken &it = *put_off_;
    const bool all_came = serial_diff(sender_.told(), it.believed_until) >= 0;
    const bool rest_came = serial_diff(sender_.first_unacknowledged(), it.believed_until) >= 0;
    const std::uint8_t answers = rest_came ? 3 : 32;
    if (it.asked > answers) {
        it.asked = 0;
    }
    const bool heard = it.asked != 0 && silent_since_ > it.ask_again - config_.rto_max;
    if ((all_came && it.known) || (it.asked == answers && heard)) {
        it.ask_again = base::Time::never();
        if (!all_came) {
            it.lost = it.believed_until - sender_.told();
            become_unreachable();
        }
        return;
    }
    it.asked = it.asked == 0 || heard ? static_cast<std::uint8_t>(it.asked + 1) : it.asked;
    sender_.ask();
    it.ask_again = now + config_.rto_max;
}

void Peer::path_replaced(PathId path, base::Time now)
{
    catch_up();
    lane_ = false;
    paths_.on_error(path, now);
    follow_transitions(now);
    path_revived(path, now);
}

void Peer::path_not_connected(PathId path, base::Time now)
{
    catch_up();
    lane_ = false;
    sender_.on_path_gone(path, now);
}

void Peer::path_revived(PathId path, base::Time now)
{
    lane_ = false;
    paths_.revive(path, now);
    stop_resting(now);
}

void Peer::note_put_off()
{
    lane_ = false;
    FragHeader h;
    h.flags = put_off_->flags;
    h.cumulative = put_off_->cumulative;
    h.echo_timestamp = put_off_->echo_timestamp;
    h.echo_path = put_off_->echo_path;
    h.echo_delay_us = put_off_->echo_delay_us;
    const base::Time came = std::exchange(put_off_->at, base::Time::never());
    sender_.on_ack(h, nullptr, came);
}

void Peer::stop_resting(base::Time now) noexcept
{
    if (resting_) [[unlikely]] {
        resting_ = false;
        paths_.stop_resting(now);
    }
}

void Peer::rest_if_silent(base::Time now) noexcept
{
    // A peer that may be lost, and that nobody needs, must not be probed for ever.
    const base::Time since = std::max(silent_since_, paths_.doubted_at());
    if (!resting_ && sender_.idle() && now - since >= config_.give_up) {
        resting_ = true;
        paths_.rest();
    }
}

void Peer::become_unreachable()
{
    lane_ = false;
    if (!unreachable_) {
        unreachable_ = true;
        replies_.clear();
        sender_.fail_all();
    }
}

bool Peer::has_room(std::uint64_t bytes, bool ordered) const noexcept
{
    return !unreachable_ && sender_.has_room(bytes, ordered);
}

void Peer::submit(Vfrag &vfrag, base::Time now)
{
    catch_up();
    lane_ = false;
    FT_ASSERT(!unreachable_);
    if (sender_.idle()) {
        silent_since_ = std::max(silent_since_, now);
        stop_resting(now);
    }
    sender_.submit(vfrag, now);
}

bool Peer::next_transmit(Transmit &t, base::Time now)
{
    catch_up();
    if (unreachable_) {
        return false;
    }
    t.header = FragHeader{};
    paths_.keep_pace(now);
    if (!replies_.empty()) {
        const Reply &reply = replies_.front();
        t.what = Transmit::What::probe_reply;
        t.nonce = reply.nonce;
        t.path = paths_.pick_control(reply.path, counters_.rare().probes_answered);
        if (t.path != no_path) {
            t.header.kind = Kind::probe_reply;
            t.header.sequence = reply.nonce;
            fill_common(t.header, reply.their_path, now);
            return true;
        }
    }
    t.path = paths_.probe_wanted();
    if (t.path != no_path) {
        t.what = Transmit::What::probe;
        t.nonce = PathSet::nonce_at(now);
        t.header.kind = Kind::probe;
        t.header.sequence = t.nonce;
        fill_common(t.header, t.path, now);
        return true;
    }
    bool asks = sender_.question_due();
    const bool answers = receiver_.ack_due() || (flush_ && receiver_.ack_owed());
    if (asks || answers) {
        t.path = asks ? paths_.pick_control(sender_.question_path(), counters_.acks_sent, true)
                      : no_path;
        if (t.path == no_path && answers) {
            asks = false; // an answer may go where no question may
            t.path = paths_.pick_control(receiver_.answer_path(), counters_.acks_sent);
        }
        if (t.path != no_path) {
            t.what = Transmit::What::ack;
            t.header.kind = Kind::ack;
            t.header.flags = static_cast<std::uint8_t>(
                (asks ? flag_ack_wanted : 0U) |
                (put_off_ != nullptr && put_off_->any ? flag_broken : 0U));
            fill_common(t.header, t.path, now);
            return true;
        }
    }
    if (!sender_.choose(t.choice)) {
        if (paths_.size() != 1 && !sender_.nothing_to_send()) {
            paths_.note_full();
        }
        return false;
    }
    const Vfrag &v = *t.choice.vfrag;
    t.what = Transmit::What::fragment;
    t.path = t.choice.path;
    t.header.kind = v.ordered ? Kind::ordered : Kind::data;
    t.header.flags = t.choice.retransmission ? flag_retransmission : std::uint8_t{0};
    t.header.index = t.choice.index;
    t.header.count = static_cast<std::uint8_t>(v.count());
    t.header.sequence = v.sequence();
    t.header.tx = paths_[t.path].next_tx;
    t.header.order = v.order();
    t.header.payload_bytes = v.bytes_of(t.choice.index);
    const Path &path = paths_[t.path];
    if (path.congestion != nullptr &&
        path.congestion->wants_ack(path.in_flight, t.header.payload_bytes)) {
        t.header.flags |= flag_ack_wanted;
    }
    if (path.info.acknowledged ? paths_.fills(t.path, t.header.payload_bytes) : v.wants_answer) {
        t.header.flags |= flag_ack_wanted; // nothing more goes this way until it is answered
    }
    if (t.choice.retransmission && v.fragments[t.choice.index].reason == LossReason::timeout) {
        t.header.flags |= flag_ack_wanted; // it is there to learn what else is missing
    }
    fill_common(t.header, t.path, now);
    return true;
}

std::size_t Peer::write_control(const Transmit &t, std::span<std::byte> out) const noexcept
{
    FT_ASSERT(t.what != Transmit::What::fragment && out.size() >= max_control_bytes);
    FragHeader h = t.header;
    if (t.what == Transmit::What::ack) {
        AckBody body;
        receiver_.fill(body);
        const auto payload = out.subspan(header_bytes);
        h.payload_bytes = static_cast<std::uint32_t>(write_ack(body, payload));
        // Always, whatever the paths' level: a wrong acknowledgement would lose data for good.
        h.flags |= flag_payload_checksummed;
        h.payload_crc = base::crc32c(payload.first(h.payload_bytes));
    }
    write_header(h, out);
    const std::size_t bytes = header_bytes + h.payload_bytes;
    if (config_.seals_headers()) {
        seal(out.first(bytes));
    }
    return bytes;
}

void Peer::sent(const Transmit &t, base::Time now, bool complete)
{
    lane_ = false;
    switch (t.what) {
    case Transmit::What::fragment:
        if (Path &path = paths_.use(t.path); path.congestion != nullptr) {
            path.congestion->on_sent(t.header.payload_bytes, t.header.tx,
                                     t.header.has(flag_ack_wanted), now);
        }
        if ((t.header.has(flag_ack_wanted) || !paths_[t.path].info.acknowledged) &&
            paths_.fills(t.path, t.header.payload_bytes)) {
            paths_.note_filled(t.path, now);
        }
        sender_.sent(t.choice, t.header.timestamp, complete, now);
        counters_.fragments_checksummed += t.header.has(flag_payload_checksummed) ? 1 : 0;
        took_along();
        break;
    case Transmit::What::ack:
        ++counters_.acks_sent;
        if (t.header.has(flag_ack_wanted)) {
            ++counters_.rare().questions_sent;
            sender_.question_sent();
        }
        receiver_.acknowledged(true);
        flush_ = false;
        break;
    case Transmit::What::probe:
        paths_.on_probe_sent(t.path, t.nonce, now);
        break;
    case Transmit::What::probe_reply:
        FT_ASSERT(!replies_.empty());
        replies_.erase(replies_.begin());
        ++counters_.rare().probes_answered;
        break;
    }
}

base::Time Peer::kept(Vfrag &vfrag, PathId path, base::Time now)
{
    lane_ = false;
    sender_.kept(vfrag, path, now);
    return vfrag.watchdog_deadline();
}

unsigned Peer::run(const Transmit &t, base::Time now) const noexcept
{
    // With several paths each fragment chooses anew. One that takes an acknowledgement along, or
    // asks for one, goes by itself.
    const Path &path = paths_[t.path];
    const unsigned left = sender_.run(t.choice);
    if (left < 2 || paths_.size() != 1 || path.congestion == nullptr ||
        !receiver_.tells_nothing() || t.header.has(flag_ack_wanted)) {
        return 1;
    }
    const std::uint64_t allowed =
        path.congestion->run(path.in_flight, t.choice.vfrag->fragment_bytes, now);
    return static_cast<unsigned>(std::clamp<std::uint64_t>(allowed, 1, left));
}

void Peer::sent_run(const Transmit &t, unsigned count, base::Time now)
{
    if (count == 1) {
        sent(t, now, true);
        return;
    }
    lane_ = false;
    const Vfrag &v = *t.choice.vfrag;
    paths_.use(t.path).congestion->on_sent_run(
        count, v.fragment_bytes, v.bytes_of(t.choice.index + count - 1), t.header.tx, now);
    sender_.sent_run(t.choice, count, t.header.timestamp, now);
    counters_.fragments_checksummed += t.header.has(flag_payload_checksummed) ? count : 0;
    took_along();
}

void Peer::blocked(PathId path) noexcept
{
    lane_ = false;
    paths_.block(path, !sender_.nothing_to_send());
}

void Peer::unblock() noexcept
{
    paths_.unblock();
}

void Peer::locally_complete(Vfrag &vfrag, unsigned index, PathId path, base::Time sent_at,
                            base::Time now, bool carried)
{
    lane_ = false;
    if (carried && !paths_[path].info.acknowledged) {
        silent_since_ = std::max(silent_since_, now); // nothing else may tell that it moves
        last_look_ = base::Time::never();
    }
    sender_.locally_complete(vfrag, index, path, sent_at, now, carried);
}

void Peer::heard(const FragHeader &h, PathId arrival, base::Time now)
{
    catch_up();
    lane_ = false;
    silent_since_ = std::max(silent_since_, now);
    stop_resting(now);
    last_look_ = base::Time::never();
    if (h.kind != Kind::probe_reply) { // whose path number is ours, not the sender's
        receiver_.on_arrival(h, arrival, now);
    }
}

Verdict Peer::on_fragment(const FragHeader &h, PathId arrival, base::Time now)
{
    if (unreachable_ || (h.kind != Kind::ordered && h.kind != Kind::data)) {
        ++counters_.rare().outside_window;
        return Verdict::refused;
    }
    heard(h, arrival, now);
    sender_.on_ack(h, nullptr, now);
    return receiver_.classify(h);
}

void Peer::on_control(const FragHeader &h, std::span<const std::byte> fragment, PathId arrival,
                      base::Time now)
{
    if (unreachable_) {
        return;
    }
    heard(h, arrival, now);
    switch (h.kind) {
    case Kind::ack: {
        ++counters_.acks_received;
        if (h.has(flag_broken)) [[unlikely]] {
            on_broken(now);
        }
        const auto payload = payload_of(h, fragment);
        AckBody body;
        if (!h.has(flag_payload_checksummed) || !payload_is_whole(h, payload)) {
            ++counters_.rare().corrupt_payload;
            sender_.on_ack(h, nullptr, now); // the header was checked by itself
        } else if (!parse_ack(payload, body)) {
            ++counters_.rare().malformed;
        } else {
            sender_.on_ack(h, &body, now);
        }
        break;
    }
    case Kind::probe:
        sender_.on_ack(h, nullptr, now);
        std::erase_if(replies_, [&](const Reply &reply) { return reply.their_path == h.path; });
        replies_.push_back({arrival, h.path, h.sequence});
        break;
    case Kind::probe_reply:
        sender_.on_ack(h, nullptr, now);
        if (h.path < paths_.size()) {
            paths_.on_probe_reply(h.path, h.sequence, now);
        } else {
            ++counters_.rare().malformed;
        }
        break;
    case Kind::ordered:
    case Kind::data:
        ++counters_.rare().malformed;
        break;
    }
    follow_transitions(now);
}

void Peer::follow_transitions(base::Time now)
{
    for (; events_followed_ < paths_.events.size(); ++events_followed_) {
        const PathEvent event = paths_.events[events_followed_];
        if (event.to == PathState::gone ||
            (event.to == PathState::down && event.from == PathState::suspect)) {
            sender_.on_path_gone(event.path, now);
        }
    }
}

void Peer::on_time(base::Time now)
{
    catch_up();
    lane_ = false;
    if (unreachable_) {
        return;
    }
    rest_if_silent(now);
    paths_.on_time(now);
    sender_.on_time(now);
    receiver_.on_time(now);
    follow_transitions(now);
    if (now >= ask_again()) {
        look_for_believed(now);
    }
    if (sender_.idle() || now < silent_since_ + config_.give_up) {
        last_look_ = base::Time::never();
    } else if (last_look_.is_never()) {
        // We may have been away ourselves, and the answer may lie in a BTL: look there once more.
        last_look_ = now + config_.rto_max;
    } else if (now >= last_look_) {
        become_unreachable();
    }
}

base::Time Peer::next_deadline() const noexcept
{
    if (unreachable_) {
        return base::Time::never();
    }
    base::Time earliest = std::min(paths_.next_deadline(), sender_.next_deadline());
    earliest = std::min({earliest, answer_deadline(), ask_again()});
    if (!sender_.idle()) {
        earliest = std::min(earliest,
                            last_look_.is_never() ? silent_since_ + config_.give_up : last_look_);
    }
    return earliest;
}

bool Peer::next_event(PathEvent &event)
{
    if (events_told_ == paths_.events.size()) {
        paths_.events.clear();
        events_told_ = 0;
        events_followed_ = 0;
        return false;
    }
    event = paths_.events[events_told_++];
    return true;
}

} // namespace ft::reliability

/// \file
/// Everything this process keeps about one peer: the two halves, the paths, one deadline. This is
/// the interface of the reliability engine.
///
/// The layer above calls in with the time and what happened, then drains what came of it:
///   - `next_transmit` until false: hand each to its path's BTL and say `sent` (or `blocked`, or
///   `path_error`);
///   - `next_finished` until nullptr: VFRAGs acknowledged, or failed when the peer is unreachable;
///   - `next_ready` until false, after an ordered fragment was accepted;
///   - `next_event` until false: path transitions, for logs and statistics;
/// and calls `on_time` no earlier than `next_deadline`. None of the calls calls back, so all may be
/// made from a BTL's callback; transmitting is best left to the progress function.
///
/// Not synchronised: one lock per peer above it. Deterministic: same calls, same results. Source:
/// PROTOCOL.md.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "opal/ft/reliability/receiver.hpp"
#include "opal/ft/reliability/sender.hpp"

namespace ft::reliability {

/// Something that wants to go out over a path.
struct Transmit {
    enum class What : std::uint8_t { fragment, ack, probe, probe_reply };
    What what = What::fragment;
    PathId path = no_path;
    Choice choice;           ///< for a fragment
    std::uint32_t nonce = 0; ///< for probe and probe reply
    FragHeader header; ///< filled for a fragment, but for upper_bytes, payload_crc and its flag,
                       ///< which the layer above knows
};

class Peer {
  public:
    /// \param self this process's name, written into every header
    /// \param config must outlive the peer
    Peer(const Config &config, Name self) noexcept;
    Peer(const Peer &) = delete;
    Peer &operator=(const Peer &) = delete;

    /// So many paths are going to be added: no memory is taken for more.
    void expect_paths(std::size_t count) { paths_.expect(count); }
    /// \return the path's number, or no_path when max_paths exist
    PathId add_path(const PathInfo &info, base::Time now);
    /// The path's BTL reported an error: it takes nothing more. What it holds may or may not be
    /// completed locally later; both are fine.
    void path_error(PathId path, base::Time now);
    /// The path's transport broke and a fresh one stands in for it: what it carried is lost, and
    /// the path is probed. Unlike after path_error the peer stays reachable though it be the only
    /// path.
    void path_replaced(PathId path, base::Time now);
    /// An attempt to connect the path's transport, which never was connected, came to nothing, and
    /// there will be another: what waited for it is lost, and nothing is held against the path.
    void path_not_connected(PathId path, base::Time now);
    /// The path has a fresh transport after an error.
    void path_revived(PathId path, base::Time now);

    [[nodiscard]] bool has_room(std::uint64_t bytes, bool ordered) const noexcept;
    /// Largest payload of a fragment that every path to this peer can carry, at most
    /// Config::fragment_bytes. 0 when there is no path.
    [[nodiscard]] std::uint32_t fragment_bytes() const noexcept
    {
        return paths_.fragment_limit(config_.fragment_bytes);
    }
    /// \pre has_room(vfrag.length, vfrag.ordered), not unreachable
    void submit(Vfrag &vfrag, base::Time now);

    /// The short way for an ordered VFRAG that was not submitted, when nothing waits to go out
    /// before it. \return the path that it would take now, no_path: submit it
    [[nodiscard, gnu::always_inline]] PathId express_path(std::uint64_t bytes,
                                                          base::Time now) noexcept
    {
        // What waits to be handed back does not stand before it.
        if (unreachable_ || resting_ || !replies_.empty() || answer_due() ||
            !sender_.nothing_to_send() || !paths_.calm()) {
            return no_path;
        }
        paths_.keep_pace(now);
        const PathId path = paths_.pick(bytes, no_path);
        if (path == no_path || paths_.fills(path, bytes)) {
            return no_path;
        }
        // One with a congestion window may want to be asked for an acknowledgement.
        const Congestion *congestion = paths_[path].congestion.get();
        return congestion == nullptr || !congestion->wants_ack(paths_[path].in_flight, bytes)
                   ? path
                   : no_path;
    }
    /// The header with which it would go, but for upper_bytes, payload_crc and its flag. Nothing
    /// has changed yet: once the BTL took it, say `sent_express` (and `kept` if it is not done with
    /// it), or submit it after all. \param best the shortest form that the layer above can give it
    /// \return with the form that it is to have, which may be the full one whatever was asked for
    [[nodiscard, gnu::always_inline]] FragHeader
    express_header(const Vfrag &vfrag, PathId path, base::Time now,
                   Form best = Form::full) const noexcept
    {
        FragHeader h;
        h.form = best;
        h.sequence = sender_.next_sequence();
        h.tx = paths_[path].next_tx;
        h.order = sender_.next_order();
        h.payload_bytes = static_cast<std::uint32_t>(vfrag.length);
        fill_origin(h, path, now);
        const bool waits = receiver_.may_wait(now);
        if (best == Form::compressed) {
            if ((waits || receiver_.tells_nothing()) && foretold(h)) {
                return h;
            }
            h.form = Form::brief;
        }
        if (h.form == Form::brief && displaces_context(path)) [[unlikely]] {
            h.form = Form::full;
        }
        if (!waits) {
            receiver_.fill(h, now);
        }
        return h;
    }
    /// \return when on_time has to be called at the latest, as far as this VFRAG is concerned.
    /// Over a path that is not acknowledged the VFRAG is the caller's again when this returns, and
    /// `next_finished` does not tell of it.
    /// In its callers, like the two before it: the header then need not be cleared and read back.
    [[gnu::always_inline]] base::Time sent_express(Vfrag &vfrag, PathId path,
                                                   const FragHeader &header, base::Time now)
    {
        counters_.fragments_checksummed += header.has(flag_payload_checksummed) ? 1 : 0;
        if (header.has(flag_ack)) {
            took_along();
        }
        if (header.form == Form::brief) {
            context_ = context_of(header);
            context_stamp_ = header.timestamp;
        }
        lane_ = header.form != Form::full && !flush_ && paths_[path].congestion == nullptr;
        lane_path_ = path;
        lane_bytes_ = not_looked;
        return sent_express(vfrag, path, header.timestamp, now);
    }

    /// Right after that, over a path that is acknowledged: the BTL took it, but is not done with it
    /// yet. A `locally_complete` follows. \return when on_time has to be called for that
    base::Time kept(Vfrag &vfrag, PathId path, base::Time now);

    /// The lane: one short message behind the other, in the compressed form, over the same path.
    /// While nothing else happens than that they are sent, and that such messages arrive, nearly
    /// all that express_path and express_header look at stays as it was for the last one, and is
    /// not looked at again. \return whether it is open for so many bytes
    [[nodiscard, gnu::always_inline]] bool lane_takes(std::uint64_t bytes, base::Time now) noexcept
    {
        if (!lane_ || !fresh(stamp_of(now))) {
            return false;
        }
        if (lane_bytes_ == not_looked) {
            lane_bytes_ = paths_.preferred_until(lane_path_);
        }
        const Path &path = paths_[lane_path_];
        return path.in_flight + bytes < lane_bytes_ &&
               (path.info.acknowledged ? !sender_.idle() : closely_behind()) &&
               sender_.has_room(bytes, true) &&
               (receiver_.tells_nothing() || receiver_.may_wait(now));
    }
    /// The numbers of the next fragment on it. As after express_header nothing has changed yet.
    [[nodiscard]] Numbers lane_numbers() const noexcept
    {
        return {sender_.next_sequence(), sender_.next_order(), paths_[lane_path_].next_tx,
                lane_path_};
    }
    /// The path that they take.
    [[nodiscard]] PathId lane_path() const noexcept { return lane_path_; }
    /// The BTL took it, and is done with it. \param summed its payload was
    /// \return as sent_express
    [[gnu::always_inline]] base::Time sent_on_lane(Vfrag &vfrag, bool summed, base::Time now)
    {
        counters_.fragments_checksummed += summed ? 1 : 0;
        if (!paths_[lane_path_].info.acknowledged) {
            sender_.submit_trusted(vfrag.length, lane_path_);
            return base::Time::never();
        }
        sender_.submit_sent(vfrag, lane_path_, stamp_of(now), now);
        return std::min(vfrag.ack_deadline(), sender_.question_at());
    }

    /// What goes out next; the same again until it was answered with sent, blocked or path_error.
    [[nodiscard]] bool next_transmit(Transmit &transmit, base::Time now);
    /// For ack, probe and probe reply: the whole fragment, sealed. \return its length; `out` must
    /// hold max_control_bytes.
    std::size_t write_control(const Transmit &transmit, std::span<std::byte> out) const noexcept;
    /// The BTL took it. \param complete true if it is done with the descriptor already; if not, a
    /// `locally_complete` follows for a fragment.
    void sent(const Transmit &transmit, base::Time now, bool complete = false);
    /// How many fragments `next_transmit` would choose one behind the other now, if nothing else
    /// happened between: the one in `transmit` and those that follow it in its VFRAG, over the same
    /// path, with the same header but for index, tx and payload_bytes. For a BTL that is done with
    /// what it takes at once, so that a run of them costs little more than one. \return at least 1
    [[nodiscard]] unsigned run(const Transmit &transmit, base::Time now) const noexcept;
    /// The BTL took `count` of them, and is done with them. \pre 1 <= count <= run(transmit)
    void sent_run(const Transmit &transmit, unsigned count, base::Time now);
    /// The BTL had no room: the path is passed over until unblock.
    void blocked(PathId path) noexcept;
    /// Room may have come back on every path. Call at each progress.
    void unblock() noexcept;
    /// A descriptor of fragment `index` came back from `path`, to which it was handed at `sent_at`.
    /// Once per `sent`, also for a path that is gone; but never for a VFRAG that was handed back
    /// already (see Vfrag::descriptors_held): then say descriptor_released.
    /// \param carried false when the BTL says that it failed
    void locally_complete(Vfrag &vfrag, unsigned index, PathId path, base::Time sent_at,
                          base::Time now, bool carried = true);

    void descriptor_released(PathId path, base::Time sent_at) noexcept
    {
        paths_.release(path, sent_at);
    }

    /// For an ordered or data fragment whose header parsed ok. \param arrival the path it came by,
    /// no_path if unknown
    [[nodiscard]] Verdict on_fragment(const FragHeader &header, PathId arrival, base::Time now);
    void accept(const FragHeader &header, base::Time now)
    {
        lane_ = false;
        receiver_.accept(header, now);
    }
    /// Whether an ordered fragment is the very next of all. With its payload whole and no flags
    /// that ask for anything `accept_next` may then do what on_fragment and accept do.
    [[nodiscard]] bool is_next(const FragHeader &header) const noexcept
    {
        return !unreachable_ && !resting_ && receiver_.is_next(header);
    }
    /// For a fragment in the compressed form.
    [[nodiscard]] Foretold foretold() const noexcept { return receiver_.foretold(); }
    /// The same, when it is the next of all, and none of the others is looked for. \return false
    /// when it is not known what that would be
    [[nodiscard]] bool awaits(Numbers &numbers) const noexcept
    {
        return !unreachable_ && !resting_ && receiver_.awaits(numbers);
    }
    /// \pre awaits, and a fragment with these numbers came, its payload whole
    void accept_awaited(const Numbers &numbers, std::uint32_t bytes, PathId arrival,
                        base::Time now) noexcept
    {
        silent_since_ = std::max(silent_since_, now);
        last_look_ = base::Time::never();
        receiver_.accept_awaited(numbers, bytes, arrival, now);
    }
    /// What it acknowledges is put off over a path with a congestion window while nothing of ours
    /// waits for that: it is noted by the next call that needs it, on_time at the latest.
    /// \pre is_next \return whether something of ours may have been acknowledged, and was noted
    bool accept_next(const FragHeader &header, PathId arrival, base::Time now)
    {
        silent_since_ = std::max(silent_since_, now);
        last_look_ = base::Time::never();
        bool noted = false;
        if (sender_.concerned_by(header)) {
            lane_ = false;
            noted = !put_off(header, arrival, now);
            if (noted) {
                const FragHeader kept = header; // so that the caller's may stay in registers
                sender_.on_ack(kept, nullptr, now);
            }
        }
        receiver_.accept_next(header, arrival, now);
        return noted;
    }
    /// True when the fragment that was just accepted asks for a pass at once.
    [[nodiscard]] bool answer_due() const noexcept
    {
        return receiver_.ack_due() || (flush_ && receiver_.ack_owed());
    }
    void hold(const FragHeader &header, std::span<const std::byte> fragment, base::Time now)
    {
        lane_ = false;
        receiver_.hold(header, fragment, now);
    }
    void reject_payload(const FragHeader &header)
    {
        lane_ = false;
        receiver_.reject_payload(header);
    }
    [[nodiscard]] bool next_ready(std::vector<std::byte> &fragment)
    {
        return receiver_.next_ready(fragment);
    }
    [[nodiscard]] bool holds_early() const noexcept { return receiver_.holds_early(); }
    /// For an ack, probe or probe reply whose header parsed ok, `fragment` from the header on. A
    /// broken one is counted and dropped.
    void on_control(const FragHeader &header, std::span<const std::byte> fragment, PathId arrival,
                    base::Time now);

    void on_time(base::Time now);
    /// The earliest moment at which on_time would do something; Time::never() if none.
    [[nodiscard]] base::Time next_deadline() const noexcept;
    [[nodiscard]] Vfrag *next_finished() noexcept { return sender_.next_finished(); }
    [[nodiscard]] bool next_event(PathEvent &event);
    /// Nothing leads to the peer any more, or it was silent for `give_up` with data outstanding.
    /// Never taken back.
    [[nodiscard]] bool unreachable() const noexcept { return unreachable_; }
    /// How many VFRAGs are lost, since a path that is not acknowledged broke; the peer is
    /// unreachable then.
    [[nodiscard]] std::uint32_t lost_for_good() const noexcept
    {
        return put_off_ == nullptr ? 0 : put_off_->lost;
    }
    /// The runtime says that the peer is dead: everything fails now.
    void declare_dead()
    {
        catch_up();
        become_unreachable();
    }
    /// True when nothing is unacknowledged or to be handed back, and no acknowledgement is owed:
    /// time may pass unnoticed until something is submitted or arrives.
    [[nodiscard]] bool quiet() const noexcept
    {
        return sender_.settled() &&
               (unreachable() || (!receiver_.ack_owed() && ask_again().is_never()));
    }
    /// True when next_transmit, next_finished and next_event have nothing, and unblock would change
    /// nothing: until something is submitted or arrives, or next_deadline, no call is needed.
    [[nodiscard]] bool calm() const noexcept
    {
        return replies_.empty() && !answer_due() && sender_.calm() && paths_.calm();
    }
    /// The earliest moment at which on_time would do something about a fragment that has just been
    /// accepted; about what was sent before, `next_deadline` has told.
    [[nodiscard]] base::Time answer_deadline() const noexcept
    {
        return std::min(receiver_.next_deadline(), put_off_until());
    }
    /// True when no path is probed any more, since nobody needs the peer and it was silent for
    /// `give_up`; until something is submitted or heard.
    [[nodiscard]] bool resting() const noexcept { return resting_; }
    /// True when nothing of ours is unacknowledged.
    [[nodiscard]] bool drained() const noexcept { return sender_.idle(); }
    /// True while an ordered VFRAG waits that was never handed to a path.
    [[nodiscard]] bool has_unsent_ordered() const noexcept { return sender_.has_unsent_ordered(); }
    [[nodiscard]] bool has_unsent_ordered(std::uint32_t order) const noexcept
    {
        return sender_.has_unsent_ordered(order);
    }
    /// Sends what acknowledgement is owed now, instead of waiting for company.
    void flush_acks() noexcept
    {
        flush_ = true;
        lane_ = false;
    }

    /// Memory that it has allocated beside itself.
    [[nodiscard]] std::size_t allocated_bytes() const noexcept
    {
        return paths_.allocated_bytes() + sender_.allocated_bytes() + receiver_.allocated_bytes() +
               counters_.allocated_bytes() + replies_.capacity() * sizeof(Reply) +
               (put_off_ == nullptr ? 0 : sizeof(Rare));
    }
    [[nodiscard]] Counters counters() const noexcept { return counters_.all(); }
    /// Of those, what was sent or accepted so far.
    [[nodiscard]] std::uint64_t fragments_moved() const noexcept
    {
        return counters_.fragments_sent + counters_.fragments_received;
    }
    /// To count what the layer above drops.
    [[nodiscard]] RareCounters &drops() noexcept { return counters_.rare(); }
    [[nodiscard]] const PathSet &paths() const noexcept { return paths_; }
    [[nodiscard]] const Sender &sender() const noexcept { return sender_; }
    [[nodiscard]] const Receiver &receiver() const noexcept { return receiver_; }
    /// Numbering starts here, for both halves (tests of the wrap-around). Before any traffic only,
    /// and equal at both ends. \param tx for the paths that were added already
    void start_at(std::uint32_t sequence, std::uint32_t order, std::uint32_t tx = 0) noexcept;

  private:
    /// A probe of the peer's that wants its answer.
    struct Reply {
        PathId path = no_path;       ///< ours, by which it came
        std::uint8_t their_path = 0; ///< theirs, to be named in the answer
        std::uint32_t nonce = 0;
    };
    /// What a fragment acknowledged that went to its receive before that was noted.
    struct PutOff {
        base::Time at = base::Time::never(); ///< when it came; never: there is none
        std::uint32_t cumulative = 0;
        std::uint32_t echo_timestamp = 0;
        std::uint16_t echo_delay_us = 0;
        std::uint8_t echo_path = 0;
        std::uint8_t flags = 0;
    };
    /// What became of what a path had that was not acknowledged and broke.
    struct Broken {
        base::Time ask_again = base::Time::never();
        std::uint32_t believed_until = 0; ///< the first VFRAG that it was not given
        std::uint32_t lost = 0;
        std::uint8_t asked = 0;
        bool any = false;   ///< such a path did break: each ack says so
        bool known = false; ///< the peer says so, too
    };
    /// What few peers need.
    struct Rare : PutOff, Broken {};
    /// Whoever waits for a message has it, and has sent its answer, before this is over; then it
    /// waits again, and has the time.
    static constexpr auto put_off_for = base::Duration::from_us(1);
    [[nodiscard]] base::Time put_off_until() const noexcept
    {
        return something_put_off() ? put_off_->at + put_off_for : base::Time::never();
    }
    /// \return false when it has to be noted at once
    [[nodiscard]] bool put_off(const FragHeader &h, PathId arrival, base::Time now)
    {
        catch_up();
        if (arrival == no_path || paths_[arrival].congestion == nullptr || !sender_.calm()) {
            return false;
        }
        if (put_off_ == nullptr && !make_rare()) [[unlikely]] {
            return false;
        }
        static_cast<PutOff &>(*put_off_) = {
            now, h.cumulative, h.echo_timestamp, h.echo_delay_us, h.echo_path, h.flags};
        return true;
    }
    /// \return false when there is no memory
    bool make_rare() noexcept
    {
        put_off_.reset(new (std::nothrow) Rare);
        return put_off_ != nullptr;
    }
    [[nodiscard]] bool something_put_off() const noexcept
    {
        return put_off_ != nullptr && !put_off_->at.is_never();
    }
    void catch_up()
    {
        if (something_put_off()) [[unlikely]] {
            note_put_off();
        }
    }
    void note_put_off();
    /// Whether the peer can tell the numbers of this header from the newest brief one, which is not
    /// old: a lost one must not cost more than what follows it closely, and it has the timestamp.
    [[nodiscard]] bool foretold(const FragHeader &h) const noexcept
    {
        const std::uint32_t ahead = h.sequence - context_.sequence;
        return context_.valid && fresh(h.timestamp) && h.order - context_.order == ahead &&
               h.tx == ((context_.tx + ahead) & tx_mask) && h.path == context_.path &&
               (paths_[h.path].info.acknowledged || closely_behind());
    }
    /// Whether a brief fragment over this path might take the place of a context that the peer
    /// still needs: what comes over another path overtakes what lies in this one, and what is
    /// compressed there would be dropped, never to come again over a path that is not acknowledged.
    [[nodiscard]] bool displaces_context(PathId path) const noexcept
    {
        return paths_.any_trusted() &&
               (context_.valid ? path != context_.path : paths_[path].info.acknowledged);
    }
    /// What is further from what the peer waits for than the compressed form can tell is dropped:
    /// over a path that is not acknowledged it would be lost.
    [[nodiscard]] bool closely_behind() const noexcept
    {
        return sender_.window_vfrags() < detail::number_count;
    }
    [[nodiscard]] bool fresh(std::uint32_t stamp) const noexcept
    {
        constexpr std::uint32_t lasting = 256; // 16 us, as long as round trips need no other sample
        return stamp - context_stamp_ < lasting;
    }
    void heard(const FragHeader &header, PathId arrival, base::Time now);
    void fill_origin(FragHeader &h, PathId path, base::Time now) const noexcept
    {
        h.source = self_;
        h.path = path;
        h.timestamp = stamp_of(now);
    }
    void fill_common(FragHeader &h, PathId path, base::Time now) const noexcept
    {
        fill_origin(h, path, now);
        receiver_.fill(h, now);
    }
    /// A fragment went out, and with it what acknowledgement was owed.
    void took_along() noexcept
    {
        if (receiver_.tells_nothing()) { // as in the midst of a burst
            return;
        }
        if (receiver_.ack_owed()) {
            ++counters_.acks_piggybacked;
        }
        receiver_.acknowledged(false);
    }
    [[gnu::always_inline]] base::Time sent_express(Vfrag &v, PathId path, std::uint32_t stamp,
                                                   base::Time now)
    {
        Path &way = paths_.use(path);
        if (!way.info.acknowledged) {
            sender_.submit_trusted(v.length, path);
            return base::Time::never();
        }
        const bool was_idle = sender_.idle();
        if (was_idle) {
            silent_since_ = std::max(silent_since_, now);
        }
        if (Congestion *congestion = way.congestion.get(); congestion != nullptr) {
            congestion->on_sent(v.length, way.next_tx, false, now);
        }
        sender_.submit_sent(v, path, stamp, now);
        if (paths_.size() != 1) {
            paths_.on_sent_bytes(path, now);
        }
        const base::Time first = std::min(v.ack_deadline(), sender_.question_at());
        return was_idle ? std::min(first, silent_since_ + config_.give_up) : first;
    }
    void follow_transitions(base::Time now);
    void rest_if_silent(base::Time now) noexcept;
    void stop_resting(base::Time now) noexcept;
    void become_unreachable();
    /// After a path that was not acknowledged broke: what it was given has arrived, or it is known
    /// to be lost.
    void look_for_believed(base::Time now);
    [[nodiscard]] base::Time ask_again() const noexcept
    {
        return put_off_ == nullptr ? base::Time::never() : put_off_->ask_again;
    }
    /// The peer says that it did; who only receives may not have been told by its BTL.
    void on_broken(base::Time now);

    const Config &config_;
    Name self_;
    PeerCounters counters_;
    PathSet paths_;
    Sender sender_;
    Receiver receiver_;
    std::vector<Reply> replies_;
    std::unique_ptr<Rare> put_off_;   ///< made for who needs it: most peers are idle
    Context context_;                 ///< of the newest fragment that went out in the brief form
    std::uint32_t context_stamp_ = 0; ///< its timestamp
    static constexpr std::uint32_t not_looked = UINT32_MAX;
    std::uint32_t lane_bytes_ = not_looked; ///< PathSet::preferred_until
    std::uint32_t events_told_ = 0;
    std::uint32_t events_followed_ = 0;
    base::Time silent_since_{}; ///< the later of: last fragment heard, first submission after quiet
    base::Time last_look_ = base::Time::never(); ///< when silence beyond give_up becomes a verdict
    bool unreachable_ = false;
    bool resting_ = false;
    bool flush_ = false;
    bool lane_ = false;    ///< see lane_takes
    PathId lane_path_ = 0; ///< the path of the newest message that went the short way
};

} // namespace ft::reliability

/// \file
/// The sending half for one peer: window, acknowledgement, loss detection, timers. PROTOCOL.md,
/// "Sender".
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "opal/ft/base/assert.hpp"
#include "opal/ft/reliability/header.hpp"
#include "opal/ft/reliability/path_set.hpp"
#include "opal/ft/reliability/stamps.hpp"
#include "opal/ft/reliability/vfrag.hpp"

namespace ft::reliability {

/// A fragment that wants to go out now, chosen by Sender::choose.
struct Choice {
    Vfrag *vfrag = nullptr;
    std::uint8_t index = 0;
    PathId path = no_path;
    bool retransmission = false;
};

/// Not synchronised; deterministic. Owned by Peer, which is the interface to use.
class Sender {
  public:
    Sender(const Config &config, PathSet &paths, PeerCounters &counters) noexcept
        : config_(config), paths_(paths), counters_(counters)
    {
    }

    /// Room in the window for a VFRAG of so many bytes? An ordered one may use a reserve that data
    /// leaves free, so that replies get through.
    [[nodiscard]] bool has_room(std::uint64_t bytes, bool ordered) const noexcept
    {
        // A quarter of the numbers is kept from data, so that replies pass a window full of it.
        const std::uint32_t reserve = ordered ? 0 : std::max(config_.window_vfrags / 4, 1U);
        return next_ - base_ + reserve < config_.window_vfrags &&
               (bytes == 0 || window_bytes_ + bytes <= config_.window_bytes);
    }
    /// Takes a VFRAG; there must be room. Numbers it and puts it in line.
    void submit(Vfrag &vfrag, base::Time now);
    /// Takes a VFRAG of one fragment that has gone out already, over this path, which is done with
    /// it: what submit, choose and sent do for it, when nothing else waits. \pre calm(), has_room
    [[gnu::always_inline]] void submit_sent(Vfrag &v, PathId id, std::uint32_t stamp,
                                            base::Time now)
    {
        FT_ASSERT(v.count() == 1 && v.ordered);
        enter(v, 1, Vfrag::State::waiting);
        v.first_stamp_ = stamp;
        Path &path = paths_.use(id);
        v.fragments[0] = {.tx = path.next_tx,
                          .stamp = stamp,
                          .path = id,
                          .tries = 1,
                          .state = FragmentState::in_flight};
        path.next_tx = (path.next_tx + 1) & tx_mask;
        path.in_flight += v.length;
        ++path.fragments_sent;
        path.bytes_sent += v.length;
        ++counters_.fragments_sent;
        counters_.bytes_sent += v.length;
        urgent_ = false;
        note_sent(id, stamp, true, now);
        v.ack_deadline_ = now + first_timeout(v, id, now);
        arm(v.ack_deadline_);
    }
    /// The same over a path whose BTL is believed: the VFRAG has arrived, as far as we are
    /// concerned, and nothing of it is kept. \pre the same
    [[gnu::always_inline]] void submit_trusted(std::uint64_t bytes, PathId id)
    {
        if (base_ == next_) [[likely]] {
            ++base_;
        } else if (next_ - base_ == ring_.size()) {
            grow_ring(); // what stands at its place is nullptr, as for all that are done
        }
        ++next_;
        ++next_order_;
        Path &path = paths_.use(id);
        path.believed_end = next_;
        path.next_tx = (path.next_tx + 1) & tx_mask;
        ++path.fragments_sent;
        ++path.fragments_acked;
        path.bytes_sent += bytes;
        ++counters_.fragments_sent;
        ++counters_.fragments_acknowledged;
        ++counters_.vfrags_completed;
        counters_.bytes_sent += bytes;
        counters_.bytes_acknowledged += bytes;
    }
    /// Right after submit_sent: the BTL keeps the descriptor for a while, and says so by
    /// locally_complete.
    void kept(Vfrag &vfrag, PathId path, base::Time now) { hold(vfrag, 0, path, now); }
    /// The numbers that the next VFRAG gets.
    [[nodiscard]] std::uint32_t next_sequence() const noexcept { return next_; }
    [[nodiscard]] std::uint32_t next_order() const noexcept { return next_order_; }
    /// \return false when nothing can go out now (nothing to send, or no path has room)
    [[nodiscard]] bool choose(Choice &choice) const noexcept;
    /// The choice went to its path's BTL; its tx was the path's next_tx, its stamp `stamp`.
    /// `complete`: the BTL is done with it already.
    void sent(const Choice &choice, std::uint32_t stamp, bool complete, base::Time now);
    /// How many fragments of data may follow each other from this one on without another choice, as
    /// far as their VFRAG goes.
    [[nodiscard]] unsigned run(const Choice &choice) const noexcept;
    /// So many of them went out, and their BTL is done with them.
    void sent_run(const Choice &choice, unsigned count, std::uint32_t stamp, base::Time now);
    /// A BTL is done with a descriptor of this fragment (whether it says so at once or later), sent
    /// at `sent_at`. \param carried false when it failed
    void locally_complete(Vfrag &vfrag, unsigned index, PathId path, base::Time sent_at,
                          base::Time now, bool carried);

    /// Acknowledgement fields of any fragment, with the body when it is an ack.
    void on_ack(const FragHeader &header, const AckBody *body, base::Time now);
    /// Whether on_ack would do anything about these.
    [[nodiscard]] bool concerned_by(const FragHeader &header) const noexcept
    {
        return header.has(flag_ack) && (header.cumulative != base_ || header.cumulative != told_ ||
                                        header.has(flag_echo) || doubt_.path != no_path);
    }
    void on_time(base::Time now);
    void on_path_gone(PathId path, base::Time now);
    /// The peer is unreachable: every VFRAG becomes finished, unacknowledged.
    void fail_all();

    [[nodiscard]] base::Time next_deadline() const noexcept { return next_deadline_; }
    [[nodiscard]] Vfrag *next_finished() noexcept;
    /// True when nothing is unacknowledged.
    [[nodiscard]] bool idle() const noexcept { return base_ == next_; }
    /// True when, besides, every VFRAG was handed back: one that is acknowledged can still be held
    /// by a BTL that does not move, and then it is a timer that hands it back.
    [[nodiscard]] bool settled() const noexcept
    {
        return idle() && draining_.empty() && finished_.head == nullptr;
    }
    /// True while an ordered VFRAG waits for its first transmission.
    [[nodiscard]] bool has_unsent_ordered() const noexcept
    {
        return unsent_ordered_.head != nullptr;
    }
    /// The same of one submitted before that with this `order`, or of that.
    [[nodiscard]] bool has_unsent_ordered(std::uint32_t order) const noexcept
    {
        return has_unsent_ordered() && serial_diff(unsent_ordered_.head->order(), order) <= 0;
    }
    /// Memory that it has allocated beside itself.
    [[nodiscard]] std::size_t allocated_bytes() const noexcept
    {
        return (ring_.capacity() + lost_.capacity() + draining_.capacity()) * sizeof(void *);
    }
    /// True when there is nothing to send, first or again.
    [[nodiscard]] bool nothing_to_send() const noexcept
    {
        return lost_.empty() && unsent_ordered_.head == nullptr && unsent_data_.head == nullptr &&
               !question_due_;
    }
    /// True when there is nothing to hand back, either.
    [[nodiscard]] bool calm() const noexcept
    {
        return nothing_to_send() && finished_.head == nullptr;
    }
    /// True when the peer is to be asked what has come, since nothing told of the newest
    /// transmission for longer than an answer takes.
    [[nodiscard]] bool question_due() const noexcept { return question_due_; }
    /// The path that the question takes: only what goes the same way proves a loss.
    [[nodiscard]] PathId question_path() const noexcept { return newest_path_; }
    void question_sent() noexcept { question_due_ = false; }
    void ask() noexcept { question_due_ = true; }
    [[nodiscard]] std::uint32_t first_unacknowledged() const noexcept { return base_; }
    /// Behind the last one of which anything counts as arrived since that path's BTL was believed,
    /// or, where that is later, the same as first_unacknowledged().
    [[nodiscard]] std::uint32_t believed_end(const Path &path) const noexcept
    {
        return next_ - path.believed_end <= next_ - base_ ? path.believed_end : base_;
    }
    /// What the peer said last: all before that number has arrived.
    [[nodiscard]] std::uint32_t told() const noexcept { return told_; }
    /// When it is looked for the first time whether to ask; far future while nothing was sent.
    [[nodiscard]] base::Time question_at() const noexcept { return question_at_; }
    [[nodiscard]] std::uint64_t window_bytes() const noexcept { return window_bytes_; }
    [[nodiscard]] std::uint32_t window_vfrags() const noexcept { return next_ - base_; }
    /// Starts numbering here (tests of the wrap-around). Before the first submit only.
    void start_at(std::uint32_t sequence, std::uint32_t order) noexcept
    {
        base_ = next_ = told_ = sequence, next_order_ = order;
    }

  private:
    [[nodiscard]] Vfrag *at(std::uint32_t sequence) const noexcept
    {
        return ring_[sequence & (ring_.size() - 1)];
    }
    /// The same of a number that the peer names.
    [[nodiscard]] Vfrag *unacknowledged(std::uint32_t sequence) const noexcept
    {
        return serial_diff(sequence, base_) < 0 ? nullptr : at(sequence);
    }
    struct List {
        Vfrag *head = nullptr;
        Vfrag *tail = nullptr;
        void push(Vfrag &vfrag) noexcept;
        Vfrag *pop() noexcept;
    };
    void grow_ring();
    [[nodiscard]] bool on_body(std::uint32_t cumulative, const AckBody &body, base::Time now);
    void acknowledge(Vfrag &vfrag, std::uint64_t mask, base::Time now);
    /// Takes a number, the place in the order, and room in the window. \param unsent its first
    /// fragment that was not sent yet
    void enter(Vfrag &v, std::uint8_t unsent, Vfrag::State state)
    {
        if (next_ - base_ == ring_.size()) [[unlikely]] {
            grow_ring();
        }
        v.ack_deadline_ = base::Time::never();
        v.watchdog_deadline_ = base::Time::never();
        v.lost_mask_ = 0;
        v.sequence_ = next_;
        v.order_ = v.ordered ? next_order_++ : 0;
        // As they stand in it, so that they are one store.
        v.held_ = 0;
        v.next_unsent_ = unsent;
        v.acked_count_ = 0;
        v.backoff_ = 0;
        v.state_ = state;
        v.untouched_ = true;
        v.looked_ = false;
        ring_[next_ & (ring_.size() - 1)] = &v;
        ++next_;
        window_bytes_ += v.length;
    }
    /// The ACK timer runs from now on.
    void await_ack(Vfrag &vfrag, PathId path, base::Time now) noexcept;
    /// VFRAGs of one fragment that one acknowledgement names and one path carried: what they have
    /// in common is noted once for all.
    struct Run {
        PathId path = no_path;
        Path *windowed = nullptr; ///< the same, if it has a congestion window
        std::uint32_t count = 0;
        std::uint32_t tx = 0;    ///< the newest
        std::uint32_t stamp = 0; ///< the newest
        std::uint64_t bytes = 0;
    };
    /// The same as `acknowledge` of everything, for one that was sent once, in one fragment, and
    /// has left its BTL: nearly all of them. Once `settle` was called. \return false when it is
    /// none of these
    bool acknowledge_short(Vfrag &vfrag, Run &run, base::Time now);
    void settle(Run &run, base::Time now);
    /// The same for one of several fragments that all went the same way, and once. \return false
    /// when it is none of these
    bool acknowledge_whole(Vfrag &vfrag, base::Time now);
    void complete(Vfrag &vfrag);
    void finish(Vfrag &vfrag);
    /// Whether this one counts as arrived when the path's BTL is done with it.
    [[nodiscard]] bool trusts(const Vfrag &vfrag, const Path &path) const noexcept
    {
        return !path.info.acknowledged && !vfrag.wants_answer;
    }
    /// A fragment that has just been sent so, by a BTL that is done with it.
    void take_for_arrived(Vfrag &vfrag, FragmentRecord &record, std::uint32_t bytes);
    void note_believed(std::uint32_t sequence, Path &path) const noexcept
    {
        if (serial_diff(sequence + 1, believed_end(path)) > 0) {
            path.believed_end = sequence + 1;
        }
    }
    /// Over what is acknowledged already.
    void advance() noexcept
    {
        while (base_ != next_ && at(base_) == nullptr) {
            ++base_;
        }
    }
    void sample_echo(const FragHeader &header, base::Time now);
    /// A transmission of that moment has arrived.
    void note_heard(std::uint32_t stamp, base::Time now) noexcept
    {
        if (!any_heard_ || later(stamp, newest_heard_, stamp_of(now))) {
            any_heard_ = true;
            newest_heard_ = stamp;
        }
    }
    void unlink_lost(Vfrag &vfrag);
    void arm(base::Time deadline) noexcept { next_deadline_ = std::min(next_deadline_, deadline); }
    /// Notes the newest transmission. The timer that it may need is not set anew each time: it is
    /// looked at when it runs out.
    void note_sent(PathId path, std::uint32_t stamp, bool ordered, base::Time now) noexcept
    {
        newest_path_ = path;
        newest_stamp_ = stamp;
        newest_ordered_ = ordered;
        asked_ = false;
        if (question_at_.is_never() && paths_[path].rtt.has_sample()) [[unlikely]] {
            question_at_ = now + patience();
            question_put_off_ = false;
            arm(question_at_);
        }
    }
    /// A BTL has a descriptor of this fragment from now on.
    void hold(Vfrag &vfrag, unsigned index, PathId path, base::Time now);
    /// How long a local completion is waited for, never more than twice rto_max.
    [[nodiscard]] base::Duration completion_timeout(const Vfrag &vfrag, PathId path) const noexcept;
    /// The same of what is still held, now that this path is done with a fragment.
    [[nodiscard]] base::Duration still_held_timeout(const Vfrag &vfrag, PathId done) const noexcept;
    [[nodiscard]] base::Duration ack_timeout(const Vfrag &vfrag, PathId path) const noexcept;
    /// The same for one that was never sent before. What it comes from changes slowly, and is
    /// looked at again after some microseconds only.
    [[nodiscard]] base::Duration first_timeout(const Vfrag &vfrag, PathId path,
                                               base::Time now) noexcept
    {
        const auto at = static_cast<std::uint32_t>(now.ns() >> timeout_shift);
        if (at - timeout_at_ > timeout_kept || path != timeout_path_ || backoff_ != 0)
            [[unlikely]] {
            const base::Duration timeout = ack_timeout(vfrag, path);
            if (backoff_ != 0 || timeout.ns() >> timeout_shift >= UINT32_MAX) {
                return timeout;
            }
            timeout_ = static_cast<std::uint32_t>(timeout.ns() >> timeout_shift) + 1;
            timeout_at_ = at;
            timeout_path_ = path;
        }
        return base::Duration::from_ns(std::int64_t{timeout_} << timeout_shift);
    }

    // loss.cc
    /// What a timer sent again is acknowledged: whether the first transmission had come. So it had
    /// if the peer had not seen the second when it said this (RFC 3522), or has seen both (RFC
    /// 3708); else the timer repaired a loss, which counts as any (RFC 8985, 7.4.2).
    [[nodiscard]] bool first_came(const FragmentRecord &again, base::Time now) const noexcept;
    /// \return how many more duplicates of retransmissions the peer has seen
    std::int32_t on_spurious(std::uint32_t told);
    /// Counts what is sent again since the mask showed a gap.
    void note_gap();
    void mark_lost(Vfrag &vfrag, unsigned index, LossReason reason);
    void detect_losses(std::uint32_t end, base::Time now);
    [[nodiscard]] LossReason judge(const FragmentRecord &record, base::Time now) const noexcept;
    void lose_old_on(Vfrag &vfrag, PathId path, LossReason reason, base::Time now);
    /// Over a path with a congestion window that loses little, one fragment that is sent again asks
    /// for all that is on its way there.
    [[nodiscard]] bool one_asks_for_all(PathId path) const noexcept;
    /// What is in flight over a path and was sent before something that has arrived.
    void lose_passed(Vfrag &vfrag, PathId path, base::Time now);
    /// What went over other paths than this one so long before something that has arrived that its
    /// own timer would have expired twice meanwhile. Otherwise each path would cost a timeout.
    void lose_overdue(Vfrag &vfrag, PathId blamed, base::Time now);
    /// The ACK timer of a VFRAG. \return the path that is blamed; no_path when nothing of it is in
    /// flight
    PathId expire(Vfrag &vfrag, base::Time now);
    void expire_watchdog(Vfrag &vfrag, base::Time now);
    /// True, and the timers wait a little, when they were missed and nobody has looked since.
    [[nodiscard]] bool looks_first(Vfrag &vfrag, base::Time now) const noexcept;
    /// How long the newest transmission may stay unanswered until the peer is asked.
    [[nodiscard]] base::Duration patience() const noexcept;
    void consider_question(base::Time now) noexcept;
    void doubt(const Vfrag &vfrag, unsigned index) noexcept;
    /// Whether the timeout in doubt was spurious, as far as this acknowledgement tells.
    void settle_doubt(const FragHeader &header, std::int32_t duplicates, base::Time now);

    /// A fragment whose ACK timer expired: its acknowledgement may tell that it had arrived, and
    /// was only late (RFC 3522). The oldest that is not settled. Stamps are those of its
    /// transmissions.
    struct Doubt {
        std::uint32_t sequence = 0;
        std::uint32_t first = 0;  ///< the one that was given up
        std::uint32_t second = 0; ///< the one in its place
        std::uint32_t answer = 0; ///< when it was acknowledged
        std::uint8_t index = 0;
        PathId path = no_path; ///< of the first one; no_path: there is no doubt
        PathId second_path = no_path;
        bool answered = false; ///< acknowledged; only the peer's count of duplicates may tell still
    };

    static constexpr unsigned timeout_shift = 10;     ///< kept in 2^10 ns: a peer is to be small
    static constexpr std::uint32_t timeout_kept = 64; ///< for so many of these

    const Config &config_;
    PathSet &paths_;
    PeerCounters &counters_;
    std::vector<Vfrag *> ring_; ///< by sequence, size a power of two, nullptr once acknowledged;
                                ///< empty until first use
    std::vector<Vfrag *> lost_; ///< VFRAGs with a non-empty lost mask, oldest first
    std::vector<Vfrag *> draining_; ///< acknowledged, but held by a BTL
    List unsent_ordered_;           ///< with unsent fragments, in order of submission
    List unsent_data_;              ///< the same for data
    List finished_;                 ///< to be handed back
    // The smaller ones stand where they leave no hole: an idle peer is to be small.
    Doubt doubt_;
    std::uint32_t newest_told_ = 0; ///< echo of the acknowledgement at hand; 0: none
    std::uint64_t window_bytes_ = 0;
    std::uint32_t base_ = 0; ///< first not acknowledged whole
    std::uint32_t told_ = 0; ///< the peer's cumulative number as last told
    std::uint32_t next_ = 0; ///< next number to give
    std::uint32_t next_order_ = 0;
    std::uint32_t spurious_seen_ = 0; ///< the peer's spurious counter as last told
    std::uint32_t newest_heard_ = 0;  ///< stamp of the newest transmission known to have arrived
    std::uint32_t timeout_ = 0;       ///< of a first transmission ...
    std::uint32_t timeout_at_ = 0;    ///< ... as of then
    std::uint32_t newest_stamp_ = 0;  ///< of the newest transmission ...
    // Lower parts of counters of what was sent again, when a spurious one was last told:
    std::uint16_t gaps_at_spurious_ = 0;   ///< by a gap
    std::uint16_t others_at_spurious_ = 0; ///< for another reason than a gap or a NACK
    std::uint8_t gaps_since_change_ = 0;   ///< gaps since the reordering threshold last changed
    PathId newest_path_ = no_path;         ///< ... and its path
    PathId timeout_path_ = no_path;        ///< the one that timeout_ is of
    std::uint8_t backoff_ = 0;             ///< of the whole peer; 0 again at every progress
    std::uint8_t questions_ = 0;           ///< asked since the last progress
    bool newest_ordered_ = false; ///< of the newest transmission: it was of an ordered VFRAG
    bool asked_ = false;          ///< nothing was sent since the peer was asked
    bool any_heard_ : 1 = false;  ///< newest_heard_ means something
    bool question_due_ : 1 = false;
    bool question_put_off_ : 1 = false; ///< once, as it was looked at late
    bool urgent_ : 1 = false; ///< a timer expired: one fragment goes out whatever the windows say
    bool duplicates_told_ : 1 = false; ///< the acknowledgement at hand tells of more duplicates
    base::Time question_at_ = base::Time::never();
    base::Time next_deadline_ = base::Time::never();
};

} // namespace ft::reliability

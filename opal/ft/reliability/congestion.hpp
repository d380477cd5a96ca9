/// \file
/// How much may be on its way over a path whose transport loses what is too much for it, and how
/// fast it goes out. PROTOCOL.md, "Congestion".
///
/// The window starts small, doubles every round trip until round trips get longer by it (RFC 9406),
/// and then grows by a sixteenth. Whether loss
/// makes it shrink depends on whether a queue stands on the way, that is, whether the shortest
/// round trip of a whole round is far above the shortest of all, or longer than a network within a
/// cluster is by itself. Where none does, loss at the usual rate is chance, and a window that
/// shrinks by chance (RFC 5681) is why TCP is slow where packets get lost; only loss far above the
/// usual shrinks it: the peer's receive buffer ran over. What is lost while many fill such a buffer
/// must not become usual, or all would grow until nearly everything is refused. Where a queue
/// stands, any loss is taken for that queue's, and the window goes as CUBIC's (RFC 9438), which is
/// what shares the way. What goes out keeps the pace of two windows a round trip, as pacing of TCP
/// does.
///
/// Two others are there to be compared with: CUBIC everywhere, and delay alone (as Swift: Kumar et
/// al., SIGCOMM 2020). docs/dgram.md has the figures. A model of rate times shortest round trip
/// (BBR) was tried and given up: where processes share a core, answers take a hundred times the
/// shortest round trip, the measured rate follows the window, the window the rate, and both go down
/// to nothing.
///
/// Transports that limit themselves (TCP, shared memory) have none of this.
#pragma once
#include <algorithm>
#include <cstdint>

#include "opal/ft/base/time.hpp"
#include "opal/ft/reliability/absence.hpp"

namespace ft::reliability {

/// What makes a window shrink.
enum class CongestionControl : std::uint8_t {
    hybrid, ///< loss where a queue stands, overrun where none does
    cubic,  ///< loss
    delay   ///< a queue that stands, and overrun
};
[[nodiscard]] constexpr const char *to_string(CongestionControl control) noexcept
{
    switch (control) {
    case CongestionControl::hybrid:
        return "hybrid";
    case CongestionControl::cubic:
        return "cubic";
    case CongestionControl::delay:
        return "delay";
    }
    return "?";
}

/// Not synchronised; deterministic.
class Congestion {
  public:
    /// \param absence of this process; nullptr: it is always there
    explicit Congestion(CongestionControl control = CongestionControl::hybrid,
                        const Absence *absence = nullptr) noexcept
        : control_(control), absence_(absence)
    {
    }
    /// Bytes that may be in flight at first, at least, and at most. The last is below what a
    /// receive buffer of 4 MiB holds of small datagrams.
    static constexpr std::uint64_t initial_window = 64 * 1024;
    static constexpr std::uint64_t least_window = 8 * 1024;
    static constexpr std::uint64_t most_window = 2 * 1024 * 1024;
    /// So much, but a quarter of the window at most, goes out at once, so that a transport can give
    /// many fragments to the network together; a sixteenth where a queue stands, which a burst
    /// would make run over.
    static constexpr std::uint64_t burst_bytes = 64 * 1024;
    /// A round trip by so much shorter than the smoothed one says that the longer ones were no
    /// network's: a process stood still for seconds. To wait until it is forgotten would take
    /// longer than that, since few fragments a second measure few round trips a second. Only the
    /// pace goes by it: where round trips of short and long fragments differ by as much, the
    /// timeout has to hold for both.
    static constexpr std::int64_t far_shorter = 64;

    /// \param in_flight payload bytes in flight; one fragment may always be
    [[nodiscard]] bool allows(std::uint64_t in_flight, std::uint64_t bytes) const noexcept
    {
        return in_flight == 0 || in_flight + bytes <= window_;
    }
    [[nodiscard]] std::uint64_t window() const noexcept { return window_; }
    /// A queue stood on the way in the last round.
    [[nodiscard]] bool queued() const noexcept { return queued_; }
    [[nodiscard]] bool starting() const noexcept { return starting_; }
    /// So much is lost as a rule that a single fragment that is to bring an answer may well not.
    [[nodiscard]] bool often_loses() const noexcept { return all_loss_ > often; }
    /// When a timer last sent something again: kept for the sender.
    [[nodiscard]] base::Time asked_at() const noexcept { return asked_at_; }
    void note_asked(base::Time now) noexcept { asked_at_ = now; }

    /// Whether sending pauses now, to keep the pace.
    [[nodiscard]] bool pausing(base::Time now) noexcept;
    /// When it goes on; Time::never() while it does not pause.
    [[nodiscard]] base::Time resumes() const noexcept
    {
        return pausing_ ? next_send_ : base::Time::never();
    }

    /// Whether a fragment that goes out is to ask for an acknowledgement at once: a window must not
    /// fill while the receiver waits for more to acknowledge.
    [[nodiscard]] bool wants_ack(std::uint64_t in_flight, std::uint64_t bytes) const noexcept
    {
        return unasked_ + bytes >= window_ / 4 || !allows(in_flight + bytes, bytes);
    }
    /// How many fragments of that size may go out now, one behind the other, before one of them
    /// asks for an acknowledgement, the window is full or the pace wants a pause: 0 when the first
    /// asks.
    [[nodiscard]] std::uint64_t run(std::uint64_t in_flight, std::uint32_t bytes,
                                    base::Time now) const noexcept;
    void on_sent(std::uint64_t bytes, std::uint32_t tx, bool asked, base::Time now) noexcept;
    /// The same for `count` fragments of a run, of `bytes` each but the last. \param tx of the
    /// first
    void on_sent_run(unsigned count, std::uint32_t bytes, std::uint32_t last, std::uint32_t tx,
                     base::Time now) noexcept;
    /// Whether a round ends when that transmission is acknowledged.
    [[nodiscard]] bool round_ends_with(std::uint32_t tx) const noexcept;
    /// \param in_flight before it was acknowledged \param tx the last, if it is several, none of
    /// which ends a round \param next_tx what the path sends next
    void on_acked(std::uint64_t bytes, std::uint64_t in_flight, std::uint32_t tx,
                  std::uint32_t next_tx, base::Time now) noexcept
    {
        on_acked_run(bytes, bytes, in_flight, tx, next_tx, now);
    }
    /// The same for several. \param packet the longest of them
    void on_acked_run(std::uint64_t bytes, std::uint64_t packet, std::uint64_t in_flight,
                      std::uint32_t tx, std::uint32_t next_tx, base::Time now) noexcept;
    /// \param tx of the transmission that was lost
    void on_lost(std::uint64_t bytes, std::uint32_t tx) noexcept;
    /// A timer repaired a loss. \param shrinks `shrinks()` when the timer expired: if it has shrunk
    /// since, what was lost was on its way then, too
    void on_repaired(std::uint64_t bytes, unsigned shrinks) noexcept
    {
        note_lost(bytes);
        round_.lost_anew += this->shrinks() == shrinks ? bytes : 0;
    }
    /// The window has shrunk since this was sent, which answers for all that was on its way then
    /// (RFC 9002, 7.3.2).
    [[nodiscard]] bool answered_for(std::uint32_t tx) const noexcept;
    /// How often it shrank, modulo 128.
    [[nodiscard]] std::uint8_t shrinks() const noexcept { return congestion_events_ & 0x7f; }
    [[nodiscard]] CongestionControl control() const noexcept { return control_; }
    // To be looked at: how often it shrank, what it took for lost, and bytes per ns that go out (0
    // before a round trip was measured).
    [[nodiscard]] std::uint32_t congestion_events() const noexcept { return congestion_events_; }
    [[nodiscard]] std::uint64_t lost_bytes() const noexcept { return lost_bytes_; }
    [[nodiscard]] double pace() const noexcept { return ns_per_byte_ > 0 ? 1 / ns_per_byte_ : 0; }
    /// \param sample the newest of the path's round trips \param smoothed
    void on_round_trip(base::Duration sample, base::Duration smoothed) noexcept
    {
        round_.shortest = std::min(round_.shortest, sample);
        smoothed_ = std::min(smoothed, sample * far_shorter);
        shortest_ = std::min(shortest_, sample);
        set_pace();
    }
    /// The path may lead another way now: nothing is known of how long that takes.
    void forget_way() noexcept;

  private:
    void note_lost(std::uint64_t bytes) noexcept
    {
        round_.lost += bytes;
        lost_bytes_ += bytes;
    }
    void end_round(base::Time now) noexcept;
    /// The shortest round trip of the round; of some time more where processes share cores.
    [[nodiscard]] base::Duration shortest_lately(base::Time now) noexcept;
    /// Takes a way that got longer for what it is. After a round.
    void watch_way(base::Time now) noexcept;
    /// The shortest round trip of all, within what one within a cluster is.
    [[nodiscard]] base::Duration way() const noexcept;
    /// Far more was lost in the round, or in some small ones together, than usually is.
    [[nodiscard]] bool overrun() const noexcept;
    /// \param lost of so many packets
    [[nodiscard]] bool far_above_usual(double lost, double count) const noexcept;
    /// Of this round's size.
    [[nodiscard]] double packets(std::uint64_t bytes) const noexcept
    {
        return static_cast<double>(bytes) / round_.packet;
    }
    /// \param trip the shortest lately
    void learn_usual_loss(base::Duration trip) noexcept;
    /// Ends the start where round trips grow from round to round (RFC 9406).
    void watch_start() noexcept;
    /// Shrinks, and remembers from where.
    void shrink(double factor, base::Time now) noexcept;
    void shrink_as_cubic(base::Time now) noexcept;
    void grow_by_chance() noexcept;
    void grow_as_cubic(base::Time now) noexcept;
    /// After a change of the window or the smoothed round trip: two windows a round trip.
    void set_pace() noexcept;
    /// How long so many bytes take at the pace.
    [[nodiscard]] base::Duration time_for(std::uint64_t bytes) const noexcept;

    static constexpr double often = 0.1; ///< share of losses
    /// Packets are of this size at least: what chance does to them is judged in packets.
    static constexpr std::uint32_t least_packet = 1400;
    /// From sending one fragment to its acknowledgement.
    struct Round {
        bool open = false;
        bool limited = false;                ///< the window was nearly full
        std::uint32_t until = 0;             ///< tx whose acknowledgement ends it
        std::uint32_t packet = least_packet; ///< the longest that was acknowledged, bytes
        std::uint64_t acked = 0;
        std::uint64_t lost = 0;
        std::uint64_t lost_anew = 0; ///< of those, sent since the window shrank last
        base::Duration shortest = base::Duration::max();
    };
    CongestionControl control_;
    const Absence *absence_;
    Round round_;
    base::Duration newer_ = base::Duration::max(); ///< shortest since `halved_` ...
    base::Duration older_ = base::Duration::max(); ///< ... and of the time before
    base::Time halved_{};
    double usual_loss_ = 0;              ///< by chance: share of bytes, smoothed
    double all_loss_ = 0;                ///< the same, with what queues refused
    std::uint32_t rounds_ = 0;           ///< that they were learnt from, saturating
    double some_lost_ = 0;               ///< packets of some rounds that were lost ...
    double some_ = 0;                    ///< ... and all of theirs; forgotten by halves
    std::uint64_t ceiling_ = 0;          ///< window when it shrank last, or less; 0 before
    std::uint64_t careful_ = 0;          ///< bytes that a round near it adds
    std::uint64_t floor_ = 0;            ///< window after it shrank last
    double reno_window_ = 0;             ///< RFC 9438's W_est, bytes
    double reno_grows_slowly_until_ = 0; ///< its cwnd_prior
    base::Time epoch_ = base::Time{};    ///< when it shrank last, or CUBIC's growth began
    std::uint64_t window_ = initial_window;
    std::uint64_t unasked_ = 0; ///< bytes since an acknowledgement was asked for
    base::Duration smoothed_{};
    base::Duration shortest_ = base::Duration::max(); ///< round trip of all, or of the way as it is
    base::Duration watched_shortest_ = base::Duration::max(); ///< since `watched_`
    base::Duration watched_sum_{}; ///< the shortest of each round since then
    std::uint32_t watched_rounds_ = 0;
    std::uint8_t watched_parts_ = 0;                    ///< of the time, in which there were any
    base::Duration start_trip_ = base::Duration::max(); ///< shortest of the start's rounds
    double ns_per_byte_ = 0; ///< the pace; fragments go out by the hundred between its changes
    base::Duration ahead_{}; ///< so much before its time something may go out
    base::Time next_send_{};
    base::Time asked_at_{};
    base::Time watched_{};
    bool starting_ = true;
    bool recovering_ = false;        ///< recovered_at_ means something
    std::uint32_t recovered_at_ = 0; ///< first tx after that
    std::uint32_t next_tx_ = 0;
    std::uint32_t congestion_events_ = 0;
    std::uint64_t lost_bytes_ = 0;
    bool queued_ = false; ///< a queue stood on the way in the last round
    bool pausing_ = false;
};

} // namespace ft::reliability

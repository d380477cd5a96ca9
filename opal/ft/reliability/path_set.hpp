/// \file
/// The paths to one peer: their states, measurements and counters, and the choice of one for the
/// next fragment. PROTOCOL.md, "Paths".
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "opal/ft/base/time.hpp"
#include "opal/ft/reliability/config.hpp"
#include "opal/ft/reliability/congestion.hpp"
#include "opal/ft/reliability/rtt.hpp"

namespace ft::reliability {

using PathId = std::uint8_t;
inline constexpr PathId no_path = 0xff;

enum class PathState : std::uint8_t { up, suspect, down, probing, gone };
[[nodiscard]] const char *to_string(PathState state) noexcept;

inline void saturating_increment(std::uint8_t &value) noexcept
{
    value = static_cast<std::uint8_t>(value + (value != 0xff ? 1 : 0));
}

/// What the layer above knows of a path when it adds it.
struct PathInfo {
    double bandwidth = 0.1;   ///< bytes per ns, first guess, > 0
    base::Duration latency{}; ///< one way, first guess
    std::uint32_t max_fragment_bytes =
        0;                        ///< payload limit of the transport with all headers taken off
    bool checksum_payload = true; ///< CRC32C over payloads on this path
    bool unreliable = false;      ///< loses what is too much for it: has a congestion window
    bool keeps_order = false;     ///< nothing overtakes: a single later fragment proves a loss
    bool acknowledged = true;     ///< false: what its BTL is done with is taken for arrived, and
                                  ///< what comes over it is not acknowledged
};

/// One way to a peer. Fields are written by PathSet and Sender; the layer above reads them for
/// statistics.
struct Path {
    PathInfo info;
    PathState state = PathState::up;
    bool blocked = false; ///< its BTL had no room; until unblocked
    bool probe_due = false;
    std::uint8_t timeouts = 0; ///< consecutive, without an acknowledgement over this path
    std::uint8_t strikes = 0;  ///< those of them during which another path answered
    std::uint8_t confirms = 0; ///< probe replies in a row while probing
    std::uint8_t flaps = 0;    ///< times it was taken out, saturating; sets the hold-down
    bool probe_in_flight = false;
    bool looked = false;          ///< the answer to its probe was looked for once more
    bool any_acked = false;       ///< largest_acked_tx means something
    bool any_echo = false;        ///< largest_acked_stamp means something
    bool pausing = false;         ///< keeps its pace
    bool rate_drained : 1 = true; ///< less than what counts as a load was left at rate_last
    std::uint8_t looks : 2 = 0;   ///< looks in a row that showed nothing new
    bool measured : 1 = false;    ///< `bandwidth` is, and not what its transport says of itself
    bool filled : 1 = false;      ///< was given as much as it may have
    std::uint8_t trust : 5 = 0;   ///< doublings of what it is given before it is measured
    bool looked_at : 1 = false;   ///< `bandwidth` was raised to see what it carries
    std::uint16_t filled_at = 0;  ///< when, in units of fill_shift, wraps after a minute
    std::uint32_t next_tx = 0;
    std::uint32_t probe_nonce = 0;    ///< of the newest probe: when it was sent, in stamps
    std::uint32_t answered_nonce = 0; ///< newest one answered, or no longer of interest
    std::uint32_t probe_trip = 0;     ///< round trip of a probe, in stamps; forgotten by halves
    std::uint32_t largest_acked_tx = 0;
    std::uint32_t largest_acked_stamp = 0;
    std::uint32_t reorder_threshold = 3;
    std::uint32_t held = 0;      ///< fragments with the BTL, not locally complete
    base::Time revived_at{};     ///< what was held before belongs to the transport that failed
    std::uint64_t in_flight = 0; ///< payload bytes in flight
    std::unique_ptr<Congestion> congestion; ///< of an unreliable path; others have none
    RttEstimator rtt;                       ///< round trips
    base::Time sampled_at{};                ///< when the newest of them was measured
    RttEstimator completion;                ///< local completions
    double bandwidth = 0.1;                 ///< as believed, bytes per ns
    base::Time rate_start{};      ///< start of what is being measured, moved on by idle times
    base::Time rate_last{};       ///< ... and its end so far
    std::uint64_t rate_bytes = 0; ///< acknowledged in it
    base::Time rate_at{};         ///< newest measurement, or look at another's
    base::Time next_probe{};
    base::Time down_since{};
    base::Time last_ack{};     ///< last sign of life over this path
    base::Time last_timeout{}; ///< newest of `timeouts`
    std::uint64_t fragments_sent = 0;
    std::uint64_t bytes_sent = 0;
    std::uint64_t fragments_acked = 0;
    std::uint32_t failovers = 0;
    std::uint32_t returns = 0;
};

/// A state change, told to the layer above once each.
struct PathEvent {
    PathId path = no_path;
    PathState from = PathState::up;
    PathState to = PathState::up;
};

/// Not synchronised; deterministic.
class PathSet {
  public:
    explicit PathSet(const Config &config) noexcept : config_(config) {}

    /// How many are going to be added, so that no memory is taken for more.
    void expect(std::size_t paths) { paths_.reserve(std::min<std::size_t>(paths, max_paths)); }
    /// \return the new path's number, or no_path when there are max_paths already.
    PathId add(const PathInfo &info);
    [[nodiscard]] std::size_t size() const noexcept { return paths_.size(); }
    [[nodiscard]] Path &operator[](PathId id) noexcept { return paths_[id]; }
    [[nodiscard]] const Path &operator[](PathId id) const noexcept { return paths_[id]; }

    /// The path that would deliver `bytes` earliest: up ones first, else those that answer probes
    /// while their hold-down runs, else suspect ones, else any that is not gone; never a blocked or
    /// full one. no_path when there is none, or when the earliest is a full one that is worth
    /// waiting for. \param avoid a path to take only if there is no other in the best class;
    /// no_path for none \param urgent beyond a congestion window, too
    [[nodiscard]] PathId pick(std::uint64_t bytes, PathId avoid, bool urgent = false) const noexcept
    {
        if (paths_.size() != 1) {
            return pick_of_several(bytes, avoid, urgent);
        }
        // The common case needs no comparison.
        const Path &only = paths_.front();
        return only.state == PathState::gone || !has_room(only, bytes, urgent) ? no_path
                                                                               : PathId{0};
    }
    /// For an acknowledgement or a probe reply: `wanted` if it is usable, else one of the best
    /// class. \param turn another number picks another of them: nothing tells whether a control
    /// fragment arrived, so none of them may be relied on forever
    [[nodiscard]] PathId pick_control(PathId wanted, std::uint64_t turn) const noexcept;
    /// Looks which unreliable paths keep their pace by pausing now.
    void keep_pace(base::Time now) noexcept;
    /// True if a path other than `except` is up.
    [[nodiscard]] bool other_up(PathId except) const noexcept;
    /// True if a path other than `except` is up, or answers probes while its hold-down runs: data
    /// need not wait for what is in doubt.
    [[nodiscard]] bool other_ready(PathId except) const noexcept;
    /// Whether there is one whose BTL is believed.
    [[nodiscard]] bool any_trusted() const noexcept { return any_trusted_; }
    /// True when no path is left but gone ones.
    [[nodiscard]] bool all_gone() const noexcept;
    /// All are up, or gone for good.
    [[nodiscard]] bool none_in_doubt() const noexcept;
    /// Payload bytes that fit every path, the gone ones too as they may come back, with `wanted` as
    /// the upper bound; 0 when all are gone.
    [[nodiscard]] std::uint32_t fragment_limit(std::uint32_t wanted) const noexcept;

    /// The RTO of a path, before back-off: what was measured, and what spurious timeouts have
    /// taught since.
    [[nodiscard]] base::Duration rto(PathId id) const noexcept
    {
        return paths_[id].rtt.timeout(config_.rto_initial,
                                      std::clamp(allowance_, config_.rto_min, config_.rto_max),
                                      config_.rto_max);
    }
    /// A timer that is looked at later than this was missed, since the process was away: what it
    /// waits for may have come. It is given as long again.
    [[nodiscard]] base::Duration away() const noexcept { return config_.rto_min / 8; }
    /// A timeout that blamed this path was spurious (RFC 4015): the answer came after all,
    /// `round_trip` after it was sent. Timeouts of all paths get longer for a while, as it is the
    /// peer that is late.
    void on_spurious_timeout(PathId id, base::Duration round_trip, base::Time now);
    /// How long a local completion may take on a path.
    [[nodiscard]] base::Duration watchdog(PathId id) const noexcept;

    /// ACK timer or watchdog blamed this path. \param sent when that was sent which was not
    /// answered
    void on_timeout(PathId id, base::Time now, base::Time sent = {});
    /// The ACK timer of what was sent over this path expired: for one that is tried before its
    /// hold-down is over this is as good as a lost probe.
    void on_unanswered(PathId id, base::Time now);
    /// An acknowledgement of something sent over this path.
    void on_alive(PathId id, base::Time now)
    {
        Path &path = paths_[id];
        path.timeouts = 0;
        path.strikes = 0;
        path.last_ack = now;
        last_alive_ = now;
        if (path.state != PathState::up) [[unlikely]] {
            come_alive(id, now);
        }
    }
    void on_error(PathId id, base::Time now); ///< its BTL gave up: gone
    /// Whether so much more is all that this one, of several, is given until something of it is
    /// acknowledged: another like it would be too far ahead.
    [[nodiscard]] bool fills(PathId id, std::uint64_t bytes) const noexcept
    {
        return paths_.size() != 1 && far_ahead(paths_[id], bytes * 2);
    }
    void note_filled(PathId id, base::Time now) noexcept
    {
        paths_[id].filled = true;
        paths_[id].filled_at = static_cast<std::uint16_t>(now.ns() >> fill_shift);
    }
    /// For the bandwidth estimate; the path's `in_flight` has what was sent already.
    void on_sent_bytes(PathId id, base::Time now) noexcept
    {
        if (const Path &path = paths_[id]; path.in_flight >= loaded_bytes && path.rate_drained) {
            begin_load(id, now);
        }
    }
    /// These are not in flight any more, but nothing is told by that of what the path carries.
    void take_off(PathId id, std::uint64_t bytes) noexcept
    {
        Path &path = paths_[id];
        path.in_flight -= bytes;
        path.rate_drained = path.rate_drained || path.in_flight == 0;
    }
    /// For the bandwidth estimate; what was acknowledged is taken off already.
    void on_acked_bytes(PathId id, std::uint64_t bytes, base::Time now)
    {
        const Path &path = paths_[id];
        if (!path.rate_drained || now == path.rate_last) {
            measure(id, bytes, now);
        }
        if (path.filled && path.in_flight < loaded_bytes) {
            ran_dry(id, now);
        }
    }
    void revive(PathId id, base::Time now); ///< a gone path has a fresh transport: probing

    /// A BTL is done with a descriptor that it was given at `sent_at`.
    void release(PathId id, base::Time sent_at) noexcept;

    /// Probes: which path wants one now, and what came of it.
    [[nodiscard]] PathId probe_wanted() const noexcept;
    /// The number of a probe that is sent now. It is a stamp, so that every answer tells its round
    /// trip, however late it is.
    [[nodiscard]] static std::uint32_t nonce_at(base::Time now) noexcept;
    void on_probe_sent(PathId id, std::uint32_t nonce, base::Time now);
    void on_probe_reply(PathId id, std::uint32_t nonce, base::Time now);
    void on_time(base::Time now);
    /// No path that is not up is probed any more.
    void rest() noexcept;
    /// They are again, from now on.
    void stop_resting(base::Time now) noexcept;
    /// When the newest doubt about a path came up: it was taken for suspect, or replaced.
    [[nodiscard]] base::Time doubted_at() const noexcept { return doubted_at_; }
    [[nodiscard]] base::Time next_deadline() const noexcept;
    /// True when no probe is due, no path waits for room, and no state change is untold.
    [[nodiscard]] bool calm() const noexcept
    {
        bool all = events.empty();
        for (const Path &path : paths_) {
            all = all && !path.probe_due && !path.blocked;
        }
        return all;
    }

    /// Memory that it has allocated beside itself.
    [[nodiscard]] std::size_t allocated_bytes() const noexcept
    {
        std::size_t bytes =
            paths_.capacity() * sizeof(Path) + events.capacity() * sizeof(PathEvent);
        for (const Path &path : paths_) {
            bytes += path.congestion != nullptr ? sizeof(Congestion) : 0;
        }
        return bytes;
    }
    /// State changes not yet told; the caller empties it.
    std::vector<PathEvent> events;
    Counters *counters = nullptr; ///< where transitions are counted; set by Peer

  private:
    /// True if a path other than `except` is up, or suspect without as many strikes as cost a path:
    /// one timeout, as a peer that does not run causes many, is no reason to take back a path
    /// before its time.
    [[nodiscard]] bool other_carries(PathId except) const noexcept;
    /// A bandwidth sample counts only while at least this much is in flight: below, the application
    /// is the limit.
    static constexpr std::uint64_t loaded_bytes = 64 * 1024;
    static constexpr unsigned fill_shift = 20; ///< Path::filled_at counts 2^20 ns

    /// Whether it takes another fragment of so many bytes now.
    [[nodiscard]] bool has_room(const Path &path, std::uint64_t bytes, bool urgent) const noexcept
    {
        return !path.blocked && path.held < config_.path_depth &&
               (path.congestion == nullptr || urgent ||
                (!path.pausing && path.congestion->allows(path.in_flight, bytes)));
    }
    /// Whether so much more is more than a path that others could relieve is given at once. Two
    /// fragments are not, nor is what measures it; until it is measured all else is.
    [[nodiscard]] bool far_ahead(const Path &path, std::uint64_t bytes) const noexcept;
    [[nodiscard]] PathId pick_of_several(std::uint64_t bytes, PathId avoid,
                                         bool urgent) const noexcept;
    void change(PathId id, PathState to, base::Time now);
    /// When no path is ready, those that are down are asked at once whether they still are.
    void seek(base::Time now) noexcept;
    /// One that was not up carried something.
    void come_alive(PathId id, base::Time now);
    void begin_load(PathId id, base::Time now) noexcept;
    void measure(PathId id, std::uint64_t bytes, base::Time now);
    void ran_dry(PathId id, base::Time now) noexcept;
    /// Gives paths that have not been measured for a while a share that gets them measured.
    void explore(PathId measured, base::Time now) noexcept;
    [[nodiscard]] base::Duration hold_down(const Path &path) const noexcept;
    /// When its newest probe was sent.
    [[nodiscard]] static base::Time probe_sent(const Path &path, base::Time now) noexcept;
    /// How long the answers of this path to probes may take, by those that came.
    [[nodiscard]] static base::Duration probe_patience(const Path &path) noexcept;

    const Config &config_;
    std::vector<Path> paths_;
    bool any_unreliable_ = false;
    bool any_trusted_ = false;
    base::Time last_alive_{}; ///< newest sign of life over any path
    base::Time doubted_at_{};
    base::Duration allowance_{}; ///< least RTO, learnt from spurious timeouts; halved now and then
    base::Time relax_at_{};      ///< when
};

} // namespace ft::reliability

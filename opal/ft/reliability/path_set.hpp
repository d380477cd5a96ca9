/// \file
/// The paths to one peer: what becomes of their states, and the choice of one for the next
/// fragment. PROTOCOL.md, "Paths".
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "opal/ft/base/time.hpp"
#include "opal/ft/reliability/config.hpp"
#include "opal/ft/reliability/counters.hpp"
#include "opal/ft/reliability/path_table.hpp"

namespace ft::reliability {

/// A state change, told to the layer above once each.
struct PathEvent {
    PathId path = no_path;
    PathState from = PathState::up;
    PathState to = PathState::up;
};

/// Not synchronised; deterministic.
class PathSet {
  public:
    explicit PathSet(const Config &config) noexcept : config_(config), paths_(config) {}

    /// How many are going to be added, so that no memory is taken for more.
    void expect(std::size_t paths) { paths_.expect(paths); }
    /// \return the new path's number, or no_path when there are max_paths already.
    PathId add(const PathInfo &info);
    [[nodiscard]] std::size_t size() const noexcept { return paths_.size(); }
    [[nodiscard]] const Path &operator[](PathId id) const noexcept { return paths_[id]; }
    /// To be changed: from now on it is a path that was used (PathTable).
    [[nodiscard]] Path &use(PathId id) { return paths_.use(id); }

    /// The path of the best class (`preference`) that would deliver `bytes` earliest; never a
    /// blocked or full one. no_path when there is none in that class, or when the earliest is a
    /// full one that is worth waiting for. \param avoid a path to take only if there is no other in
    /// the best class, which it does not make better by being one through memory; no_path for none
    /// \param urgent beyond a congestion window, too
    [[nodiscard]] PathId pick(std::uint64_t bytes, PathId avoid, bool urgent = false) const noexcept
    {
        if (paths_.size() != 1) {
            return pick_of_several(bytes, avoid, urgent);
        }
        // The common case needs no comparison.
        const Path &only = paths_[0];
        return only.state == PathState::gone || !has_room(only, bytes, urgent) ? no_path
                                                                               : PathId{0};
    }
    /// For an acknowledgement or a probe reply: `wanted` if it is usable, else one of the best
    /// class. \param turn another number picks another of them: nothing tells whether a control
    /// fragment arrived, so none of them may be relied on forever \param asks it is a question: not
    /// over a path that is not acknowledged while there is one that is, for the peer takes it for
    /// another opinion of the path by which it comes
    [[nodiscard]] PathId pick_control(PathId wanted, std::uint64_t turn,
                                      bool asks = false) const noexcept;
    /// As long as fewer bytes than this are in flight over `best`, that was picked last, and
    /// nothing becomes of any path but that more goes over `best`, `pick` chooses it again. Less
    /// than UINT32_MAX.
    [[nodiscard]] std::uint32_t preferred_until(PathId best) const noexcept
    {
        return paths_.size() == 1 ? UINT32_MAX - 1 : preferred_of_several(best);
    }
    /// Before `pick`: what time it is, and which unreliable paths keep their pace by pausing now.
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
    /// Whether it is as good as before for what it was given and a timer took for lost: through
    /// memory that comes when the peer looks, and not sooner by way of a network. It is for
    /// rto_max: see on_timeout.
    [[nodiscard]] bool waits_for_peer(PathId id) const noexcept
    {
        return paths_[id].info.in_memory && !config_.stripe_memory &&
               paths_[id].state == PathState::up;
    }
    /// The ACK timer of what was sent over this path expired: for one that is tried before its
    /// hold-down is over this is as good as a lost probe.
    void on_unanswered(PathId id, base::Time now);
    /// An acknowledgement of something sent over this path.
    void on_alive(PathId id, base::Time now)
    {
        Path &path = paths_.use(id);
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
    void note_filled(PathId id, base::Time now)
    {
        Path &path = paths_.use(id);
        path.filled = true;
        path.filled_at = static_cast<std::uint16_t>(now.ns() >> fill_shift);
    }
    /// For the bandwidth estimate; the path's `in_flight` has what was sent already.
    void on_sent_bytes(PathId id, base::Time now)
    {
        if (const Path &path = paths_[id]; path.in_flight >= loaded_bytes && path.rate_drained) {
            begin_load(id, now);
        }
    }
    /// These are not in flight any more, but nothing is told by that of what the path carries.
    void take_off(PathId id, std::uint64_t bytes)
    {
        Path &path = paths_.use(id);
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
    /// As many later transmissions do not prove a loss yet where much was overtaken. Over a path
    /// with a congestion window, which may spray packets over ways of unlike length, an eighth of
    /// the largest window, if that is more.
    static constexpr std::uint32_t most_threshold = 64;
    /// Something was sent again needlessly, as a fragment was overtaken on one of those in use.
    void tolerate_more_reordering() noexcept
    {
        paths_.each_used([this](PathId, Path &path) {
            path.reorder_threshold =
                std::max(path.reorder_threshold,
                         std::min(path.reorder_threshold * 2, threshold_limit(path)));
        });
    }
    /// For long nothing was (RFC 8985, 7.2).
    void tolerate_less_reordering() noexcept
    {
        paths_.each_used([this](PathId, Path &path) {
            const std::uint32_t least = PathTable::first_threshold(config_, path.info);
            path.reorder_threshold = std::max(least, path.reorder_threshold / 2);
        });
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
    /// Its BTL has no room. \param fragments there are some that wait
    void block(PathId id, bool fragments)
    {
        Path &path = paths_.use(id);
        path.blocked = true;
        if (fragments) {
            note_refusal(path);
        }
    }
    /// Fragments wait, and no path takes any: those that hold all they may do not move.
    void note_full() noexcept
    {
        paths_.each_used([this](PathId, Path &path) {
            if (path.info.in_memory && path.held >= config_.path_depth) {
                note_refusal(path);
            }
        });
    }
    /// The BTLs may have room again.
    void unblock() noexcept
    {
        paths_.each_used([](PathId, Path &path) { path.blocked = false; });
    }
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
        return paths_.allocated_bytes() + events.capacity() * sizeof(PathEvent);
    }
    /// State changes not yet told; the caller empties it.
    std::vector<PathEvent> events;
    PeerCounters *counters = nullptr; ///< where transitions are counted; set by Peer

  private:
    /// True if a path other than `except` is up, or suspect without as many strikes as cost a path:
    /// one timeout, as a peer that does not run causes many, is no reason to take back a path
    /// before its time.
    [[nodiscard]] bool other_carries(PathId except) const noexcept;
    /// A bandwidth sample counts only while at least this much is in flight: below, the application
    /// is the limit.
    static constexpr std::uint64_t loaded_bytes = 64 * 1024;
    /// A path's bandwidth is believed for so long without a new measurement, so that load follows a
    /// change within a second.
    static constexpr base::Duration explore_interval = base::Duration::from_ms(500);
    /// Of several paths none is given more than it carries in so long and two round trips: what
    /// lies in its queue when it becomes slow cannot be given to another any more.
    static constexpr base::Duration most_ahead = base::Duration::from_ms(100);
    static constexpr int no_preference = 5;    ///< of one that is gone
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
    /// Which paths go first: through memory, up, then what answers probes while its hold-down runs,
    /// then suspect, then any that is not gone. Whatever goes to a process of the same node by way
    /// of a network takes time from the cores that move it through memory faster.
    [[nodiscard]] int preference(const Path &path) const noexcept;
    [[nodiscard]] std::uint32_t threshold_limit(const Path &path) const noexcept
    {
        // Where answers take as long as the least timeout, timers look like reordering.
        if (path.congestion == nullptr || path.rtt.smoothed() >= config_.rto_min) {
            return most_threshold;
        }
        const std::uint64_t bytes = std::min(config_.fragment_bytes, path.info.max_fragment_bytes);
        return std::max(most_threshold,
                        static_cast<std::uint32_t>(Congestion::most_window / 8 / bytes));
    }
    void note_refusal(Path &path) noexcept
    {
        if (path.refused_tx != path.next_tx) {
            path.refused_tx = path.next_tx;
            path.refused_at = now_;
        }
    }
    /// Its BTL has had no room for half of rto_max, with nothing that it took between: others take
    /// part, for it may be that processes which do not look hold all of vader's buffers.
    [[nodiscard]] bool refuses(const Path &path) const noexcept;
    /// How long a short fragment takes to the peer, as believed.
    [[nodiscard]] base::Duration latency(const Path &path) const noexcept;
    [[nodiscard]] std::uint32_t preferred_of_several(PathId best) const noexcept;
    [[nodiscard]] PathId pick_of_several(std::uint64_t bytes, PathId avoid,
                                         bool urgent) const noexcept;
    void change(PathId id, PathState to, base::Time now);
    /// When no path is ready, those that are down are asked at once whether they still are.
    void seek(base::Time now) noexcept;
    /// One that was not up carried something.
    void come_alive(PathId id, base::Time now);
    void begin_load(PathId id, base::Time now);
    void measure(PathId id, std::uint64_t bytes, base::Time now);
    void ran_dry(PathId id, base::Time now);
    /// Gives paths that have not been measured for a while a share that gets them measured.
    void explore(PathId measured, base::Time now);
    [[nodiscard]] base::Duration hold_down(const Path &path) const noexcept;
    /// When its newest probe was sent.
    [[nodiscard]] static base::Time probe_sent(const Path &path, base::Time now) noexcept;
    /// How long the answers of this path to probes may take, by those that came.
    [[nodiscard]] static base::Duration probe_patience(const Path &path) noexcept;

    const Config &config_;
    PathTable paths_;
    bool any_unreliable_ = false;
    bool any_trusted_ = false;
    base::Time now_{};        ///< when keep_pace was called last
    base::Time last_alive_{}; ///< newest sign of life over any path
    base::Time doubted_at_{};
    base::Duration allowance_{}; ///< least RTO, learnt from spurious timeouts; halved now and then
    base::Time relax_at_{};      ///< when
};

} // namespace ft::reliability

/// Heartbeats between tree neighbours: who is silent, and who cannot have voted.
///
/// Every `interval` a node sends a numbered heartbeat to each peer that it watches, with the number
/// of the peer's last heartbeat as an echo. This serves two ends.
/// - Silence: each peer has a Suspicion; its deadline passed, it is reported once, until it is
/// heard again. Time in
///   which this node itself did not run is not held against anybody.
/// - Leases: to echo W's heartbeat is to promise not to vote for a view without W until `fence`
/// after it was
///   received (`hold_until`). So W knows of a peer d that died less than `fence` after W sent the
///   last heartbeat that d echoed, that d never voted against W (`clean`). membership/PROTOCOL.md
///   says what that is for.
///
/// A pure state machine: time and heartbeats in, heartbeats and suspicions out. One object belongs
/// to one thread.
#pragma once

#include "opal/ft/base/time.hpp"
#include "opal/ft/detector/suspicion.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ft::detector {

struct HeartbeatConfig {
    /// Between heartbeats; zero: none are sent, nobody is suspected, and no death is clean. At
    /// 16-fold oversubscription 100 ms costs a daemon with 3 neighbours 30 wake-ups a second.
    base::Duration interval = base::Duration::from_ms(100);
    /// Length of the lease. Longer: more proven deaths leave the quorum's base; but it should be
    /// shorter than `suspicion.floor`, or evictions of silent nodes wait for it.
    base::Duration fence = base::Duration::from_ms(400);
    SuspicionConfig suspicion;

    /// Empty if the values make sense together; else what is wrong and what to do, for the user.
    std::string fault() const;
};

class Heartbeat {
  public:
    struct Peer {
        std::uint32_t id;
        std::uint32_t incarnation;
        auto operator<=>(const Peer &) const = default;
    };
    /// A heartbeat to send.
    struct Beat {
        Peer to;
        std::uint64_t beat;
        std::uint64_t echo;
    };
    struct Output {
        std::vector<Beat> beats;
        std::vector<Peer> suspects;
    };

    /// `config.fault()` must be empty.
    explicit Heartbeat(const HeartbeatConfig &config) : config_(config) {}

    /// The peers to watch from now on, sorted. Those that were watched before keep their history.
    void watch(base::Time now, std::span<const Peer> peers);

    /// `in_doubt`: as the peer says, it or somebody beyond it in the tree is out of touch.
    void on_heartbeat(base::Time now, Peer from, std::uint64_t beat, std::uint64_t echo,
                      bool in_doubt = false);
    /// Somebody else says that `from` lives.
    void on_life(base::Time now, Peer from);
    /// A message of any kind came from `from` itself.
    void on_heard(base::Time now, Peer from);
    /// Appends to `out`.
    void on_time(base::Time now, Output &out);
    /// This node did not run, or its clock stepped forward, by `late` (already part of `now`): what
    /// it promised before counts from the end of that, since it may not have lasted so long for
    /// others.
    void on_pause(base::Time now, base::Duration late);
    /// The clock stepped back, by nobody knows how much: no lease can be relied upon any more.
    void on_step_back();
    /// When to call on_time() next.
    base::Time next_deadline() const { return watched_.empty() ? base::Time::never() : next_; }

    /// `dead` is proven dead now: true if it cannot have voted for a view without this node.
    bool clean(base::Time now, Peer dead) const;
    /// Whether a peer that `gone` does not name may meanwhile have voted for a view without this
    /// node, since it echoes nothing any more, or a peer other than `but` has said so of itself
    /// or of those beyond it. One that is watched since `since` has time from then on to begin.
    template <typename F>
    bool out_of_touch(base::Time now, base::Time since, std::uint32_t but, F &&gone) const
    {
        // Where the lease is short against the interval, an echo can be older without any loss.
        const base::Duration wait = std::max(lease(), config_.interval * 5 / 2);
        return std::any_of(watched_.begin(), watched_.end(), [&](const Watched &w) {
            return (w.in_doubt && w.peer.id != but) ||
                   (!gone(w.peer) && now >= std::max(w.leased, since) + wait);
        });
    }
    /// Until when this node has promised not to vote for a view without `peer`; zero if it never
    /// did.
    base::Time hold_until(std::uint32_t peer) const;

    const HeartbeatConfig &config() const { return config_; }
    /// Whether a message came from the watched `peer` itself after `since`.
    bool heard_after(base::Time since, Peer peer) const;
    /// The timeout in force for a peer, for statistics; zero when it is not watched.
    base::Duration timeout(std::uint32_t peer) const;

  private:
    struct Watched {
        Peer peer;
        Suspicion suspicion;
        base::Time leased; // when the last heartbeat that it echoed was sent
        bool has_lease = false;
        bool suspected = false;
        bool in_doubt = false; // as it said last, in this view
        bool has_spoken = false;
        base::Time spoke = base::Time::zero(); // last, itself
        std::uint64_t received = 0;            // its last heartbeat
    };
    struct Promise {
        std::uint32_t to;
        base::Time until;
    };
    struct Sent {
        std::uint64_t beat;
        base::Time at;
    };

    base::Duration lease() const;
    Watched *find(const Peer &peer);
    const Watched *find(const Peer &peer) const;

    HeartbeatConfig config_;
    std::vector<Watched> watched_; // sorted by peer
    std::vector<Promise> promises_;
    std::vector<Sent> sent_; // the latest few
    std::uint64_t beat_ = 0;
    base::Time next_ = base::Time::never();
};

} // namespace ft::detector

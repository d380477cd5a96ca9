#include "opal/ft/detector/heartbeat.hpp"

#include "opal/ft/base/assert.hpp"

#include <algorithm>

namespace ft::detector {

using base::Duration;
using base::Time;

namespace {

// Heartbeats whose time of sending is remembered: an echo comes within a few intervals or is no
// lease.
constexpr std::size_t remembered = 8;

std::string in_ms(Duration d)
{
    return std::to_string(d.ms()) + " ms";
}

} // namespace

std::string HeartbeatConfig::fault() const
{
    if (interval < Duration::zero() || fence < Duration::zero()) {
        return "the heartbeat interval and the fence must not be negative";
    }
    if (suspicion.phi < 1.0 || suspicion.phi > 16.0) {
        return "the suspicion threshold phi must be between 1 and 16";
    }
    if (interval > Duration::zero() && suspicion.floor < interval * 2) {
        return "the shortest timeout (" + in_ms(suspicion.floor) +
               ") must be at least twice the heartbeat interval (" + in_ms(interval) +
               "), or every node is suspected: raise the timeout or lower the interval";
    }
    if (suspicion.ceiling < suspicion.floor) {
        return "the longest timeout (" + in_ms(suspicion.ceiling) + ") is below the shortest (" +
               in_ms(suspicion.floor) + ")";
    }
    return {};
}

Heartbeat::Watched *Heartbeat::find(const Peer &peer)
{
    const auto at = std::lower_bound(watched_.begin(), watched_.end(), peer,
                                     [](const Watched &w, const Peer &p) { return w.peer < p; });
    return at != watched_.end() && at->peer == peer ? &*at : nullptr;
}

const Heartbeat::Watched *Heartbeat::find(const Peer &peer) const
{
    return const_cast<Heartbeat *>(this)->find(peer);
}

void Heartbeat::watch(Time now, std::span<const Peer> peers)
{
    if (config_.interval == Duration::zero()) {
        return;
    }
    FT_ASSERT(std::is_sorted(peers.begin(), peers.end()));
    std::vector<Watched> next;
    next.reserve(peers.size());
    for (const Peer &p : peers) {
        if (Watched *known = find(p)) {
            next.push_back(*known);
            next.back().in_doubt = false;
        } else {
            next.push_back({p, Suspicion(now, config_.interval), Time::zero()});
        }
    }
    if (watched_.empty() && !next.empty()) {
        next_ = now; // the first heartbeat at once: leases begin with it
    }
    watched_ = std::move(next);
}

void Heartbeat::on_heartbeat(Time now, Peer from, std::uint64_t beat, std::uint64_t echo,
                             bool in_doubt)
{
    if (config_.interval == Duration::zero()) {
        return;
    }
    Watched *w = find(from);
    if (w == nullptr) {
        return; // not echoed, so nothing is promised
    }
    w->suspicion.on_arrival(now);
    w->suspected = false;
    if (beat > w->received) {
        w->received = beat;
        w->in_doubt = in_doubt;
        const Time until = now + config_.fence;
        const auto at = std::find_if(promises_.begin(), promises_.end(),
                                     [&](const Promise &p) { return p.to == from.id; });
        if (at != promises_.end()) {
            at->until = std::max(at->until, until);
        } else {
            std::erase_if(promises_, [now](const Promise &p) { return p.until < now; });
            promises_.push_back({from.id, until});
        }
    }
    for (const Sent &s : sent_) {
        if (s.beat == echo) {
            w->leased = std::max(w->leased, s.at);
            w->has_lease = true;
        }
    }
}

void Heartbeat::on_life(Time now, Peer from)
{
    if (Watched *w = find(from)) {
        w->suspicion.on_life(now);
        w->suspected = false;
    }
}

void Heartbeat::on_heard(Time now, Peer from)
{
    if (Watched *w = find(from)) {
        w->suspicion.on_life(now);
        w->suspected = false;
        w->has_spoken = true;
        w->spoke = now;
    }
}

bool Heartbeat::heard_after(Time since, Peer peer) const
{
    const Watched *w = find(peer);
    return w != nullptr && w->has_spoken && w->spoke > since;
}

void Heartbeat::on_time(Time now, Output &out)
{
    if (watched_.empty() || now < next_) {
        return;
    }
    const Duration late = now - next_;
    ++beat_;
    if (sent_.size() == remembered) {
        sent_.erase(sent_.begin());
    }
    sent_.push_back({beat_, now});
    next_ = now + config_.interval;
    for (Watched &w : watched_) {
        if (late > config_.interval / 2) {
            w.suspicion.on_own_pause(now, late);
        }
        out.beats.push_back({w.peer, beat_, w.received});
        const Time deadline = w.suspicion.deadline(config_.suspicion);
        if (deadline <= now) {
            if (!w.suspected) {
                w.suspected = true;
                out.suspects.push_back(w.peer);
            }
        } else {
            next_ = std::min(next_, deadline);
        }
    }
}

void Heartbeat::on_pause(Time now, Duration late)
{
    for (Promise &p : promises_) {
        if (p.until + late > now) {
            p.until = std::min(p.until + late, now + config_.fence);
        }
    }
}

void Heartbeat::on_step_back()
{
    sent_.clear();
    for (Watched &w : watched_) {
        w.has_lease = false;
        w.leased = Time::zero();
    }
}

bool Heartbeat::clean(Time now, Peer dead) const
{
    const Watched *w = find(dead);
    return w != nullptr && w->has_lease && now < w->leased + lease();
}

/// An eighth less than promised: the two clocks may run at slightly different rates.
Duration Heartbeat::lease() const
{
    return config_.fence * 7 / 8;
}

Time Heartbeat::hold_until(std::uint32_t peer) const
{
    const auto at = std::find_if(promises_.begin(), promises_.end(),
                                 [&](const Promise &p) { return p.to == peer; });
    return at != promises_.end() ? at->until : Time::zero();
}

Duration Heartbeat::timeout(std::uint32_t peer) const
{
    for (const Watched &w : watched_) {
        if (w.peer.id == peer) {
            return w.suspicion.timeout(config_.suspicion);
        }
    }
    return Duration::zero();
}

} // namespace ft::detector

// The part of the path set that asks paths whether they carry. PROTOCOL.md, "Paths".
#include <algorithm>

#include "opal/ft/reliability/header.hpp"
#include "opal/ft/reliability/path_set.hpp"

namespace ft::reliability {

namespace {

/// A probe that was sent so many stamps ago (69 s) is forgotten.
constexpr std::uint32_t longest_trip = 1U << 30;

} // namespace

PathId PathSet::probe_wanted() const noexcept
{
    for (PathId id = 0; id < paths_.size(); ++id) {
        if (paths_[id].probe_due && !paths_[id].blocked) {
            return id;
        }
    }
    return no_path;
}

std::uint32_t PathSet::nonce_at(base::Time now) noexcept
{
    return std::max(static_cast<std::uint32_t>(now.ns() >> stamp_shift), 1U);
}

void PathSet::on_probe_sent(PathId id, std::uint32_t nonce, base::Time now)
{
    Path &path = paths_.use(id);
    path.probe_due = false;
    path.probe_in_flight = true;
    path.looked = false;
    path.probe_nonce = nonce;
    if (nonce - path.answered_nonce > longest_trip) {
        path.answered_nonce = nonce - longest_trip;
    }
    // The answer is awaited for one (backed-off) timeout; a path that is down is tried at its own
    // pace while others are ready, and waited for for longer where answers take longer.
    const int doublings = std::min<int>(path.timeouts, 6);
    base::Duration wait = std::min(rto(id) * (std::int64_t{1} << doublings), config_.rto_max);
    const bool at_leisure = path.state == PathState::down && other_ready(id);
    if (at_leisure || path.state == PathState::probing) {
        wait = std::max(wait, probe_patience(path));
    }
    path.next_probe = now + (at_leisure ? std::max(wait, config_.probe_interval) : wait);
    ++counters->rare().probes_sent;
}

base::Time PathSet::probe_sent(const Path &path, base::Time now) noexcept
{
    return now -
           base::Duration::from_ns(std::int64_t{nonce_at(now) - path.probe_nonce} << stamp_shift);
}

base::Duration PathSet::probe_patience(const Path &path) noexcept
{
    return base::Duration::from_ns(std::int64_t{path.probe_trip} << stamp_shift) * 2;
}

void PathSet::on_probe_reply(PathId id, std::uint32_t nonce, base::Time now)
{
    if (serial_diff(nonce, paths_[id].answered_nonce) <= 0 ||
        serial_diff(nonce, paths_[id].probe_nonce) > 0) {
        return; // for the second time, or of a probe from before it went down
    }
    Path &path = paths_.use(id);
    path.answered_nonce = nonce;
    // Who was away reads late what came long ago: that says nothing about how long answers take.
    const bool was_away = path.probe_in_flight && (path.looked || now - path.next_probe > away());
    path.probe_trip = std::max(was_away ? 0 : nonce_at(now) - nonce, path.probe_trip / 2);
    if (nonce == path.probe_nonce) {
        path.probe_in_flight = false;
    } else if (path.probe_in_flight) {
        // Late, but the path carries. The next answer will be late, too.
        path.next_probe = std::max(path.next_probe, now + probe_patience(path));
    }
    path.last_ack = now;
    last_alive_ = now;
    path.timeouts = 0;
    path.strikes = 0;
    switch (path.state) {
    case PathState::suspect:
        change(id, PathState::up, now);
        break;
    case PathState::down:
        change(id, PathState::probing, now);
        [[fallthrough]];
    case PathState::probing:
        saturating_increment(path.confirms);
        if (path.confirms >= config_.probe_confirm &&
            (now >= path.down_since + hold_down(path) || !other_carries(id))) {
            change(id, PathState::up, now);
        } else if (!path.probe_in_flight) {
            const base::Duration pace = config_.probe_interval / 4;
            path.next_probe = now + std::max(pace, base::Duration::from_us(1));
        }
        break;
    case PathState::up:
    case PathState::gone:
        break;
    }
}

void PathSet::seek(base::Time now) noexcept
{
    if (other_ready(no_path)) {
        return;
    }
    paths_.each_used([this, now](PathId id, Path &path) {
        if (path.state == PathState::down) {
            path.probe_due = true;
            path.next_probe = now + rto(id);
        }
    });
}

void PathSet::rest() noexcept
{
    paths_.each_used([](PathId, Path &path) {
        path.probe_due = false;
        path.probe_in_flight = false;
        path.next_probe = base::Time::never();
    });
}

void PathSet::stop_resting(base::Time now) noexcept
{
    paths_.each_used([this, now](PathId id, Path &path) {
        if (path.state != PathState::up && path.state != PathState::gone &&
            path.next_probe.is_never()) {
            path.probe_due = true;
            path.next_probe = now + rto(id);
        }
    });
}

} // namespace ft::reliability

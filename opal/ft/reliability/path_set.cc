#include "opal/ft/reliability/path_set.hpp"

#include <algorithm>

#include "opal/ft/base/assert.hpp"
#include "opal/ft/reliability/header.hpp"

namespace ft::reliability {

namespace {

/// A path that is looked at is left alone for up to so many doublings of explore_interval, while it
/// is found to be as slow as before: what is given to a slow one is waited for.
constexpr unsigned most_looks = 3;
/// A measurement takes so many fragments of full size, or so long: a network that lets a short
/// burst pass faster than it carries in the long run (a token bucket) must not be believed.
constexpr unsigned measured_fragments = 4;
constexpr base::Duration measured_for = base::Duration::from_ms(250);
/// Doublings of what a path is given before it is measured: no window is larger than the last.
constexpr std::uint8_t most_trust = 16;
/// What spurious timeouts have taught is halved after so long without another.
constexpr base::Duration relax_interval = base::Duration::from_s(5);
/// ... and is never more than so many rto_min: a peer that computes for a minute must not teach to
/// wait for a minute, and where tails are lost, too, each costs this. HPCC with 1 % of the
/// fragments lost and two ranks to a core took 35 s with 16, 23 s with 4; both repeat as little
/// needlessly.
constexpr int most_allowance = 4;

/// What a look at it was for is known, if there was one.
void end_look(Path &path, bool slow)
{
    if (!path.looked_at) {
        return;
    }
    path.looked_at = false;
    if (!slow) {
        path.looks = 0;
    } else if (path.looks != most_looks) {
        ++path.looks;
    }
}

/// What it carries is not known, or not any more.
void expect_anew(Path &path)
{
    path.bandwidth = path.info.bandwidth;
    path.measured = false;
    path.trust = 0;
    path.filled = false;
    path.looked_at = false;
    path.looks = 0;
    path.rate_start = base::Time::never();
    path.rate_last = base::Time::never();
    path.rate_drained = true;
    if (path.congestion != nullptr) {
        path.congestion->forget_way();
    }
}

} // namespace

const char *to_string(PathState state) noexcept
{
    switch (state) {
    case PathState::up:
        return "up";
    case PathState::suspect:
        return "suspect";
    case PathState::down:
        return "down";
    case PathState::probing:
        return "probing";
    case PathState::gone:
        return "gone";
    }
    return "?";
}

PathId PathSet::add(const PathInfo &info)
{
    FT_ASSERT(info.bandwidth > 0 && (info.acknowledged || !info.unreliable));
    if (paths_.size() == max_paths) {
        return no_path;
    }
    paths_.add(info);
    any_unreliable_ = any_unreliable_ || info.unreliable;
    any_trusted_ = any_trusted_ || !info.acknowledged;
    return static_cast<PathId>(paths_.size() - 1);
}

bool PathSet::other_up(PathId except) const noexcept
{
    for (PathId id = 0; id < paths_.size(); ++id) {
        if (id != except && paths_[id].state == PathState::up) {
            return true;
        }
    }
    return false;
}

bool PathSet::other_ready(PathId except) const noexcept
{
    for (PathId id = 0; id < paths_.size(); ++id) {
        const Path &path = paths_[id];
        if (id != except && (path.state == PathState::up ||
                             (path.state == PathState::probing && path.confirms != 0))) {
            return true;
        }
    }
    return false;
}

bool PathSet::other_carries(PathId except) const noexcept
{
    for (PathId id = 0; id < paths_.size(); ++id) {
        const Path &path = paths_[id];
        if (id != except &&
            (path.state == PathState::up ||
             (path.state == PathState::suspect && path.strikes < config_.path_retries))) {
            return true;
        }
    }
    return false;
}

bool PathSet::none_in_doubt() const noexcept
{
    bool none = true;
    for (const Path &path : paths_) {
        none = none && (path.state == PathState::up || path.state == PathState::gone);
    }
    return none;
}

bool PathSet::all_gone() const noexcept
{
    bool all = true;
    for (const Path &path : paths_) {
        all = all && path.state == PathState::gone;
    }
    return all;
}

std::uint32_t PathSet::fragment_limit(std::uint32_t wanted) const noexcept
{
    // A path that is gone may come back while a VFRAG that was cut without it is still on its way.
    for (const Path &path : paths_) {
        wanted = std::min(wanted, path.info.max_fragment_bytes);
    }
    return all_gone() ? 0 : wanted;
}

base::Duration PathSet::watchdog(PathId id) const noexcept
{
    // A descriptor may sit behind everything that is queued on the path, so never less than a round
    // trip's timeout.
    return std::max(rto(id), paths_[id].completion.timeout(config_.rto_initial, config_.rto_min,
                                                           config_.rto_max));
}

base::Duration PathSet::hold_down(const Path &path) const noexcept
{
    const int doublings = std::clamp(path.flaps - 1, 0, 6);
    return config_.hold_down * (std::int64_t{1} << doublings);
}

void PathSet::change(PathId id, PathState to, base::Time now)
{
    Path &path = paths_.use(id);
    const PathState from = path.state;
    if (from == to) {
        return;
    }
    path.state = to;
    events.push_back({id, from, to});
    const bool was_usable = from == PathState::up || from == PathState::suspect;
    switch (to) {
    case PathState::suspect:
        ++counters->rare().path_suspect;
        doubted_at_ = now;
        path.rate_drained = true; // what runs on over a silence is no rate
        path.probe_due = true;
        path.probe_in_flight = false;
        path.next_probe = now + rto(id);
        break;
    case PathState::down:
        path.probe_due = false;
        path.probe_in_flight = false;
        path.confirms = 0;
        path.next_probe = now + config_.probe_interval;
        if (was_usable) {
            path.down_since = now;
            path.answered_nonce = path.probe_nonce; // what comes now was asked before
        }
        break;
    case PathState::probing:
        break;
    case PathState::up:
        path.timeouts = 0;
        path.strikes = 0;
        path.confirms = 0;
        path.probe_due = false;
        path.probe_in_flight = false;
        path.next_probe = base::Time::never();
        if (from != PathState::suspect) {
            ++counters->rare().path_up;
            ++path.returns;
            expect_anew(path);
        }
        break;
    case PathState::gone:
        path.probe_due = false;
        path.probe_in_flight = false;
        path.next_probe = base::Time::never();
        break;
    }
    if ((to == PathState::down || to == PathState::gone) && was_usable) {
        ++counters->rare().path_down;
        ++path.failovers;
        saturating_increment(path.flaps); // a connection that is reset again and again flaps, too
    }
}

void PathSet::on_timeout(PathId id, base::Time now, base::Time sent)
{
    Path &path = paths_.use(id);
    // What was sent together times out together, and is answered for once: if the path has become
    // slow, all of it is late by the same queue. From one strike to the next it gets a timeout,
    // doubled each time, as its answers may take so many times longer than they did.
    const int doublings = std::clamp(path.strikes - 1, 0, 6);
    const base::Duration apart =
        std::min(rto(id) * (std::int64_t{1} << doublings), config_.rto_max);
    if (path.timeouts != 0 && now - path.last_timeout < apart) {
        return;
    }
    saturating_increment(path.timeouts);
    // Only an answer over another path, since the last look and since this one was asked, tells a
    // dead path from a peer that computes: one that answered there before and then fell silent
    // altogether is no witness.
    if (last_alive_ > std::max({path.last_ack, path.last_timeout, sent})) {
        saturating_increment(path.strikes);
        // What is late and sent again measures nothing: a path that is far slower than believed
        // would be believed for ever.
        if (path.in_flight >= loaded_bytes) {
            path.bandwidth /= 2;
            end_look(path, true);
        }
    }
    path.last_timeout = now;
    if (config_.disable_failover) {
        return;
    }
    // A peer that does not look: another path would only have to be connected. Each timeout in a
    // row is twice as long as the one before, so together this is about rto_max.
    if (waits_for_peer(id) && path.strikes == 0 && now - sent < config_.rto_max / 2) {
        return;
    }
    if (path.state == PathState::up) {
        change(id, PathState::suspect, now);
        seek(now);
    }
    if (path.state == PathState::suspect && path.strikes >= config_.path_retries && other_up(id)) {
        change(id, PathState::down, now);
    }
}

void PathSet::on_unanswered(PathId id, base::Time now)
{
    if (paths_[id].state == PathState::probing && !config_.disable_failover) {
        change(id, PathState::down, now);
        seek(now);
    }
}

void PathSet::on_spurious_timeout(PathId id, base::Duration round_trip, base::Time now)
{
    ++counters->rare().spurious_timeouts;
    // RFC 4015 widens SRTT and RTTVAR. Here thousands of samples a second would have forgotten that
    // before the peer is late again, so it is kept by itself, and forgotten by time.
    const base::Duration taught = std::min(round_trip * 3 / 2, config_.rto_min * most_allowance);
    allowance_ = std::max(allowance_, taught);
    relax_at_ = now + relax_interval;
    on_alive(id, now);
}

void PathSet::come_alive(PathId id, base::Time now)
{
    const Path &path = paths_[id];
    if (path.state == PathState::suspect) {
        change(id, PathState::up, now);
    } else if ((path.state == PathState::down || path.state == PathState::probing) &&
               !other_carries(id)) {
        // Tried as a last resort, and it carried something: nothing better is known.
        change(id, PathState::up, now);
    }
}

void PathSet::on_error(PathId id, base::Time now)
{
    change(id, PathState::gone, now);
    seek(now);
}

void PathSet::begin_load(PathId id, base::Time now)
{
    Path &path = paths_.use(id);
    if (path.rate_start.is_never()) {
        path.rate_start = now;
        path.rate_bytes = 0;
    } else {
        // Bursts are measured together, without the time between them: a rail that carries a
        // fragment or two of each would never be measured by one. What was declared lost at the end
        // of one is neither carried nor waited for.
        path.rate_start += now - path.rate_last;
    }
    path.rate_last = now;
    path.rate_drained = false;
}

void PathSet::measure(PathId id, std::uint64_t bytes, base::Time now)
{
    // What is acknowledged at one moment came in some time before it: an interval runs from one
    // such moment, exclusive, or from the sending that began the load, to another, inclusive, and
    // is closed when the next one comes.
    Path &path = paths_.use(id);
    if (now != path.rate_last) {
        const base::Duration elapsed = path.rate_last - path.rate_start;
        const std::uint64_t enough = std::uint64_t{measured_fragments} *
                                     std::min(config_.fragment_bytes, path.info.max_fragment_bytes);
        // Of a round trip that is long by what stands in the queue, a part will do.
        const base::Duration trip =
            std::min(path.rtt.smoothed(), std::max(path.rtt.minimum(), measured_for));
        if (elapsed >= std::max(trip, base::Duration::from_ms(1)) && path.rate_bytes > 0 &&
            (path.rate_bytes >= enough || elapsed >= measured_for)) {
            const double rate =
                static_cast<double>(path.rate_bytes) / static_cast<double>(elapsed.ns());
            // What the transport said of itself may be far off; the first look at it holds. Later
            // ones are averaged by the time that a byte takes: that a path has become slow is
            // believed at once, as all wait for what it was given.
            end_look(path, rate * 2 < path.bandwidth);
            path.bandwidth = path.measured ? 2 / (1 / path.bandwidth + 1 / rate) : rate;
            path.measured = true;
            path.rate_start = path.rate_last;
            path.rate_bytes = 0;
            path.rate_at = now;
            explore(id, now);
        }
    }
    path.rate_bytes += bytes;
    path.rate_last = now;
    // Less than the way itself holds: the program is the limit.
    const auto way = path.rtt.has_sample()
                         ? static_cast<double>(path.rtt.minimum().ns()) * path.bandwidth
                         : static_cast<double>(loaded_bytes);
    path.rate_drained = static_cast<double>(path.in_flight) <
                        std::clamp(2 * way, 1.0, static_cast<double>(loaded_bytes));
}

void PathSet::ran_dry(PathId id, base::Time now)
{
    // What was carried in half of the time that a path may be ahead may be twice as much, whether
    // that is enough to be measured by or not.
    Path &path = paths_.use(id);
    const auto took = static_cast<std::uint16_t>((now.ns() >> fill_shift) - path.filled_at);
    if (took <= (most_ahead / 2).ns() >> fill_shift && path.trust < most_trust) {
        ++path.trust;
    }
    path.filled = false;
}

void PathSet::explore(PathId measured, base::Time now)
{
    // Whoever is believed slow gets nothing, and who gets nothing is not measured: the first path
    // to be measured would keep all the load. An eighth of the best is enough to be loaded where
    // much is sent, and costs little where the path is slow indeed. Where little is, twice as much
    // is looked at each time.
    const double best = paths_[measured].bandwidth;
    for (PathId id = 0; id < paths_.size(); ++id) {
        const Path &seen = paths_[id];
        const base::Duration interval =
            seen.looked_at ? explore_interval : explore_interval * (std::int64_t{1} << seen.looks);
        if (seen.state == PathState::up && seen.in_flight < loaded_bytes && seen.bandwidth < best &&
            preference(seen) == preference(paths_[measured]) && now - seen.rate_at >= interval) {
            Path &path = paths_.use(id);
            path.rate_at = now;
            path.looked_at = true;
            path.bandwidth = std::min(best, std::max(2 * path.bandwidth, best / 8));
        }
    }
}

void PathSet::revive(PathId id, base::Time now)
{
    Path &path = paths_.use(id);
    if (path.state != PathState::gone) {
        return;
    }
    path.blocked = false;
    path.held = 0; // of the fresh transport; `release` knows the others by their time
    path.refused_tx = UINT32_MAX; // that was its predecessor
    path.revived_at = now;
    path.confirms = 0;
    path.timeouts = 0;
    path.strikes = 0;
    path.down_since = now;
    path.rtt = RttEstimator{};
    path.completion = RttEstimator{};
    path.answered_nonce = nonce_at(now) - 1;
    path.probe_trip = 0;
    expect_anew(path);
    change(id, PathState::probing, now);
    doubted_at_ = now;
    path.probe_due = true;
    path.next_probe = now + rto(id);
}

void PathSet::release(PathId id, base::Time sent_at) noexcept
{
    Path &path = paths_.use(id); // it was when it took the descriptor
    if (sent_at >= path.revived_at && path.held > 0) {
        --path.held;
    }
}

void PathSet::on_time(base::Time now)
{
    keep_pace(now);
    if (allowance_ > base::Duration{} && now >= relax_at_) {
        relax_at_ = now + relax_interval;
        allowance_ = allowance_ > config_.rto_min ? allowance_ / 2 : base::Duration{};
    }
    for (PathId id = 0; id < paths_.size(); ++id) {
        if (now < paths_[id].next_probe) {
            continue;
        }
        Path &path = paths_.use(id);
        if (path.probe_in_flight && !path.looked && now - path.next_probe > away()) {
            path.looked = true;
            path.next_probe = now + away();
            continue;
        }
        // Not answered, or not even taken by the BTL within its time: either way nothing came back
        // over this path.
        if (path.probe_in_flight || path.probe_due) {
            if (path.state == PathState::probing) {
                change(id, PathState::down, now);
            } else {
                on_timeout(id, now, path.probe_in_flight ? probe_sent(path, now) : base::Time{});
            }
        }
        if (path.state == PathState::up || path.state == PathState::gone) {
            continue;
        }
        path.probe_in_flight = false;
        if (path.next_probe <= now) {
            path.probe_due = true;
            path.next_probe = now + std::max(rto(id), config_.probe_interval);
        }
    }
}

base::Time PathSet::next_deadline() const noexcept
{
    base::Time earliest = base::Time::never();
    for (const Path &path : paths_) {
        earliest = std::min(earliest, path.next_probe);
        if (path.pausing) {
            earliest = std::min(earliest, path.congestion->resumes());
        }
    }
    return earliest;
}

} // namespace ft::reliability

// The part of the path set that chooses: which path carries the next fragment. PROTOCOL.md,
// "Paths".
#include <algorithm>

#include "opal/ft/reliability/path_set.hpp"

namespace ft::reliability {

namespace {

/// Its shortest round trip is believed once so many fragments were acknowledged.
constexpr std::uint64_t known_after = 16;
/// Of one that is full: about when it has room again can be told, and a timer runs in case that it
/// has not. Nobody knows how long a BTL refuses, or a congestion window, or a path in doubt.
bool worth_waiting_for(const Path &path)
{
    return path.state == PathState::up && path.measured && path.in_flight != 0 && !path.blocked &&
           path.congestion == nullptr;
}

/// By what was measured, if there was anything.
base::Duration measured_latency(const Path &path)
{
    return path.rtt.has_sample() ? path.rtt.minimum() / 2 : path.info.latency;
}

} // namespace

int PathSet::preference(const Path &path) const noexcept
{
    switch (path.state) {
    case PathState::up:
        return path.info.in_memory && !config_.stripe_memory && !refuses(path) ? 0 : 1;
    case PathState::probing:
        return path.confirms != 0 ? 2 : 4;
    case PathState::suspect:
        return 3;
    case PathState::down:
        return 4;
    case PathState::gone:
        break;
    }
    return no_preference;
}

bool PathSet::refuses(const Path &path) const noexcept
{
    return path.refused_tx == path.next_tx && now_ - path.refused_at > config_.rto_max / 2;
}

void PathSet::keep_pace(base::Time now) noexcept
{
    now_ = now;
    if (!any_unreliable_) {
        return;
    }
    paths_.each_used([now](PathId, Path &path) {
        path.pausing = path.congestion != nullptr && path.congestion->pausing(now);
    });
}

bool PathSet::far_ahead(const Path &path, std::uint64_t bytes) const noexcept
{
    if (preference(path) == 0) {
        return false; // nothing relieves it
    }
    // One that is too little loaded to be measured would be believed to be slow for ever.
    const std::uint64_t fragment = std::min(config_.fragment_bytes, path.info.max_fragment_bytes);
    const std::uint64_t least = 2 * std::max(loaded_bytes, fragment);
    const std::uint64_t then = path.in_flight + bytes;
    if (!path.measured && path.congestion == nullptr) {
        return then > least << path.trust;
    }
    const base::Duration trip = path.rtt.has_sample() ? path.rtt.minimum() : path.info.latency;
    const auto time = static_cast<double>((most_ahead + trip * 2).ns());
    return then > least && static_cast<double>(then) > time * path.bandwidth;
}

base::Duration PathSet::latency(const Path &path) const noexcept
{
    // Round trips to a process that does not look, as when a job begins, are long; and what seems
    // slow by them is given no short message that would show better. So the word of its BTL holds,
    // if that is better, until enough is known, and again when nothing was measured for a while.
    const bool is_new =
        path.fragments_acked < known_after ||
        (path.revived_at > base::Time{} && now_ - path.revived_at < explore_interval);
    const bool known = !is_new && now_ - path.sampled_at < explore_interval;
    return known ? measured_latency(path) : std::min(measured_latency(path), path.info.latency);
}

PathId PathSet::pick_of_several(std::uint64_t bytes, PathId avoid, bool urgent) const noexcept
{
    // What is to be avoided does not keep others out, as memory would.
    const auto class_of = [&](PathId id) {
        const int its_class = preference(paths_[id]);
        return id == avoid ? std::max(its_class, 1) : its_class;
    };
    int best_class = no_preference;
    for (PathId id = 0; id < paths_.size(); ++id) {
        best_class = std::min(best_class, class_of(id));
    }
    if (best_class == no_preference) {
        return no_path;
    }
    PathId best = no_path;
    double best_eta = 0;
    bool best_avoided = false;
    bool best_has_room = false;
    for (PathId id = 0; id < paths_.size(); ++id) {
        const Path &path = paths_[id];
        const bool room = has_room(path, bytes, urgent) && (urgent || !far_ahead(path, bytes));
        if (class_of(id) != best_class ||
            (!room && (urgent || avoid != no_path || !worth_waiting_for(path)))) {
            continue;
        }
        const double eta = static_cast<double>(latency(path).ns()) +
                           static_cast<double>(path.in_flight + bytes) / path.bandwidth;
        const bool avoided = id == avoid;
        if (best == no_path || (best_avoided && !avoided) ||
            (best_avoided == avoided && eta < best_eta)) {
            best = id;
            best_eta = eta;
            best_avoided = avoided;
            best_has_room = room;
        }
    }
    // A full one is waited for where that is sooner than what another takes.
    return best_has_room ? best : no_path;
}

std::uint32_t PathSet::preferred_of_several(PathId best) const noexcept
{
    // What is believed of latencies changes with time: this holds for all that it may become.
    const Path &it = paths_[best];
    auto bytes = static_cast<double>(loaded_bytes - 1); // more is measured, and may be its fill
    for (PathId id = 0; id < paths_.size(); ++id) {
        const Path &path = paths_[id];
        if (id != best && preference(path) <= preference(it)) {
            const auto later = static_cast<double>(
                (std::min(measured_latency(path), path.info.latency) - measured_latency(it)).ns());
            const double until = later + static_cast<double>(path.in_flight) / path.bandwidth;
            bytes = std::min(bytes, until * it.bandwidth);
        }
    }
    return static_cast<std::uint32_t>(std::max(bytes, 0.0));
}

PathId PathSet::pick_control(PathId wanted, std::uint64_t turn, bool asks) const noexcept
{
    bool acknowledged_only = false;
    if (asks && any_trusted_) [[unlikely]] {
        for (const Path &path : paths_) {
            acknowledged_only =
                acknowledged_only || (path.info.acknowledged && path.state != PathState::gone);
        }
    }
    const auto may = [acknowledged_only](const Path &path) {
        return !acknowledged_only || path.info.acknowledged;
    };
    const auto usable = [&may](const Path &path) {
        return path.state != PathState::gone && !path.blocked && may(path);
    };
    if (wanted < paths_.size() && usable(paths_[wanted])) {
        return wanted;
    }
    int best_class = no_preference;
    unsigned count = 0;
    for (const Path &path : paths_) {
        // Memory has room sooner than another is connected.
        const bool counts = usable(path) || (preference(path) == 0 && may(path));
        const int its_class = counts ? preference(path) : no_preference;
        if (its_class < best_class) {
            best_class = its_class;
            count = 0;
        }
        count += its_class == best_class && usable(path) ? 1 : 0;
    }
    if (count == 0 || best_class == no_preference) {
        return no_path;
    }
    turn %= count;
    PathId id = 0;
    while (!usable(paths_[id]) || preference(paths_[id]) != best_class || turn-- != 0) {
        ++id;
    }
    return id;
}

} // namespace ft::reliability

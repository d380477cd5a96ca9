// What strikes a run of the swarm beside its family's faults. Each axis is drawn from a generator
// of its own, and its runs come beside the others, so that a seed's plain run stays what it was.
#include "test/sim/membership/scenario_run.hpp"

#include <algorithm>

namespace sim {

namespace {

constexpr std::array<const char *, axis_count> axis_names{
    "nothing else",
    "losses in bursts",
    "the nth message lost",
    "one kind of message lost",
    "ways a hundred times as long",
    "ways a hundred times as long, beyond the timeouts",
    "one daemon and those who join it",
    "what is cut off arrives when the network heals",
};

template <typename T, std::size_t n>
T any_of(Rng &rng, const std::array<T, n> &values)
{
    return values[rng.below(n)];
}

Time within(Rng &rng, std::int64_t most_us)
{
    return Time::zero() + Duration::from_us(static_cast<std::int64_t>(
                              rng.below(static_cast<std::uint64_t>(most_us))));
}

} // namespace

const char *name(Axis axis)
{
    return axis_names[static_cast<unsigned>(axis)];
}

Axis axis_of(std::uint64_t seed)
{
    // Every axis meets every family.
    const std::uint64_t dice = seed / family_count % 16;
    return dice < axis_count ? static_cast<Axis>(dice) : Axis::none;
}

/// At which level of its view's tree `id` fails, and whether it leads a change.
void Run::count_level(NodeId id)
{
    if (!world_.running(id) || world_.stopped(id)) {
        return;
    }
    const Stabilizer &e = world_.engine(id);
    if (e.state() != State::member || !e.view()->contains(id)) {
        return;
    }
    unsigned level = 0;
    for (NodeId up = e.view()->parent(id); up != no_node; up = e.view()->parent(up)) {
        ++level;
    }
    level = std::min(level, level_count - 1);
    failed_at_.set(level);
    if (e.acting_root() == id && !e.quiet()) {
        leader_failed_at_.set(level);
    }
}

void Run::plan_axis()
{
    const Rng rng(seed_ * 0xaef17502108ef2d9U + static_cast<unsigned>(axis_));
    switch (axis_) {
    case Axis::none:
        break;
    case Axis::bursts:
        plan_bursts(rng);
        break;
    case Axis::nth:
        plan_nth(rng);
        break;
    case Axis::one_kind:
        plan_one_kind(rng);
        break;
    case Axis::slow:
    case Axis::too_slow:
        plan_slow(rng);
        break;
    case Axis::one_daemon:
        plan_one_daemon(rng);
        break;
    case Axis::kept:
        world_.keep_what_is_cut = [this](const Message &m) {
            axis_struck_ += m.type != Type::heartbeat;
        };
        break;
    }
}

/// Each way between two nodes, or the network as a whole, is good or bad, and may change with every
/// message (Gilbert, Bell System Technical Journal 39, 1960; Elliott, 42, 1963). A strike is three
/// losses in a row.
void Run::plan_bursts(Rng rng)
{
    gentle_ = false;
    may_stall_ = true;
    const bool whole = rng.below(4) == 0;
    const double begins = any_of(rng, std::array{0.002, 0.01, 0.05});
    const double ends = 1 / any_of(rng, std::array{3.0, 10.0, 40.0});
    const double loss = any_of(rng, std::array{0.7, 1.0, 1.0});
    struct Way {
        bool bad = false;
        unsigned in_a_row = 0;
    };
    world_.on_way = [=, this,
                     ways = std::map<std::pair<NodeId, NodeId>, Way>()](const Message &m) mutable {
        Way &way = ways[whole ? std::pair(no_node, no_node) : std::pair(m.from, m.to)];
        way.bad = way.bad ? !rng.chance(ends) : rng.chance(begins);
        if (!way.bad || !rng.chance(loss)) {
            way.in_a_row = 0;
            return true;
        }
        axis_struck_ += ++way.in_a_row == 3;
        lost_.set(static_cast<unsigned>(m.type));
        return false;
    };
}

/// The nth message of a kind is lost, or the nth of all, and nobody dies of it; or every nth is.
void Run::plan_nth(Rng rng)
{
    // 0: of all, heartbeats apart.
    const std::uint64_t dice = rng.below(type_count + 2);
    const auto kind = static_cast<unsigned>(dice < type_count ? dice : 0);
    const bool again = rng.below(4) == 0;
    const std::uint64_t n = again ? rng.between(2, 8) : rng.between(1, n_ + (kind == 0 ? n_ : 0));
    // That one message is lost makes nobody look dead.
    gentle_ = gentle_ && !again;
    may_stall_ = again;
    world_.on_way = [=, this, count = std::uint64_t{0}](const Message &m) mutable {
        const bool counts =
            kind == 0 ? m.type != Type::heartbeat : m.type == static_cast<Type>(kind);
        if (!counts || ++count < n) {
            return true;
        }
        if (again) {
            count = 0;
        } else if (count > n) {
            return true;
        }
        axis_struck_ += world_.running(m.to);
        lost_.set(static_cast<unsigned>(m.type));
        return false;
    };
}

/// All messages of one kind are lost, or half of them; or all proposals, or all votes.
void Run::plan_one_kind(Rng rng)
{
    gentle_ = false;
    may_stall_ = true;
    const std::uint64_t dice = rng.below(type_count + 3);
    const double share = any_of(rng, std::array{0.5, 1.0});
    world_.on_way = [=, this](const Message &m) mutable {
        const bool strikes = dice == 0 || dice == type_count ? is_vote(m.type)
                             : dice > type_count             ? is_proposal(m.type)
                                                             : m.type == static_cast<Type>(dice);
        if (!strikes || !rng.chance(share)) {
            return true;
        }
        axis_struck_ += world_.running(m.to);
        lost_.set(static_cast<unsigned>(m.type));
        return false;
    };
}

/// Every way becomes a hundred times as long at some moment, and in some runs as short as it was at
/// a later one. Within the timeouts nothing changes by that: nobody looks dead, and all come to
/// rest. Beyond them, a question and its answer take longer than `probe_timeout`: as long as it
/// lasts, only what may never happen is checked.
void Run::plan_slow(Rng rng)
{
    const bool beyond = axis_ == Axis::too_slow;
    const Weather before = world_.weather();
    Duration latency = before.latency;
    if (beyond) {
        gentle_ = false;
        may_stall_ = true;
        latency = Duration::from_us(static_cast<std::int64_t>(rng.between(1000, 4000)));
        world_.weather().latency = latency;
    }
    world_.on_way = [this, latency](const Message &m) {
        axis_struck_ += m.type != Type::heartbeat && world_.weather().latency > latency;
        return true;
    };
    const Time from = within(rng, 600'000);
    world_.at(from, [this, latency] {
        world_.weather().latency = latency * 100;
        world_.weather().jitter = std::max(world_.weather().jitter, latency * 40);
    });
    if (rng.below(2) == 0) {
        const Time until =
            std::min(from + (within(rng, 1'000'000) - Time::zero()), Time::zero() + storm_);
        world_.at(until, [this, latency, jitter = before.jitter] {
            world_.weather().latency = latency;
            world_.weather().jitter = jitter;
        });
    } else {
        live_ = !beyond;
    }
}

/// One daemon is the whole job. Others join it; it and they die, come back, are stopped, cut off,
/// leave. A strike is a view of more than one.
void Run::plan_one_daemon(Rng rng)
{
    const std::uint64_t others = rng.between(0, 6);
    // In half of the runs a newcomer knows of none that is started after it, and learns of those
    // only when it is given a view.
    if (rng.below(2) == 0) {
        world_.announce(static_cast<Position>(others) + 1);
    }
    const auto anybody = [&] { return static_cast<NodeId>(rng.between(0, others)); };
    const auto moment = [&] { return within(rng, 1'200'000); };
    for (std::uint64_t id = 1; id <= others; ++id) {
        world_.at(moment(), [this, id] { world_.start(static_cast<NodeId>(id)); });
    }
    if (rng.below(4) == 0) {
        world_.weather().loss = any_of(rng, std::array{0.01, 0.05, 0.3});
    }
    if (rng.below(3) == 0) {
        plan_trigger();
    }
    for (std::uint64_t i = rng.below(4); i > 0; --i) {
        const NodeId id = anybody();
        const Time t = moment();
        const Time later = t + (within(rng, 800'000) - Time::zero());
        switch (rng.below(6)) {
        case 0:
            world_.at(t, [this, id] { stop(id); });
            world_.at(later, [this, id] { world_.resume(id); });
            break;
        case 1:
            world_.at(t, [this, id] { world_.partition({id}, true); });
            world_.at(later, [this] { world_.heal(); });
            break;
        case 2:
            world_.at(t, [this, id] { world_.leave(id); });
            break;
        case 3:
            world_.at(t, [this, id, by = later - t] { world_.step_clock(id, by); });
            break;
        default:
            kill_at(t, id, rng.below(3) == 0 ? Death::silent : Death::loud);
            if (rng.below(2) == 0) {
                world_.at(later, [this, id] { world_.start(id); });
            }
        }
    }
}

} // namespace sim

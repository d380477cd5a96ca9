#include "test/sim/membership/scenario.hpp"

#include "test/sim/membership/scenario_run.hpp"

#include <algorithm>

namespace sim {

namespace {

/// Whether `top` lies on the way from the root to `p`, or is `p`.
bool is_above(const RadixTree &shape, Position top, Position p)
{
    while (p > top) {
        p = shape.parent(p);
    }
    return p == top;
}

} // namespace

Config Run::configure(Mutation mutation)
{
    static constexpr std::array<unsigned, 4> arities{2, 2, 4, 8};
    config_.arity = arities[rng_.below(4)];
    config_.mode = rng_.below(6) == 0 ? TreeMode::paper : TreeMode::rebuild;
    static constexpr std::array<int, 3> waits{0, 1000, 4000};
    config_.minority_wait = Duration::from_ms(waits[rng_.below(3)]);
    config_.exile_hold = std::max(Duration::from_ms(1000), config_.minority_wait);
    config_.mutation = mutation;
    return config_;
}

Position Run::pick_size()
{
    if (axis_ == Axis::one_daemon) {
        return n_ = 1;
    }
    const std::uint64_t dice = rng_.below(100);
    n_ = static_cast<Position>(family_ == 15 ? rng_.between(3, 28)
                               : dice < 60   ? rng_.between(2, 6)
                               : dice < 85   ? rng_.between(4, 12)
                               : dice < 96   ? rng_.between(8, 28)
                                             : rng_.between(24, 64));
    return n_;
}

Weather Run::pick_weather()
{
    Weather w;
    if (family_ == 8 || (family_ >= 9 && family_ <= 11 && rng_.below(3) == 0)) {
        static constexpr std::array<double, 4> losses{0.001, 0.01, 0.05, 0.3};
        w.loss = losses[rng_.below(4)];
        w.duplicate = rng_.below(2) == 0 ? 0.1 : 0.0;
        w.jitter = Duration::from_us(rng_.below(2) == 0 ? 20 : 5000);
    }
    return w;
}

void Run::plan()
{
    if (family_ < 4 && rng_.below(4) == 0) {
        stopping_ = true;
    }
    switch (axis_ == Axis::one_daemon ? family_count : family_) {
    case 0:
        gentle_ = true;
        kill_at(soon(400'000), any(), any_death());
        if (rng_.below(3) == 0) {
            world_.at(soon(400'000), [this, id = any()] {
                ++struck_;
                world_.leave(id);
            });
        }
        break;
    case 1: {
        gentle_ = true;
        const Time t = soon(400'000);
        const std::uint64_t chain = rng_.between(1, std::min<std::uint64_t>(4, n_ - 1));
        const bool at_once = rng_.below(2) == 0;
        for (NodeId id = 0; id < chain; ++id) {
            kill_at(at_once ? t
                            : t + Duration::from_us(static_cast<std::int64_t>(rng_.below(500'000))),
                    id, any_death());
        }
        if (rng_.below(2) == 0) {
            kill_at(t, any(), any_death());
        }
        break;
    }
    case 2: {
        gentle_ = true;
        const NodeId top = any();
        const RadixTree shape(config_.arity);
        const Time t = soon(400'000);
        for (NodeId id = 0; id < n_; ++id) {
            if (is_above(shape, top, id)) {
                kill_at(t, id, any_death());
            }
        }
        break;
    }
    case 3: {
        gentle_ = true;
        const std::uint64_t k = rng_.between(1, n_ - 1);
        const Time t = soon(400'000);
        const Death how = any_death();
        const bool at_once = rng_.below(2) == 0;
        for (std::uint64_t i = 0; i < k; ++i) {
            kill_at(at_once ? t : soon(900'000), any(), how);
        }
        break;
    }
    case 4: {
        const NodeId id = any();
        kill_at(soon(300'000), id, any_death());
        // Beside plain changes those in which the other kinds of messages are sent.
        switch (rng_.below(5)) {
        case 0:
            world_.at(soon(600'000), [this] { world_.start(n_); });
            break;
        case 1:
            world_.at(Time::zero() + Duration::from_ms(300) + (soon(600'000) - world_.now()),
                      [this, id] { world_.start(id); });
            break;
        case 2:
            world_.at(soon(600'000), [this, leaver = any()] { world_.leave(leaver); });
            break;
        case 3:
            plan_partition(rng_.below(2) == 0);
            break;
        default:
            break;
        }
        plan_trigger();
        break;
    }
    case 5:
        if (rng_.below(8) == 0) {
            plan_long_stop();
            break;
        }
        for (std::uint64_t i = rng_.between(1, 2); i > 0; --i) {
            const NodeId id = any();
            const Time t = soon(400'000);
            world_.at(t, [this, id] {
                struck_ += world_.running(id);
                stop(id);
            });
            world_.at(t + Duration::from_us(static_cast<std::int64_t>(rng_.below(2'000'000))),
                      [this, id] { world_.resume(id); });
        }
        if (rng_.below(2) == 0) {
            kill_at(soon(600'000), any(), any_death());
        }
        break;
    case 6:
        plan_partition(true);
        break;
    case 7:
        plan_partition(false);
        break;
    case 8:
        for (std::uint64_t i = rng_.between(1, 3); i > 0; --i) {
            kill_at(soon(800'000), any(), any_death());
        }
        break;
    case 9:
        for (std::uint64_t i = rng_.between(1, 4); i > 0; --i) {
            const NodeId id = any();
            const Time t = soon(700'000);
            kill_at(t, id, any_death());
            if (rng_.below(3) != 0) {
                world_.at(t + Duration::from_us(static_cast<std::int64_t>(rng_.below(600'000))),
                          [this, id] { world_.start(id); });
            }
        }
        if (rng_.below(2) == 0) {
            world_.at(soon(800'000), [this] { world_.start(n_); });
        }
        if (rng_.below(3) == 0) {
            plan_trigger();
        }
        break;
    case 10:
        for (std::uint64_t i = rng_.between(2, 5); i > 0; --i) {
            switch (rng_.below(6)) {
            case 0:
                plan_partition(rng_.below(2) == 0);
                break;
            case 1: {
                const NodeId id = any();
                const Time t = soon(900'000);
                world_.at(t, [this, id] { stop(id); });
                world_.at(t + Duration::from_us(static_cast<std::int64_t>(rng_.below(1'000'000))),
                          [this, id] { world_.resume(id); });
                break;
            }
            case 2:
                world_.at(soon(1'200'000), [this, id = any()] { world_.start(id); });
                break;
            case 3:
                plan_trigger();
                break;
            default:
                kill_at(soon(900'000), any(), any_death());
            }
        }
        break;
    case 11:
        switch (rng_.below(4)) {
        case 0:
        case 1:
            plan_one_after_the_other();
            break;
        case 2:
            plan_pieces();
            break;
        default:
            plan_votes_of_the_dead();
        }
        break;
    case 12:
        plan_changing_sides();
        break;
    case 13:
        plan_bad_link();
        break;
    case 14:
        plan_clock_steps();
        break;
    case 15:
        plan_heard_by_others();
        break;
    default:
        break;
    }
    gentle_ = gentle_ && !stopping_;
    plan_axis();
    world_.rejoin_evicted = rng_.below(2) == 0;
    for (std::uint64_t i = rng_.below(8); i > 0; --i) {
        world_.at(soon(1'800'000), [this, id = any()] { world_.multicast(id); });
    }
}

Result Run::run()
{
    plan();
    world_.run_until(Time::zero() + storm_);
    // The storm is over: whoever stands must come to rest in one view.
    world_.heal();
    world_.weather().loss = 0;
    world_.weather().duplicate = 0;
    world_.weather().jitter = Duration::from_us(20);
    world_.on_way = nullptr;
    world_.on_send = nullptr;
    world_.on_receive = nullptr;
    for (NodeId id = 0; id < world_.capacity(); ++id) {
        if (world_.running(id)) {
            world_.resume(id);
        }
    }
    const Time limit = world_.now() + Duration::from_s(live_ ? 30 : 5);
    do {
        world_.run_until(world_.now() + Duration::from_ms(50));
    } while (world_.now() < limit && world_.violations().empty() && !world_.settled());
    world_.check_end(live_);
    Result r;
    r.violations = world_.violations();
    r.events = world_.events();
    r.installs = world_.installs();
    r.evictions = world_.evictions();
    r.faults_struck = struck_;
    r.struck_at = struck_at_;
    r.axis_struck = axis_struck_;
    r.lost = lost_;
    r.failed_at = failed_at_;
    r.leader_failed_at = leader_failed_at_;
    r.nodes = n_;
    r.commits = world_.commit_count();
    r.kind = axis_ == Axis::none ? family_names[family_]
                                 : std::string(family_names[family_]) + ", " + name(axis_);
    return r;
}

const char *family_name(unsigned family)
{
    return family_names[family % family_count];
}

Result run_scenario(std::uint64_t seed, Mutation mutation, bool verbose, bool forger_has_key,
                    Axis axis)
{
    Run run(seed, mutation, verbose, forger_has_key, axis);
    return run.run();
}

} // namespace sim

#include "test/sim/membership/scenario.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace sim {

namespace {

constexpr std::array<const char *, family_count> names{
    "one death",          "root deaths",        "subtree death", "k of n",
    "death at a message", "false suspicion",    "partition",     "one-way partition",
    "bad weather",        "joins and restarts", "many faults",   "votes of the dead",
    "changing sides",     "one bad link",       "clock steps",   "heard by others",
};

class Run {
  public:
    Run(std::uint64_t seed, Mutation mutation, bool verbose)
        : rng_(seed * 0x9e3779b97f4a7c15U + 1),
          family_(static_cast<unsigned>(seed % family_count)),
          world_(configure(mutation), pick_size(), pick_weather(), seed,
                 static_cast<unsigned>(seed / family_count % 3))
    {
        world_.verbose = verbose;
        world_.through_bytes = seed % 16 == 0;
        world_.on_event = [this](NodeId, const Event &e) {
            if (e.kind == Event::Kind::believed && heal_after_ != Duration::zero()) {
                world_.at(world_.now() + heal_after_, [this] { world_.heal(); });
                heal_after_ = Duration::zero();
            }
            if (e.kind == Event::Kind::evicted && gentle_) {
                world_.violation("accuracy: a live node was evicted without stop, cut or storm");
            }
        };
        if (verbose) {
            std::printf("# seed %llu: %s, %u nodes, arity %u, loss %.3f, %s tree\n",
                        static_cast<unsigned long long>(seed), names[family_], n_, config_.arity,
                        world_.weather().loss,
                        config_.mode == TreeMode::rebuild ? "rebuilt" : "repaired");
        }
    }

    Result run();

  private:
    Config configure(Mutation mutation);
    Position pick_size();
    Weather pick_weather();
    NodeId any() { return static_cast<NodeId>(rng_.below(n_)); }
    Time soon(std::int64_t most_us)
    {
        return world_.now() + Duration::from_us(static_cast<std::int64_t>(
                                  rng_.below(static_cast<std::uint64_t>(most_us) + 1)));
    }
    /// Kills it, or stops it, which looks the same to the others until it is resumed.
    void kill(NodeId id, Death how)
    {
        struck_ += world_.running(id);
        if (!stopping_) {
            world_.kill(id, how);
            return;
        }
        world_.stop(id);
        if (rng_.below(2) == 0) { // else when the storm is over
            world_.at(soon(1'500'000), [this, id] { world_.resume(id); });
        }
    }
    void kill_at(Time t, NodeId id, Death how)
    {
        world_.at(t, [this, id, how] { kill(id, how); });
    }
    Death any_death() { return rng_.below(3) == 0 ? Death::silent : Death::loud; }
    void plan();
    void plan_trigger();
    void plan_partition(bool both_ways);
    void plan_votes_of_the_dead();
    void plan_changing_sides();
    void plan_bad_link();
    void plan_clock_steps();
    void plan_heard_by_others();
    void plan_long_stop();
    std::set<NodeId> any_side();

    Rng rng_;
    unsigned family_;
    Position n_ = 0;
    Config config_;
    bool gentle_ = false;   // nothing in it that could make a live node look dead
    bool stopping_ = false; // who is to die is stopped instead
    unsigned struck_ = 0;
    std::bitset<type_count> struck_at_; // kinds of messages at which a death or a stop struck
    Duration heal_after_;               // the network heals so long after the first belief
    Duration storm_ = Duration::from_ms(1500);
    World world_;
};

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

std::set<NodeId> Run::any_side()
{
    std::set<NodeId> side;
    const std::uint64_t size = rng_.between(1, n_ - 1);
    while (side.size() < size) {
        side.insert(any());
    }
    return side;
}

void Run::plan_partition(bool both_ways)
{
    const Time t = soon(400'000);
    const unsigned cuts = rng_.below(4) == 0 ? 2 : 1; // two cuts: three parts
    for (unsigned i = 0; i < cuts; ++i) {
        world_.at(t, [this, side = any_side(), both_ways] {
            ++struck_;
            world_.partition(side, both_ways);
        });
    }
    if (rng_.below(2) == 0) {
        world_.at(t + Duration::from_us(static_cast<std::int64_t>(rng_.below(1'500'000))),
                  [this] { world_.heal(); });
    }
    if (rng_.below(2) == 0) {
        kill_at(soon(800'000), any(), any_death());
    }
}

/// A process dies, stops or is cut off at the nth message of a kind, before or after it.
void Run::plan_trigger()
{
    // Every kind but heartbeats; some more often, for most deaths in a change are at these.
    static constexpr std::array<Type, 3> often{Type::failed_node, Type::failure_ack,
                                               Type::view_commit};
    const std::uint64_t dice = rng_.below(type_count - 2 + often.size());
    const Type kind =
        dice < often.size() ? often[dice] : static_cast<Type>(dice - often.size() + 1);
    auto left = std::make_shared<std::uint64_t>(rng_.below(n_) + 1);
    const bool sender = rng_.below(2) == 0;
    const bool before = rng_.below(2) == 0;
    const Death how = any_death();
    const bool stop = rng_.below(4) == 0;
    const auto strike = [this, how, stop, kind](NodeId id) {
        struck_at_.set(static_cast<unsigned>(kind));
        if (stop) {
            struck_ += world_.running(id);
            world_.stop(id);
            world_.at(soon(1'000'000), [this, id] { world_.resume(id); });
        } else {
            kill(id, how);
        }
    };
    if (sender) {
        world_.on_send = [=, this](const Message &m) {
            if (m.type == kind && *left != 0 && --*left == 0) {
                strike(m.from);
                return !before;
            }
            return true;
        };
    } else {
        world_.on_receive = [=, this](const Message &m) {
            if (m.type == kind && *left != 0 && --*left == 0) {
                if (before) {
                    strike(m.to);
                } else {
                    const NodeId id = m.to;
                    world_.at(world_.now(), [strike, id] { strike(id); });
                }
            }
        };
    }
}

/// Of a view, the higher part is cut off and votes for itself; then some of it die where the lower
/// part can see that they are dead, while the rest stays out of reach. (PROTOCOL.md: why only clean
/// deaths leave the base.)
void Run::plan_votes_of_the_dead()
{
    const Position low = std::max<Position>(1, (n_ - 1) / 2);
    std::set<NodeId> high;
    for (NodeId id = low; id < n_; ++id) {
        high.insert(id);
    }
    const Time cut = soon(300'000);
    world_.at(cut, [this, high] {
        ++struck_;
        world_.partition(high, true);
    });
    const Time later = cut + Duration::from_ms(static_cast<std::int64_t>(rng_.between(200, 1600)));
    const NodeId survivor = static_cast<NodeId>(rng_.between(low, n_ - 1));
    world_.at(later, [this, high, survivor] {
        // The dying are reachable again from everywhere, also from the survivor; only the survivor
        // and the lower part stay apart.
        world_.heal();
        for (NodeId id = 0; id < n_; ++id) {
            if (!high.contains(id)) {
                world_.cut(survivor, id);
                world_.cut(id, survivor);
            } else if (id != survivor) {
                kill(id, Death::loud);
            }
        }
    });
    storm_ = Duration::from_ms(3500);
}

/// The lower half and the highest id vote for a view of their own. When it is committed, before
/// anybody hears of it, the network changes: the highest id is with the others now, who have a
/// majority of the old view with it. Only its memory of its vote keeps them from going on too.
void Run::plan_changing_sides()
{
    std::set<NodeId> low;
    for (NodeId id = 0; id < n_ / 2; ++id) {
        low.insert(id);
    }
    const NodeId swing = n_ - 1;
    world_.at(soon(300'000), [this, low, swing] {
        ++struck_;
        std::set<NodeId> with = low;
        with.insert(swing);
        world_.partition(with, true);
    });
    world_.on_send = [this, low, done = false](const Message &m) mutable {
        if (done || m.type != Type::view_commit || !low.contains(m.from)) {
            return true;
        }
        done = true;
        world_.heal();
        world_.partition(low, true);
        return low.contains(m.to);
    };
    storm_ = Duration::from_ms(4000);
}

/// One link of the tree, not the root's, is dead for a while: both ends live and the root hears
/// both, so nobody is evicted.
void Run::plan_bad_link()
{
    gentle_ = true;
    std::vector<NodeId> lower;
    for (NodeId id = 0; id < n_; ++id) {
        if (world_.engine(0).view()->parent(id) != no_node &&
            world_.engine(0).view()->parent(id) != 0) {
            lower.push_back(id);
        }
    }
    if (lower.empty()) {
        return;
    }
    const NodeId child = lower[rng_.below(lower.size())];
    const NodeId parent = world_.engine(0).view()->parent(child);
    const bool both = rng_.below(2) == 0;
    const Time t = soon(300'000);
    world_.at(t, [this, child, parent, both] {
        ++struck_;
        world_.cut(child, parent);
        if (both) {
            world_.cut(parent, child);
        }
    });
    world_.at(t + Duration::from_ms(static_cast<std::int64_t>(rng_.between(500, 1200))),
              [this] { world_.heal(); });
}

/// Clocks are set, forward or back, by seconds at most, while nodes die or are cut off. Alone that
/// makes nobody look dead.
void Run::plan_clock_steps()
{
    if (n_ > 1 && rng_.below(3) == 0) {
        // A node is stopped until somebody asks for it, whose clock steps forward before the answer
        // can come: past the moment at which silence would be belief.
        gentle_ = true;
        const auto slow = static_cast<NodeId>(rng_.between(1, n_ - 1));
        const Duration by = Duration::from_ms(static_cast<std::int64_t>(rng_.between(260, 6000)));
        world_.at(soon(300'000), [this, slow] { world_.stop(slow); });
        world_.on_send = [this, slow, by](const Message &m) {
            if (m.type == Type::how_are_you && m.to == slow && world_.stopped(slow)) {
                ++struck_;
                world_.resume(slow);
                world_.step_clock(m.from, by);
            }
            return true;
        };
        return;
    }
    gentle_ = rng_.below(2) == 0;
    for (std::uint64_t i = rng_.between(1, 5); i > 0; --i) {
        const NodeId id = any();
        // Longer than a heartbeat interval, or short: PROTOCOL.md says what is not noticed between.
        const std::uint64_t ms = rng_.below(4) == 0 ? rng_.below(40) : rng_.between(260, 6000);
        const Duration by = Duration::from_ms(static_cast<std::int64_t>(ms));
        const bool back = rng_.below(2) == 0;
        world_.at(soon(900'000), [this, id, by, back] {
            struck_ += world_.running(id);
            world_.step_clock(id, back ? -by : by);
        });
    }
    if (rng_.below(3) != 0) {
        kill_at(soon(900'000), any(), any_death());
    }
    if (!gentle_) {
        switch (rng_.below(3)) {
        case 0:
            plan_partition(rng_.below(2) == 0);
            break;
        case 1:
            plan_votes_of_the_dead();
            break;
        default:
            plan_trigger();
            break;
        }
    }
}

/// The root and a child of it, which has children, do not hear each other, or one does not hear the
/// other, until some time after somebody has given up: who hears the accused objects, so that it is
/// asked again and the leases hold the votes back anew, its answer comes, and nobody is evicted. Or
/// it lasts, and one of the two is.
void Run::plan_heard_by_others()
{
    const NodeId child = 1;
    const Time t = soon(400'000);
    const std::uint64_t ways = rng_.between(1, 3);
    world_.at(t, [this, ways] {
        ++struck_;
        if ((ways & 1U) != 0) {
            world_.cut(child, 0);
        }
        if ((ways & 2U) != 0) {
            world_.cut(0, child);
        }
    });
    if (n_ > config_.arity + 1 && rng_.below(4) != 0) {
        gentle_ = true;
        heal_after_ = Duration::from_us(static_cast<std::int64_t>(rng_.between(1, 400'000)));
        return;
    }
    storm_ = Duration::from_ms(6000);
    world_.at(Time::zero() + storm_, [this] {
        if (world_.commit_count() < 2) {
            world_.violation("no view: two that do not hear each other hinder each other for ever");
        }
    });
}

/// A node is stopped, and its host cut off, for longer than exiles are waited for; a newcomer
/// joins, and all that the stopped one knew die: when it runs again, it and the newcomer know
/// nothing of each other.
void Run::plan_long_stop()
{
    const NodeId sleeper = any();
    const Time stop = soon(300'000);
    world_.at(stop, [this, sleeper] {
        struck_ += world_.running(sleeper);
        world_.stop(sleeper);
        world_.partition({sleeper}, true);
    });
    const Time join = stop + config_.exile_hold + Duration::from_ms(1500);
    world_.at(join, [this] { world_.start(n_); });
    const Time end = join + Duration::from_ms(static_cast<std::int64_t>(rng_.between(200, 1500)));
    for (NodeId id = 0; id < n_; ++id) {
        if (id != sleeper) {
            kill_at(end, id, Death::loud);
        }
    }
    storm_ = (end - Time::zero()) + Duration::from_ms(200);
    world_.at(Time::zero() + storm_, [this, sleeper] {
        world_.heal();
        world_.resume(sleeper);
    });
}

void Run::plan()
{
    if (family_ < 4 && rng_.below(4) == 0) {
        stopping_ = true;
    }
    switch (family_) {
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
            if (shape.is_ancestor(top, id)) {
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
                world_.stop(id);
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
                world_.at(t, [this, id] { world_.stop(id); });
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
        plan_votes_of_the_dead();
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
    world_.on_send = nullptr;
    world_.on_receive = nullptr;
    for (NodeId id = 0; id < world_.capacity(); ++id) {
        if (world_.running(id)) {
            world_.resume(id);
        }
    }
    const Time limit = world_.now() + Duration::from_s(30);
    do {
        world_.run_until(world_.now() + Duration::from_ms(50));
    } while (world_.now() < limit && world_.violations().empty() && !world_.settled());
    world_.check_end(true);
    Result r;
    r.violations = world_.violations();
    r.events = world_.events();
    r.installs = world_.installs();
    r.evictions = world_.evictions();
    r.faults_struck = struck_;
    r.struck_at = struck_at_;
    r.nodes = n_;
    r.commits = world_.commit_count();
    r.kind = names[family_];
    return r;
}

} // namespace

const char *family_name(unsigned family)
{
    return names[family % family_count];
}

Result run_scenario(std::uint64_t seed, Mutation mutation, bool verbose)
{
    Run run(seed, mutation, verbose);
    return run.run();
}

} // namespace sim

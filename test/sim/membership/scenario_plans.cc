// What strikes a run of the swarm, for the kinds of faults that take more than a line.
#include "test/sim/membership/scenario_run.hpp"

namespace sim {

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
    const bool stops = rng_.below(4) == 0;
    const auto strike = [this, how, stops, kind](NodeId id) {
        struck_at_.set(static_cast<unsigned>(kind));
        if (stops) {
            struck_ += world_.running(id);
            stop(id);
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
        world_.at(soon(300'000), [this, slow] { stop(slow); });
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
/// it lasts, and one of the two is. Or all others die when they may have voted, and what either
/// of the two makes of that must not be that both go on.
void Run::plan_heard_by_others()
{
    constexpr NodeId child = 1;
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
    if (n_ > 2 && rng_.below(2) == 0) {
        world_.at(
            t + Duration::from_us(static_cast<std::int64_t>(rng_.between(600'000, 1'000'000))),
            [this] {
                world_.cut(0, child);
                world_.cut(child, 0);
            });
        const Time votes =
            t + Duration::from_us(static_cast<std::int64_t>(rng_.between(1'000'000, 1'400'000)));
        for (NodeId id = 2; id < n_; ++id) {
            kill_at(votes, id, Death::loud);
        }
        storm_ = Duration::from_ms(6000);
        return;
    }
    if (n_ > config_.arity + 1 && rng_.below(4) != 0) {
        gentle_ = true;
        heal_after_ = Duration::from_us(static_cast<std::int64_t>(rng_.between(1, 400'000)));
        return;
    }
    storm_ = Duration::from_ms(6000);
    world_.at(Time::zero() + storm_, [this] {
        if (world_.commit_count() < 2 && !may_stall_) {
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
    const Time asleep = soon(300'000);
    world_.at(asleep, [this, sleeper] {
        struck_ += world_.running(sleeper);
        stop(sleeper);
        world_.partition({sleeper}, true);
    });
    const Time join = asleep + config_.exile_hold + Duration::from_ms(1500);
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

/// A cut, of which all of one side die before or after they have gone on, and some of the other
/// side with them; only then the network heals, so that who is left finds them dead. Of the two
/// sides only one may go on, also one after the other.
void Run::plan_one_after_the_other()
{
    const std::set<NodeId> side = any_side();
    const Time cut = soon(300'000);
    world_.at(cut, [this, side] {
        ++struck_;
        world_.partition(side, true);
    });
    const Time end = cut + Duration::from_ms(static_cast<std::int64_t>(rng_.between(50, 2500)));
    for (NodeId id = 0; id < n_; ++id) {
        if (!side.contains(id) || rng_.below(6) == 0) {
            kill_at(end, id, Death::loud);
        }
    }
    world_.at(end + Duration::from_ms(static_cast<std::int64_t>(rng_.below(100))),
              [this] { world_.heal(); });
    storm_ = Duration::from_ms(3500);
}

/// Nobody reaches anybody, until all wait; then the network comes back, one host after the other.
/// In small jobs, in which all wait by then, nobody is evicted.
void Run::plan_pieces()
{
    const Time cut = soon(300'000);
    const auto apart = [this](NodeId first) {
        for (NodeId id = first; id < n_; ++id) {
            world_.partition({id}, true);
        }
    };
    world_.at(cut, [this, apart] {
        ++struck_;
        apart(0);
    });
    Time end = cut + Duration::from_ms(static_cast<std::int64_t>(rng_.between(2000, 2500)));
    // Of two the lower one never waits.
    gentle_ = n_ > 2 && n_ <= 6 && world_.weather().loss < 0.1;
    for (NodeId back = 1; back < n_; ++back) {
        end = end + Duration::from_us(static_cast<std::int64_t>(rng_.below(600'000 / n_)));
        world_.at(end, [this, apart, first = back + 1] {
            world_.heal();
            apart(first);
        });
    }
    storm_ = Duration::from_ms(3600);
}

/// Drawn apart from all else, so that a seed's other faults are what they would be without.
void Run::plan_forgeries(std::uint64_t seed, bool has_key)
{
    Rng rng(seed * 0xd1342543de82ef95U + 1);
    for (unsigned i = 0; i < 3; ++i) {
        const auto from = static_cast<NodeId>(rng.below(n_));
        const auto to = static_cast<NodeId>(rng.below(n_));
        world_.at(Time::zero() + Duration::from_us(static_cast<std::int64_t>(rng.below(1'500'000))),
                  [this, from, to, has_key] { world_.forge(from, to, has_key); });
    }
}

} // namespace sim

/// \file
/// One run of the swarm: who is struck by what, and when. Only for scenario.cc and its plans.
#pragma once
#include "test/sim/membership/scenario.hpp"

#include <array>
#include <bitset>
#include <cstdio>
#include <set>

namespace sim {

inline constexpr std::array<const char *, family_count> family_names{
    "one death",          "root deaths",        "subtree death", "k of n",
    "death at a message", "false suspicion",    "partition",     "one-way partition",
    "bad weather",        "joins and restarts", "many faults",   "sides of a cut",
    "changing sides",     "one bad link",       "clock steps",   "heard by others",
};

class Run {
  public:
    Run(std::uint64_t seed, Mutation mutation, bool verbose, bool forger_has_key, Axis axis)
        : seed_(seed),
          axis_(axis),
          rng_(seed * 0x9e3779b97f4a7c15U + 1),
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
            // Nobody is alone any more.
            axis_struck_ += axis_ == Axis::one_daemon && e.kind == Event::Kind::stabilized &&
                            e.view->size() > 1;
        };
        plan_forgeries(seed, forger_has_key);
        if (verbose) {
            std::printf("# seed %llu: %s, %s, %u nodes, arity %u, loss %.3f, %s tree\n",
                        static_cast<unsigned long long>(seed), family_names[family_], name(axis),
                        n_, config_.arity, world_.weather().loss,
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
            count_level(id);
            world_.kill(id, how);
            return;
        }
        stop(id);
        if (rng_.below(2) == 0) { // else when the storm is over
            world_.at(soon(1'500'000), [this, id] { world_.resume(id); });
        }
    }
    void stop(NodeId id)
    {
        count_level(id);
        world_.stop(id);
    }
    void kill_at(Time t, NodeId id, Death how)
    {
        world_.at(t, [this, id, how] { kill(id, how); });
    }
    Death any_death()
    {
        const std::uint64_t dice = rng_.below(9);
        return dice < 3 ? Death::silent : dice < 5 ? Death::slow : Death::loud;
    }
    void count_level(NodeId id);
    void plan();
    void plan_axis();
    void plan_bursts(Rng rng);
    void plan_nth(Rng rng);
    void plan_one_kind(Rng rng);
    void plan_slow(Rng rng);
    void plan_one_daemon(Rng rng);
    void plan_trigger();
    void plan_partition(bool both_ways);
    void plan_votes_of_the_dead();
    void plan_changing_sides();
    void plan_bad_link();
    void plan_clock_steps();
    void plan_heard_by_others();
    void plan_long_stop();
    void plan_one_after_the_other();
    void plan_pieces();
    void plan_forgeries(std::uint64_t seed, bool has_key);
    std::set<NodeId> any_side();

    std::uint64_t seed_;
    Axis axis_;
    Rng rng_;
    unsigned family_;
    Position n_ = 0;
    Config config_;
    bool gentle_ = false;    // nothing in it that could make a live node look dead
    bool stopping_ = false;  // who is to die is stopped instead
    bool may_stall_ = false; // no change need come to its end before the storm does
    bool live_ = true;       // all must come to rest after it
    unsigned struck_ = 0;
    std::bitset<type_count> struck_at_; // kinds of messages at which a death or a stop struck
    unsigned axis_struck_ = 0;
    std::bitset<type_count> lost_; // kinds of messages that the axis lost
    std::bitset<level_count> failed_at_;
    std::bitset<level_count> leader_failed_at_;
    Duration heal_after_; // the network heals so long after the first belief
    Duration storm_ = Duration::from_ms(1500);
    World world_;
};

} // namespace sim

/// A network of real membership engines under a virtual clock, with every fault that a script or a
/// seed asks for.
///
/// Nothing here decides anything for the engines: messages are carried (or lost, doubled, delayed),
/// timers run, processes die, stop, come back. What the engines may never do is checked as it
/// happens; see `violations()`. The same scenario gives the same run.
#pragma once

#include "opal/ft/base/rng.hpp"
#include "opal/ft/membership/seal.hpp"
#include "opal/ft/membership/stabilizer.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace sim {

using namespace ft::membership;
using ft::base::Duration;
using ft::base::Rng;
using ft::base::Time;

/// What the network does to messages.
struct Weather {
    Duration latency = Duration::from_us(50);
    Duration jitter = Duration::from_us(20); ///< added, uniform: large values reorder
    double loss = 0;
    double duplicate = 0;
};

/// How a process ends. Its kernel may take its time: connections break, and what comes to its port
/// is taken, but not answered, before that is closed, too.
enum class Death { loud, slow, silent };

/// The key of all messages.
inline constexpr Key key{std::byte{1}, std::byte{2}, std::byte{3}};

struct Mcast {
    Epoch epoch;
    std::uint64_t digest;
    NodeId from;
    std::set<Identity> to; ///< who has not delivered it yet
};

class World {
  public:
    /// Every `localised`-th node keeps the localised form of its views, the others the full one; 0:
    /// none.
    World(const Config &config, Position nodes, const Weather &weather, std::uint64_t seed,
          unsigned localised = 0);

    Time now() const { return now_; }
    Rng &rng() { return rng_; }
    Weather &weather() { return weather_; }

    // Faults, at the present time.
    void kill(NodeId id, Death how);
    void stop(NodeId id);   ///< as SIGSTOP
    void resume(NodeId id); ///< as SIGCONT
    /// Starts a node that is not running: a new one or a recovered one.
    void start(NodeId id);
    /// Who joins from now on knows of all ids below `ids`, also of those that never ran.
    void announce(Position ids);
    void leave(NodeId id);
    /// The node's clock is set forward or back.
    void step_clock(NodeId id, Duration by);
    /// Messages from `from` to `to` are lost from now on.
    void cut(NodeId from, NodeId to);
    /// Every node of one side is cut from every other one; `both_ways` or only away from the side.
    void partition(const std::set<NodeId> &side, bool both_ways);
    void heal();
    /// An application message from `from` to all members of its view.
    void multicast(NodeId from);
    /// Somebody speaks to `to` in the name of `from`, without the key, or with it.
    void forge(NodeId from, NodeId to, bool has_key);

    /// Calls `f` at time `t`.
    void at(Time t, std::function<void()> f);
    /// Runs until nothing is left to do before `t`, then sets the clock to `t`.
    void run_until(Time t);
    /// Sees every message as it is sent; returns false to have it lost.
    std::function<bool(const Message &)> on_send;
    /// Sees every message that the weather and the cuts let pass; returns false to have it lost.
    std::function<bool(const Message &)> on_way;
    /// If set: what a cut stops is kept, as a sender's kernel does, and arrives when the network
    /// has healed, seen by this.
    std::function<void(const Message &)> keep_what_is_cut;
    /// Sees every message just before the receiver does.
    std::function<void(const Message &)> on_receive;

    // Looking.
    Position capacity() const { return static_cast<Position>(nodes_.size()); }
    bool running(NodeId id) const
    {
        return id < nodes_.size() && nodes_[id].engine && !nodes_[id].dead;
    }
    bool stopped(NodeId id) const { return nodes_[id].stopped; }
    const Stabilizer &engine(NodeId id) const { return *nodes_[id].engine; }
    /// Not dead, not evicted, ended or left.
    bool participating(NodeId id) const;
    bool reachable(NodeId from, NodeId to) const
    {
        return cuts_.empty() || !cuts_.contains({from, to});
    }
    /// A newcomer that was told of nobody who could take it in: at its start, by a view that it was
    /// given, or by who sent it on to the root.
    bool stranded(NodeId id) const;
    /// True when all who participate hold one view of exactly them and are at rest; or none is a
    /// member. Who is stranded does not count.
    bool settled() const;
    std::uint64_t messages_sent(NodeId id) const { return nodes_[id].sent; }
    std::uint64_t events() const { return events_; }
    unsigned evictions() const { return evictions_; }
    unsigned installs() const { return installs_; }
    std::size_t commit_count() const { return commits_.size(); }
    /// What was broken, in order; empty is good.
    const std::vector<std::string> &violations() const { return violations_; }
    void violation(const std::string &what);
    /// Checks that need the whole run.
    void check_end(bool must_settle);

    bool verbose = false;
    bool rejoin_evicted = false; ///< evicted nodes ask to join again
    bool through_bytes = false;  ///< messages travel sealed, as bytes
    bool check_tree = true;      ///< walk every new view's tree
    std::function<void(NodeId, const Event &)> on_event;

  private:
    struct Node {
        std::unique_ptr<Stabilizer> engine;
        std::uint32_t incarnation = 0;
        bool dead = false;
        bool loud = true;
        Time refuses = Time::zero(); // since when, if it is dead and loud
        bool stopped = false;
        Time wake = Time::never();
        Duration clock; ///< its clock minus the world's
        Epoch last_epoch = 0;
        std::uint64_t sent = 0;
        std::set<NodeId> heard_of;       // a newcomer's, of those whom it may ask
        std::vector<std::uint32_t> mail; // arrived while stopped
        std::vector<std::pair<NodeId, std::uint32_t>> held; // application messages of later views
    };
    struct Item {
        Time at;
        std::uint64_t order;
        enum class Kind : std::uint8_t { wake, message, suspicion, proof, application, call } kind;
        NodeId node;
        std::uint32_t index; // message slot, or incarnation, or call
        NodeId other;

        bool operator>(const Item &o) const { return at != o.at ? at > o.at : order > o.order; }
    };
    struct Slot {
        Message message;
        unsigned copies = 0;
        bool taken = false;
    };
    /// No engine comes so far.
    static constexpr std::uint64_t unused_sequence = 1U << 31U;
    struct Sent {
        NodeId to;
        Type type;
    };
    struct Commit {
        ViewPtr view;
        Time at;
    };

    Time local(NodeId id) const { return now_ + nodes_[id].clock; }
    void push(Time at, Item::Kind kind, NodeId node, std::uint32_t index, NodeId other = no_node);
    void transmit(NodeId from, Message m);
    void carry(Message m);
    void remember(NodeId from, const Message &m);
    bool was_sent(const Message &m) const;
    void follow_newcomer(const Message &m);
    void deliver(std::uint32_t slot);
    void hand_over(NodeId id, const Message &m, Slot &slot);
    void application(NodeId to, NodeId from, std::uint32_t mcast);
    void absorb(NodeId id);
    void on_installed(NodeId id, const Event &e);
    void schedule(NodeId id);
    void release(std::uint32_t slot);
    Time death_of(const Identity &who) const;
    std::string label(NodeId id) const;

    /// The first that was installed with its epoch.
    struct Installed {
        ViewPtr view;
        bool compared; // with one of the other form
    };
    Config config_of(NodeId id) const;

    Config config_;
    unsigned localised_;
    Weather weather_;
    Rng rng_;
    std::shared_ptr<ViewPool> pool_;
    ViewPtr initial_;
    std::vector<Node> nodes_;
    std::set<std::pair<NodeId, NodeId>> cuts_;
    std::vector<Message> kept_; // that a cut has stopped
    Time now_;
    std::uint64_t order_ = 0;
    std::uint64_t events_ = 0;
    std::priority_queue<Item, std::vector<Item>, std::greater<>> queue_;
    std::vector<Slot> slots_;
    std::vector<std::uint32_t> free_slots_;
    std::deque<std::function<void()>> calls_; // stays where it is when one that runs adds another
    std::vector<Mcast> mcasts_;
    std::unordered_map<std::uint64_t, Sent> sent_; // by the sender's life and number
    Output out_;

    std::unordered_map<Epoch, Installed> views_;
    std::vector<Commit> commits_;
    std::map<std::pair<NodeId, std::uint32_t>, Time> deaths_;
    unsigned evictions_ = 0;
    unsigned installs_ = 0;
    std::vector<std::string> violations_;
};

} // namespace sim

/// The real engine in a made-up world: virtual time, a network, deaths, and detectors that notice.
///
/// A plan says what happens; the same plan gives the same run. Messages cost their sender, the wire
/// and their receiver time (LogP: Culler et al., PPoPP 1993); a process does one thing at a time.
#pragma once

#include "opal/ft/base/rng.hpp"
#include "opal/ft/consensus/describe.hpp"
#include "opal/ft/consensus/lazy_agreement.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

namespace sim {

using namespace ft::consensus;

/// Nanoseconds of virtual time.
using Time = std::uint64_t;
inline constexpr Time never = ~Time{0};

struct Costs {
    Time send = 100;       ///< processor time of a send
    Time wire = 1000;      ///< from one node to another
    Time wire_near = 1000; ///< between processes of one node
    Time receive = 100;    ///< processor time of a receive
    Time merge = 0;        ///< more of it for a message that collects answers
    Time jitter = 0;       ///< up to this much more on the wire, at random
};

struct Suspicion {
    Time at;
    Rank accuser;
    Rank victim;
    bool cut = false; ///< nothing passes between the two any more, either way
};

struct Member {
    Time starts = 0;
    /// Dies when it has carried out this many actions (sends, and the return itself).
    std::uint64_t dies_after = never;
    /// Dies at this time; a process that never starts and dies at 0 was dead before.
    Time dies_at = never;
    Contribution brings;
};

struct Plan {
    Settings settings;
    std::shared_ptr<const TreeShape> shape;
    std::vector<Member> members;
    std::vector<Suspicion> false_suspicions;
    Costs costs;
    /// How long after a death rank r notices: detection[r % size].
    std::vector<Time> detection = {5000};
    Rank slow = no_rank; ///< messages to it take this much longer:
    Time slow_by = 0;
    std::vector<std::uint32_t> node_of; ///< empty: all wires are far
    bool over_bytes = false;            ///< encode and decode every message
    bool watch = false;                 ///< keep a trace
    bool record = false;                ///< keep the steps
    std::uint64_t seed = 1;
    std::uint64_t event_limit = never;
};

/// What became of one process.
struct Fate {
    bool dead = false;
    bool stopped = false;
    bool started = false;
    bool dead_before_start = false;
    bool has_value = false;
    Time died = never;
    Time returned = never;
    std::uint64_t actions = 0;
    std::uint64_t sends = 0;
    Value value;
};

/// One input of one process, and what came of it, for those who compare it with something else.
struct Step {
    enum class Input : std::uint8_t { calls, hears, suspects, is_sure_of, dies } input;
    Rank who;
    Rank from = no_rank; ///< hears
    RankSet whom;        ///< suspects, is sure of; calls: brings
    Message message;     ///< hears
    Actions done;        ///< what it lived to carry out
    bool died = false;   ///< before it had carried out everything, or just after
};

struct Run {
    std::vector<Fate> fates;
    std::string broken; ///< empty, or the first invariant that was broken while running
    Time end = 0;
    Time last_return = 0;
    Time first_start = never;
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
    bool out_of_events = false;
    std::vector<std::string> trace;
    std::vector<Step> steps;
};

class World {
  public:
    explicit World(const Plan &plan);
    Run run();

  private:
    struct Event {
        Time at;
        std::uint64_t order;
        enum class Kind : std::uint8_t { start, deliver, suspect, accuse, die } kind;
        bool confirmed;
        Rank to;
        Rank from;
        std::uint32_t slot;
        bool operator>(const Event &o) const { return at != o.at ? at > o.at : order > o.order; }
    };

    void push(Event event);
    void step(const Event &event);
    void carry_out(Rank who, Time now);
    void post(Rank from, Rank to, Message message, Time leaves);
    void kill(Rank who, Time now);
    void old_failures();
    bool cut(Rank a, Rank b) const;
    void returned(Rank who, Time now);
    void note(const char *what, Rank who, const std::string &text);
    Time wire(Rank a, Rank b);
    void record(const Event &event, const Message &message);

    const Plan &plan_;
    ft::base::Rng rng_;
    std::vector<LazyAgreement> engines_;
    std::vector<Time> busy_;
    std::vector<Message> slots_;
    std::vector<std::uint32_t> free_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
    std::uint64_t order_ = 0;
    Actions actions_;
    std::vector<std::pair<Rank, Rank>> cuts_;
    RankSet old_dead_; ///< dead before time 0
    Run run_;
};

} // namespace sim

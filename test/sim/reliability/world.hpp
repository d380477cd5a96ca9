/// \file
/// A world in virtual time: processes with real reliability::Peer engines, links between them, and
/// what was said to whom. Runs one plan and checks the invariants of PROTOCOL.md as it goes.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "opal/ft/base/rng.hpp"
#include "opal/ft/reliability/peer.hpp"
#include "test/sim/reliability/pairs.hpp"
#include "test/sim/reliability/plan.hpp"

namespace ft::sim {

/// Which invariant does not hold.
enum class Breach : std::uint8_t {
    order,        ///< an ordered VFRAG out of turn
    exactly_once, ///< delivered twice, or acknowledged and not accepted
    bytes,        ///< other bytes than were sent
    liveness,     ///< not all acknowledged and delivered in time, though a path works
    unreachable,  ///< declared so without cause, or not in time
    counters,     ///< they do not add up
    path_lost,    ///< a path is taken out that carries everything
    window,       ///< a bound on bytes, VFRAGs or memory is exceeded
    handed_back,  ///< a VFRAG handed back twice, never, or with bytes that are still read
    deadline,     ///< on_time at the deadline does not move it
    contract      ///< the engine asks for something its paths cannot do
};
[[nodiscard]] const char *to_string(Breach breach);

struct Violation {
    Breach breach;
    std::string text;
};

class World;

/// A VFRAG and the storage that the layer above owes the engine.
struct SimVfrag {
    reliability::Vfrag vfrag;
    std::array<reliability::FragmentRecord, reliability::max_fragments> records{};
    std::uint32_t message = 0;
    std::uint32_t number = 0; ///< in its message
    std::uint32_t generation = 0;
    unsigned descriptors = 0;  ///< with the transports, as the simulator knows it
    base::Time submitted_at{}; ///< own clock
    bool outstanding = false;

    [[nodiscard]] std::uint64_t mask_of(reliability::FragmentState state) const;
    [[nodiscard]] VfragState state() const;
};

/// What became of one VFRAG of a message at the other end.
struct Piece {
    std::uint64_t accepted = 0;
    std::uint64_t delivered = 0;
    std::uint8_t count = 0;
    bool submitted = false;
    bool handed_back = false;
    bool acknowledged = false;
};

struct Message {
    MessagePlan plan;
    std::uint32_t pieces_per = 0; ///< bytes in a VFRAG
    std::vector<Piece> pieces;
    std::uint32_t submitted = 0; ///< VFRAGs
    std::uint32_t delivered_pieces = 0;
    bool queued = false;
    bool abandoned = false; ///< the peer was lost before all of it was submitted
};

/// One direction of one link.
struct Way {
    const LinkPlan *link = nullptr;
    unsigned direction = 0;
    unsigned from = 0; ///< endpoint
    unsigned to = 0;   ///< endpoint
    reliability::PathId path_at_from = 0;
    reliability::PathId path_at_to = 0;
    base::Rng rng{0};
    unsigned count = 0;
    unsigned burst_left = 0;
    base::Time free_at{};
    base::Time last_arrival{};
    bool dead = false;
    bool stuck = false;        ///< no local completions
    bool error_on_use = false; ///< the next send is told
    bool told = false;         ///< its sender knows that it is gone
    bool was_told = false;     ///< ... at any time
    bool was_stuck = false;
    unsigned descriptors = 0; ///< with the transport
    std::vector<std::uint32_t> parked;
};

/// A descriptor with a transport.
struct Descriptor {
    SimVfrag *vfrag = nullptr;
    std::uint32_t generation = 0;
    std::uint16_t way = 0;
    std::uint8_t index = 0;
    bool live = false;
    base::Time sent_at{}; ///< sender's clock
};

/// A fragment on its way.
struct Packet {
    std::vector<std::byte> bytes;
    reliability::Kind kind = reliability::Kind::ordered; ///< as sent
};

/// One process's end of a pair: the engine, and the layer above it.
class Endpoint {
  public:
    Endpoint(World &world, unsigned id, unsigned process, unsigned remote);

    void add_way(unsigned way) { ways_.push_back(way); }
    void open(const PairPlan &pair);
    void enqueue(std::uint32_t message);
    void receive(Packet &packet, unsigned way);
    void pump(bool take_time);
    void complete(std::uint32_t descriptor);
    void path_error(reliability::PathId path);
    void path_revived(reliability::PathId path);
    void declare_dead();
    void on_wake(base::Time at);
    void check_all();   ///< sums over all records
    void check_final(); ///< at the end of the run
    [[nodiscard]] bool idle() const;
    [[nodiscard]] reliability::Peer &peer() { return peer_; }
    [[nodiscard]] const reliability::Peer &peer() const { return peer_; }
    [[nodiscard]] unsigned process() const { return process_; }
    [[nodiscard]] unsigned remote() const { return remote_; }
    [[nodiscard]] unsigned id() const { return id_; }
    [[nodiscard]] unsigned way_of(reliability::PathId path) const { return ways_[path]; }
    [[nodiscard]] std::size_t paths() const { return ways_.size(); }
    [[nodiscard]] bool lost_by_order() const { return declared_dead_; }
    [[nodiscard]] std::size_t waiting() const { return queue_.size(); }

  private:
    base::Time now() const;
    void take_time();
    bool submit_some();
    bool transmit_some();
    bool finish_some();
    bool send_express(SimVfrag &vfrag);
    reliability::Form best_form(const SimVfrag &vfrag) const;
    /// Reads a fragment in whatever form it has; one in a short form is written anew in the full
    /// one.
    /// \param awaited it is in the compressed form, and the next of all
    reliability::ParseStatus read(std::vector<std::byte> &bytes, reliability::FragHeader &header,
                                  bool &awaited);
    static bool completes_at_once(const Way &way);
    /// The ways to a BTL: chosen by the engine, at once, and at once behind others like it.
    enum class WayOut : std::uint8_t { chosen, express, lane };
    void send_fragment(const reliability::Transmit &transmit, unsigned way,
                       WayOut out = WayOut::chosen);
    void send_control(const reliability::Transmit &transmit, unsigned way);
    void on_fragment(const reliability::FragHeader &header, Packet &packet,
                     reliability::PathId arrival, bool awaited);
    void deliver(std::span<const std::byte> fragment, const reliability::FragHeader &header);
    void mark_accepted(const reliability::FragHeader &header, std::span<const std::byte> fragment);
    void on_control(const reliability::FragHeader &header, Packet &packet,
                    reliability::PathId arrival);
    void check_cheap();
    void check_patience();
    void check_unreachable();
    void count_acknowledgement(const reliability::FragHeader &header,
                               const reliability::AckBody *body);
    void count_path_gone(reliability::PathId path);
    void count_transition(const reliability::PathEvent &event);
    [[nodiscard]] PeerState state() const;
    /// The states of all outstanding fragments, to see what a call changed.
    struct Snapshot {
        SimVfrag *vfrag;
        std::uint64_t in_flight;
        std::uint64_t lost;
    };
    void snapshot();
    void before_loss(); ///< around what may make the peer unreachable
    void after_loss();
    void compare(bool by_ack);

    World &world_;
    unsigned id_;
    unsigned process_;
    unsigned remote_;
    reliability::Peer peer_;
    std::vector<unsigned> ways_; ///< by path
    std::deque<std::uint32_t> queue_;
    std::deque<SimVfrag> storage_;
    std::vector<SimVfrag *> free_;
    std::vector<SimVfrag *> outstanding_; ///< submitted, not handed back
    std::vector<SimVfrag *> left_behind_; ///< handed back with descriptors held
    std::vector<Snapshot> snapshot_;
    std::array<unsigned, 4> fragments_before_{}; ///< outstanding ones, by state
    std::array<unsigned, 4> vfrags_before_{};
    bool lost_before_ = false;
    std::vector<std::uint32_t> ordered_sent_; ///< messages, in order of submission
    std::size_t ordered_delivered_ = 0;       ///< of the other end's
    std::vector<reliability::PathState> path_state_;
    std::uint64_t fragments_sent_ = 0;
    std::uint64_t fragments_accepted_ = 0;
    std::uint64_t pumps_ = 0;
    base::Time wake_at_ = base::Time::never();
    base::Time heard_at_{}; ///< own clock
    base::Time outstanding_since_ = base::Time::never();
    bool declared_dead_ = false;
    bool failed_over_ = false;
    bool was_unreachable_ = false;
    bool poll_pending_ = false;
};

/// Drops packets by the bits of a mask, in the order they are sent, in place of random faults.
struct LossPattern {
    bool active = false;
    std::uint32_t mask = 0;
    unsigned length = 0;
    unsigned next = 0;
};

class World {
  public:
    explicit World(const Plan &plan, Pairs &pairs, bool trace);
    /// \throws Violation
    void run();
    void set_loss_pattern(std::uint32_t mask, unsigned length)
    {
        pattern = {true, mask, length, 0};
    }

    // For endpoints and links.
    enum class Type : std::uint8_t {
        arrival,
        wake,
        completion,
        submit,
        die,
        come_back,
        heal,
        busy_begin,
        busy_end,
        declare,
        poll
    };
    void at(base::Time when, Type type, std::uint32_t a, std::uint32_t b = 0);
    void transmit(unsigned way, std::span<const std::byte> bytes, reliability::Kind kind,
                  bool retransmission, bool last);
    [[nodiscard]] std::uint32_t new_descriptor();
    [[nodiscard]] bool has_room(Way &way);
    void depart(std::uint32_t descriptor); ///< schedules the local completion, or parks it
    void delivered(std::uint32_t message);
    /// True when the process has not looked at something yet that came from `remote`.
    [[nodiscard]] bool unread(unsigned process, unsigned remote) const;
    [[nodiscard]] base::Time clock(unsigned process) const;
    [[gnu::format(printf, 2, 3)]] void say(const char *format, ...) const;
    [[noreturn, gnu::format(printf, 3, 4)]] void breach(Breach breach, const char *format,
                                                        ...) const;
    [[nodiscard]] std::span<const std::byte> content(std::uint32_t message, std::uint64_t offset,
                                                     std::size_t bytes) const;
    [[nodiscard]] base::Time healed_at() const { return healed_at_; }

    const Plan &plan;
    Pairs &pairs;
    const bool trace;
    base::Time now{};
    bool faulty = true;
    LossPattern pattern;
    base::Rng rng;
    std::vector<Message> messages;
    std::vector<Way> ways;
    std::deque<Descriptor> descriptors;
    std::deque<std::unique_ptr<Endpoint>> endpoints;
    std::uint64_t events_run = 0;
    std::uint64_t packets_sent = 0;
    base::Duration slack{}; ///< how long after healing the last message was done

  private:
    struct Event {
        base::Time at;
        std::uint64_t order;
        Type type;
        std::uint32_t a;
        std::uint32_t b;
        bool operator<(const Event &other) const
        {
            return at != other.at ? at > other.at : order > other.order;
        }
    };
    struct Process {
        bool busy = false;
        std::vector<std::pair<std::uint32_t, std::uint32_t>> inbox; ///< way, packet
    };
    void build();
    void plan_faults();
    void handle(const Event &event);
    void arrival(std::uint32_t way, std::uint32_t packet);
    void die(unsigned link);
    void come_back(unsigned link);
    void heal();
    void complete(std::uint32_t descriptor);
    void release_parked(Way &way);
    void spoil(Way &way, std::vector<std::byte> &bytes, Hit hit);
    void deliver_later(unsigned way, std::span<const std::byte> bytes, reliability::Kind kind,
                       base::Time when, bool damage);
    /// When the process of an endpoint sees the world next.
    [[nodiscard]] base::Time polls_at(unsigned endpoint) const;
    [[nodiscard]] unsigned process_of(const Event &event) const;
    /// Whether something is settled only when it has arrived. Probes are not waited for: a path in
    /// its hold-down is probed for minutes, and where that is done more often than once in a round
    /// trip there is always one on its way.
    [[nodiscard]] static bool counts(reliability::Kind kind)
    {
        return kind != reliability::Kind::probe && kind != reliability::Kind::probe_reply;
    }
    [[nodiscard]] bool all_done() const;
    [[nodiscard]] bool settled() const;
    [[nodiscard]] bool paths_settled() const;
    /// Somebody waits for a moment to come.
    [[nodiscard]] bool awake() const;
    [[nodiscard]] bool works(const Endpoint &endpoint) const;

    std::vector<Event> queue_;
    std::uint64_t order_ = 0;
    std::deque<Packet> packets_;
    std::vector<std::uint32_t> free_packets_;
    std::vector<std::uint32_t> free_descriptors_;
    std::vector<Process> processes_;
    std::vector<const LinkPlan *> links_; ///< ways 2i and 2i + 1 are those of link i
    std::vector<unsigned> deaths_;
    std::vector<std::vector<std::uint32_t>> replies_; ///< by message
    std::uint64_t in_transit_ = 0;                    ///< packets, but for probes and their answers
    std::uint64_t pending_submits_ = 0;
    base::Time healed_at_{};
};

} // namespace ft::sim

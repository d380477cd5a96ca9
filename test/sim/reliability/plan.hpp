/// \file
/// All that one seed decides: processes, links, faults, traffic, parameters. A plan is plain data:
/// the same seed gives the same plan, and the same plan the same run.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "opal/ft/base/time.hpp"
#include "opal/ft/reliability/config.hpp"

namespace ft::sim {

/// Which fragments a fault strikes.
enum class What : std::uint8_t { all, data, acks, ordered, probes, last, retransmissions };
inline constexpr unsigned what_kinds = 7;

/// Where a corrupted fragment is hit.
enum class Hit : std::uint8_t {
    header,          ///< bits of the fixed header but its checksum
    header_checksum, ///< the header's checksum itself
    upper,           ///< the upper header
    payload,         ///< one bit of the payload
    burst,           ///< up to four bytes of the payload
    payload_checksum,
    truncation, ///< the end is missing
    anywhere
};
inline constexpr unsigned hit_kinds = 8;

/// What one direction of a link does to fragments while faults are on.
struct Faults {
    What what = What::all; ///< what drop, duplicate and corrupt strike
    double drop = 0;       ///< probability
    double burst = 0;      ///< probability that a burst of losses begins
    unsigned burst_length = 0;
    unsigned drop_nth = 0;            ///< every nth is dropped; 0 for none
    double duplicate = 0;             ///< probability
    base::Duration duplicate_delay{}; ///< a copy comes up to this much later
    double corrupt = 0;               ///< probability
    Hit hit = Hit::anywhere;
    double reorder = 0; ///< probability that a fragment is held back
    base::Duration reorder_delay{};
    base::Duration jitter{};
    base::Time dark_from = base::Time::never(); ///< nothing passes in between
    base::Time dark_until = base::Time::never();
    base::Time slow_from = base::Time::never(); ///< the latency is `slow_factor` times as long
    unsigned slow_factor = 1;
};

/// How the transport of one direction behaves towards its sender.
struct Transport {
    unsigned room = 64;        ///< descriptors it takes
    double refuse = 0;         ///< probability of "no room" for no visible reason, faults on
    base::Duration complete{}; ///< local completion after departure; 0 is at once
    bool within_send = false;  ///< at once means: the send itself says so
    double complete_late = 0;  ///< probability of a completion 1 to 100 ms late, faults on
};

/// How a path dies.
enum class Death : std::uint8_t {
    none,
    silent,         ///< nothing passes, nobody is told
    silent_stuck,   ///< the same, and local completions do not come
    error,          ///< both ends are told at once
    error_one_side, ///< one end is told, the other sees silence
    error_on_use    ///< each end is told when it tries to send
};
inline constexpr unsigned death_kinds = 6;

/// One path between two processes; index 0 of the arrays is the direction from the first process.
struct LinkPlan {
    base::Duration latency{};
    double bandwidth = 1; ///< bytes per ns
    bool fifo = true;     ///< nothing overtakes unless a fault says so
    std::array<Faults, 2> faults;
    std::array<Transport, 2> transport;
    std::uint32_t max_fragment_bytes = 0;
    bool checksum_payload = true;
    bool unreliable = false;       ///< its transport is a datagram one
    bool in_memory = false;        ///< silence over it is taken for the peer's
    bool acknowledged = true;      ///< else its transport is believed; nothing is lost on it
    std::uint32_t queue_bytes = 0; ///< what waits beyond that for its turn is lost; 0 for no bound
    Death death = Death::none;
    base::Time dies_at = base::Time::never();
    base::Duration dead_for = base::Duration::max(); ///< max: until the end of the run
    unsigned deaths = 0; ///< more than one is a flapping path; as long alive as dead in between
    std::array<unsigned, 2> pending{}; ///< what errors do with pending completions: 0 complete, 1
                                       ///< complete late, 2 never
};

struct PairPlan {
    std::array<unsigned, 2> process{};
    std::vector<LinkPlan> links;
    bool mirrored = false; ///< the second process numbers the paths the other way round
    std::uint32_t first_sequence = 0;
    std::uint32_t first_order = 0;
    std::uint32_t first_tx = 0;
    std::array<base::Time, 2> declared_dead{base::Time::never(), base::Time::never()};
};

struct MessagePlan {
    unsigned from = 0;
    unsigned to = 0;
    base::Time at{};
    bool ordered = false;
    std::uint32_t fragment_bytes = 0; ///< as wanted; the paths may allow less
    std::uint64_t length = 0;
    std::uint8_t upper_bytes = 16;
    int reply_to = -1; ///< submitted when this message has been delivered, not at `at`
};

struct ProcessPlan {
    base::Duration clock{};                     ///< its clock minus the simulation's
    base::Time busy_from = base::Time::never(); ///< computes, and does not poll
    base::Duration busy_for{};
    bool time_first = false;    ///< calls on_time before it takes in what has arrived
    double flush = 0;           ///< probability of flush_acks at a poll
    double unknown_arrival = 0; ///< probability that it cannot tell by which path a fragment came
};

struct Plan {
    std::uint64_t seed = 0;
    reliability::Config config;
    std::vector<ProcessPlan> processes;
    std::vector<PairPlan> pairs;
    std::vector<MessagePlan> messages;
    base::Time heal_at{}; ///< faults end, dead links that are to return do
    bool calm = false;    ///< nothing is lost, and no path is slow: only processes are late
    base::Duration patience =
        base::Duration::max(); ///< a VFRAG is acknowledged so long after it was submitted at last
};

/// Whether a transport is believed.
[[nodiscard]] bool trusts(const Plan &plan);

/// The mechanism that a mutant lacks.
enum class Mutant : std::uint8_t {
    none,
    retransmit,
    duplicate,
    failover,
    order,
    checksum_payload,
    checksum_header,
    early_timer
};

[[nodiscard]] Plan make_plan(std::uint64_t seed, Mutant mutant);

} // namespace ft::sim

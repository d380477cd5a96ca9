/// Small types of the runtime's part. Plain values; any thread may copy them.
#pragma once

#include "opal/ft/membership/types.hpp"

#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

namespace ft::radixft {

using membership::Epoch;
using membership::no_node;
using membership::NodeId;

/// The runtime's name of a rank: job and number in the job.
struct Rank {
    std::uint32_t jobid = 0;
    std::uint32_t vpid = 0;

    auto operator<=>(const Rank &) const = default;
};

/// In the place of a rank's number: all ranks of the job. The runtime's own value.
inline constexpr std::uint32_t every_rank = 0xfffffffeU;

/// How a rank's death came to be known.
enum class Cause : std::uint8_t {
    signal = 0,     ///< its daemon reaped it: ended by a signal
    exited = 1,     ///< its daemon reaped it: it left without MPI_Finalize
    node_died = 2,  ///< its daemon died, and every rank with it
    hung = 3,       ///< it hung inside MPI; its daemon ended it
    stopped = 4,    ///< somebody had stopped it and did not let it go on; its daemon ended it
    absent = 5,     ///< its daemon reaped it, of the first job, before it had come to MPI_Init
    not_started = 6 ///< of a spawned job: its daemon could not start it
};
inline constexpr auto last_cause = Cause::not_started;

/// The rank lived when its daemon decided that it must not go on.
constexpr bool ended_by_daemon(Cause cause)
{
    return cause == Cause::hung || cause == Cause::stopped;
}

/// In the place of an exit code: nobody has seen it who would tell.
inline constexpr std::int32_t unknown_exit_code = std::numeric_limits<std::int32_t>::min();

/// One rank's death, as the daemons tell each other.
struct RankDeath {
    Rank who;
    NodeId host = no_node;
    Cause cause = Cause::signal;
    std::int32_t exit_code = 0; ///< as mpirun would return it: 128 + signal, or the exit status,
                                ///< or unknown_exit_code; of one that was not started the runtime's
                                ///< error
    Epoch epoch = 0; ///< of the view of the daemon that noticed, or that removed its host
    std::int64_t noticed_us =
        0; ///< wall clock of the daemon that noticed, in microseconds since 1970
    std::int64_t stabilized_us =
        0; ///< died with its daemon: T_s of the view without it, in microseconds, if it is known

    bool operator==(const RankDeath &) const = default;
};

/// Of the dead the one that `who` names, or the first of a whole job; null when there is none.
inline const RankDeath *find_death(const std::map<Rank, RankDeath> &dead, Rank who)
{
    const bool all = who.vpid == every_rank;
    const auto it = all ? dead.lower_bound({who.jobid, 0}) : dead.find(who);
    return it == dead.end() || it->first.jobid != who.jobid ? nullptr : &it->second;
}

/// Bytes of a message on their way to another daemon.
using Bytes = std::vector<std::byte>;

/// What the runtime's own messages (beside the membership protocol's) are. Values go over the wire.
enum class Type : std::uint8_t {
    rank_died = 1,      ///< daemon to root: these ranks died
    ranks_dead = 2,     ///< down the tree: part of the root's list of the dead
    ranks_dead_ack = 3, ///< child to parent: so much of the list has arrived
    contribution = 4,   ///< daemon to root: its ranks' part of a runtime collective
    release = 5,        ///< root to daemon: the collective is complete, with everybody's parts
    released = 6,       ///< daemon to a new root: this was released before you became root
    wanted = 7,         ///< root to daemon: this collective still waits for you
    ranks_are = 8,      ///< daemon to root, after mpirun's death: my ranks have ended, or all must
    leave = 9,          ///< root to daemon: the job is over
    address = 10,       ///< mpirun to daemon: where daemons are that will join
    ranks_known_ask = 11, ///< new root, down the tree: which deaths were announced to you?
    ranks_known = 12,     ///< child to parent: part of those announced in its subtree
    let_go = 13, ///< along the tree to one daemon: the connection to you is broken at this side
    resume = 14, ///< over a new connection: how much of the one before has arrived
};

/// A message for another daemon.
struct Outgoing {
    NodeId to = no_node;
    Type type = Type::rank_died;
    Bytes body;
};

} // namespace ft::radixft

/// \file
/// The (state, event) pairs of the engine, counted while the simulator drives it. The tables in
/// pairs.cc say of each pair whether it can occur; a run of many seeds must reach every pair that
/// can and none that cannot.
#pragma once
#include <cstdint>
#include <cstdio>

namespace ft::sim {

/// A fragment, in the order of reliability::FragmentState.
enum class FragmentEvent : std::uint8_t {
    sent,             ///< handed to a BTL
    acked_cumulative, ///< its VFRAG lies before an acknowledgement's cumulative number
    acked_whole,      ///< its VFRAG's bit is set in an ack
    acked_mask,       ///< its own bit is set
    left_out,         ///< its VFRAG is described, its bit is not set
    nacked,
    found_lost_gap, ///< what the engine concluded
    found_lost_failover,
    ack_timer,
    watchdog,
    path_gone, ///< the path it went over last
    local_completion,
    peer_lost
};

enum class VfragState : std::uint8_t { queued, sending, waiting, draining };
enum class VfragEvent : std::uint8_t {
    fragment_sent,
    fragment_repeated,
    acked_partly,
    acked_whole,
    ack_timer,
    watchdog,
    local_completion,
    path_gone,
    peer_lost
};

/// A path, in the order of reliability::PathState.
enum class PathEventKind : std::uint8_t {
    fragment_sent,
    ack_sent,
    probe_sent,
    probe_reply_sent,
    timeout,
    sign_of_life,
    probe_answered,
    probe_answered_late,
    blocked,
    error,
    revived
};

/// What the receiver knew of the place a fragment is for.
enum class Place : std::uint8_t { unseen, partly_without, partly_with, whole_ahead, past };
enum class Arriving : std::uint8_t { ordered_first, ordered_again, data_first, data_again };

enum class VerdictColumn : std::uint8_t { ordered_whole, ordered_broken, data_whole, data_broken };

enum class PeerState : std::uint8_t { idle, outstanding, unreachable };
enum class PeerEvent : std::uint8_t {
    ordered_came,
    data_came,
    ack_came,
    ack_broken,
    probe_came,
    probe_reply_came,
    deadline,
    late_descriptor, ///< of a VFRAG that was handed back
    path_error,
    flush
};

enum class TableId : std::uint8_t {
    fragment,
    vfrag,
    path,
    transition,
    place,
    verdict,
    parse,
    loss_first,
    peer
};
inline constexpr unsigned table_count = 9;

class Pairs {
  public:
    template <typename Row, typename Column>
    void count(TableId table, Row row, Column column)
    {
        ++counts_[static_cast<unsigned>(table)][static_cast<unsigned>(row)]
                 [static_cast<unsigned>(column)];
    }
    void add(const Pairs &other);
    /// Prints all tables, as TAP comments. \return how many pairs are not as their table says
    unsigned report(std::FILE *out, bool complete) const;
    /// How many pairs can occur, and how many of them did.
    void totals(unsigned &possible, unsigned &reached) const;

  private:
    std::uint64_t counts_[table_count][8][16] = {};
};

} // namespace ft::sim

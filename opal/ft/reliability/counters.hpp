/// \file
/// What the reliability engine counts. Every counter only grows.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace ft::reliability {

/// What every message moves.
struct FrequentCounters {
    std::uint64_t fragments_sent = 0; ///< transmissions with payload or order, first and repeated
    std::uint64_t fragments_acknowledged = 0; ///< fragments, each once
    std::uint64_t fragments_checksummed = 0;  ///< payload checksums computed for sending
    std::uint64_t bytes_sent = 0;             ///< payload bytes of fragments_sent
    std::uint64_t bytes_acknowledged = 0;     ///< payload bytes, each once
    std::uint64_t acks_sent = 0;              ///< ack fragments
    std::uint64_t acks_received = 0;          ///< ack fragments
    std::uint64_t acks_piggybacked = 0;       ///< fragments that took an acknowledgement due along
    std::uint64_t fragments_received = 0;     ///< accepted, each once
    std::uint64_t bytes_received = 0;         ///< payload bytes accepted
    std::uint64_t vfrags_completed = 0;       ///< VFRAGs acknowledged whole

    FrequentCounters &operator+=(const FrequentCounters &other) noexcept;
};

/// What only losses, paths in doubt and bad input move.
struct RareCounters {
    std::uint64_t acknowledged_late =
        0; ///< acknowledged after they had been declared lost, and before they were sent again
    std::uint64_t declared_lost = 0; ///< transmissions given up as lost (spurious ones included)
    std::uint64_t retransmitted_timeout = 0;  ///< sent again since the ACK timer expired
    std::uint64_t retransmitted_watchdog = 0; ///< sent again since local completion did not come
    std::uint64_t retransmitted_gap = 0;      ///< sent again since the mask showed a gap
    std::uint64_t retransmitted_tail = 0;     ///< sent again since the peer, asked, did not have it
    std::uint64_t retransmitted_nack =
        0; ///< sent again since the receiver said its payload was broken
    std::uint64_t retransmitted_failover = 0; ///< sent again since their path went away
    std::uint64_t retransmitted_spurious = 0; ///< of those, the ones that had arrived after all
    std::uint64_t spurious_timeouts = 0;      ///< ACK timers found to have expired too early
    std::uint64_t questions_sent = 0;         ///< ack fragments that ask the peer what has come
    std::uint64_t duplicates = 0;             ///< fragments dropped since they were there already
    std::uint64_t corrupt_header = 0;         ///< dropped: header checksum
    std::uint64_t corrupt_payload = 0;        ///< dropped and asked for again: payload checksum
    std::uint64_t malformed = 0;              ///< dropped: truncated, impossible or contradictory
    std::uint64_t outside_window = 0;         ///< dropped: too far ahead, or no room to keep it
    std::uint64_t early = 0;                  ///< kept for their turn in the delivery order
    std::uint64_t path_suspect = 0;           ///< transitions to suspect
    std::uint64_t path_down = 0;              ///< transitions to down or gone (failovers)
    std::uint64_t path_up = 0;                ///< returns to up from down
    std::uint64_t probes_sent = 0;            ///< probes of paths
    std::uint64_t probes_answered = 0;        ///< of the peer's
    std::uint64_t vfrags_failed = 0;          ///< VFRAGs given back because the peer is unreachable

    RareCounters &operator+=(const RareCounters &other) noexcept;
};

/// All of them: of one peer, or of a process when added up.
struct Counters : FrequentCounters, RareCounters {
    Counters &operator+=(const Counters &other) noexcept;
};

/// Those of one peer. The rare ones take memory when the first of them moves: an idle peer is to be
/// small. Not synchronised.
class PeerCounters : public FrequentCounters {
  public:
    /// To count. Without memory it counts nothing.
    [[nodiscard]] RareCounters &rare() noexcept;
    [[nodiscard]] Counters all() const noexcept;
    [[nodiscard]] std::size_t allocated_bytes() const noexcept
    {
        return rare_ == nullptr ? 0 : sizeof *rare_;
    }

  private:
    std::unique_ptr<RareCounters> rare_;
};

} // namespace ft::reliability

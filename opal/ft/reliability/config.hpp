/// \file
/// What can be tuned in the reliability engine, and what it counts. Plain data; the component that
/// owns the parameters fills it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "opal/ft/base/time.hpp"
#include "opal/ft/reliability/congestion.hpp"

namespace ft::reliability {

/// Limits of the protocol itself; both ends agree on them by being the same version.
inline constexpr unsigned max_fragments = 64; ///< fragments in a VFRAG (paper, section 3.3)
inline constexpr unsigned max_paths = 16;     ///< paths to one peer
inline constexpr unsigned max_window =
    1024; ///< VFRAGs that a receiver tracks beyond the cumulative one

/// One set for the process; engines keep a reference and never change it. Ranges are enforced by
/// `Config::check`.
struct Config {
    std::uint32_t fragment_bytes = 64 * 1024; ///< S_max: payload of a fragment, bytes, 256 to 16 Mi
    std::uint64_t window_bytes =
        16 * 1024 * 1024; ///< unacknowledged payload to one peer, bytes, >= fragment_bytes
    std::uint32_t window_vfrags = 256; ///< unacknowledged VFRAGs to one peer, 1 to max_window
    std::uint32_t path_depth =
        16; ///< fragments handed to a path's BTL and not locally complete, >= 1
    bool checksum_payload = true; ///< default for paths that do not say otherwise
    bool checksum_header = true;  ///< off only where the transport is trusted
    base::Duration rto_initial = base::Duration::from_ms(
        50); ///< before the first sample (RFC 6298 says 1 s; a cluster is nearer)
    base::Duration rto_min = base::Duration::from_ms(2); ///< floor; must exceed scheduling noise
    base::Duration rto_max = base::Duration::from_s(2);  ///< ceiling of a backed-off timeout
    base::Duration ack_delay =
        base::Duration::from_us(500); ///< an acknowledgement waits at most this long for company
    std::uint32_t ack_every = 96;     ///< ... or for this many VFRAGs, 1 to window_vfrags
    std::uint32_t reorder_threshold =
        3; ///< later transmissions on a path that prove a loss; grows when proved wrong
    CongestionControl congestion = CongestionControl::hybrid; ///< of unreliable paths
    const Absence *absence = nullptr; ///< of this process; nullptr: it is always there
    std::uint32_t path_retries = 5; ///< unanswered tries that take a path down when another answers
    base::Duration probe_interval =
        base::Duration::from_ms(500); ///< between probes of a path that is down
    std::uint32_t probe_confirm = 3;  ///< replies in a row that bring it back
    base::Duration hold_down = base::Duration::from_s(
        1); ///< least time down before it is taken back; doubles per flap, at most 64 x
    base::Duration give_up =
        base::Duration::from_s(600); ///< silence with unacknowledged data, after which (and a last
                                     ///< look for rto_max) the peer is unreachable
    std::uint64_t reorder_bytes =
        4 * 1024 * 1024; ///< early ordered fragments kept for one peer, bytes

    /// Test switches: each turns a mechanism off so that a test can show that it is needed.
    /// Developers only.
    bool disable_retransmit = false;  ///< lost stays lost
    bool disable_duplicate = false;   ///< duplicates are delivered
    bool disable_failover = false;    ///< a path is never left
    bool disable_order = false;       ///< early fragments are delivered as they come
    bool disable_early_timer = false; ///< over several paths a VFRAG's timer runs from its last
                                      ///< fragment

    /// The name of the first field that is out of range, or nullptr when all is well.
    [[nodiscard]] const char *check() const noexcept;
};

/// Counters of one peer, or of a process when added up. Every one only grows.
struct Counters {
    std::uint64_t fragments_sent = 0; ///< transmissions with payload or order, first and repeated
    std::uint64_t fragments_acknowledged = 0; ///< fragments, each once
    std::uint64_t acknowledged_late =
        0; ///< of those, the ones that had been declared lost and not sent again yet
    std::uint64_t fragments_checksummed = 0; ///< payload checksums computed for sending
    std::uint64_t bytes_sent = 0;            ///< payload bytes of fragments_sent
    std::uint64_t bytes_acknowledged = 0;    ///< payload bytes, each once
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
    std::uint64_t acks_sent = 0;              ///< ack fragments
    std::uint64_t questions_sent = 0;     ///< of those, the ones that ask the peer what has come
    std::uint64_t acks_received = 0;      ///< ack fragments
    std::uint64_t acks_piggybacked = 0;   ///< fragments that took an acknowledgement due along
    std::uint64_t fragments_received = 0; ///< accepted, each once
    std::uint64_t bytes_received = 0;     ///< payload bytes accepted
    std::uint64_t duplicates = 0;         ///< fragments dropped since they were there already
    std::uint64_t corrupt_header = 0;     ///< dropped: header checksum
    std::uint64_t corrupt_payload = 0;    ///< dropped and asked for again: payload checksum
    std::uint64_t malformed = 0;          ///< dropped: truncated, impossible or contradictory
    std::uint64_t outside_window = 0;     ///< dropped: too far ahead, or no room to keep it
    std::uint64_t early = 0;              ///< kept for their turn in the delivery order
    std::uint64_t path_suspect = 0;       ///< transitions to suspect
    std::uint64_t path_down = 0;          ///< transitions to down or gone (failovers)
    std::uint64_t path_up = 0;            ///< returns to up from down
    std::uint64_t probes_sent = 0;        ///< probes of paths
    std::uint64_t probes_answered = 0;    ///< of the peer's
    std::uint64_t vfrags_completed = 0;   ///< VFRAGs acknowledged whole
    std::uint64_t vfrags_failed = 0;      ///< VFRAGs given back because the peer is unreachable

    Counters &operator+=(const Counters &other) noexcept;
};

} // namespace ft::reliability

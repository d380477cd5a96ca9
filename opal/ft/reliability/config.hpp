/// \file
/// What can be tuned in the reliability engine. Plain data; the component that owns the parameters
/// fills it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "opal/ft/base/time.hpp"
#include "opal/ft/reliability/congestion.hpp"

namespace ft::reliability {

/// Limits of the protocol itself; both ends agree on them by being the same version.
inline constexpr unsigned max_fragments = 64; ///< fragments in a VFRAG (paper, section 3.3)
inline constexpr unsigned max_paths = 16;     ///< paths to one peer
inline constexpr unsigned max_path_depth =
    2047; ///< of all paths together fits the count of a fragment's descriptors, twice over
inline constexpr unsigned max_window =
    1024; ///< VFRAGs that a receiver tracks beyond the cumulative one

/// One set for the process; engines keep a reference and never change it (but see seal_headers).
/// Ranges are enforced by `Config::check`.
struct Config {
    std::uint32_t fragment_bytes = 64 * 1024; ///< S_max: payload of a fragment, bytes, 256 to 16 Mi
    std::uint64_t window_bytes =
        16 * 1024 * 1024; ///< unacknowledged payload to one peer, bytes, >= fragment_bytes
    std::uint32_t window_vfrags = 256; ///< unacknowledged VFRAGs to one peer, 2 to max_window
    std::uint32_t path_depth = 16; ///< fragments handed to a path's BTL and not locally complete, 1
                                   ///< to max_path_depth
    bool checksum_payload = true;  ///< default for paths that do not say otherwise
    bool checksum_header = true;   ///< off only where the transport is trusted
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
    bool stripe_memory = false; ///< paths through memory are like others; else they carry alone,
                                ///< and silence over them is borne with for about rto_max
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

    /// checksum_header, which rises when a peer is met that believes no header without. Any thread.
    [[nodiscard]] bool seals_headers() const noexcept
    {
        return __atomic_load_n(&checksum_header, __ATOMIC_RELAXED);
    }
    void seal_headers() noexcept { __atomic_store_n(&checksum_header, true, __ATOMIC_RELAXED); }

    /// The name of the first field that is out of range, or nullptr when all is well.
    [[nodiscard]] const char *check() const noexcept;
};

} // namespace ft::reliability

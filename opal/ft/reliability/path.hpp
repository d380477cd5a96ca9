/// \file
/// One path to one peer: what the layer above says of it, its state, measurements and counters.
/// PROTOCOL.md, "Paths".
#pragma once
#include <cstdint>
#include <memory>

#include "opal/ft/base/time.hpp"
#include "opal/ft/reliability/congestion.hpp"
#include "opal/ft/reliability/rtt.hpp"

namespace ft::reliability {

using PathId = std::uint8_t;
inline constexpr PathId no_path = 0xff;

enum class PathState : std::uint8_t { up, suspect, down, probing, gone };
[[nodiscard]] const char *to_string(PathState state) noexcept;

inline void saturating_increment(std::uint8_t &value) noexcept
{
    value = static_cast<std::uint8_t>(value + (value != 0xff ? 1 : 0));
}

/// What the layer above knows of a path when it adds it.
struct PathInfo {
    double bandwidth = 0.1;   ///< bytes per ns, first guess, > 0
    base::Duration latency{}; ///< one way, first guess
    std::uint32_t max_fragment_bytes =
        0;                            ///< payload limit of the transport with all headers taken off
    bool checksum_payload : 1 = true; ///< CRC32C over payloads on this path
    bool unreliable : 1 = false;      ///< loses what is too much for it: has a congestion window
    bool keeps_order : 1 = false;     ///< nothing overtakes: a single later fragment proves a loss
    bool acknowledged : 1 = true; ///< false: what its BTL is done with is taken for arrived, and
                                  ///< what comes over it is not acknowledged
    bool in_memory : 1 = false;   ///< the peer reads from memory that both have: nothing is lost
                                  ///< there, and who does not answer does not look
    bool operator==(const PathInfo &) const noexcept = default;
};

/// One way to a peer. Fields are written by PathSet and Sender; the layer above reads them for
/// statistics. What stands here is what holds of one that was not used.
struct Path {
    PathInfo info;
    PathState state = PathState::up;
    bool blocked = false; ///< its BTL had no room; until unblocked
    bool probe_due = false;
    std::uint8_t timeouts = 0; ///< consecutive, without an acknowledgement over this path
    std::uint8_t strikes = 0;  ///< those of them during which another path answered
    std::uint8_t confirms = 0; ///< probe replies in a row while probing
    std::uint8_t flaps = 0;    ///< times it was taken out, saturating; sets the hold-down
    bool probe_in_flight = false;
    bool looked = false;          ///< the answer to its probe was looked for once more
    bool any_acked = false;       ///< largest_acked_tx means something
    bool any_echo = false;        ///< largest_acked_stamp means something
    bool pausing = false;         ///< keeps its pace
    bool rate_drained : 1 = true; ///< less than what counts as a load was left at rate_last
    std::uint8_t looks : 2 = 0;   ///< looks in a row that showed nothing new
    bool measured : 1 = false;    ///< `bandwidth` is, and not what its transport says of itself
    bool filled : 1 = false;      ///< was given as much as it may have
    std::uint8_t trust : 5 = 0;   ///< doublings of what it is given before it is measured
    bool looked_at : 1 = false;   ///< `bandwidth` was raised to see what it carries
    std::uint16_t filled_at = 0;  ///< when, in units of fill_shift, wraps after a minute
    std::uint32_t next_tx = 0;
    std::uint32_t probe_nonce = 0;    ///< of the newest probe: when it was sent, in stamps
    std::uint32_t answered_nonce = 0; ///< newest one answered, or no longer of interest
    std::uint32_t probe_trip = 0;     ///< round trip of a probe, in stamps; forgotten by halves
    std::uint32_t largest_acked_tx = 0;
    std::uint32_t largest_acked_stamp = 0;
    std::uint32_t reorder_threshold = 3;
    std::uint32_t refused_tx = UINT32_MAX; ///< what its BTL had no room for: no tx; there was none
    base::Time refused_at{};               ///< ... for the first time
    std::uint32_t held = 0;                ///< fragments with the BTL, not locally complete
    /// Behind the last VFRAG of which its BTL was believed; see Sender::believed_end.
    std::uint32_t believed_end = 0;
    base::Time revived_at{};     ///< what was held before belongs to the transport that failed
    std::uint64_t in_flight = 0; ///< payload bytes in flight
    std::unique_ptr<Congestion> congestion; ///< of an unreliable path; others have none
    RttEstimator rtt;                       ///< round trips
    base::Time sampled_at{};                ///< when the newest of them was measured
    RttEstimator completion;                ///< local completions
    double bandwidth = 0.1;                 ///< as believed, bytes per ns
    base::Time rate_start{};      ///< start of what is being measured, moved on by idle times
    base::Time rate_last{};       ///< ... and its end so far
    std::uint64_t rate_bytes = 0; ///< acknowledged in it
    base::Time rate_at{};         ///< newest measurement, or look at another's
    base::Time next_probe{};
    base::Time down_since{};
    base::Time last_ack{};     ///< last sign of life over this path
    base::Time last_timeout{}; ///< newest of `timeouts`
    std::uint64_t fragments_sent = 0;
    std::uint64_t bytes_sent = 0;
    std::uint64_t fragments_acked = 0;
    std::uint32_t failovers = 0;
    std::uint32_t returns = 0;
};

} // namespace ft::reliability

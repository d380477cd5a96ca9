/// \file
/// The sender's descriptor of a VFRAG (paper, section 3.3). The layer above owns the storage and
/// embeds it in its own descriptor; the engine never allocates one.
#pragma once
#include <cstdint>
#include <span>

#include "opal/ft/base/time.hpp"
#include "opal/ft/reliability/config.hpp"

namespace ft::reliability {

/// Doublings of a timeout are counted up to here; rto_max bounds it long before.
inline constexpr std::uint8_t max_backoff = 16;

enum class FragmentState : std::uint8_t { unsent, in_flight, lost, acked };
/// Why a fragment has to be sent again; each has its counter, the last two the same: its path is in
/// doubt, or broke.
enum class LossReason : std::uint8_t { none, timeout, watchdog, gap, tail, nack, failover, broken };

/// What is known of the newest transmission of one fragment.
struct FragmentRecord {
    std::uint32_t tx = 0;
    std::uint32_t stamp = 0; ///< when, in timestamp units
    std::uint8_t path = 0;
    std::uint8_t tries = 0; ///< transmissions so far, saturating
    FragmentState state = FragmentState::unsent;
    LossReason reason = LossReason::none;
    std::uint16_t held = 0; ///< descriptors of it with a BTL; max_path_depth bounds them
    /// Not 0: sent again since a timer expired, and whether it was lost is not known; 1 more than
    /// Congestion::shrinks then.
    std::uint8_t question = 0;
};

/// The layer above fills the public fields and hands it to Peer::submit; until it is handed back
/// (Peer::next_finished) it must stay where it is and its bytes must stay readable. All else
/// belongs to the engine.
class Vfrag {
  public:
    bool ordered = true; ///< one fragment, delivered in order of submission; else fragments are
                         ///< delivered as they come
    bool wants_answer = false; ///< is acknowledged over any path: who sends it waits for a sign of
                               ///< life
    std::uint32_t fragment_bytes =
        0; ///< payload of every fragment but the last (S), 0 only for an empty VFRAG
    std::uint64_t length =
        0; ///< payload bytes in all; ceil(length / fragment_bytes), at least 1, is the count
    std::span<FragmentRecord> fragments; ///< one record per fragment, storage of the layer above
    void *user = nullptr;                ///< not looked at

    [[nodiscard]] unsigned count() const noexcept
    {
        return static_cast<unsigned>(fragments.size());
    }
    /// Payload bytes of one fragment.
    [[nodiscard]] std::uint32_t bytes_of(unsigned index) const noexcept
    {
        const std::uint64_t begin = offset_of(index);
        const std::uint64_t rest = length - begin;
        return rest < fragment_bytes ? static_cast<std::uint32_t>(rest) : fragment_bytes;
    }
    /// Where a fragment's payload begins in the VFRAG.
    [[nodiscard]] std::uint64_t offset_of(unsigned index) const noexcept
    {
        return std::uint64_t{index} * fragment_bytes;
    }
    [[nodiscard]] std::uint32_t sequence() const noexcept { return sequence_; }
    [[nodiscard]] std::uint32_t order() const noexcept { return order_; }
    /// True once every fragment was acknowledged; false in a VFRAG handed back as failed.
    [[nodiscard]] bool acknowledged() const noexcept { return acked_count_ == fragments.size(); }

    /// Descriptors still with a BTL. Not 0 in a VFRAG that was handed back means: a BTL does not
    /// move (its path is as good as dead) or the peer is unreachable. The layer above lets those
    /// descriptors go without naming the VFRAG again, and must bear that the BTL may still read the
    /// bytes.
    [[nodiscard]] unsigned descriptors_held() const noexcept { return held_; }

    /// When its timers run out; far future while they do not run. For statistics and tests.
    [[nodiscard]] base::Time ack_deadline() const noexcept { return ack_deadline_; }
    [[nodiscard]] base::Time watchdog_deadline() const noexcept { return watchdog_deadline_; }

    /// Fragments needed for `length` bytes in pieces of `fragment_bytes`.
    [[nodiscard]] static unsigned count_for(std::uint64_t length,
                                            std::uint32_t fragment_bytes) noexcept
    {
        return length == 0 ? 1U
                           : static_cast<unsigned>((length + fragment_bytes - 1) / fragment_bytes);
    }

  private:
    friend class Sender;
    /// idle: the layer above's. draining: acknowledged, but a BTL still holds a descriptor of it.
    enum class State : std::uint8_t { idle, queued, sending, waiting, draining, finished };

    base::Time ack_deadline_{}; ///< ACK timer; far future while not armed
    base::Time
        watchdog_deadline_{}; ///< local completion watchdog; far future while nothing is held
    std::uint64_t lost_mask_ = 0;
    std::uint32_t first_stamp_ = 0; ///< of its first fragment's first transmission
    Vfrag *next_ = nullptr;         ///< in the unsent, or the finished, list
    std::uint32_t sequence_ = 0;
    std::uint32_t order_ = 0;
    std::uint16_t held_ = 0; ///< descriptors with a BTL
    std::uint8_t next_unsent_ = 0;
    std::uint8_t acked_count_ = 0;
    std::uint8_t backoff_ = 0;
    State state_ = State::idle;
    bool untouched_ = true; ///< nothing of it was ever declared lost
    bool looked_ = false;   ///< a timer was missed, and its answer is looked for once more
};

} // namespace ft::reliability

/// \file
/// The receiving half for one peer: duplicates, order, acknowledgements. PROTOCOL.md, "Receiver".
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "opal/ft/reliability/compressed.hpp"
#include "opal/ft/reliability/header.hpp"
#include "opal/ft/reliability/path_set.hpp"

namespace ft::reliability {

/// What to do with a fragment (ordered or data) whose header was whole.
enum class Verdict : std::uint8_t {
    fresh, ///< new: check the payload, then call accept or reject
    early, ///< ordered and new, but one before it is missing: check the payload, then call hold or
           ///< reject
    duplicate, ///< already here: forget it (it is acknowledged again)
    refused    ///< outside the window, contradictory, or no room: forget it (it was counted)
};

/// Not synchronised; deterministic. Owned by Peer, which is the interface to use.
class Receiver {
  public:
    Receiver(const Config &config, PeerCounters &counters) noexcept
        : config_(config), counters_(counters)
    {
    }

    /// \param acknowledged whether what comes over this path is
    void add_path(PathId id, bool acknowledged) noexcept
    {
        trusted_ = static_cast<std::uint16_t>(trusted_ | (acknowledged ? 0U : 1U << id));
        all_trusted_ = all_trusted_ && !acknowledged;
    }
    [[nodiscard]] Verdict classify(const FragHeader &header);
    void accept(const FragHeader &header, base::Time now);
    /// The short way of the fragment that everybody waits for: a whole VFRAG, the next number, the
    /// next in order and the next on its path, with nothing open before it.
    [[nodiscard]] bool is_next(const FragHeader &h) const noexcept
    {
        if (h.sequence != cumulative_ || highest_ != cumulative_ || h.order != next_order_ ||
            h.path >= seen_.size()) {
            return false;
        }
        const Seen &seen = seen_[h.path];
        return seen.any && seen.countdown == 0 && h.tx == ((seen.last_tx + 1) & tx_mask);
    }
    /// The same of the fragment itself, for one in the compressed form: the numbers that it must
    /// have. \return false when it is not known, or not the one that everybody waits for
    [[nodiscard]] bool awaits(Numbers &numbers) const noexcept
    {
        if (!context_.valid || highest_ != cumulative_) {
            return false;
        }
        const Seen &seen = seen_[context_.path]; // from which the context came
        numbers = {cumulative_, next_order_, (seen.last_tx + 1) & tx_mask, context_.path};
        return seen.countdown == 0;
    }
    /// What accept_next does, for one with the numbers that `awaits` told.
    void accept_awaited(const Numbers &numbers, std::uint32_t bytes, PathId arrival,
                        base::Time now) noexcept
    {
        arrival_ = arrival;
        seen_[numbers.path].last_tx = numbers.tx;
        ++counters_.fragments_received;
        counters_.bytes_received += bytes;
        highest_ = ++cumulative_;
        ++next_order_;
        owe_for(arrival, now);
    }
    /// What on_arrival, classify and accept do for it. \pre is_next, a single ordered fragment
    /// without flags that ask for something, its payload whole
    void accept_next(const FragHeader &h, PathId arrival, base::Time now) noexcept
    {
        note_echo(h, arrival, now);
        if (h.form == Form::brief) {
            context_ = context_of(h);
        }
        seen_[h.path].last_tx = h.tx;
        ++counters_.fragments_received;
        counters_.bytes_received += h.payload_bytes;
        highest_ = ++cumulative_;
        ++next_order_;
        owe_for(arrival, now);
    }
    void hold(const FragHeader &header, std::span<const std::byte> fragment, base::Time now);
    void reject_payload(const FragHeader &header);
    /// The next early fragment whose turn has come (whole, header first), or false. Call after
    /// every accept of an ordered fragment.
    [[nodiscard]] bool next_ready(std::vector<std::byte> &fragment);
    /// False when next_ready would find nothing for the lack of early ones.
    [[nodiscard]] bool holds_early() const noexcept
    {
        return early_ != nullptr && !early_->empty();
    }

    /// Notes where a valid fragment came from: the echo, and gaps in its path's tx numbers.
    void on_arrival(const FragHeader &header, PathId arrival, base::Time now);
    void on_time(base::Time now);

    [[nodiscard]] bool ack_due() const noexcept { return ack_now_; }
    [[nodiscard]] bool ack_owed() const noexcept { return ack_now_ || owed_ != 0; }
    [[nodiscard]] base::Time next_deadline() const noexcept
    {
        return ack_now_ || owed_ == 0 ? base::Time::never() : ack_at_;
    }
    /// Whether what is owed may be left to a later fragment: where messages come and go in quick
    /// succession one in several tells of them all, which spares their sender as many looks at what
    /// is acknowledged. Never when the sender waits for it: data is owed sooner than this allows.
    [[nodiscard]] bool may_wait(base::Time now) const noexcept
    {
        return owed_ != 0 && owed_ < std::min(config_.ack_every / 2, few) && !ack_now_ &&
               !selective_ &&
               ack_at_.ns() - now.ns() >
                   config_.ack_delay.ns() -
                       std::min(quick_succession.ns(), config_.ack_delay.ns() / 8);
    }
    /// Fills the acknowledgement fields of a header that goes out now.
    void fill(FragHeader &h, base::Time now) const noexcept
    {
        h.flags |= flag_ack;
        h.cumulative = cumulative_;
        if (!echo_valid_) {
            return;
        }
        h.flags |= flag_echo;
        h.echo_path = echo_path_;
        h.echo_timestamp = echo_stamp_;
        // Another thread may have taken it by a later look at the clock than the one at hand.
        const std::int64_t delay = std::max<std::int64_t>((now - echo_at_).us(), 0);
        h.echo_delay_us = delay < no_delay ? static_cast<std::uint16_t>(delay) : no_delay;
    }
    void fill(AckBody &body) const noexcept;
    /// An acknowledgement went out. \param full true for an ack, false for one that rode on another
    /// fragment (cumulative only)
    void acknowledged(bool full) noexcept
    {
        echo_valid_ = false;
        if (!full && selective_) {
            return; // the cumulative number alone does not say it all: an ack is still due
        }
        owed_ = 0;
        ack_now_ = false;
        ack_at_ = base::Time::never();
        selective_ = highest_ != cumulative_;
        if (full) {
            forget_broken(); // a NACK is said once; if it is lost, the gap or the timer will do
        }
    }
    /// Nothing came since the last acknowledgement: another one would change nothing.
    [[nodiscard]] bool tells_nothing() const noexcept
    {
        return !echo_valid_ && owed_ == 0 && !ack_now_;
    }
    /// The path on which the newest fragment came, for the answer.
    [[nodiscard]] PathId answer_path() const noexcept { return arrival_; }
    [[nodiscard]] std::uint32_t cumulative() const noexcept { return cumulative_; }
    /// What tells the numbers of a fragment in the compressed form.
    [[nodiscard]] Foretold foretold() const noexcept { return {context_, cumulative_}; }
    [[nodiscard]] std::size_t held_bytes() const noexcept { return held_bytes_; }
    /// Memory that it has allocated beside itself.
    [[nodiscard]] std::size_t allocated_bytes() const noexcept
    {
        return open_.capacity() * sizeof(Open) + seen_.capacity() * sizeof(Seen) + held_bytes_;
    }
    void start_at(std::uint32_t sequence, std::uint32_t order) noexcept
    {
        cumulative_ = highest_ = sequence;
        next_order_ = order;
    }

  private:
    /// A VFRAG beyond the cumulative one of which something has come.
    struct Open {
        std::uint64_t received = 0;
        std::uint64_t broken = 0;
        std::uint8_t count = 0; ///< 0: nothing came yet
    };
    /// Their sender keeps what is not acknowledged, in its nearest cache if it is no more than
    /// this.
    static constexpr std::uint32_t few = 16;
    /// No shorter than what lies between two samples of a round trip where it is short.
    static constexpr base::Duration quick_succession = base::Duration::from_us(16);
    /// The tx numbers seen on one of the sender's paths.
    struct Seen {
        std::uint32_t last_tx = 0;
        std::uint8_t countdown = 0; ///< arrivals until the ack that proves a gap
        bool again = false;         ///< another gap meanwhile
        bool any = false;
    };
    [[nodiscard]] Open *find(std::uint32_t sequence) noexcept;
    /// The same, made if it is not there; counts the VFRAG among the seen ones.
    [[nodiscard]] Open &reach(std::uint32_t sequence);
    void mark(const FragHeader &header, base::Time now);
    void advance() noexcept;
    void owe(base::Time now) noexcept
    {
        if (owed_ == 0) {
            ack_at_ = now + config_.ack_delay;
        }
        if (++owed_ >= config_.ack_every) {
            ack_now_ = true;
        }
    }
    /// Whether nobody waits to be told of what comes over this path of ours.
    [[nodiscard]] bool is_trusted(PathId arrival) const noexcept
    {
        static_assert(max_paths <= 16 && no_path % 32 == 31);
        return (std::uint32_t{trusted_} >> (arrival % 32) & 1U) != 0;
    }
    /// For a whole VFRAG of one fragment.
    void owe_for(PathId arrival, base::Time now) noexcept
    {
        if (!is_trusted(arrival)) [[likely]] {
            owe(now);
        }
    }
    /// Where it came from, and what of it is needed later.
    void note_echo(const FragHeader &h, PathId arrival, base::Time now) noexcept
    {
        arrival_ = arrival;
        if (h.form == Form::compressed) {
            return; // it has no timestamp: the newest one that came is echoed, as late as it is
        }
        if (is_trusted(arrival) && !h.has(flag_ack_wanted)) {
            return; // its sender measures nothing by it
        }
        echo_valid_ = true;
        echo_path_ = h.path;
        echo_stamp_ = h.timestamp;
        echo_at_ = now;
    }
    void forget_broken() noexcept;

    const Config &config_;
    PeerCounters &counters_;
    std::vector<Open>
        open_; ///< ring by sequence, size a power of two; empty until something comes out of order
    std::vector<Seen> seen_; ///< by the sender's path number
    using Early = std::map<std::uint32_t, std::vector<std::byte>>;
    std::unique_ptr<Early> early_; ///< by order number; made when the first comes
    std::size_t held_bytes_ = 0;
    std::uint32_t cumulative_ = 0;
    std::uint32_t highest_ = 0; ///< one past the highest VFRAG seen
    std::uint32_t next_order_ = 0;
    std::uint32_t spurious_ = 0;
    Context context_;
    std::uint32_t owed_ = 0; ///< VFRAGs or duplicates not yet acknowledged
    std::uint32_t echo_stamp_ = 0;
    base::Time ack_at_ = base::Time::never();
    bool ack_now_ = false;
    bool selective_ = false; ///< there is more to say than the cumulative number
    PathId arrival_ = no_path;
    bool all_trusted_ = true;   ///< no path of ours is acknowledged
    std::uint16_t trusted_ = 0; ///< bit by bit: these paths are not
    bool echo_valid_ = false;
    std::uint8_t echo_path_ = 0;
    base::Time echo_at_{};
};

} // namespace ft::reliability

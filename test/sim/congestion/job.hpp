/// \file
/// Two processes with real reliability::Peer engines that send bulk from one to the other over a
/// Link, as test/bench/stream does: a window of messages, then a reply, then the next.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "opal/ft/reliability/peer.hpp"
#include "test/sim/congestion/link.hpp"

namespace ft::sim {

class Job {
  public:
    static constexpr std::uint32_t fragment_bytes = 1344;
    static constexpr std::uint32_t on_wire = 1500;

    static constexpr std::uint32_t headers = on_wire - fragment_bytes;

    /// \param window bytes that are sent before a reply is waited for, in fragments as `config` has
    /// them
    Job(Link &link, const reliability::Config &config, std::uint64_t window);

    void begin();
    /// The receiving process does not run for so long. What comes meanwhile waits for it.
    void stop_receiver(base::Duration length);
    /// Payload bytes that have arrived, each once.
    [[nodiscard]] std::uint64_t delivered() const noexcept
    {
        return receiver_.peer.counters().bytes_received;
    }
    [[nodiscard]] reliability::Counters counters() const noexcept
    {
        return sender_.peer.counters();
    }
    [[nodiscard]] std::uint64_t congestion_window() const noexcept
    {
        return sender_.peer.paths()[0].congestion->window();
    }

  private:
    struct Piece {
        reliability::Vfrag vfrag;
        std::array<reliability::FragmentRecord, reliability::max_fragments> records{};
    };
    struct End {
        End(const reliability::Config &config, std::int32_t rank)
            : peer(config, {1, static_cast<std::uint32_t>(rank)})
        {
        }
        reliability::Peer peer;
        base::Time wakes_at = base::Time::never();
        std::vector<std::unique_ptr<Piece>> storage;
        std::vector<Piece *> idle;
    };

    Piece &piece(End &end);
    void fill_window();
    void reply();
    void pump(End &end);
    [[nodiscard]] bool stands_still(const End &end) const noexcept
    {
        return &end == &receiver_ && link_.now() < stopped_until_;
    }
    void arrive(End &end, const reliability::Transmit &transmit,
                const std::vector<std::byte> &control);

    Link &link_;
    End sender_;
    End receiver_;
    std::uint32_t fragment_;
    std::uint64_t window_;
    std::uint64_t to_submit_ = 0;
    std::uint64_t came_ = 0; ///< of the window
    base::Time stopped_until_{};
    std::vector<std::function<void()>> waiting_; ///< came while the receiver stood still
};

} // namespace ft::sim

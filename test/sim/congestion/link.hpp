/// \file
/// A bottleneck in virtual time: packets leave it at its rate, wait in its queue before, are lost
/// when that is full or by chance, and arrive a delay later. The way back is never the bottleneck,
/// but loses by chance, too.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "opal/ft/base/rng.hpp"
#include "opal/ft/base/time.hpp"

namespace ft::sim {

struct LinkShape {
    double rate = 1;                                    ///< bytes per ns
    base::Duration delay = base::Duration::from_us(25); ///< one way
    std::uint64_t queue = 256 * 1024;                   ///< bytes that wait at most
    double loss = 0;                                    ///< by chance, each packet, either way
    base::Duration detour{};                            ///< of every other packet on its way there
};

class Link {
  public:
    explicit Link(const LinkShape &shape, std::uint64_t seed) : shape_(shape), rng_(seed) {}

    [[nodiscard]] base::Time now() const noexcept { return now_; }
    [[nodiscard]] const LinkShape &shape() const noexcept { return shape_; }

    /// Through the bottleneck. \return whether it has not been lost yet
    bool send(std::uint64_t bytes, std::function<void()> arrive)
    {
        ++packets_;
        const base::Time start = std::max(free_at_, now_);
        if (static_cast<double>((start - now_).ns()) * shape_.rate + static_cast<double>(bytes) >
            static_cast<double>(shape_.queue)) {
            ++overflown_;
            return false;
        }
        free_at_ = start + base::Duration::from_ns(
                               static_cast<std::int64_t>(static_cast<double>(bytes) / shape_.rate));
        if (unlucky()) {
            return false;
        }
        const bool detour = packets_ % 2 != 0;
        at(free_at_ + shape_.delay + (detour ? shape_.detour : base::Duration{}),
           std::move(arrive));
        return true;
    }
    void send_back(std::function<void()> arrive)
    {
        if (!unlucky()) {
            at(now_ + shape_.delay, std::move(arrive));
        }
    }
    void at(base::Time when, std::function<void()> what)
    {
        events_.push({when, ++order_, std::move(what)});
    }
    /// Of what is sent from now on.
    void set_delay(base::Duration delay) noexcept { shape_.delay = delay; }
    /// Until then, or until nothing happens any more.
    void run(base::Time end)
    {
        while (!events_.empty() && events_.top().when <= end) {
            Event event = std::move(const_cast<Event &>(events_.top()));
            events_.pop();
            now_ = std::max(now_, event.when);
            event.what();
        }
        now_ = end;
    }
    /// Share of packets that the full queue refused.
    [[nodiscard]] double overflow() const noexcept
    {
        return static_cast<double>(overflown_) / static_cast<double>(packets_ == 0 ? 1 : packets_);
    }

    /// The same since it was last asked for.
    [[nodiscard]] double overflow_lately() noexcept
    {
        const double share =
            static_cast<double>(overflown_ - looked_overflown_) /
            static_cast<double>(std::max<std::uint64_t>(packets_ - looked_packets_, 1));
        looked_packets_ = packets_;
        looked_overflown_ = overflown_;
        return share;
    }

  private:
    struct Event {
        base::Time when;
        std::uint64_t order;
        std::function<void()> what;
        bool operator<(const Event &other) const noexcept
        {
            return when != other.when ? other.when < when : other.order < order;
        }
    };
    bool unlucky() { return shape_.loss > 0 && rng_.chance(shape_.loss); }

    LinkShape shape_;
    base::Rng rng_;
    base::Time now_ = base::Time::zero() + base::Duration::from_s(1);
    base::Time free_at_{};
    std::uint64_t order_ = 0;
    std::uint64_t packets_ = 0;
    std::uint64_t overflown_ = 0;
    std::uint64_t looked_packets_ = 0;
    std::uint64_t looked_overflown_ = 0;
    std::priority_queue<Event> events_;
};

} // namespace ft::sim

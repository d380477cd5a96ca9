/// \file
/// Two ends and two links of given rates between them, in closed loop: where does the load go?
#pragma once
#include "opal/ft/reliability/peer.hpp"
#include "test/unit/reliability/ends.hpp"

#include <algorithm>
#include <utility>

namespace ft::test {

inline constexpr Duration link_latency = 50_us;

/// What goes over the links: VFRAGs of some fragments.
struct Sizes {
    std::uint32_t fragment = 8192;
    unsigned fragments = 16;
    std::uint64_t window = std::uint64_t{1} << 20;
    std::uint64_t burst = 0; ///< so many bytes, then all of them are waited for; 0: without an end
};

/// One direction of a link: what is written to it queues, and is sent at its rate. Its BTL is done
/// with what stands in the socket's buffer.
class Link {
  public:
    double rate = 0.01; ///< bytes per ns; 0: it is cut, and what stands in it stays there
    void put(Frame frame, Time now)
    {
        queue_.push_back({std::move(frame), now});
        start(now);
        release(now);
    }
    /// When something happens at it next.
    [[nodiscard]] Time next() const
    {
        return std::min(ends_, under_way_.empty() ? Time::never() : under_way_.front().first);
    }
    void run(Time now)
    {
        while (ends_ <= now) {
            const Time at = std::exchange(ends_, Time::never());
            under_way_.emplace_back(at + link_latency, std::move(queue_.front().frame));
            queue_.pop_front();
            released_ -= 1;
            start(at);
            release(now);
        }
        start(now); // it may have been cut
    }
    void deliver(End &end, Time now)
    {
        while (!under_way_.empty() && under_way_.front().first <= now) {
            (void)end.take(under_way_.front().second, now);
            under_way_.pop_front();
        }
    }
    End *from = nullptr;

  private:
    struct Entry {
        Frame frame;
        Time since;
    };
    void start(Time now)
    {
        if (ends_.is_never() && !queue_.empty() && rate > 0) {
            const auto bytes = static_cast<double>(queue_.front().frame.bytes.size());
            ends_ = now + Duration::from_ns(static_cast<std::int64_t>(bytes / rate));
        }
    }
    /// Hands back what fits the socket's buffer.
    void release(Time now)
    {
        std::uint64_t before = 0;
        for (std::size_t i = 0; i < queue_.size() && before < buffer_bytes; ++i) {
            const Entry &e = queue_[i];
            before += e.frame.bytes.size();
            if (i >= released_) {
                ++released_;
                if (e.frame.what == Transmit::What::fragment) {
                    from->peer.locally_complete(*e.frame.vfrag, e.frame.index, e.frame.path,
                                                e.since, now);
                }
            }
        }
    }
    static constexpr std::uint64_t buffer_bytes = 512 * 1024;
    std::deque<Entry> queue_;
    std::size_t released_ = 0;  ///< so many of them
    Time ends_ = Time::never(); ///< when the first of them is sent
    std::deque<std::pair<Time, Frame>> under_way_;
};

/// A sends to B over two links; what comes back meets no queue.
struct Load {
    /// \param guess what the transports say of themselves, bytes per ns
    Load(const Sizes &sizes, const Config &config, double guess) : t(0, config), sizes_(sizes)
    {
        for (End *end : {&t.a, &t.a, &t.b, &t.b}) {
            PathInfo info;
            info.max_fragment_bytes = 1 << 20;
            info.bandwidth = guess;
            (void)end->peer.add_path(info, t.now);
        }
        link[0].from = link[1].from = &t.a;
        set_rates(0.04, 0.01);
    }
    void run_until(Time end)
    {
        const std::uint64_t bytes = std::uint64_t{sizes_.fragments} * sizes_.fragment;
        while (t.now < end) {
            while (t.a.peer.has_room(bytes, false) &&
                   (sizes_.burst == 0 || in_burst_ < sizes_.burst)) {
                (void)t.a.submit(false, bytes, sizes_.fragment, t.now);
                in_burst_ += bytes;
                unfinished_ += bytes;
            }
            std::vector<Frame> frames = t.a.pump(t.now, false);
            for (; !frames.empty(); frames = t.a.pump(t.now, false)) {
                for (Frame &frame : frames) {
                    const PathId path = frame.path;
                    link[path].put(std::move(frame), t.now);
                }
            }
            for (Frame &frame : t.b.pump(t.now)) {
                if (link[frame.path].rate > 0) {
                    back_.emplace_back(t.now + link_latency, std::move(frame));
                }
            }
            while (!t.a.done.empty()) { // their storage may go, oldest first
                finished += t.a.done.back()->length;
                unfinished_ -= t.a.done.back()->length;
                t.a.done.pop_back();
            }
            t.b.delivered.clear();
            if (sizes_.burst != 0 && unfinished_ == 0) {
                in_burst_ = 0; // the next one begins
                continue;
            }
            t.now =
                std::max(t.now, std::min({t.a.peer.next_deadline(), t.b.peer.next_deadline(),
                                          link[0].next(), link[1].next(),
                                          back_.empty() ? Time::never() : back_.front().first}));
            for (Link &one : link) {
                one.run(t.now);
                one.deliver(t.b, t.now);
            }
            while (!back_.empty() && back_.front().first <= t.now) {
                (void)t.a.take(back_.front().second, t.now);
                back_.pop_front();
            }
        }
    }
    /// The part of the bytes that path 0 is given from now on, for so long.
    double share_for(Duration length)
    {
        const std::array before{sent(0), sent(1)};
        run_until(t.now + length);
        const auto first = static_cast<double>(sent(0) - before[0]);
        return first / (first + static_cast<double>(sent(1) - before[1]));
    }
    /// What arrives from now on, for so long, in bytes per ns.
    double rate_for(Duration length)
    {
        const std::uint64_t before = finished;
        const Time start = t.now;
        run_until(start + length);
        return static_cast<double>(finished - before) / static_cast<double>((t.now - start).ns());
    }
    void set_rates(double first, double second)
    {
        link[0].rate = first;
        link[1].rate = second;
    }
    [[nodiscard]] std::uint64_t sent(PathId path) const
    {
        return t.a.peer.paths()[path].bytes_sent;
    }

    Two t;
    std::array<Link, 2> link;
    std::uint64_t finished = 0;

  private:
    Sizes sizes_;
    std::uint64_t in_burst_ = 0; ///< submitted
    std::uint64_t unfinished_ = 0;
    std::deque<std::pair<Time, Frame>> back_;
};

} // namespace ft::test

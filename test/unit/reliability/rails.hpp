/// \file
/// Two ends and two links of given rates between them, in closed loop: where does the load go?
#pragma once
#include "opal/ft/reliability/peer.hpp"
#include "test/unit/reliability/ends.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ft::test {

inline constexpr Duration link_latency = 50_us;

/// What goes over the links: VFRAGs of some fragments.
struct Sizes {
    std::uint32_t fragment = 8192;
    unsigned fragments = 16;
    std::uint64_t window = std::uint64_t{1} << 20;
    std::uint64_t burst = 0; ///< so many bytes, then all of them are waited for; 0: without an end
};

/// Lives until its last fragment has left the links: a watchdog may end it before.
struct SharedBox : Box, std::enable_shared_from_this<SharedBox> {
    bool finished = false;
};

/// A fragment on its way, without its payload: what is looked at is when it comes.
struct Piece {
    FragHeader header;
    std::shared_ptr<SharedBox> box; ///< nullptr: a control fragment
    std::vector<std::byte> control; ///< ... and the whole of it
    PathId path = 0;
    [[nodiscard]] std::uint64_t bytes() const
    {
        return box != nullptr ? header_bytes + header.payload_bytes : control.size();
    }
};

/// All that `peer` wants sent now. Its BTLs hold the fragments.
inline std::vector<Piece> pieces_of(Peer &peer, Time now)
{
    wake(peer, now);
    std::vector<Piece> pieces;
    Transmit t;
    while (peer.next_transmit(t, now)) {
        Piece &piece = pieces.emplace_back();
        piece.path = t.path;
        if (t.what == Transmit::What::fragment) {
            piece.header = t.header;
            piece.box = static_cast<SharedBox *>(t.choice.vfrag->user)->shared_from_this();
        } else {
            piece.control.resize(max_control_bytes);
            piece.control.resize(peer.write_control(t, piece.control));
        }
        peer.sent(t, now, false);
    }
    return pieces;
}

inline void take(Peer &peer, const Piece &piece, Time now)
{
    if (piece.box == nullptr) {
        FragHeader h;
        if (parse_header(piece.control, true, h) == ParseStatus::ok) {
            peer.on_control(h, piece.control, piece.path, now);
        }
    } else if (peer.on_fragment(piece.header, piece.path, now) == Verdict::fresh) {
        peer.accept(piece.header, now);
    }
}

/// One direction of a link: what is written to it queues, and is sent at its rate. Its BTL is done
/// with what stands in the socket's buffer.
class Link {
  public:
    double rate = 0.01;   ///< bytes per ns; 0: it is cut, and what stands in it stays there
    Peer *from = nullptr; ///< who writes to it

    void put(Piece piece, Time now)
    {
        queue_.push_back({std::move(piece), now});
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
            under_way_.emplace_back(at + link_latency, std::move(queue_.front().piece));
            queue_.pop_front();
            --released_;
            start(at);
            release(now);
        }
        start(now); // it may have been cut
    }
    void deliver(Peer &to, Time now)
    {
        while (!under_way_.empty() && under_way_.front().first <= now) {
            take(to, under_way_.front().second, now);
            under_way_.pop_front();
        }
    }

  private:
    struct Entry {
        Piece piece;
        Time since;
    };
    void start(Time now)
    {
        if (ends_.is_never() && !queue_.empty() && rate > 0) {
            const auto bytes = static_cast<double>(queue_.front().piece.bytes());
            ends_ = now + Duration::from_ns(static_cast<std::int64_t>(bytes / rate));
        }
    }
    /// Hands back what fits the socket's buffer.
    void release(Time now)
    {
        std::uint64_t before = 0;
        for (std::size_t i = 0; i < queue_.size() && before < buffer_bytes; ++i) {
            const Entry &e = queue_[i];
            before += e.piece.bytes();
            if (i < released_) {
                continue;
            }
            ++released_;
            if (e.piece.box == nullptr) {
                continue;
            }
            if (e.piece.box->finished) {
                from->descriptor_released(e.piece.path, e.since);
            } else {
                from->locally_complete(e.piece.box->vfrag, e.piece.header.index, e.piece.path,
                                       e.since, now);
            }
        }
    }
    static constexpr std::uint64_t buffer_bytes = 512 * 1024;
    std::deque<Entry> queue_;
    std::size_t released_ = 0;  ///< so many of them
    Time ends_ = Time::never(); ///< when the first of them is sent
    std::deque<std::pair<Time, Piece>> under_way_;
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
        link[0].from = link[1].from = &t.a.peer;
        set_rates(0.04, 0.01);
    }
    void run_until(Time end)
    {
        while (t.now < end) {
            submit();
            for (auto pieces = pieces_of(t.a.peer, t.now); !pieces.empty();
                 pieces = pieces_of(t.a.peer, t.now)) {
                for (Piece &piece : pieces) {
                    const PathId path = piece.path;
                    link[path].put(std::move(piece), t.now);
                }
            }
            for (Piece &piece : pieces_of(t.b.peer, t.now)) {
                if (link[piece.path].rate > 0) {
                    back_.emplace_back(t.now + link_latency, std::move(piece));
                }
            }
            while (const Vfrag *v = t.a.peer.next_finished()) {
                finished += v->length;
                unfinished_ -= v->length;
                auto *box = static_cast<SharedBox *>(v->user);
                box->finished = true;
                boxes_.erase(box);
            }
            if (sizes_.burst != 0 && unfinished_ == 0) {
                in_burst_ = 0; // the next one begins
                continue;
            }
            t.now = std::max(t.now, next());
            for (Link &one : link) {
                one.run(t.now);
                one.deliver(t.b.peer, t.now);
            }
            while (!back_.empty() && back_.front().first <= t.now) {
                take(t.a.peer, back_.front().second, t.now);
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
    void submit()
    {
        const std::uint64_t bytes = std::uint64_t{sizes_.fragments} * sizes_.fragment;
        while (t.a.peer.has_room(bytes, false) && (sizes_.burst == 0 || in_burst_ < sizes_.burst)) {
            auto box = std::make_shared<SharedBox>();
            Vfrag &vfrag = box->vfrag;
            vfrag.ordered = false;
            vfrag.length = bytes;
            vfrag.fragment_bytes = sizes_.fragment;
            vfrag.fragments = std::span(box->records).first(sizes_.fragments);
            vfrag.user = box.get();
            boxes_.emplace(box.get(), box);
            t.a.peer.submit(vfrag, t.now);
            in_burst_ += bytes;
            unfinished_ += bytes;
        }
    }
    /// When anything happens next.
    [[nodiscard]] Time next() const
    {
        return std::min({t.a.peer.next_deadline(), t.b.peer.next_deadline(), link[0].next(),
                         link[1].next(), back_.empty() ? Time::never() : back_.front().first});
    }
    Sizes sizes_;
    std::unordered_map<const SharedBox *, std::shared_ptr<SharedBox>> boxes_; ///< not finished
    std::uint64_t in_burst_ = 0;                                              ///< submitted
    std::uint64_t unfinished_ = 0;
    std::deque<std::pair<Time, Piece>> back_;
};

} // namespace ft::test

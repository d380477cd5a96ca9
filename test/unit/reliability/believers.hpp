/// \file
/// Two ends with a path whose BTL both believe, so that nothing is acknowledged there.
#pragma once
#include "test/unit/reliability/ends.hpp"

namespace ft::test {

inline void add_path(End &end, bool acknowledged, Time now)
{
    PathInfo info;
    info.max_fragment_bytes = 1 << 20;
    info.acknowledged = acknowledged;
    (void)end.peer.add_path(info, now);
}

/// Two ends with a path that both believe in, and others that are acknowledged.
struct Believers : Two {
    explicit Believers(unsigned others = 0, const Config &c = quick_config()) : Two(0, c)
    {
        for (End *end : {&a, &b}) {
            add_path(*end, false, now);
            end->add_paths(others, now);
        }
    }
};

inline bool is_question(const Frame &frame)
{
    FragHeader h;
    return parse_header(frame.bytes, true, h) == ParseStatus::ok && h.kind == Kind::ack &&
           h.has(flag_ack_wanted);
}

/// A short one, by the path that is not to be avoided.
inline void send_past(End &end, PathId avoided, std::vector<Frame> &frames, Time now)
{
    (void)end.submit(true, 8, 8, now);
    end.peer.blocked(avoided);
    Transmit what;
    while (end.peer.next_transmit(what, now)) {
        frames.push_back(End::frame_of(what, 0));
        end.peer.sent(what, now, true);
    }
    end.peer.unblock();
}

} // namespace ft::test

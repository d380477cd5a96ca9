/// Which messages were taken already: the protocol's own protection from duplicates.
///
/// A sender numbers all its messages, to whomever, with one rising count and never uses a number
/// twice. Per sender the last 64 numbers are known exactly; anything older counts as taken, since
/// what matters is repeated under a new number. Constant size per sender; one object belongs to one
/// thread.
#pragma once

#include "opal/ft/membership/types.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ft::membership {

class Inbox {
  public:
    /// True the first time for each number of each life of a sender. A higher incarnation starts
    /// anew; messages of a lower one than the last heard are refused.
    bool accept(const Identity &from, std::uint64_t sequence)
    {
        auto at = std::lower_bound(senders_.begin(), senders_.end(), from.id,
                                   [](const Sender &s, NodeId id) { return s.who.id < id; });
        if (at == senders_.end() || at->who.id != from.id) {
            at = senders_.insert(at, Sender{from, 0, 0});
        }
        if (from.incarnation != at->who.incarnation) {
            if (from.incarnation < at->who.incarnation) {
                return false;
            }
            *at = Sender{from, 0, 0};
        }
        if (sequence > at->highest) {
            const std::uint64_t ahead = sequence - at->highest;
            // Bit i: highest - i was taken.
            at->taken = (ahead < 64 ? at->taken << ahead : 0) | 1U;
            at->highest = sequence;
            return true;
        }
        const std::uint64_t behind = at->highest - sequence;
        if (behind >= 64 || (at->taken >> behind & 1U) != 0) {
            return false;
        }
        at->taken |= std::uint64_t{1} << behind;
        return true;
    }

    std::size_t size() const { return senders_.size(); }

  private:
    struct Sender {
        Identity who;
        std::uint64_t highest;
        std::uint64_t taken;
    };
    std::vector<Sender> senders_; // sorted by id
};

} // namespace ft::membership

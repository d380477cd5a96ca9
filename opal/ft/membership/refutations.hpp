/// How often one member has accused another that answers the root: a link between two that live.
///
/// An accusation counts if its accuser made it after it had been told that the last one that
/// counted was refuted. Others say nothing new: a report is repeated until it is answered, and TCP
/// keeps all of that while the network is cut, and delivers it at once when it heals. Nor does one
/// count with others from long ago: who cannot hear a neighbour accuses it again as soon as the
/// detector allows.
///
/// One object belongs to one thread. Source: the paper has link failures count as node failures,
/// without saying how they are told from false suspicions.
#pragma once

#include "opal/ft/base/time.hpp"
#include "opal/ft/membership/types.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ft::membership {

class Refutations {
  public:
    /// So many in succession are no false suspicions.
    static constexpr unsigned enough = 3;

    /// An accusation was refuted by the message `answer` to the accuser, which had had this root's
    /// message `heard` as the last such answer when it accused (0: none). Those who are further
    /// apart than `memory` are not in succession. True when there are enough; they are forgotten
    /// then.
    bool counts(base::Time now, base::Duration memory, NodeId accused, NodeId accuser,
                std::uint64_t heard, std::uint64_t answer)
    {
        const auto at = std::find_if(pairs_.begin(), pairs_.end(), [&](const Pair &p) {
            return p.accused == accused && p.accuser == accuser;
        });
        if (at == pairs_.end()) {
            pairs_.push_back({accused, accuser, 1, answer, now});
            return false;
        }
        if (heard < at->answer) {
            return false;
        }
        *at = {accused, accuser, now - at->at > memory ? 1 : at->count + 1, answer, now};
        if (at->count < enough) {
            return false;
        }
        pairs_.erase(at);
        return true;
    }

    void clear() { pairs_.clear(); }

  private:
    struct Pair {
        NodeId accused, accuser;
        unsigned count;
        std::uint64_t answer; ///< that told the accuser of the last one that counted
        base::Time at;        ///< when that was
    };
    std::vector<Pair> pairs_;
};

} // namespace ft::membership

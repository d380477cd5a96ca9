/// Connections of the runtime's channel on which nothing gets through any more, and what to do.
///
/// The channel has one connection to each other daemon, over one of the networks that both have. A
/// network that loses everything without a word leaves it standing for minutes. Two things tell:
/// what was sent is not acknowledged by the other's kernel, which even a daemon that is stopped
/// does; and of its addresses the one in use does not accept a connection while another one does.
/// Each alone may be chance, and both together, wrongly, cost no more than a new connection. One
/// thread; knows nothing of the runtime.
#pragma once

#include "orte_glue/radixft/types.hpp"

#include "opal/ft/base/time.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

namespace ft::radixft {

/// What the kernel says of one connection.
struct Progress {
    bool waits = false; ///< for something to be acknowledged, to be opened, or to be greeted
    /// Changes whenever something is acknowledged.
    std::uint64_t mark = 0;
    bool resends = false;  ///< TCP has sent it again, and still there is no answer
    bool greeting = false; ///< what it waits for is the other daemon's greeting

    bool operator==(const Progress &) const = default;
};

class Stalls {
  public:
    /// How long the same bytes may wait. A kernel puts acknowledgements off by 40 ms as a rule, by
    /// 200 ms at most.
    static constexpr base::Duration patience = base::Duration::from_ms(100);
    static constexpr base::Duration most_patience = base::Duration::from_s(1);

    /// To be called at regular intervals. 1 when the connection to `id` has stood still for
    /// `patience`, 2 after twice that again, and so on; else 0.
    unsigned look(base::Time now, NodeId id, const Progress &progress);
    /// There is a new connection, or none.
    void forget(NodeId id) { waiting_.erase(id); }

  private:
    struct Since {
        std::uint64_t mark;
        base::Time time;
        base::Duration patience;
        unsigned times;
    };
    std::map<NodeId, Since> waiting_;
};

/// What a daemon's host says at one of its addresses when it is asked for a connection there. Of
/// several answers the lowest counts. Unasked: this host had no socket to ask with.
enum class Knock : std::uint8_t { accepted, refused, unasked, silent };

/// Whether a connection that has stood still so often is broken, though the address that it leads
/// to answers: the other daemon has ended it, and the network has come back before it was heard.
/// One on which the other takes nothing, since it is busy, is not: its kernel says so.
bool is_broken(unsigned times, const Progress &progress);

/// Of a daemon's addresses, the one to go on over instead of `used`; nothing when that one answers,
/// or no other one accepts. A refusal is no reason: who refuses at one address may be heard at the
/// other, and what it says of a daemon is asked elsewhere, when a connection has broken. If the
/// connection is known to be broken it is `used` itself that is wanted first.
std::optional<std::size_t> better_address(std::span<const Knock> answers, std::size_t used,
                                          bool broken = false);

} // namespace ft::radixft

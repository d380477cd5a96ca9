/// The runtime's collectives (fence, barrier) among daemons of which some may die.
///
/// Every daemon whose ranks take part sends their contribution to the root; the root waits for
/// those that can still come, and sends the collected parts back to all that take part. A daemon is
/// not waited for when it is dead or when all its taking part ranks are: the caller answers that
/// question, and asks for a new look with recheck() when the answer may have changed. A
/// contribution is kept until it is released and sent again to every new root. That asks those
/// whose contribution it misses, a few at a time; whoever has the release already gives it that,
/// and the root repeats it to those who have not. So a collective that one survivor left is one
/// that every survivor leaves.
///
/// What is released may be large (MPI_Init's exchange of addresses). Then the root gives it to a
/// few, who pass it on; who does not get it so says that it waits, by repeating its contribution,
/// and is given it by the root.
///
/// Collectives are told apart by a signature (bytes that all take for the same collective) and a
/// number that counts the collectives of that signature. Pure state machine, one thread.
#pragma once

#include "orte_glue/radixft/types.hpp"

#include <functional>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace ft::radixft {

class Gather {
  public:
    /// Whether `node` cannot contribute to this collective any more.
    using Gone = std::function<bool(NodeId node, const Bytes &signature, std::uint32_t number)>;

    Gather(NodeId self, Gone gone) : self_(self), gone_(std::move(gone)) {}

    /// A collective that is complete at this daemon.
    struct Done {
        Bytes signature;
        std::uint32_t number = 0;
        Bytes data; ///< the contributions, one behind the other, by daemon
    };

    /// Another daemon is the root, or this one (`root == self`). Before the first call nothing is
    /// sent.
    void on_root(NodeId root);

    /// This daemon's ranks have all come to the collective. `participants` are the daemons that
    /// host ranks of it, this one among them. Returns the collective's number.
    std::uint32_t contribute(const Bytes &signature, std::span<const NodeId> participants,
                             Bytes data);

    /// A message of one of the four types. False if it was malformed or made no sense.
    bool on_message(NodeId from, Type type, std::span<const std::byte> body);

    /// Somebody died.
    void recheck();
    /// Sends again what was not answered since the last tick but one.
    void tick();
    /// To be called now and then, at intervals in which whoever waits for a release has said so:
    /// forgets the last release of each signature that `over` has said twice in a row that nobody
    /// will use again, and that nobody has asked for in between. How many there were is kept.
    void forget(const std::function<bool(const Bytes &signature)> &over);
    /// Signatures whose last release is kept.
    std::size_t kept() const { return last_.size(); }

    std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
    std::vector<Done> take_done() { return std::exchange(done_, {}); }
    /// How many collectives of this signature this daemon has completed.
    std::uint32_t completed(const Bytes &signature) const;
    /// This daemon's ranks have come to a collective that is not released.
    bool waits() const { return !pending_.empty(); }
    /// Collectives that wait for somebody, at this daemon as root.
    std::size_t open() const { return collecting_.size(); }

  private:
    using Key = std::pair<Bytes, std::uint32_t>;
    struct Pending {
        std::vector<NodeId> participants;
        Bytes data;
        unsigned ticks = 0;
        unsigned wait = 4; ///< ticks until it is sent again; doubles
    };
    static constexpr unsigned first_wait = 8;
    static constexpr unsigned wait_for_answers = 4; ///< of the first few, which may be large
    struct Collecting {
        std::vector<NodeId> participants;
        std::map<NodeId, Bytes> parts;
        unsigned ticks = 0;
        unsigned wait = first_wait; ///< ticks until the missing are asked; doubles
        std::size_t asked = 0;      ///< so far
        std::size_t asked_at_once = 4;
    };
    struct Released {
        std::uint32_t number = 0;
        Bytes data;
        std::vector<NodeId> participants;
        /// At the root, in ticks: until when it is on its way, passed on from one to the next, and
        /// until when that is begun anew when a daemon is gone.
        unsigned repeated_from = 0;
        unsigned spread_again_until = 0;
        unsigned unused = 0;           ///< calls of forget() since it was wanted
        std::set<NodeId> waiting = {}; ///< at the root: have asked for it, and go on waiting
    };
    struct Count {
        std::uint32_t next = 0; ///< number of this daemon's next contribution
        std::uint32_t completed = 0;
    };

    bool is_root() const { return root_ == self_; }
    void send_contribution(const Key &key, const Pending &pending);
    void take_part(NodeId from, const Key &key, std::vector<NodeId> participants, Bytes data);
    void check(const Key &key);
    void release(const Key &key, Released what);
    void spread(const Bytes &signature, Released &what);
    void pass_on(const Bytes &signature, const Released &what, std::span<const NodeId> others);
    void repeat(NodeId to, const Bytes &signature, Released &what);
    void serve_waiting(const Bytes &signature, Released &what);
    bool give_to(const Bytes &signature, Released &what, const std::set<NodeId> &others);
    void ask_missing(const Key &key, Collecting &now);
    void complete(const Key &key, const Released &what);
    void send_release(NodeId to, Type type, const Bytes &signature, const Released &what);

    NodeId self_;
    Gone gone_;
    NodeId root_ = no_node;
    unsigned now_ = 0;            ///< ticks
    unsigned new_root_until_ = 0; ///< the tick until which another one's release may turn up
    std::size_t repeated_ = 0;    ///< bytes of releases, in this tick
    std::map<Bytes, Count> counts_;
    std::map<Key, Pending> pending_; ///< of this daemon, not released
    std::map<Key, Collecting> collecting_;
    std::map<Bytes, Released> last_; ///< the last release of each signature
    std::vector<Outgoing> outgoing_;
    std::vector<Done> done_;
};

} // namespace ft::radixft

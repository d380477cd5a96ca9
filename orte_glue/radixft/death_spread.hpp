/// Brings every rank's death to every daemon, whatever happens to daemons meanwhile.
///
/// Whoever sees a rank die gives the death the epoch of its view, by which all will know it, and
/// reports it to the root until the root's list says so. The list goes down the tree, and each
/// child acknowledges how much of it has arrived everywhere below it, so a parent repeats what a
/// reconnecting channel lost. A list belongs to one term, which is the epoch of the view whose root
/// keeps it. In a new view everybody starts with an empty list, and the root's begins with all that
/// was announced before. The cost of one death is one report, one message along each edge of the
/// tree, and its acknowledgement; of deaths that are reported together, and of all former ones in a
/// new view, the same.
///
/// Whatever was announced stood in a root's list first, so who was the root before knows all of it,
/// and nobody reports it again. A new root does not: what the old one had told some when it died
/// has an epoch and a cause that the new one might give another. So it first asks down the tree
/// what was announced, and announces nothing before the answers are in: a message and an answer
/// along each edge. What was not announced is reported to it by whoever saw it. So nothing that any
/// survivor knew is lost, and nothing is announced twice.
///
/// Pure state machine: messages in, messages and news out; the caller calls tick() at regular
/// intervals. One thread.
#pragma once

#include "orte_glue/radixft/types.hpp"

#include <map>
#include <span>
#include <utility>
#include <vector>

namespace ft::radixft {

class DeathSpread {
  public:
    /// Messages so far.
    struct Counts {
        std::uint64_t sent = 0;
        std::uint64_t again = 0; ///< of those, repetitions and the answers to repetitions
    };

    /// `self` is this daemon. Before the first view nothing is sent; reports wait.
    explicit DeathSpread(NodeId self) : self_(self) {}

    /// A view was installed. `children` are this daemon's in its tree.
    void on_view(Epoch epoch, NodeId root, std::span<const NodeId> children);

    /// Ranks died here, or in a view change. Known ones are ignored.
    void report(std::span<const RankDeath> deaths);
    void report(const RankDeath &death) { report(std::span(&death, 1)); }

    /// A message of one of the five types. False if it was malformed or from a former term: it had
    /// no effect then. Lists and questions of a view that is on its way here are kept for it.
    bool on_message(NodeId from, Type type, std::span<const std::byte> body);

    /// Repeats what has not been answered since the last tick.
    void tick();

    /// Messages to be sent, oldest first; the list is the caller's from then on.
    std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
    /// Deaths announced since the last call, each once in the life of this object.
    std::vector<RankDeath> take_news() { return std::exchange(news_, {}); }

    /// At the root: true when every daemon has acknowledged the whole list.
    bool everybody_knows() const { return !collecting_ && reached() == list_.size(); }

    bool announced(Rank who) const { return known_.contains(who); }
    /// All announced deaths.
    const std::map<Rank, RankDeath> &known() const { return known_; }
    const Counts &counts() const { return counts_; }
    /// True while a report of this daemon has not come back in the root's list.
    bool reports_pending() const { return !pending_.empty(); }

  private:
    bool is_root() const { return root_ == self_ && root_ != no_node; }
    void enqueue(std::span<const RankDeath> deaths);
    void append(RankDeath death);
    void send_news();
    void append_pending();
    void learn(const RankDeath &death);
    void send_list(NodeId child, std::size_t from);
    void send_reports();
    void send_ack();
    void send(NodeId to, Type type, Bytes body);
    std::size_t reached() const;
    bool on_report(std::span<const std::byte> body);
    bool on_list(NodeId from, std::span<const std::byte> body);
    bool on_ack(NodeId from, std::span<const std::byte> body);

    /// How much of the list a child has, and how much it was sent; how much of what it knows has
    /// come here, and whether that is all.
    struct Child {
        std::size_t acked = 0;
        std::size_t sent = 0;
        std::size_t heard = 0;
        bool told_all = false;
    };
    struct Early {
        NodeId from;
        Type type;
        Epoch term;
        Bytes body;
    };

    void collect();
    void ask(NodeId child);
    void finish_collecting();
    void answer(std::size_t from);
    bool on_ask(NodeId from, std::span<const std::byte> body);
    bool on_known(NodeId from, std::span<const std::byte> body);
    bool keep(NodeId from, Type type, Epoch term, std::span<const std::byte> body);

    NodeId self_;
    NodeId root_ = no_node;
    NodeId parent_ = no_node; ///< who sent the list
    std::size_t acked_ = 0;   ///< to the parent
    Epoch term_ = 0;
    std::map<NodeId, Child> children_;
    std::vector<RankDeath> list_;       ///< of this term
    std::map<Rank, std::size_t> place_; ///< in list_
    std::map<Rank, RankDeath> known_;   ///< announced, of all terms
    std::map<Rank, RankDeath> pending_; ///< neither in list_ nor in known_
    std::vector<Outgoing> outgoing_;
    std::vector<RankDeath> news_;
    Counts counts_;
    bool collecting_ = false;            ///< waits for what the children know
    bool collected_ = false;             ///< in this term; whole_ is what there is
    NodeId asker_ = no_node;             ///< the parent that wants to know
    std::map<Rank, RankDeath> gathered_; ///< announced to some of the subtree
    std::vector<RankDeath> whole_;       ///< the same, in the order in which it is told
    std::vector<Early> early_;
    bool repeating_ = false; ///< what is sent now was sent before
};

} // namespace ft::radixft

/// One process's part in one agreement on who has failed.
///
/// All processes of a group call it; all that live return the same value: the set of failed ranks,
/// the AND of an integer, and the failures that everybody had acknowledged. Source: Buntinas,
/// "Scalable Distributed Consensus to Support MPI Fault Tolerance", EuroMPI 2011, section 2, and
/// the report ANL/MCS-TM-314 it refers to. PROTOCOL.md in this folder says how and why it differs.
///
/// A pure state machine: messages and suspicions go in, actions come out in the order in which they
/// must be carried out; no clock, no thread, no I/O. One object belongs to one thread at a time.
///
/// What it asks of its surroundings:
///  - Messages between two processes that live and do not suspect each other arrive, once, in any
///    order. A duplicate does no harm. Messages to and from others may be lost.
///  - A process that dies is sooner or later reported to every other by on_suspect().
///  - A suspicion is for ever. A process that is told to stop (Action::stop) does so for good: it
///    answers through this object what it is still asked, and returns to nobody.
#pragma once

#include "opal/ft/consensus/message.hpp"
#include "opal/ft/consensus/sweeps.hpp"
#include "opal/ft/consensus/tree_broadcast.hpp"
#include "opal/ft/consensus/tree_shape.hpp"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace ft::consensus {

/// Which messages are sent when nothing fails.
enum class Algorithm : std::uint8_t {
    /// The paper's: three broadcasts and two reductions over a tree.
    paper,
    /// Every process calls, so nobody needs to be asked: two exchanges of log2(n) steps (loose:
    /// one) in which everybody hears from everybody, begun anew after a death. The paper's phases
    /// when that does not do.
    fast,
    /// The same along a tree that all know: up and down it twice (loose: once). Half as long again
    /// and more where each process has a core, but 4 (n - 1) messages, 2 fewer with 3 or 4
    /// processes (loose: 2 (n - 1)), in place of 2 n log2(n): better where many share a core, which
    /// costs the work of all of them.
    tree,
};

/// When a process may return.
enum class Semantics : std::uint8_t {
    /// In ALL_COMMIT: nobody returns another set, not even a process that dies a moment later.
    strict,
    /// In COMMIT: all that survive return the same set; one that dies after its return may have
    /// returned another.
    loose,
};

/// How sure a suspicion is.
enum class Certainty : std::uint8_t {
    /// The process is dead, or a membership service keeps it out: it will do nothing more.
    confirmed,
    /// Silence or a broken connection. The process may live; it is told to stop before it counts.
    unconfirmed,
};

/// Deliberate mistakes that show that a test can fail. Never set outside tests.
enum class Mutation : std::uint8_t {
    none,
    return_at_commit,  ///< strict, but does not wait for ALL_COMMIT: breaks strict agreement
    forget_accepted,   ///< tells a new root nothing of what was accepted: breaks agreement
    accept_any_ballot, ///< accepts ballots that lack what it knows: breaks validity
    accuse_the_living, ///< the root adds a live rank to the set: breaks validity
    drop_reports,      ///< an orphan asks nobody: breaks termination
    skip_fence,        ///< does not wait until the falsely suspected have stopped: breaks the fence
    ask_nobody,        ///< loose, begins anew and asks no one who returned: breaks termination
    ignore_flags,      ///< does not AND what the others bring: breaks the value
};

struct Settings {
    Algorithm algorithm = Algorithm::fast;
    Semantics semantics = Semantics::strict;
    /// Algorithm::tree: how many are directly below each, 1 .. most_fan_out. The same for all.
    std::uint32_t fan_out = most_fan_out;
    /// A process stops itself when those it suspects without confirmation are more than those left
    /// (or as many, and the lowest rank is among them). Keeps the two halves of a parted network
    /// from deciding both; costs the ability to survive the unconfirmed failure of a majority.
    bool majority = false;
    Mutation mutation = Mutation::none;
};

/// What a process brings when it calls.
struct Contribution {
    RankSet suspects;
    /// Those of `suspects` that are not confirmed.
    RankSet unconfirmed;
    std::uint64_t flags = ~std::uint64_t{0};
    RankSet acknowledged;
};

/// What the surroundings must do.
struct Action {
    enum class Kind : std::uint8_t {
        send,   ///< send `message` to `to`
        decide, ///< the call may return; the value is in decision()
        stop,   ///< others hold this process for failed: it must end and return from nothing
    };
    Kind kind = Kind::send;
    Rank to = no_rank;
    Message message;
};

using Actions = std::vector<Action>;

class Agreement {
  public:
    /// `self` is a rank of `shape`. All processes use equal settings and shapes.
    Agreement(Rank self, InstanceId id, const Settings &settings,
              std::shared_ptr<const TreeShape> shape);

    /// This process calls. Once; after what was suspected or heard before, which is not lost.
    void start(const Contribution &brought, Actions &out);
    /// A message of this instance, from a process of the group other than this one.
    void on_message(Rank from, const Message &message, Actions &out);
    /// This process's own failure detector suspects `who`, or is now sure.
    void on_suspect(Rank who, Certainty certainty, Actions &out);
    /// The same of several at once, which costs fewer messages than one after the other.
    void on_suspects(const RankSet &who, Certainty certainty, Actions &out);

    InstanceId id() const { return id_; }
    bool started() const { return started_; }
    bool stopped() const { return stopped_; }
    /// The value, once decided.
    const Value *decision() const { return decided_ ? &accepted_->value : nullptr; }
    /// Accepted in COMMIT, decided or not.
    const std::optional<Accepted> &accepted() const { return accepted_; }
    const RankSet &suspects() const { return suspects_; }
    const TreeBroadcast &tree() const { return tree_; }
    const Number &promised() const { return promised_; }

  private:
    /// What the children of a tree have answered, with this process's own part.
    struct Gathered {
        bool ok = true;
        std::uint64_t flags = ~std::uint64_t{0};
        RankSet acknowledged;
        std::optional<Accepted> accepted;
    };
    /// The fast path (agreement_exchange.cc, agreement_sweeps.cc).
    struct Exchange {
        bool active = false;
        bool ask = false; ///< begun anew: some may have returned from the one before
        std::uint8_t steps = 0;
        Sweeps::Done done; ///< in the ring: how many steps were sent, and a bit for each heard
        Rank alive = 0;    ///< how many are outside the tag
        Rank place = 0;    ///< this process's among them, in the order of ranks
        RankSet tag;
        std::uint64_t flags = ~std::uint64_t{0};
        RankSet acknowledged;
    };

    // agreement.cc
    void handle(Rank from, const Message &message, Actions &out);
    bool learn(Rank from, const RankSet &suspects, const RankSet &unconfirmed, Actions &out);
    bool losing_side() const;
    void react(Actions &out);
    void note_losses();
    void report(Actions &out);
    void decide(Value value, Rank from, Kind downwards, Actions &out);
    void stop(Rank from, Actions &out);
    void on_report(Rank from, const Message &message, Actions &out);
    void spread(const std::vector<Child> &children, Actions &out);
    void answer_with_decision(Rank to, Actions &out) const;
    Message decision_message() const;
    void pass_on(const Range &below, Actions &out);
    bool leads() const { return suspects_.lowest_absent() == self_; }
    bool fence_open() const;
    RankSet unconfirmed() const { return suspects_.minus(confirmed_); }
    void send(Rank to, Message message, Actions &out) const;
    Message &begin_send(Rank to, Kind kind, Actions &out) const;

    // agreement_tree.cc
    void lead(Actions &out);
    void on_tree_message(Rank from, const Message &message, Actions &out);
    void on_answer(Rank from, const Message &message, Actions &out);
    void on_refuse(Rank from, const Message &message, Actions &out);
    void on_decide(Rank from, const Message &message, Actions &out);
    void gather_own();
    void gather(const Message &answer);
    void send_down(Kind kind, bool fresh, Actions &out);
    void refuse(Rank to, const Number &number, Actions &out);
    void check_complete(Actions &out);
    void root_complete(Actions &out);
    void commit_here(Actions &out);

    // agreement_exchange.cc
    void begin_exchange(Actions &out);
    void prepare_exchange();
    bool can_begin_anew() const;
    void on_exchange(Rank from, const Message &message, Actions &out);
    void call_for_root();
    void advance_exchange(Actions &out);
    void accept_exchanged();
    Rank at_place(std::uint64_t place) const;
    Rank exchange_partner(unsigned step) const
    {
        return at_place(exchange_.place + (std::uint64_t{1} << step));
    }
    bool carries_value(Stage stage, std::uint8_t step) const;
    void send_exchange(Rank to, Stage stage, std::uint8_t step, Actions &out) const;
    void ask(Rank whom, Actions &out) const;
    void release_partners(Actions &out);
    void ask_those_behind(Actions &out);

    // agreement_sweeps.cc
    Sweeps sweeps() const;
    std::uint32_t sweep_bit(Rank from, const Message &message) const;
    void advance_sweeps(Actions &out);
    void release_neighbours(Actions &out);

    const Rank self_;
    const InstanceId id_;
    const Settings settings_;
    const std::shared_ptr<const TreeShape> shape_;

    bool started_ = false;
    bool decided_ = false;
    bool stopped_ = false;
    bool reported_ = false;
    bool want_report_ = false; ///< something is amiss that the root must hear of
    bool trouble_ = false;     ///< the fast path will not come to its end by itself
    bool answered_up_ = false; ///< the current sweep of tree_ was answered or refused

    RankSet suspects_;  ///< from anybody, for ever
    RankSet confirmed_; ///< those that will do nothing more
    RankSet own_;       ///< those this process's own detector speaks against

    std::uint64_t flags_ = ~std::uint64_t{0};
    RankSet acknowledged_;

    Number promised_; ///< takes part in no lower tree
    Number seen_;     ///< the highest number heard of
    std::optional<Accepted> accepted_;
    TreeBroadcast tree_;
    RankSet excluded_; ///< whom the current tree leaves out
    Gathered gathered_;
    Exchange exchange_;

    Number lost_; ///< the highest tree in which somebody lost its parent
    Number reported_lost_;
    Rank reported_count_ = 0;
    std::vector<Rank> askers_; ///< undecided processes that reported here
    std::vector<std::pair<Rank, Message>> early_;
};

} // namespace ft::consensus

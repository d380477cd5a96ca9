/// One node's part in the membership protocol: messages and time in, messages and events out.
///
/// PROTOCOL.md describes it. The caller owns the clock and the channel: it hands in what arrived
/// and what time it is, sends what comes out (losing, repeating or reordering is allowed), calls
/// on_time() at next_deadline() or later, and tells the component above about the events. The clock
/// may step either way: backwards, the engine's time stands still meanwhile; forwards, as after a
/// pause, nobody is held dead for an answer that had no chance to be heard. The caller's timer runs
/// for as long as the deadline was away when it was set, whatever its clock does then: a step back
/// that the clock has made good before the next call cannot be noticed. Same calls, same output.
/// One object belongs to one thread; all functions but const ones may append to the Output they are
/// given, and none throws but for want of memory.
#pragma once

#include "opal/ft/base/time.hpp"
#include "opal/ft/detector/heartbeat.hpp"
#include "opal/ft/membership/config.hpp"
#include "opal/ft/membership/inbox.hpp"
#include "opal/ft/membership/messages.hpp"
#include "opal/ft/membership/quorum.hpp"
#include "opal/ft/membership/refutations.hpp"
#include "opal/ft/membership/view.hpp"

#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace ft::membership {

enum class State : std::uint8_t { joining, member, suspended, evicted, leaving, left, ended };

const char *name(State state);

/// What the component above must know.
struct Event {
    enum class Kind : std::uint8_t {
        installed, ///< `view` is in force; `change` made it (of the view before, or of the seed for
                   ///< a joiner)
        stabilized, ///< coordinator only: all votes for `view` are in; `elapsed` is the paper's T_s
        believed,   ///< `who` is believed dead with `grade`
        refuted,    ///< `who` was suspected but lives
        suspended,  ///< those that can be reached are no quorum
        resumed,    ///< they are again
        evicted,    ///< the others have a later view without this node: end its ranks; rejoin is
                    ///< possible
        ended,      ///< waited long enough without a quorum, or may not join: end its ranks
        left,       ///< leave() is done
    };
    Kind kind;
    ViewPtr view;
    std::shared_ptr<const Change> change;
    Identity who;
    Grade grade = Grade::suspected;
    base::Duration elapsed;
    unsigned messages = 0; ///< installed: protocol messages sent for the change before
};

struct Output {
    std::vector<Message> messages;
    std::vector<Event> events;

    void clear()
    {
        messages.clear();
        events.clear();
    }
};

/// Counted drops and totals since the start.
struct Counters {
    std::uint64_t sent = 0;       ///< messages, heartbeats apart
    std::uint64_t heartbeats = 0; ///< heartbeats sent
    std::uint64_t repeats = 0;    ///< messages asked again
    std::uint64_t duplicates = 0; ///< sequence number taken before, or too old
    std::uint64_t stale = 0;      ///< of an old incarnation, attempt or epoch
    std::uint64_t foreign = 0;    ///< from nodes that are no members
    std::uint64_t unexpected = 0; ///< fits no state: counted and dropped
    std::uint64_t attempts = 0;   ///< started as coordinator
    std::uint64_t commits = 0;    ///< of those, committed
    /// Of `sent`, those that the bound of a change is about: reports, proposals, votes, commits and
    /// their answers.
    std::uint64_t for_changes = 0;
    std::uint64_t for_changes_again = 0; ///< of `for_changes`, those asked again
};

class Stabilizer {
  public:
    /// What became of a message.
    enum class Verdict : std::uint8_t { taken, duplicate, stale, foreign, unexpected, deaf };

    /// What to do with application traffic that was sent in `epoch`.
    enum class Gate : std::uint8_t { deliver, hold, drop };

    /// A member of `initial` from the start. `config.fault()` must be empty, `self` in `initial`.
    /// `pool` may be shared by engines of one thread.
    Stabilizer(const Config &config, std::shared_ptr<ViewPool> pool, Identity self,
               const ViewPtr &initial, base::Time now);

    /// A node that wants to join: `known` are ids that may be members, in the order in which they
    /// are asked. Incarnation 0: NEW_NODE, else NODE_ALIVE. Sends its first message at the first
    /// on_time().
    Stabilizer(const Config &config, std::shared_ptr<ViewPool> pool, Identity self,
               std::vector<NodeId> known, base::Time now);

    /// A message for this node arrived, its MAC checked.
    Verdict on_message(base::Time now, const Message &m, Output &out);
    void on_time(base::Time now, Output &out);
    base::Time next_deadline() const;

    /// There is doubt about `id` (its connection broke): it is probed.
    void on_suspicion(base::Time now, NodeId id, Output &out);
    /// There is proof about the life of `id` that is in the view.
    void on_proof(base::Time now, NodeId id, ProofKind kind, Output &out);
    /// The newcomer `who` is not wanted any more: it is left out of every view that this node
    /// proposes, and denied when it asks, until it comes in a later life. Nothing happens when it
    /// is a member already.
    void turn_away(base::Time now, const Identity &who, Output &out);
    /// Leave in good order. Event `left` follows.
    void leave(base::Time now, Output &out);

    /// Application traffic from the member `from`, sent in `epoch`: delivered in the view in which
    /// it was sent, or not.
    Gate admit(NodeId from, Epoch epoch) const;

    State state() const { return state_; }
    Identity self() const { return self_; }
    /// The installed view; null before a joiner is a member.
    const ViewPtr &view() const { return view_; }
    Epoch epoch() const { return view_ ? view_->epoch() : 0; }
    /// Who would coordinate a change, as far as this node knows.
    NodeId acting_root() const;
    const Counters &counters() const { return counters_; }
    const detector::Heartbeat &heartbeat() const { return heartbeat_; }
    /// True when nothing is under way: no attempt, no suspicion, nothing unanswered.
    bool quiet() const;

  private:
    struct Child {
        NodeId id;
        bool voted = false;
    };
    /// The attempt that this node takes part in.
    struct Attempt {
        std::shared_ptr<const Proposal> proposal;
        std::shared_ptr<const Change> change; // the proposal's
        ViewPtr target;
        Type type = Type::failed_node;
        NodeId parent = no_node; // who gets the vote; no_node for the coordinator
        std::vector<Child> children;
        std::vector<Ambiguous> ambiguous; // from the subtree
        bool voted = false;
        std::uint64_t doubted_us = 0; // whom it evicts: may be objected to if heard since
        base::Time hold;              // not to vote before
        base::Time since;
        std::uint64_t asked = 0; // questions before: older answers do not speak of this attempt

        Epoch number() const { return proposal->number; }
        NodeId coordinator() const { return proposal->coordinator; }
    };
    /// An attempt that was voted for and may have been committed.
    struct Vote {
        std::shared_ptr<const Change> change;
        ViewPtr target;
        NodeId coordinator;
        std::uint64_t asked; // questions before
    };
    struct Reporter {
        NodeId id;
        std::uint64_t heard; // the last of our answers "alive" that it had when it reported
    };
    static constexpr Reporter nobody{no_node, 0};
    struct Suspect {
        Identity who;
        Grade grade = Grade::suspected;
        NodeId witness = no_node;
        bool believed = false;
        bool silent = false;    // it gave no answer in time: no mere broken connection
        bool link = false;      // lives, but must go: see link failures
        bool contested = false; // a voter heard it, so that it was probed once more
        unsigned respites = 0;  // how often a pause of our own gave it more time
        base::Time next;        // probing: the next step; believed without proof: the next question
        base::Time believe_at;  // probing: when silence is belief
        base::Time report_at = base::Time::never();
        base::Time since;
        std::vector<Reporter> reporters;
    };
    enum class Purpose : std::uint8_t { proposal, commit, report, join, goodbye, eviction };
    struct Pending {
        Purpose purpose;
        Message message;
        base::Time next;
        base::Time since;
        base::Duration interval;
        unsigned tries = 0;
    };
    struct Newcomer {
        Identity who;
        base::Time expires; // who waits asks again before
    };

    // stabilizer.cc: life, dispatch, sending
    void send(base::Time now, Message m, Output &out);
    Message make(Type type, NodeId to) const;
    void reply(base::Time now, const Message &to, Type type, Status status, Output &out);
    void ask(base::Time now, Purpose purpose, Message m, Output &out);
    template <typename F>
    void drop_pending(F &&which)
    {
        std::erase_if(pending_, which);
    }
    void drop_pending(Purpose purpose, NodeId to);
    void service_pending(base::Time now, Output &out);
    void give_up_on(base::Time now, const Pending &p, Output &out);
    void dispatch(base::Time now, const Message &m, Output &out);
    base::Time tick(base::Time now);
    base::Time due() const;
    bool known_sender(const Message &m) const;
    Verdict on_stranger(base::Time now, const Message &m, Output &out);
    void fetch_from(base::Time now, NodeId id, Output &out);
    bool catch_up(base::Time now, const Message &m, Output &out);
    void on_answer(const Message &m);
    /// Whether all of the present view that are below this node have left the next one.
    bool is_first_of(const View &target) const;
    void tell_evicted(base::Time now, const Identity &who, Output &out);
    void become(State state, Event::Kind kind, Output &out);
    void suspend(base::Time now, Output &out);
    void resume(base::Time now, Output &out);
    void watch_neighbours(base::Time now);
    std::uint32_t incarnation_of(NodeId id) const;
    bool proven_meanwhile(base::Time now) const;
    bool watches() const { return state_ != State::leaving && (attempt_ || !votes_.empty()); }
    bool goes_without(const detector::Heartbeat::Peer &peer) const;

    // stabilizer_faults.cc: suspicion, probing, reports
    void prove(base::Time now, NodeId id, ProofKind kind, Output &out);
    Suspect *find_suspect(NodeId id);
    const Suspect *find_suspect(NodeId id) const;
    bool believed(NodeId id) const;
    bool doubts_proofs(base::Time now, NodeId but = no_node) const;
    void suspect(base::Time now, NodeId id, Grade grade, NodeId witness, Output &out,
                 const Reporter &reporter);
    void believe(base::Time now, NodeId id, Output &out);
    void on_sign_of_life(base::Time now, const Identity &who, Output &out);
    void clear_suspect(base::Time now, NodeId id, Output &out);
    void on_report(base::Time now, const Message &m, Output &out);
    void on_det_ack(base::Time now, const Message &m, Output &out);
    void on_minority(base::Time now, const Message &m, Output &out);
    void on_goodbye(base::Time now, const Message &m, Output &out);
    void service_suspects(base::Time now, Output &out);
    void report(base::Time now, Output &out);
    std::vector<Removed> believed_dead() const;
    void count_refutation(base::Time now, NodeId accused, const Reporter &accuser,
                          std::uint64_t answer, Output &out);
    base::Duration doubted_for(base::Time now, const Change &change) const;
    std::vector<Removed> wronged(base::Time now, const Message &m) const;
    void on_objection(base::Time now, const Message &m, Output &out);
    void on_refused(base::Time now, const Message &m, Output &out);

    // stabilizer_change.cc: attempts, votes, commits
    void maybe_start(base::Time now, Output &out);
    void start_attempt(base::Time now, Output &out);
    Change wanted_change(base::Time now) const;
    Quorum strength(const View &target, std::span<const Removed> dead,
                    std::span<const Ambiguous> reported) const;
    base::Duration piece_by_piece(base::Duration doubted) const;
    bool settles(base::Time now, const Change &change);
    void announce_minority(base::Time now, const View &target, const std::vector<Removed> &dead,
                           Output &out);
    void abort_attempt();
    void on_proposal(base::Time now, const Message &m, Output &out);
    void pass_on(base::Time now, Output &out);
    void try_vote(base::Time now, Output &out);
    void complete(base::Time now, Output &out);
    void on_vote(base::Time now, const Message &m, Output &out);
    void on_commit(base::Time now, const Message &m, Output &out);
    void forward_commit(base::Time now, NodeId coordinator, Output &out);
    bool install_voted(base::Time now, Epoch number, Output &out);
    void adopt(base::Time now, const ViewPtr &view, Output &out);
    void install(base::Time now, const ViewPtr &view, std::shared_ptr<const Change> change,
                 Output &out);

    // stabilizer_join.cc
    void on_join(base::Time now, const Message &m, Output &out);
    void on_join_ack(base::Time now, const Message &m, Output &out);
    void search(base::Time now, Output &out);
    void take_seed(const ViewPtr &view);
    void hear_of(NodeId id);
    void follow_exiles(base::Time now);
    bool account_for(NodeId exile);
    bool joins_allowed(base::Time now) const;
    std::vector<NodeId> settled_exiles(base::Time now) const;
    bool unwanted(const Identity &who) const;

    Config config_;
    std::shared_ptr<ViewPool> pool_;
    Identity self_;
    State state_;
    bool busy_starting_ = false;
    base::Time last_;     // the latest time that a call brought, in the engine's time
    base::Duration skew_; // the engine's time minus the caller's: the sum of its steps backwards

    ViewPtr view_;
    ViewPtr seed_; // joiner: the view that the next proposal changes
    base::Time view_since_;
    base::Time watch_; // with an attempt or a vote: ask the coordinators then
    std::uint64_t sequence_ = 0;
    Epoch max_number_ = 0; // of all attempts seen
    std::unique_ptr<Attempt> attempt_;
    std::vector<Vote> votes_;          // ascending
    std::vector<Ambiguous> obstacles_; // reported by voters of an attempt that failed for it
    Epoch forwarded_ = 0;              // last commit passed on
    base::Time changing_since_;
    bool changing_ = false;
    unsigned change_messages_ = 0;
    base::Time retry_at_ = base::Time::never();
    NodeId gives_way_to_ = no_node; // another coordinator, that is silent here but not to a voter

    std::vector<Suspect> suspects_; // sorted by id
    Refutations refutations_;
    base::Time troubled_until_;   // no refutation counts before: this node was cut off itself
    NodeId refuted_by_ = no_node; // who told this node last that somebody lives whom it accused
    std::uint64_t refuted_by_message_ = 0; // with this one
    base::Time minority_deadline_ = base::Time::never();
    base::Time settle_until_ = base::Time::never(); // suspended, and a quorum again
    bool settled_ = false;                          // that time is over
    /// For each view: a second one, since the first may be lost; then the vote, since the
    /// coordinator may hear neither, and nothing may be held up for ever.
    static constexpr unsigned most_objections = 2;
    unsigned objections_ = 0;
    std::uint64_t questions_ = 0;   // HOW_ARE_YOU asked
    unsigned candidates_tried_ = 0; // roots given up on since the last view

    std::vector<Pending> pending_;
    std::vector<Newcomer> joins_;    // wait for the next attempt
    std::vector<Identity> shunned_;  // newcomers that did not answer
    std::vector<Identity> unwanted_; // newcomers that were turned away, each id's last
    std::vector<std::pair<NodeId, base::Time>> exiled_since_;
    std::vector<NodeId> accounted_;  // exiles known to be out of the way
    std::vector<NodeId> candidates_; // joiner: whom to ask
    std::size_t candidate_ = 0;
    base::Time search_at_ = base::Time::never();
    base::Time last_fetch_;
    NodeId last_fetch_from_ = no_node;

    Inbox inbox_;
    detector::Heartbeat heartbeat_;
    Counters counters_;
};

} // namespace ft::membership

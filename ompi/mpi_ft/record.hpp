/// \file
/// What this process keeps about one communicator: who has failed, what was agreed, and its part in
/// the agreements that run on it.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ompi/mpi_ft/post.hpp"
#include "opal/ft/consensus/lazy_agreement.hpp"
#include "opal/process/deaths.hpp"

namespace ft::validate {

using consensus::Rank;
using consensus::RankSet;
using consensus::Semantics;
using consensus::Value;

/// Of the numbers of calls, which begin again at 0 after the last.
constexpr bool comes_before(std::uint32_t a, std::uint32_t b)
{
    return static_cast<std::int32_t>(a - b) < 0;
}

/// What a letter says that a communicator is revoked.
struct Revocation {
    /// The number that the next call on the group had when the communicator was made. Open MPI's
    /// own ids come again; where there was a call on the one before, this tells them apart.
    std::uint32_t first;
    /// The number behind the last call of the sender that makes a communicator of it: it is in it
    /// perhaps, and begins none any more.
    std::uint32_t made_until;
    /// Of an intercommunicator: the groups that have let it go, bit 0 that of member 0, and are not
    /// to be waited for.
    std::uint32_t gone;
};
std::optional<Revocation> revocation_of(const Letter &letter);

/// Whether this attempt of a call comes before that one.
inline bool before(const consensus::InstanceId &a, const consensus::InstanceId &b)
{
    return a.sequence != b.sequence ? comes_before(a.sequence, b.sequence) : a.context < b.context;
}

/// A process to which others find no way, as they say.
struct Hearsay {
    ProcessId who;
    std::vector<ProcessId> said_by;
};

/// What a call brings to an agreement beside the failures that are known.
struct Brought {
    std::uint64_t flags = ~std::uint64_t{0};
    bool acknowledged = false; ///< bring the acknowledged failures along
};

/// Which agreement of a call it is: a call that does not find what it needs agrees once more. All
/// count the attempts of a call alike, whatever they have called meanwhile.
struct Attempt {
    std::uint32_t number = 0;   ///< 0: the first, for which agree() fills in the sequence
    std::uint32_t sequence = 0; ///< of the call
};

/// The processes of a group, in the order of its ranks.
std::vector<ProcessId> ids_of(ompi_group_t *group);

/// How the collectives of a communicator are to run.
enum class Mode : std::uint8_t {
    stock,     ///< nobody has failed
    survivors, ///< failures are recognised by all: without these
    broken,    ///< a failure is known that is not recognised: they end with an error
    revoked,
};

/// Ranks one behind the other.
struct RankRun {
    int first;
    int count;
};

/// What a process of one group knows of an attempt to pair it with another group (groups.cc).
struct Invitation {
    std::uint32_t number = 0; ///< of the attempt, counted by the group
    std::uint32_t name = 0;   ///< of the guests
    std::vector<ProcessId> members;
};

/// Attempts are counted alike at all members.
struct Pairings {
    std::uint32_t begun = 0;
    std::uint32_t at_work = 0;           ///< the one that this process is in; 0: none
    std::vector<std::uint32_t> given_up; ///< without having heard of the other group
    /// Not begun here, and declined since the communicator is revoked.
    std::vector<std::uint32_t> declined;
    std::vector<Invitation> early;
    /// Of MPI_Comm_create_group on the communicator, which is revoked. Their number is that of the
    /// guest's call.
    std::vector<Invitation> called_off;
};

/// A communicator's *members* are its ranks; those of an intercommunicator are both groups, one
/// behind the other, in the same order on both sides. Agreements and sets are about members.
/// A program can name the members of the (remote) group: their *ranks*.
///
/// All members are guarded by the service's lock.
class Record {
  public:
    explicit Record(ompi_communicator_t *communicator);
    /// Of processes that have no communicator yet and agree on one (a *guest*).
    /// \param members in the same order everywhere
    /// \param context what sets these agreements apart from others of the same processes
    /// \param parent the communicator whose routes serve for processes of another job
    Record(std::vector<ProcessId> members, std::uint32_t context, ompi_communicator_t *parent);
    ~Record();
    Record(const Record &) = delete;
    Record &operator=(const Record &) = delete;

    ompi_communicator_t *communicator() const { return comm_; }
    std::uint64_t key() const { return key_; }
    Rank size() const { return static_cast<Rank>(ids_.size()); }
    Rank self() const { return self_; }
    bool inter() const { return inter_; }
    /// It has processes of another job: messages to these take the communicator itself.
    bool foreign() const { return foreign_; }
    /// It has no communicator, but may have one.
    bool guest() const { return guest_; }
    bool is_of(std::uint32_t context, const std::vector<ProcessId> &members) const
    {
        return context_ == context && ids_ == members;
    }
    /// The communicator is gone; what was agreed is told to those who still ask, and who wait in a
    /// call that makes one of it when it is revoked are let go.
    void bury();
    /// It has had a communicator, of this job alone, which is gone.
    bool freed() const { return freed_ && !foreign_; }
    /// Whether there is anything that somebody may still ask about then.
    bool may_be_asked() const;
    void inherit(Record &older);

    /// How many ranks the program can name, and which member one is.
    Rank ranks() const { return rank_count_; }
    Rank member(int rank) const { return first_rank_ + static_cast<Rank>(rank); }
    /// Of these members the ranks that the program can name, in rising order.
    std::vector<int> ranks_in(const RankSet &set) const;
    /// Members of the own group, by their rank in it.
    Rank local_member(int rank) const { return first_local_ + static_cast<Rank>(rank); }

    /// Failed as far as this process knows.
    RankSet failed() const { return dead_.united(unconfirmed_); }
    /// The same in the order in which they became known.
    const std::vector<Rank> &failed_in_order() const { return failed_in_order_; }
    /// Failed by agreement of all.
    const RankSet &recognised() const { return recognised_; }
    /// What this process acknowledged (MPIX_Comm_failure_ack), and what MPI_Comm_validate_clear.
    RankSet acknowledged;
    Semantics semantics = Semantics::strict; ///< of all its calls: some are in one agreement
    Mode mode() const;
    /// What runs its collectives, and what that is called with, the lock held, when they are to run
    /// in another way than the stock one; perhaps again.
    void *collectives = nullptr;
    void (*divert)(void *collectives) = nullptr;

    /// Takes over what has become known of failures; feeds the agreements.
    void learn(const RankSet &dead, const RankSet &unreachable,
               const std::vector<Hearsay> &hearsay);
    /// Members among these processes.
    RankSet members(const std::vector<ProcessId> &processes) const;
    ProcessId process(Rank member) const { return ids_[member]; }
    /// Of the next call.
    std::uint32_t next_number() const { return *next_sequence_; }
    std::vector<ProcessId> recognised_processes() const;
    /// How a message gets to a member.
    Route route(Rank member) const;

    /// Begins an agreement: the next call's, or one more attempt of a call. `done` is called once,
    /// when it is decided, perhaps at once; but not before that of each call that was begun before.
    /// A call that recovers, and finds that others were making a communicator (contexts.hpp), takes
    /// the next number by itself; calls behind it wait until it is over, as their numbers follow
    /// its. A revoked communicator makes no other: the call is refused, without an agreement.
    void agree(const Brought &brought, std::function<void(const Value &)> done,
               Attempt *attempt = nullptr);
    /// Part of another process in one of the agreements.
    /// \return false: it is too early, nobody here has called yet
    bool on_letter(const Letter &letter);
    /// For a guest: these failures are recognised where its members come from.
    void presume(const RankSet &recognised);
    /// Whether there are processes that this one holds for failed, or others do.
    bool troubled() const { return !failed().united(heard_).empty(); }

    /// The window of context ids in which a call begins to look for some (contexts.hpp). All must
    /// begin in the same one, and a process that calls while others are under way need not know in
    /// which those will find some. So it is that of the last call before a call that waited, by
    /// whose end all know as much.
    std::uint32_t window() const { return window_; }
    void serve_window(std::uint32_t window) { served_ = window; }
    void settle_window() { window_ = served_; }
    /// For a new communicator: where it was found itself.
    void begin_in_window(std::uint32_t window) { window_ = served_ = window; }

    /// How many context ids it takes to adopt this set.
    std::size_t contexts_for(const RankSet &failed) const;
    /// The agreed set becomes the recognised one. Collectives run on a communicator of the others
    /// from now on; its context ids are those that contexts_for() wanted.
    void adopt(const RankSet &failed, const std::vector<std::uint32_t> &contexts);
    /// A communicator of those not recognised as failed, made at first use; nullptr without memory.
    ompi_communicator_t *survivors();
    /// An intercommunicator of which one group has nobody left.
    bool deserted() const;
    /// All ranks and the topology, in a context that is as new as that of the survivors, for
    /// collectives with neighbours: whoever is recognised as failed is like MPI_PROC_NULL there.
    ompi_communicator_t *neighbours();
    /// Rank among the survivors of each rank that the program can name, -1 for the others.
    const std::vector<int> &survivor_ranks() const { return survivor_ranks_; }
    /// The survivors among them, in rising order.
    const std::vector<RankRun> &survivor_runs() const { return survivor_runs_; }
    /// Of an intercommunicator: the same for the own group.
    const std::vector<int> &local_survivor_ranks() const { return local_survivor_ranks_; }

    /// Every operation on the communicator ends with an error from now on, here and, by and by,
    /// everywhere.
    void revoke();
    /// The same for one that joins processes of another job, which all of the own group free now,
    /// as their call failed: to the other group they are as dead, here only.
    void let_go();
    bool revoked = false; ///< of a guest: what its members come from, as one of them says
    /// Of the calls of MPI_Intercomm_create on this communicator.
    Pairings pairings;
    /// For a guest: called once, when its members may not all know that they are some.
    std::function<void()> alarm;
    void sound_alarm();

  private:
    void take_members();
    bool on_revoked(const Letter &letter);
    void spread_revocation();
    std::uint32_t group_bit(bool own) const { return (first_local_ == 0) == own ? 1U : 2U; }
    void lose_other_group();
    void weigh_hearsay();
    void divert_if_needed() const;
    /// A call that has no number yet.
    struct Held {
        Brought brought;
        RankSet acknowledged; ///< when it was made
        std::function<void(const Value &)> done;
        Attempt *attempt;
    };
    struct Call {
        consensus::InstanceId which; ///< as its messages say it: number of the attempt, sequence
        consensus::LazyAgreement agreement;
        Semantics semantics = Semantics::strict;
        std::function<void(const Value &)> done;
        Brought brought;
        Attempt *attempt = nullptr;
        bool recovers = false; ///< and may have to take the next number
        /// Its turn has not come. What was acknowledged when it was made.
        std::optional<RankSet> queued;
        bool over = false; ///< decided, and told so
    };
    consensus::Algorithm algorithm() const;
    Call *find_call(const consensus::InstanceId &which);
    Call &call(const consensus::InstanceId &which, Semantics semantics);
    bool to_come(const consensus::InstanceId &which);
    /// Lets `input` tell the call's engine something, and does what it says. The call may be gone
    /// afterwards.
    template <class Input>
    void drive(Call &mine, Input input);
    void carry_out(Call &mine, const consensus::Actions &actions);
    void carry_out(Call &mine, const consensus::PlainSteps &steps);
    void conclude();
    void conclude_decided();
    /// A call that is neither refused nor held back gets the next number.
    void call_now(const Brought &brought, const RankSet &known,
                  std::function<void(const Value &)> done, Attempt *attempt);
    consensus::InstanceId next_of(Attempt *attempt);
    void enter(const consensus::InstanceId &which, const Brought &brought, const RankSet &known,
               std::function<void(const Value &)> done, Attempt *attempt);
    void begin_held();
    /// Others may wait, in calls that make a communicator, for this process, which knows that it is
    /// revoked and need never make these: it takes part in them with nothing.
    void decline();
    /// \param known what this process had acknowledged when it made the call
    void begin(Call &mine, const Brought &brought, const RankSet &known);
    void begin_queued();
    void retire();
    /// \return no_rank when it is none
    Rank member_of(ProcessId process) const;
    static Topic topic_of(Semantics semantics)
    {
        return semantics == Semantics::strict ? Topic::strict_agreement : Topic::loose_agreement;
    }

    /// Under which a member's standing is kept: its rank, or behind all ranks for the own group of
    /// an intercommunicator.
    std::uint32_t standing_index(Rank member) const;
    std::vector<int> left_of(Rank first, Rank count) const;
    void drop_inner();
    void retire_inner();
    void revoke_inner() const;
    void end_late() const;

    ompi_communicator_t *comm_;             ///< nullptr once it is gone, and of a guest
    ompi_communicator_t *local_ = nullptr;  ///< the own group's, of an intercommunicator
    ompi_communicator_t *parent_ = nullptr; ///< of a guest
    bool guest_ = false;
    bool freed_ = false;
    std::uint32_t context_;
    std::uint64_t key_ = 0;
    Rank self_ = 0;
    bool inter_ = false;
    bool foreign_ = false;
    Rank first_rank_ = 0; ///< member that is rank 0
    Rank rank_count_ = 0;
    Rank first_local_ = 0; ///< member that is rank 0 of the own group
    std::vector<ProcessId> ids_;
    std::map<ProcessId, Rank> members_;
    std::shared_ptr<const consensus::TreeShape> shape_;
    RankSet dead_;        ///< by the runtime's word, and lost_
    consensus::Tag tag_;  ///< the same, as steps of the agreements carry it
    RankSet unconfirmed_; ///< this process finds no way to them
    /// They live, but have let the communicator go, before they began any call on it: nothing of
    /// theirs comes that an agreement could take for a word of the dead.
    RankSet lost_;
    std::uint32_t gone_ = 0; ///< as in Revocation
    std::vector<Rank> failed_in_order_;
    /// To members, and the members who find none.
    std::vector<std::pair<Rank, RankSet>> hearsay_;
    RankSet heard_; ///< those of whom one says it that lives and is not recognised
    RankSet recognised_;
    // A call takes no memory of its own: the oldest of those that are kept gives its place.
    std::deque<std::unique_ptr<Call>> calls_; ///< by rising sequence, then attempt
    std::unique_ptr<Call> spare_;
    std::vector<Call *> waiting_;            ///< called here, and not over, in the same order
    bool concluding_ = false;                ///< in conclude()
    bool recovering_ = false;                ///< a call that recovers is not over
    std::deque<Held> held_;                  ///< called behind it
    std::uint32_t made_until_ = 0;           ///< behind the last number of a call that makes
    std::uint32_t wanted_ = 0;               ///< the greatest of these that others have told
    std::size_t over_ = 0;                   ///< of them
    consensus::Actions actions_;             ///< room for those of one input
    std::uint32_t *next_sequence_ = nullptr; ///< the service's; of what is freed its own
    std::uint32_t last_sequence_ = 0;        ///< that
    std::uint32_t next_life_ = 0;            ///< of what is freed: where the next one's begin
    std::uint32_t first_sequence_ = 0;       ///< of its own; tells it from others of the same name

    std::uint32_t window_ = 0;
    std::uint32_t served_ = 0; ///< of the latest call that is over, and found some
    bool stands_in_ = false;   ///< the communicator is another one's neighbours()
    ompi_communicator_t *survivors_ = nullptr;
    ompi_communicator_t *neighbours_ = nullptr;
    std::vector<std::uint32_t> contexts_; ///< of these two
    /// Of the recognised set before, on which something may still be under way.
    std::vector<ompi_communicator_t *> former_;
    std::vector<int> survivor_ranks_;
    std::vector<RankRun> survivor_runs_;
    std::vector<int> local_survivor_ranks_;
};

/// Somebody tells a member of this group of an attempt to pair it (groups.cc). The lock is held.
void hear_of_pairing(Record &group, std::span<const std::byte> body);
/// The group is revoked: this process takes part in no attempt that it has not begun, and says so
/// to those that it has heard of. The lock is held.
void decline_pairings(Record &group);
/// Somebody waits in MPI_Comm_create_group for a member of this group, which is revoked. The lock
/// is held.
void hear_of_call_off(Record &group, std::span<const std::byte> body);

} // namespace ft::validate

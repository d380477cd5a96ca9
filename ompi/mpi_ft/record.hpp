/// \file
/// What this process keeps about one communicator: who has failed, what was agreed, and its part in
/// the agreements that run on it.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "ompi/mpi_ft/post.hpp"
#include "opal/ft/consensus/agreement.hpp"

namespace ft::validate {

using consensus::Rank;
using consensus::RankSet;
using consensus::Semantics;
using consensus::Value;

/// What a call brings to an agreement beside the failures that are known.
struct Brought {
    std::uint64_t flags = ~std::uint64_t{0};
    bool acknowledged = false; ///< bring the acknowledged failures along
    Semantics semantics = Semantics::strict;
};

/// How the collectives of a communicator are to run.
enum class Mode : std::uint8_t {
    stock,     ///< nobody has failed
    survivors, ///< failures are recognised by all: without these
    broken,    ///< a failure is known that is not recognised: they end with an error
    revoked,
};

/// All members are guarded by the service's lock.
class Record {
  public:
    explicit Record(ompi_communicator_t *communicator);
    ~Record();
    Record(const Record &) = delete;
    Record &operator=(const Record &) = delete;

    ompi_communicator_t *communicator() const { return comm_; }
    std::uint64_t key() const { return key_; }
    Rank size() const { return static_cast<Rank>(world_of_.size()); }
    Rank self() const { return self_; }
    /// All its processes are in MPI_COMM_WORLD, and it is no intercommunicator: it can agree.
    bool usable() const { return usable_; }

    /// Failed as far as this process knows.
    RankSet failed() const { return dead_.united(unconfirmed_); }
    /// Failed by agreement of all.
    const RankSet &recognised() const { return recognised_; }
    /// What this process acknowledged (MPIX_Comm_failure_ack), and what MPI_Comm_validate_clear.
    RankSet acknowledged;
    Semantics semantics = Semantics::strict; ///< of MPI_Comm_validate_all
    Mode mode() const;

    /// Takes over what has become known of failures; feeds the agreements.
    /// \param heard members that other processes find no way to
    void learn(const RankSet &dead, const RankSet &unreachable, const RankSet &heard);
    /// Members among these processes of MPI_COMM_WORLD.
    RankSet members(const std::vector<std::uint32_t> &world_ranks) const;

    /// Begins the next agreement. `done` is called once, when it is decided, perhaps at once.
    void agree(const Brought &brought, std::function<void(const Value &)> done);
    /// Part of another process in one of the agreements.
    void on_letter(Letter &&letter);

    /// The agreed set becomes the recognised one. Collectives run on a communicator of the others
    /// with this context id from now on.
    void adopt(const RankSet &failed, std::uint32_t survivors_context);
    /// A communicator of those not recognised as failed, made at first use; nullptr without memory.
    ompi_communicator_t *survivors();
    /// Rank among the survivors of each rank, -1 for the others.
    const std::vector<int> &survivor_ranks() const { return survivor_ranks_; }

    /// Every operation on the communicator ends with an error from now on, here and, by and by,
    /// everywhere.
    void revoke();
    bool revoked = false;

  private:
    struct Call {
        std::unique_ptr<consensus::Agreement> engine;
        Semantics semantics = Semantics::strict;
        std::function<void(const Value &)> done;
        bool over = false; ///< decided, and told so
    };
    Call &call(std::uint32_t sequence, Semantics semantics);
    void carry_out(std::uint32_t sequence, consensus::Actions &actions);
    void retire();
    static Topic topic_of(Semantics semantics)
    {
        return semantics == Semantics::strict ? Topic::strict_agreement : Topic::loose_agreement;
    }

    ompi_communicator_t *const comm_;
    std::uint64_t key_ = 0;
    Rank self_ = 0;
    bool usable_ = true;
    std::vector<std::uint32_t> world_of_; ///< rank in MPI_COMM_WORLD of each rank
    std::map<std::uint32_t, Rank> rank_of_;
    std::shared_ptr<const consensus::TreeShape> shape_;
    RankSet dead_;        ///< by the runtime's word
    RankSet unconfirmed_; ///< this process finds no way to them
    RankSet heard_;       ///< others find none
    RankSet recognised_;
    std::map<std::uint32_t, Call> calls_; ///< nodes stay where they are while calls are added

    ompi_communicator_t *survivors_ = nullptr;
    std::uint32_t survivors_context_ = 0;
    std::vector<int> survivor_ranks_;
};

} // namespace ft::validate

// What follows an agreement on a communicator's failures: who of it are the survivors, and the
// communicators on which their collectives run.
#include "ompi/mpi_ft/contexts.hpp"
#include "ompi/mpi_ft/record.hpp"
#include "ompi/mpi_ft/service.hpp"
#include "opal/process/standing.hpp"

namespace ft::validate {

std::size_t Record::contexts_for(const RankSet &failed_set) const
{
    // A topology takes another communicator, of all.
    return failed_set == recognised_ ? 0 : contexts_of(inter_) + (comm_->c_topo != nullptr ? 1 : 0);
}

void Record::adopt(const RankSet &failed_set, const std::vector<std::uint32_t> &contexts)
{
    if (failed_set.empty() && recognised_.empty()) {
        return; // nearly always
    }
    for (const Rank member : failed_set.members()) {
        process::set_standing(context_, standing_index(member), process::Standing::recognised);
    }
    if (recognised_ == failed_set) {
        return;
    }
    recognised_ = failed_set;
    weigh_hearsay();
    divert_if_needed();
    process::spread_news(); // the standing of all of them may be what it was
    retire_inner();
    contexts_ = contexts;
    const auto number = [&](Rank first, Rank count) {
        std::vector<int> among(count, -1);
        int next = 0;
        for (const int rank : left_of(first, count)) {
            among[static_cast<std::size_t>(rank)] = next++;
        }
        return among;
    };
    survivor_ranks_ = number(first_rank_, rank_count_);
    survivor_runs_.clear();
    for (const int rank : left_of(first_rank_, rank_count_)) {
        if (!survivor_runs_.empty() &&
            survivor_runs_.back().first + survivor_runs_.back().count == rank) {
            ++survivor_runs_.back().count;
        } else {
            survivor_runs_.push_back({rank, 1});
        }
    }
    local_survivor_ranks_ = inter_ ? number(first_local_, size() - rank_count_) : survivor_ranks_;
}

void Record::drop_inner()
{
    for (ompi_communicator_t **inner : {&survivors_, &neighbours_}) {
        if (*inner != nullptr) {
            service().free(*inner);
        }
    }
    for (ompi_communicator_t *&inner : former_) {
        service().free(inner);
    }
    former_.clear();
}

/// A collective may be under way on it, and whoever it waits for has adopted the new set: it ends
/// with an error. What runs it finds that out in a pass of progress, and the communicator must be
/// there until then: the next set, which takes many passes to agree on, is time enough.
void Record::retire_inner()
{
    for (ompi_communicator_t *inner : former_) {
        service().later([inner]() mutable { service().free(inner); });
    }
    former_.clear();
    revoke_inner();
    for (ompi_communicator_t **inner : {&survivors_, &neighbours_}) {
        if (*inner != nullptr) {
            former_.push_back(std::exchange(*inner, nullptr));
        }
    }
}

/// Ends the collectives that are under way among the survivors.
void Record::revoke_inner() const
{
    for (const ompi_communicator_t *inner : {survivors_, neighbours_}) {
        if (inner == nullptr) {
            continue;
        }
        process::revoke(inner->c_contextid);
        if (OMPI_COMM_IS_INTER(inner)) {
            process::revoke(inner->c_local_comm->c_contextid);
        }
    }
}

/// One of them is made by a collective that began before the revocation was heard of.
void Record::end_late() const
{
    if (revoked) {
        revoke_inner();
    }
}

std::vector<int> Record::left_of(Rank first, Rank count) const
{
    std::vector<int> ranks;
    for (Rank rank = 0; rank < count; ++rank) {
        if (!recognised_.contains(first + rank)) {
            ranks.push_back(static_cast<int>(rank));
        }
    }
    return ranks;
}

bool Record::deserted() const
{
    return inter_ && recognised_.count_in(first_rank_, first_rank_ + rank_count_) == rank_count_;
}

ompi_communicator_t *Record::survivors()
{
    if (survivors_ == nullptr) {
        const std::vector<int> ranks = left_of(first_rank_, rank_count_);
        survivors_ = bring_to_life(
            inter_ ? prepare_inter(comm_, left_of(first_local_, size() - rank_count_), ranks)
                   : prepare_ranks(comm_, ranks),
            contexts_.data());
        if (survivors_ != nullptr) {
            std::snprintf(survivors_->c_name, sizeof survivors_->c_name, "survivors of %.40s",
                          comm_->c_name);
        }
        end_late();
    }
    return survivors_;
}

ompi_communicator_t *Record::neighbours()
{
    if (neighbours_ == nullptr && comm_->c_topo != nullptr) {
        neighbours_ = bring_to_life(prepare_twin(comm_, false), &contexts_[1]);
        if (neighbours_ != nullptr) {
            if (Record *its = service().find(neighbours_); its != nullptr) {
                its->stands_in_ = true;
                process::let_stand_in(neighbours_->c_contextid);
                its->adopt(recognised_, {});
            }
        }
        end_late();
    }
    return neighbours_;
}

} // namespace ft::validate

// MPI_Comm_dup, MPI_Comm_split and MPI_Comm_create that succeed at every survivor or at none.
//
// A program that is linked with this library calls these instead of Open MPI's, whose way to a
// context id waits for ever when a process fails in it. Everybody prepares what it can by itself,
// then one agreement says whether all have, whether anybody has failed, and which context ids are
// free. What follows is local.
#include "ompi/mpi_ft/call.hpp"

#include <algorithm>
#include <array>

namespace ft::validate {

namespace {

/// Whether Open MPI's own must do: an intercommunicator, another job, no component.
bool ours(ompi_communicator_t *comm) noexcept
{
    if (ompi_mpi_state != OMPI_MPI_STATE_INIT_COMPLETED || comm == nullptr ||
        ompi_comm_invalid(comm)) {
        return false;
    }
    const Lock lock;
    const Record *record = service().find(comm);
    return record != nullptr && record->usable();
}

/// Agrees on `prepared` (nullptr: this process is not to be in it, which is no failure unless
/// `well` is false) and brings it to life. \return an error class, the same everywhere
int finish(Record &record, bool well, ompi_communicator_t *prepared, ompi_communicator_t **fresh)
{
    {
        const Lock lock;
        service().take_news();
        well = well && (record.mode() == Mode::stock || record.mode() == Mode::survivors);
    }
    const auto good = [&](const Value &value) {
        return (value.flags & all_well) != 0 && value.failed == record.recognised();
    };
    // One for the communicator; when it inherits failed ranks, one for its survivors.
    const Agreed agreed =
        agree_with_contexts(record, well, Semantics::strict, [&](const Value &value) {
            return good(value) ? std::size_t{value.failed.empty() ? 1U : 2U} : std::size_t{0};
        });
    if (!good(agreed.value)) {
        if (prepared != nullptr) {
            ompi_comm_free(&prepared);
        }
        // Everybody fails alike, with or without a reason of its own.
        return (agreed.value.flags & all_well) == 0 && agreed.value.failed == record.recognised() &&
                       !record.revoked
                   ? MPI_ERR_INTERN
                   : (record.revoked ? MPIX_ERR_REVOKED : MPI_ERR_RANK_FAIL_STOP);
    }
    if (prepared == nullptr) {
        return MPI_SUCCESS;
    }
    if (!bring_to_life(prepared, agreed.contexts[0])) {
        return MPI_ERR_NO_MEM;
    }
    const Lock lock;
    if (Record *its = service().find(prepared); its != nullptr && agreed.contexts.size() > 1) {
        RankSet inherited;
        for (Rank rank = 0; rank < its->size(); ++rank) {
            const opal_process_name_t name =
                ompi_group_get_proc_name(prepared->c_local_group, static_cast<int>(rank));
            if (!record.recognised().common(record.members({name.vpid})).empty()) {
                inherited.insert(rank);
            }
        }
        its->adopt(inherited, agreed.contexts[1]);
    }
    *fresh = prepared;
    return MPI_SUCCESS;
}

ompi_communicator_t *prepare_duplicate(ompi_communicator_t *comm) noexcept
{
    ompi_communicator_t *fresh = nullptr;
    const int rc =
        ompi_comm_set(&fresh, comm, ompi_comm_size(comm), nullptr, 0, nullptr, comm->c_keyhash,
                      comm->error_handler, true, comm->c_local_group, nullptr);
    return rc == OMPI_SUCCESS ? fresh : nullptr;
}

ompi_communicator_t *prepare_group(ompi_communicator_t *comm, ompi_group_t *group) noexcept
{
    ompi_communicator_t *fresh = nullptr;
    const int rc = ompi_comm_set(&fresh, comm, group->grp_proc_count, nullptr, 0, nullptr, nullptr,
                                 comm->error_handler, false, group, nullptr);
    return rc == OMPI_SUCCESS ? fresh : nullptr;
}

ompi_communicator_t *prepare_ranks(ompi_communicator_t *comm,
                                   const std::vector<int> &ranks) noexcept
{
    ompi_communicator_t *fresh = nullptr;
    const int rc =
        ompi_comm_set(&fresh, comm, static_cast<int>(ranks.size()), const_cast<int *>(ranks.data()),
                      0, nullptr, nullptr, comm->error_handler, false, nullptr, nullptr);
    return rc == OMPI_SUCCESS ? fresh : nullptr;
}

} // namespace

} // namespace ft::validate

using namespace ft::validate;

extern "C" {

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *newcomm)
{
    if (!ours(comm) || newcomm == nullptr) {
        return PMPI_Comm_dup(comm, newcomm);
    }
    return guarded(comm, "MPI_Comm_dup", [&](Record &record) {
        *newcomm = MPI_COMM_NULL;
        ompi_communicator_t *prepared = prepare_duplicate(comm);
        return finish(record, prepared != nullptr, prepared, newcomm);
    });
}

int MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm *newcomm)
{
    if (!ours(comm) || newcomm == nullptr || group == nullptr || group == MPI_GROUP_NULL) {
        return PMPI_Comm_create(comm, group, newcomm);
    }
    return guarded(comm, "MPI_Comm_create", [&](Record &record) {
        *newcomm = MPI_COMM_NULL;
        const bool member = group->grp_my_rank != MPI_UNDEFINED;
        ompi_communicator_t *prepared = member ? prepare_group(comm, group) : nullptr;
        return finish(record, !member || prepared != nullptr, prepared, newcomm);
    });
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *newcomm)
{
    if (!ours(comm) || newcomm == nullptr || (color < 0 && color != MPI_UNDEFINED)) {
        return PMPI_Comm_split(comm, color, key, newcomm);
    }
    return guarded(comm, "MPI_Comm_split", [&](Record &record) {
        *newcomm = MPI_COMM_NULL;
        // What the failed ranks do not write keeps them out.
        std::vector<std::array<int, 2>> all(record.size(), {MPI_UNDEFINED, 0});
        const std::array<int, 2> mine = {color, key};
        const int rc = comm->c_coll->coll_allgather(mine.data(), 2, MPI_INT, all.data(), 2, MPI_INT,
                                                    comm, comm->c_coll->coll_allgather_module);
        bool well = rc == OMPI_SUCCESS;
        ompi_communicator_t *prepared = nullptr;
        if (well && color != MPI_UNDEFINED) {
            std::vector<int> ranks;
            for (Rank rank = 0; rank < record.size(); ++rank) {
                if (all[rank][0] == color) {
                    ranks.push_back(static_cast<int>(rank));
                }
            }
            std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
                return all[static_cast<std::size_t>(a)][1] < all[static_cast<std::size_t>(b)][1];
            });
            prepared = prepare_ranks(comm, ranks);
            well = prepared != nullptr;
        }
        return finish(record, well, prepared, newcomm);
    });
}

} // extern "C"

// The calls of user-level failure mitigation.
#include "ompi/mpi_ft/communicators.hpp"

#include "opal/process/standing.hpp"

namespace ft::validate {

namespace {

/// What the agreed flags mean to a caller.
int conclude(const Value &value, int *flag)
{
    *flag = static_cast<int>(static_cast<std::uint32_t>(value.flags));
    return value.failed.is_subset_of(value.acknowledged) ? MPI_SUCCESS : MPIX_ERR_PROC_FAILED;
}

Brought brought_for(int flag)
{
    Brought brought;
    brought.flags = recovering(static_cast<std::uint32_t>(flag));
    brought.acknowledged = true;
    return brought;
}

/// The lock is held.
void acknowledge(Record &record, const RankSet &members)
{
    record.acknowledged.unite(members);
    for (const int rank : record.ranks_in(members)) {
        process::set_standing(record.communicator()->c_contextid, static_cast<std::uint32_t>(rank),
                              process::Standing::acknowledged);
    }
}

/// Those that became known first.
RankSet first_failed(const Record &record, std::size_t count)
{
    RankSet first;
    const std::vector<Rank> &all = record.failed_in_order();
    for (std::size_t i = 0; i < count && i < all.size(); ++i) {
        first.insert(all[i]);
    }
    return first;
}

/// What MPIX_Comm_shrink gives, when all have agreed who is left; nothing of it takes others.
/// \param own of an intercommunicator, which the program may have freed meanwhile: its second half
int make_of_survivors(const Record &record, ompi_communicator_t *own, const Agreed &agreed,
                      MPI_Comm *fresh) noexcept
try {
    if (!agreed.enough) {
        return MPI_ERR_INTERN;
    }
    const auto left = [&](Rank first, Rank count) {
        std::vector<int> ranks;
        for (Rank rank = 0; rank < count; ++rank) {
            if (!agreed.value.failed.contains(first + rank)) {
                ranks.push_back(static_cast<int>(rank));
            }
        }
        return ranks;
    };
    const std::vector<int> ranks = left(record.member(0), record.ranks());
    if (ranks.empty()) {
        return MPI_ERR_RANK_FAIL_STOP; // an intercommunicator needs two groups
    }
    ompi_communicator_t *const comm = record.communicator();
    const Prepared prepared =
        record.inter()
            ? prepare_inter(comm, left(record.local_member(0), record.size() - record.ranks()),
                            ranks, own)
            : prepare_ranks(comm, ranks);
    *fresh = bring_to_life(prepared, agreed.contexts.data());
    if (*fresh == nullptr) {
        *fresh = MPI_COMM_NULL;
        return MPI_ERR_NO_MEM;
    }
    const Lock lock;
    if (Record *its = service().find(*fresh); its != nullptr) {
        its->begin_in_window(agreed.window);
    }
    return MPI_SUCCESS;
} catch (...) {
    return MPI_ERR_NO_MEM;
}

} // namespace

int shrink_later(ompi_communicator_t *comm, Place place, ompi_request_t **request) noexcept
{
    return guarded(comm, "MPIX_Comm_ishrink", [&](Record &record) -> int {
        if (!place || request == nullptr) {
            return MPI_ERR_ARG;
        }
        const Lock lock;
        Pending *pending = Pending::make(comm);
        if (pending == nullptr) {
            return MPI_ERR_NO_MEM;
        }
        *request = pending->request();
        agree_with_contexts_later(
            record, Purpose::recover,
            [&record](const Value &) { return contexts_of(record.inter()); },
            [&record, own = comm->c_local_comm, place = std::move(place),
             pending](const Agreed &agreed) {
                // The PML must not get a communicator in the middle of taking a message.
                service().later([&record, own, place, pending, agreed] {
                    ompi_communicator_t *fresh = MPI_COMM_NULL;
                    const int error = make_of_survivors(record, own, agreed, &fresh);
                    place(fresh);
                    pending->complete(error);
                });
            });
        return MPI_SUCCESS;
    });
}

} // namespace ft::validate

using namespace ft::validate;

int PMPIX_Comm_revoke(MPI_Comm comm)
{
    return guarded(comm, "MPIX_Comm_revoke", [](Record &record) -> int {
        const Lock lock;
        record.revoke();
        return MPI_SUCCESS;
    });
}

int PMPIX_Comm_is_revoked(MPI_Comm comm, int *flag)
{
    return guarded(comm, "MPIX_Comm_is_revoked", [&](Record &record) -> int {
        if (flag == nullptr) {
            return MPI_ERR_ARG;
        }
        catch_up();
        const Lock lock;
        *flag = record.revoked ? 1 : 0;
        return MPI_SUCCESS;
    });
}

int PMPIX_Comm_agree(MPI_Comm comm, int *flag)
{
    return guarded(comm, "MPIX_Comm_agree", [&](Record &record) -> int {
        return flag == nullptr ? MPI_ERR_ARG
                               : conclude(agree_now(record, brought_for(*flag)), flag);
    });
}

int PMPIX_Comm_iagree(MPI_Comm comm, int *flag, MPI_Request *request)
{
    return guarded(comm, "MPIX_Comm_iagree", [&](Record &record) -> int {
        if (flag == nullptr || request == nullptr) {
            return MPI_ERR_ARG;
        }
        const Lock lock;
        Pending *pending = Pending::make(comm);
        if (pending == nullptr) {
            return MPI_ERR_NO_MEM;
        }
        *request = pending->request();
        record.agree(brought_for(*flag), [pending, flag](const Value &value) {
            pending->complete(conclude(value, flag));
        });
        return MPI_SUCCESS;
    });
}

int PMPIX_Comm_shrink(MPI_Comm comm, MPI_Comm *newcomm)
{
    return guarded(comm, "MPIX_Comm_shrink", [&](Record &record) -> int {
        if (newcomm == nullptr) {
            return MPI_ERR_ARG;
        }
        *newcomm = MPI_COMM_NULL;
        const Agreed agreed = agree_with_contexts(
            record, Purpose::recover, [&](const Value &) { return contexts_of(record.inter()); });
        return make_of_survivors(record, comm->c_local_comm, agreed, newcomm);
    });
}

int PMPIX_Comm_ishrink(MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request)
{
    return shrink_later(comm, newcomm == nullptr ? Place{} : place_at(newcomm), request);
}

int PMPIX_Comm_failure_ack(MPI_Comm comm)
{
    return guarded(comm, "MPIX_Comm_failure_ack", [](Record &record) -> int {
        catch_up();
        const Lock lock;
        acknowledge(record, record.failed());
        return MPI_SUCCESS;
    });
}

int PMPIX_Comm_failure_get_acked(MPI_Comm comm, MPI_Group *failed)
{
    return guarded(comm, "MPIX_Comm_failure_get_acked", [&](Record &record) -> int {
        if (failed == nullptr) {
            return MPI_ERR_ARG;
        }
        const Lock lock;
        std::vector<Rank> members = record.failed_in_order();
        std::erase_if(members, [&](Rank one) { return !record.acknowledged.contains(one); });
        return group_of(record, members, failed);
    });
}

int PMPIX_Comm_get_failed(MPI_Comm comm, MPI_Group *failed)
{
    return guarded(comm, "MPIX_Comm_get_failed", [&](Record &record) -> int {
        if (failed == nullptr) {
            return MPI_ERR_ARG;
        }
        catch_up();
        const Lock lock;
        return group_of(record, record.failed_in_order(), failed);
    });
}

int PMPIX_Comm_ack_failed(MPI_Comm comm, int count, int *acknowledged)
{
    return guarded(comm, "MPIX_Comm_ack_failed", [&](Record &record) -> int {
        if (acknowledged == nullptr) {
            return MPI_ERR_ARG;
        }
        if (count < 0) {
            return MPI_ERR_COUNT;
        }
        catch_up();
        const Lock lock;
        // By what became known since the program was told it means nobody.
        acknowledge(record, first_failed(record, static_cast<std::size_t>(count)));
        *acknowledged = static_cast<int>(record.acknowledged.count());
        return MPI_SUCCESS;
    });
}

FT_BOTH_NAMES(MPIX_Comm_revoke);
FT_BOTH_NAMES(MPIX_Comm_is_revoked);
FT_BOTH_NAMES(MPIX_Comm_agree);
FT_BOTH_NAMES(MPIX_Comm_iagree);
FT_BOTH_NAMES(MPIX_Comm_shrink);
FT_BOTH_NAMES(MPIX_Comm_ishrink);
FT_BOTH_NAMES(MPIX_Comm_failure_ack);
FT_BOTH_NAMES(MPIX_Comm_failure_get_acked);
FT_BOTH_NAMES(MPIX_Comm_get_failed);
FT_BOTH_NAMES(MPIX_Comm_ack_failed);

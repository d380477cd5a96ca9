// The calls of the run-through stabilization proposal.
#include "ompi/mpi_ft/call.hpp"

#include "opal/process/standing.hpp"

namespace ft::validate {

namespace {

MPI_Rank_info info_of(const Record &record, int rank)
{
    const Rank member = record.member(rank);
    int state = MPI_RANK_OK;
    if (record.failed().contains(member) || record.recognised().contains(member)) {
        const auto standing =
            process::standing(record.communicator()->c_contextid, static_cast<std::uint32_t>(rank));
        state = standing == process::Standing::recognised ? MPI_RANK_NULL : MPI_RANK_FAILED;
    }
    return {rank, state, 0};
}

bool names(const Record &record, int rank)
{
    return rank >= 0 && static_cast<Rank>(rank) < record.ranks();
}

int adopt(Record &record, const Agreed &agreed, int *outcount)
{
    if (!agreed.enough) {
        return MPI_ERR_INTERN; // nor anywhere else
    }
    const Lock lock;
    record.adopt(agreed.value.failed, agreed.contexts);
    const RankSet &failed = agreed.value.failed;
    *outcount = failed.empty() ? 0 : static_cast<int>(record.ranks_in(failed).size());
    return MPI_SUCCESS;
}

} // namespace

} // namespace ft::validate

using namespace ft::validate;

int MPI_Comm_validate_all(MPI_Comm comm, int *outcount)
{
    return guarded(comm, "MPI_Comm_validate_all", [&](Record &record) -> int {
        if (outcount == nullptr) {
            return MPI_ERR_ARG;
        }
        const Agreed agreed =
            agree_with_contexts(record, Purpose::recover, [&](const Value &value) {
                return record.contexts_for(value.failed);
            });
        return adopt(record, agreed, outcount);
    });
}

int MPI_Icomm_validate_all(MPI_Comm comm, int *outcount, MPI_Request *request)
{
    return guarded(comm, "MPI_Icomm_validate_all", [&](Record &record) -> int {
        if (outcount == nullptr || request == nullptr) {
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
            [&record](const Value &value) { return record.contexts_for(value.failed); },
            [&record, outcount, pending](const Agreed &agreed) {
                pending->complete(adopt(record, agreed, outcount));
            });
        return MPI_SUCCESS;
    });
}

int MPI_Comm_validate_rank(MPI_Comm comm, int rank, MPI_Rank_info *info)
{
    return guarded(comm, "MPI_Comm_validate_rank", [&](Record &record) -> int {
        if (info == nullptr) {
            return MPI_ERR_ARG;
        }
        if (!names(record, rank)) {
            return MPI_ERR_RANK;
        }
        catch_up();
        const Lock lock;
        *info = info_of(record, rank);
        return MPI_SUCCESS;
    });
}

int MPI_Comm_validate(MPI_Comm comm, int incount, int *outcount, MPI_Rank_info infos[])
{
    return guarded(comm, "MPI_Comm_validate", [&](Record &record) -> int {
        if (outcount == nullptr || (infos == nullptr && incount > 0)) {
            return MPI_ERR_ARG;
        }
        if (incount < 0) {
            return MPI_ERR_COUNT;
        }
        catch_up();
        const Lock lock;
        const std::vector<int> failed =
            record.ranks_in(record.failed().united(record.recognised()));
        *outcount = static_cast<int>(failed.size());
        for (std::size_t i = 0; i < failed.size() && i < static_cast<std::size_t>(incount); ++i) {
            infos[i] = info_of(record, failed[i]);
        }
        return MPI_SUCCESS;
    });
}

int MPI_Comm_validate_clear(MPI_Comm comm, int incount, MPI_Rank_info infos[])
{
    return guarded(comm, "MPI_Comm_validate_clear", [&](Record &record) -> int {
        if (infos == nullptr && incount > 0) {
            return MPI_ERR_ARG;
        }
        if (incount < 0) {
            return MPI_ERR_COUNT;
        }
        for (int i = 0; i < incount; ++i) {
            if (!names(record, infos[i].rank)) {
                return MPI_ERR_RANK;
            }
        }
        catch_up();
        const Lock lock;
        const RankSet failed = record.failed();
        for (int i = 0; i < incount; ++i) {
            const int rank = infos[i].rank;
            if (failed.contains(record.member(rank))) {
                ft::process::set_standing(comm->c_contextid, static_cast<std::uint32_t>(rank),
                                          ft::process::Standing::recognised);
            }
            infos[i] = info_of(record, rank);
        }
        return MPI_SUCCESS;
    });
}

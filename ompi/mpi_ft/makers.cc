// The rest of the calls that make communicators: at every survivor or at none. Those that join
// processes of another job are Open MPI's, with an agreement before and one after.
#include "ompi/mpi_ft/communicators.hpp"

#include "ompi/mca/context_ids.hpp"

namespace ft::validate {

namespace {

/// One intracommunicator of both groups: first the one that is not `high`.
Draft merged(Record &record, bool high)
{
    ompi_communicator_t *comm = record.communicator();
    Draft draft;
    std::vector<Choice> theirs;
    draft.well = hear(comm, {high ? 1 : 0, 0}, theirs);
    if (!draft.well) {
        return draft;
    }
    // Both want the same: the order in which both number the members.
    bool first = record.local_member(0) == 0;
    for (const Choice &choice : theirs) {
        if (choice.part != MPI_UNDEFINED && (choice.part != 0) != high) {
            first = !high;
        }
    }
    ompi_group_t *both = nullptr;
    draft.well =
        ompi_group_union(first ? comm->c_local_group : comm->c_remote_group,
                         first ? comm->c_remote_group : comm->c_local_group, &both) == OMPI_SUCCESS;
    if (draft.well) {
        draft.comm = prepare_group(comm, both);
        draft.well = draft.comm != nullptr;
        ompi_group_free(&both);
    }
    return draft;
}

/// Whether a process with this locality is in the part that MPI_Comm_split_type asks for.
bool together(int split_type, std::uint16_t locality, bool &known)
{
    known = true;
    switch (split_type) {
    case MPI_COMM_TYPE_SHARED:
        return OPAL_PROC_ON_LOCAL_NODE(locality);
    case OMPI_COMM_TYPE_HWTHREAD:
        return OPAL_PROC_ON_LOCAL_HWTHREAD(locality);
    case OMPI_COMM_TYPE_CORE:
        return OPAL_PROC_ON_LOCAL_CORE(locality);
    case OMPI_COMM_TYPE_L1CACHE:
        return OPAL_PROC_ON_LOCAL_L1CACHE(locality);
    case OMPI_COMM_TYPE_L2CACHE:
        return OPAL_PROC_ON_LOCAL_L2CACHE(locality);
    case OMPI_COMM_TYPE_L3CACHE:
        return OPAL_PROC_ON_LOCAL_L3CACHE(locality);
    case OMPI_COMM_TYPE_SOCKET:
        return OPAL_PROC_ON_LOCAL_SOCKET(locality);
    case OMPI_COMM_TYPE_NUMA:
        return OPAL_PROC_ON_LOCAL_NUMA(locality);
    case OMPI_COMM_TYPE_BOARD:
        return OPAL_PROC_ON_LOCAL_BOARD(locality);
    case OMPI_COMM_TYPE_HOST:
        return OPAL_PROC_ON_LOCAL_HOST(locality);
    case OMPI_COMM_TYPE_CU:
        return OPAL_PROC_ON_LOCAL_CU(locality);
    case OMPI_COMM_TYPE_CLUSTER:
        return OPAL_PROC_ON_LOCAL_CLUSTER(locality);
    default:
        known = false;
        return false;
    }
}

/// The lowest rank of its part, MPI_UNDEFINED for none. \return whether the type is one
bool part_of_type(ompi_communicator_t *comm, int split_type, int &part)
{
    part = MPI_UNDEFINED;
    bool known = split_type == MPI_UNDEFINED;
    for (int rank = 0; !known || (part == MPI_UNDEFINED && split_type != MPI_UNDEFINED); ++rank) {
        if (rank == comm->c_my_rank) {
            together(split_type, 0, known);
            part = known ? rank : MPI_UNDEFINED;
            return known;
        }
        const ompi_proc_t *proc = ompi_group_peer_lookup(comm->c_local_group, rank);
        if (proc != nullptr && together(split_type, proc->super.proc_flags, known)) {
            part = rank;
        }
    }
    return true;
}

/// Whether all of the communicator live and say that all is well. \return an error class, the same
/// everywhere; MPI_ERR_INTERN when somebody says no
int all_are_well(Record &record, bool well)
{
    Brought brought;
    {
        const Lock lock;
        service().take_news();
        brought.flags = making(well && record.mode() == Mode::stock);
    }
    const Value value = agree_now(record, brought);
    return !value.failed.empty()           ? MPI_ERR_RANK_FAIL_STOP
           : (value.flags & all_well) != 0 ? MPI_SUCCESS
           : record.revoked                ? MPIX_ERR_REVOKED
           : (value.flags & all_make) != 0 ? MPI_ERR_INTERN
                                           : MPI_ERR_RANK_FAIL_STOP;
}

/// Whether nobody on either side is known to be dead. The runtime lets a side through whose other
/// side has lost somebody, after it has told everybody of the death.
bool whole(ompi_communicator_t *fresh)
{
    opal_progress(); // which takes deaths from where the daemon writes them
    const Lock lock;
    service().take_news();
    const Record *const made = service().find(fresh);
    return made == nullptr || made->mode() == Mode::stock;
}

/// A communicator that Open MPI has made with a context id lower than its parent's has a reference
/// too many, which MPI_Comm_free gives back, and with it those of all that is pending, which is
/// lost then. Parents made here have the high ids. (What that reference is for, a local group's
/// communicator with a lower id than its own, is not so here.)
void count_references_well(ompi_communicator_t *fresh) noexcept
{
    if (OMPI_COMM_IS_EXTRA_RETAIN(fresh)) {
        fresh->c_flags &= ~OMPI_COMM_EXTRA_RETAIN;
        OBJ_RELEASE(fresh);
    }
}

/// For the calls that join processes of another job, which Open MPI makes together with the
/// runtime: all agree before that all live, and afterwards that all have the new communicator.
/// Where some have it and some have not, or the other side has lost somebody, those who have it let
/// it go, and tell the other job, which need not have met a failure, that it is revoked and that
/// nobody here is to be waited for.
template <class Stock>
int escorted(ompi_communicator_t *comm, const char *function, ompi_communicator_t **fresh,
             Stock stock) noexcept
{
    if (!ours(comm) || OMPI_COMM_IS_INTER(comm) || fresh == nullptr) {
        return stock();
    }
    int told = MPI_SUCCESS; // the error handler has heard of it
    const int code = guarded(comm, function, [&](Record &record) -> int {
        *fresh = MPI_COMM_NULL;
        if (const int before = all_are_well(record, true); before != MPI_SUCCESS) {
            return before;
        }
        const int its = stock();
        if (its != MPI_SUCCESS) {
            const Lock lock;
            mca::release_ids(comm);
        } else {
            count_references_well(*fresh);
        }
        const int all = all_are_well(record, its == MPI_SUCCESS && whole(*fresh));
        if (all == MPI_SUCCESS) {
            return MPI_SUCCESS;
        }
        if (its != MPI_SUCCESS) {
            told = all == MPI_ERR_INTERN ? its : all;
            return MPI_SUCCESS;
        }
        const Lock lock;
        if (Record *made = service().find(*fresh); made != nullptr) {
            made->let_go();
        }
        service().free(*fresh);
        *fresh = MPI_COMM_NULL;
        return all == MPI_ERR_INTERN ? MPI_ERR_RANK_FAIL_STOP : all;
    });
    return told != MPI_SUCCESS ? told : code;
}

int set_info(int code, MPI_Comm comm, MPI_Info info)
{
    return code == MPI_SUCCESS && comm != MPI_COMM_NULL && info != MPI_INFO_NULL && info != nullptr
               ? PMPI_Comm_set_info(comm, info)
               : code;
}

} // namespace

} // namespace ft::validate

using namespace ft::validate;

extern "C" {

int PMPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *newcomm)
{
    if (!ours(comm) || newcomm == nullptr || info == nullptr) {
        return FT_STOCK(MPI_Comm_dup_with_info)(comm, info, newcomm);
    }
    const int code = MPI_Comm_dup(comm, newcomm);
    return set_info(code, *newcomm, info);
}

int PMPI_Comm_split_type(MPI_Comm comm, int split_type, int key, MPI_Info info, MPI_Comm *newcomm)
{
    int part = MPI_UNDEFINED;
    if (!ours(comm) || newcomm == nullptr || OMPI_COMM_IS_INTER(comm) ||
        !part_of_type(comm, split_type, part)) {
        return FT_STOCK(MPI_Comm_split_type)(comm, split_type, key, info, newcomm);
    }
    const int code = guarded(comm, "MPI_Comm_split_type", [&](Record &record) {
        *newcomm = MPI_COMM_NULL;
        return finish(record, part_of(record, {part, key}), newcomm);
    });
    return set_info(code, *newcomm, info);
}

int PMPI_Intercomm_merge(MPI_Comm comm, int high, MPI_Comm *newcomm)
{
    if (!ours(comm) || newcomm == nullptr || !OMPI_COMM_IS_INTER(comm)) {
        return FT_STOCK(MPI_Intercomm_merge)(comm, high, newcomm);
    }
    return guarded(comm, "MPI_Intercomm_merge", [&](Record &record) {
        *newcomm = MPI_COMM_NULL;
        return finish(record, merged(record, high != 0), newcomm);
    });
}

int PMPI_Comm_spawn(const char *command, char *argv[], int maxprocs, MPI_Info info, int root,
                    MPI_Comm comm, MPI_Comm *intercomm, int errcodes[])
{
    return escorted(comm, "MPI_Comm_spawn", intercomm, [&] {
        return FT_STOCK(MPI_Comm_spawn)(command, argv, maxprocs, info, root, comm, intercomm,
                                        errcodes);
    });
}

int PMPI_Comm_spawn_multiple(int count, char *commands[], char **argvs[], const int maxprocs[],
                             const MPI_Info infos[], int root, MPI_Comm comm, MPI_Comm *intercomm,
                             int errcodes[])
{
    return escorted(comm, "MPI_Comm_spawn_multiple", intercomm, [&] {
        return FT_STOCK(MPI_Comm_spawn_multiple)(count, commands, argvs, maxprocs, infos, root,
                                                 comm, intercomm, errcodes);
    });
}

int PMPI_Comm_accept(const char *port, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *newcomm)
{
    return escorted(comm, "MPI_Comm_accept", newcomm,
                    [&] { return FT_STOCK(MPI_Comm_accept)(port, info, root, comm, newcomm); });
}

int PMPI_Comm_connect(const char *port, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *newcomm)
{
    return escorted(comm, "MPI_Comm_connect", newcomm,
                    [&] { return FT_STOCK(MPI_Comm_connect)(port, info, root, comm, newcomm); });
}

FT_BOTH_NAMES(MPI_Comm_dup_with_info);
FT_BOTH_NAMES(MPI_Comm_split_type);
FT_BOTH_NAMES(MPI_Intercomm_merge);
FT_BOTH_NAMES(MPI_Comm_spawn);
FT_BOTH_NAMES(MPI_Comm_spawn_multiple);
FT_BOTH_NAMES(MPI_Comm_accept);
FT_BOTH_NAMES(MPI_Comm_connect);

} // extern "C"

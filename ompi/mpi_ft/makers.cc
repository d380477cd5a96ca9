// The rest of the calls that make communicators. Some succeed at every survivor or at none; the
// others are Open MPI's, and refuse where a failure is known.
#include "ompi/mpi_ft/communicators.hpp"

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

/// For calls that Open MPI makes: an error where a failure is known. Since all know of those that
/// MPI_Comm_validate_all has recognised, all refuse then. \return MPI_SUCCESS to go on
int refused(ompi_communicator_t *comm, const char *function) noexcept
{
    if (comm == MPI_COMM_NULL || !ours(comm)) {
        return MPI_SUCCESS;
    }
    return guarded(comm, function, [](Record &record) -> int {
        const Lock lock;
        service().take_news();
        const Mode mode = record.mode();
        return mode == Mode::stock     ? MPI_SUCCESS
               : mode == Mode::revoked ? MPIX_ERR_REVOKED
                                       : MPI_ERR_RANK_FAIL_STOP;
    });
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

int MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *newcomm)
{
    if (!ours(comm) || newcomm == nullptr || info == nullptr) {
        return PMPI_Comm_dup_with_info(comm, info, newcomm);
    }
    return set_info(MPI_Comm_dup(comm, newcomm), *newcomm, info);
}

int MPI_Comm_split_type(MPI_Comm comm, int split_type, int key, MPI_Info info, MPI_Comm *newcomm)
{
    int part = MPI_UNDEFINED;
    if (!ours(comm) || newcomm == nullptr || OMPI_COMM_IS_INTER(comm) ||
        !part_of_type(comm, split_type, part)) {
        return PMPI_Comm_split_type(comm, split_type, key, info, newcomm);
    }
    const int code = guarded(comm, "MPI_Comm_split_type", [&](Record &record) {
        *newcomm = MPI_COMM_NULL;
        return finish(record, part_of(record, {part, key}), newcomm);
    });
    return set_info(code, *newcomm, info);
}

int MPI_Intercomm_merge(MPI_Comm comm, int high, MPI_Comm *newcomm)
{
    if (!ours(comm) || newcomm == nullptr || !OMPI_COMM_IS_INTER(comm)) {
        return PMPI_Intercomm_merge(comm, high, newcomm);
    }
    return guarded(comm, "MPI_Intercomm_merge", [&](Record &record) {
        *newcomm = MPI_COMM_NULL;
        return finish(record, merged(record, high != 0), newcomm);
    });
}

int MPI_Intercomm_create(MPI_Comm local, int local_leader, MPI_Comm bridge, int remote_leader,
                         int tag, MPI_Comm *newcomm)
{
    const int code = refused(local, "MPI_Intercomm_create");
    return code != MPI_SUCCESS
               ? code
               : PMPI_Intercomm_create(local, local_leader, bridge, remote_leader, tag, newcomm);
}

int MPI_Comm_spawn(const char *command, char *argv[], int maxprocs, MPI_Info info, int root,
                   MPI_Comm comm, MPI_Comm *intercomm, int errcodes[])
{
    const int code = refused(comm, "MPI_Comm_spawn");
    return code != MPI_SUCCESS
               ? code
               : PMPI_Comm_spawn(command, argv, maxprocs, info, root, comm, intercomm, errcodes);
}

int MPI_Comm_spawn_multiple(int count, char *commands[], char **argvs[], const int maxprocs[],
                            const MPI_Info infos[], int root, MPI_Comm comm, MPI_Comm *intercomm,
                            int errcodes[])
{
    const int code = refused(comm, "MPI_Comm_spawn_multiple");
    return code != MPI_SUCCESS ? code
                               : PMPI_Comm_spawn_multiple(count, commands, argvs, maxprocs, infos,
                                                          root, comm, intercomm, errcodes);
}

int MPI_Comm_accept(const char *port, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *newcomm)
{
    const int code = refused(comm, "MPI_Comm_accept");
    return code != MPI_SUCCESS ? code : PMPI_Comm_accept(port, info, root, comm, newcomm);
}

int MPI_Comm_connect(const char *port, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *newcomm)
{
    const int code = refused(comm, "MPI_Comm_connect");
    return code != MPI_SUCCESS ? code : PMPI_Comm_connect(port, info, root, comm, newcomm);
}

} // extern "C"

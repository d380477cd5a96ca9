// Communicators made by processes that have none in common yet: by a part of one, or by two groups.
// They agree as guests (record.hpp) whose name all of them can work out.
#include "ompi/mpi_ft/communicators.hpp"

namespace ft::validate {

namespace {

/// What sets the agreements of guests apart: no context id has this bit.
constexpr std::uint32_t guests_bit = std::uint32_t{1} << 31;

std::uint32_t name_of(std::initializer_list<std::uint64_t> parts)
{
    std::uint64_t hash = 14695981039346656037ULL; // FNV-1a
    for (const std::uint64_t part : parts) {
        for (unsigned shift = 0; shift < 64; shift += 8) {
            hash = (hash ^ (part >> shift & 0xff)) * 1099511628211ULL;
        }
    }
    return static_cast<std::uint32_t>(hash >> 32 ^ hash) | guests_bit;
}

/// A guest for as long as a call takes.
class Visit {
  public:
    Visit(std::vector<ProcessId> members, std::uint32_t name, ompi_communicator_t *parent)
    {
        const Lock lock;
        guest_ = service().invite(std::move(members), name, parent);
    }
    ~Visit()
    {
        const Lock lock;
        service().dismiss(guest_);
    }
    Visit(const Visit &) = delete;
    Visit &operator=(const Visit &) = delete;
    Record &guest() { return *guest_; }

  private:
    Record *guest_;
};

std::vector<ProcessId> ids_of(ompi_group_t *group)
{
    std::vector<ProcessId> ids;
    for (int rank = 0; rank < group->grp_proc_count; ++rank) {
        const opal_process_name_t name = ompi_group_get_proc_name(group, rank);
        ids.push_back(id_of(name.jobid, name.vpid));
    }
    return ids;
}

} // namespace

} // namespace ft::validate

using namespace ft::validate;

extern "C" {

int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *newcomm)
{
    if (!ours(comm) || newcomm == nullptr || group == nullptr || group == MPI_GROUP_NULL ||
        tag < 0 || OMPI_COMM_IS_INTER(comm) || group->grp_my_rank == MPI_UNDEFINED) {
        return PMPI_Comm_create_group(comm, group, tag, newcomm);
    }
    return guarded(comm, "MPI_Comm_create_group", [&](Record &record) -> int {
        *newcomm = MPI_COMM_NULL;
        // Several threads may be in it, with different tags.
        Visit visit(ids_of(group), name_of({comm->c_contextid, static_cast<std::uint64_t>(tag)}),
                    comm);
        Record &guest = visit.guest();
        Draft draft;
        {
            const Lock lock;
            std::vector<ProcessId> recognised;
            for (const Rank member : record.recognised().members()) {
                recognised.push_back(record.process(member));
            }
            guest.presume(guest.members(recognised));
            draft.well = !record.revoked;
        }
        draft.comm = prepare_group(comm, group);
        draft.well = draft.well && draft.comm != nullptr;
        const int code = finish(guest, draft, newcomm);
        return code != MPI_SUCCESS && record.revoked ? MPIX_ERR_REVOKED : code;
    });
}

} // extern "C"

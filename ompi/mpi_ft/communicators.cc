// MPI_Comm_dup, MPI_Comm_split and MPI_Comm_create that succeed at every survivor or at none.
//
// A program that is linked with this library calls these instead of Open MPI's, whose way to a
// context id waits for ever when a process fails in it.
#include "ompi/mpi_ft/communicators.hpp"

#include <algorithm>

namespace ft::validate {

bool ours(ompi_communicator_t *comm) noexcept
{
    if (ompi_mpi_state != OMPI_MPI_STATE_INIT_COMPLETED || comm == nullptr ||
        ompi_comm_invalid(comm)) {
        return false;
    }
    const Lock lock;
    return service().find(comm) != nullptr;
}

namespace {

/// What an agreement says of a draft. Found out when it is decided, once: the next call's may be by
/// the time that the communicator is made, and change what is recognised.
struct Verdict {
    int error = MPI_SUCCESS;
    std::vector<ProcessId> inherited; ///< failed, and recognised in the new communicator too
};

/// The lock is held.
Verdict judge(const Record &record, const Value &value)
{
    const bool well = (value.flags & all_well) != 0;
    const bool recognised = value.failed == record.recognised();
    Verdict verdict;
    if (!well || !recognised) {
        // Everybody fails alike, with or without a reason of its own. Where others have met a
        // failure and have gone on to what comes after it, this is one of it, too. Where one group
        // has nobody left, what the others say of themselves has not been heard.
        const bool made = (value.flags & all_make) != 0;
        verdict.error = record.revoked                             ? MPIX_ERR_REVOKED
                        : recognised && made && !record.deserted() ? MPI_ERR_INTERN
                                                                   : MPI_ERR_RANK_FAIL_STOP;
        return verdict;
    }
    for (const Rank member : value.failed.members()) {
        verdict.inherited.push_back(record.process(member));
    }
    return verdict;
}

/// How many context ids it asks for: those of the communicator; when it inherits failed ranks,
/// those of its survivors.
std::size_t contexts_for(const Draft &draft, const Verdict &verdict)
{
    const std::size_t own = contexts_of(draft.inter);
    const std::size_t more = verdict.inherited.empty() ? 0 : own + (draft.topology ? 1U : 0U);
    return verdict.error == MPI_SUCCESS ? own + more : std::size_t{0};
}

/// The same of a guest, by the value alone: its members need not hold the same for recognised, and
/// must make the same attempts all the same.
std::size_t contexts_for(const Draft &draft, const Value &value)
{
    const std::size_t own = contexts_of(draft.inter);
    const std::size_t more = value.failed.empty() ? 0 : own + (draft.topology ? 1U : 0U);
    return (value.flags & all_well) != 0 ? own + more : std::size_t{0};
}

/// What this process says of its draft.
Purpose purpose(Record &record, const Draft &draft)
{
    const Lock lock;
    service().take_news();
    const Mode mode = record.mode();
    return draft.well && (mode == Mode::stock || mode == Mode::survivors) ? Purpose::make
                                                                          : Purpose::give_up;
}

/// What is left to do when all have agreed; nothing of it takes other processes.
int conclude(Draft draft, Verdict verdict, const Agreed &agreed, ompi_communicator_t **fresh)
{
    if (verdict.error == MPI_SUCCESS && !agreed.enough) {
        verdict.error = MPI_ERR_INTERN; // as Open MPI without context ids
    }
    if (verdict.error != MPI_SUCCESS) {
        if (draft.comm != nullptr) {
            ompi_comm_free(&draft.comm);
        }
        return verdict.error;
    }
    if (draft.comm == nullptr) {
        return MPI_SUCCESS;
    }
    const std::size_t own = contexts_of(draft.inter);
    const std::vector<std::uint32_t> &contexts = agreed.contexts;
    *fresh = bring_to_life(draft.comm, contexts.data());
    if (*fresh == nullptr) {
        *fresh = MPI_COMM_NULL;
        return MPI_ERR_NO_MEM;
    }
    const Lock lock;
    if (Record *its = service().find(*fresh); its != nullptr) {
        its->begin_in_window(agreed.window);
        if (contexts.size() > own) {
            its->adopt(its->members(verdict.inherited),
                       {contexts.begin() + static_cast<std::ptrdiff_t>(own), contexts.end()});
        }
    }
    return MPI_SUCCESS;
}

} // namespace

int finish(Record &record, Draft draft, ompi_communicator_t **fresh)
{
    Verdict verdict;
    const Agreed agreed =
        agree_with_contexts(record, purpose(record, draft), [&](const Value &value) {
            verdict = judge(record, value);
            return record.guest() ? contexts_for(draft, value) : contexts_for(draft, verdict);
        });
    if (record.guest() && !agreed.value.failed.empty() && (agreed.value.flags & all_well) != 0) {
        // Not all of a guest's members need hold the same for recognised.
        Brought brought;
        brought.flags = making(verdict.error == MPI_SUCCESS);
        Value last = agree_now(record, brought);
        if ((last.flags & all_well) == 0 || last.failed != agreed.value.failed) {
            last.flags = making(false);
            const Lock lock;
            verdict = judge(record, last);
        }
    }
    return conclude(draft, verdict, agreed, fresh);
}

Place place_at(ompi_communicator_t **handle) noexcept
{
    *handle = MPI_COMM_NULL;
    return [handle](ompi_communicator_t *comm) { *handle = comm; };
}

int finish_later(Record &record, Draft draft, Place place, ompi_request_t **request)
{
    const Purpose its = purpose(record, draft);
    const Lock lock;
    Pending *pending = Pending::make(record.communicator());
    if (pending == nullptr) {
        return MPI_ERR_NO_MEM; // as everywhere: the others wait for this one
    }
    *request = pending->request();
    const auto verdict = std::make_shared<Verdict>();
    agree_with_contexts_later(
        record, its,
        [&record, draft, verdict](const Value &value) {
            *verdict = judge(record, value);
            return contexts_for(draft, *verdict);
        },
        [draft, verdict, place = std::move(place), pending](const Agreed &agreed) {
            // The PML must not get a communicator in the middle of taking a message.
            service().later([draft, verdict, agreed, place, pending] {
                ompi_communicator_t *fresh = MPI_COMM_NULL;
                const int error = conclude(draft, *verdict, agreed, &fresh);
                place(fresh);
                pending->complete(error);
            });
        });
    return MPI_SUCCESS;
}

int dup_later(ompi_communicator_t *comm, Place place, ompi_request_t **request) noexcept
{
    return guarded(comm, "MPI_Comm_idup", [&](Record &record) {
        const Prepared twin = prepare_twin(comm, true);
        return finish_later(record,
                            {twin != nullptr, twin, record.inter(), comm->c_topo != nullptr},
                            std::move(place), request);
    });
}

namespace {

/// The ranks that have chosen this part, in its order. Failed ranks have written nothing.
std::vector<int> ranks_of(const std::vector<Choice> &choices, int part)
{
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < choices.size(); ++rank) {
        if (choices[rank].part == part) {
            ranks.push_back(static_cast<int>(rank));
        }
    }
    std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
        return choices[static_cast<std::size_t>(a)].order <
               choices[static_cast<std::size_t>(b)].order;
    });
    return ranks;
}

} // namespace

bool hear(ompi_communicator_t *comm, Choice mine, std::vector<Choice> &theirs)
{
    theirs.assign(static_cast<std::size_t>(comm->c_remote_group->grp_proc_count),
                  {MPI_UNDEFINED, 0});
    return comm->c_coll->coll_allgather(&mine, 2, MPI_INT, theirs.data(), 2, MPI_INT, comm,
                                        comm->c_coll->coll_allgather_module) == OMPI_SUCCESS;
}

namespace {

/// hear() for the own group of an intercommunicator: on the communicator that it has of its own,
/// or, after a failure, that its survivors have.
bool hear_own(Record &record, Choice mine, std::vector<Choice> &own)
{
    ompi_communicator_t *inter = record.communicator();
    bool survivors = false;
    {
        const Lock lock;
        survivors = record.mode() == Mode::survivors;
        if (survivors) {
            inter = record.deserted() ? nullptr : record.survivors();
        }
    }
    std::vector<Choice> heard;
    if (inter == nullptr || !hear(inter->c_local_comm, mine, heard)) {
        return false;
    }
    if (!survivors) {
        own = heard;
        return true;
    }
    const std::vector<int> &among = record.local_survivor_ranks();
    own.assign(among.size(), {MPI_UNDEFINED, 0});
    for (std::size_t rank = 0; rank < among.size(); ++rank) {
        if (among[rank] >= 0) {
            own[rank] = heard[static_cast<std::size_t>(among[rank])];
        }
    }
    return true;
}

} // namespace

Draft part_of(Record &record, Choice mine)
{
    ompi_communicator_t *comm = record.communicator();
    Draft draft;
    draft.inter = record.inter();
    std::vector<Choice> theirs;
    std::vector<Choice> own;
    draft.well = hear(comm, mine, theirs) && (!draft.inter || hear_own(record, mine, own));
    if (!draft.well || mine.part == MPI_UNDEFINED) {
        return draft;
    }
    const std::vector<int> ranks = ranks_of(theirs, mine.part);
    if (!draft.inter) {
        draft.comm = prepare_ranks(comm, ranks);
    } else if (ranks.empty()) {
        return draft; // nobody is on the other side
    } else {
        draft.comm = prepare_inter(comm, ranks_of(own, mine.part), ranks);
    }
    draft.well = draft.comm != nullptr;
    return draft;
}

namespace {

/// Open MPI refuses to free it. The letters of all agreements come on MPI_COMM_WORLD: letting it go
/// before that would be to let them go for good.
bool stays(ompi_communicator_t *comm) noexcept
{
    return OMPI_COMM_IS_INTRINSIC(comm);
}

} // namespace

} // namespace ft::validate

using namespace ft::validate;

extern "C" {

int PMPI_Comm_dup(MPI_Comm comm, MPI_Comm *newcomm)
{
    if (!ours(comm) || newcomm == nullptr) {
        return FT_STOCK(MPI_Comm_dup)(comm, newcomm);
    }
    return guarded(comm, "MPI_Comm_dup", [&](Record &record) {
        *newcomm = MPI_COMM_NULL;
        const Prepared twin = prepare_twin(comm, true);
        return finish(record, {twin != nullptr, twin, record.inter(), comm->c_topo != nullptr},
                      newcomm);
    });
}

int PMPI_Comm_idup(MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request)
{
    if (!ours(comm) || newcomm == nullptr || request == nullptr) {
        return FT_STOCK(MPI_Comm_idup)(comm, newcomm, request);
    }
    return dup_later(comm, place_at(newcomm), request);
}

int PMPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm *newcomm)
{
    if (!ours(comm) || newcomm == nullptr || group == nullptr || group == MPI_GROUP_NULL) {
        return FT_STOCK(MPI_Comm_create)(comm, group, newcomm);
    }
    return guarded(comm, "MPI_Comm_create", [&](Record &record) {
        *newcomm = MPI_COMM_NULL;
        const int rank = group->grp_my_rank;
        const bool member = rank != MPI_UNDEFINED;
        if (record.inter()) { // each side has to hear who of the other is in it
            return finish(record, part_of(record, {member ? 0 : MPI_UNDEFINED, rank}), newcomm);
        }
        const Prepared prepared = member ? prepare_group(comm, group) : nullptr;
        return finish(record, {!member || prepared != nullptr, prepared}, newcomm);
    });
}

int PMPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *newcomm)
{
    if (!ours(comm) || newcomm == nullptr || (color < 0 && color != MPI_UNDEFINED)) {
        return FT_STOCK(MPI_Comm_split)(comm, color, key, newcomm);
    }
    return guarded(comm, "MPI_Comm_split", [&](Record &record) {
        *newcomm = MPI_COMM_NULL;
        return finish(record, part_of(record, {color, key}), newcomm);
    });
}

int PMPI_Comm_free(MPI_Comm *comm)
{
    if (comm == nullptr || !ours(*comm) || stays(*comm)) {
        return FT_STOCK(MPI_Comm_free)(comm);
    }
    {
        const Lock lock;
        service().let_go(*comm);
    }
    const int code = FT_STOCK(MPI_Comm_free)(comm);
    if (code != MPI_SUCCESS && ours(*comm)) {
        const Lock lock;
        service().hold(*comm);
    }
    return code;
}

int PMPI_Comm_disconnect(MPI_Comm *comm)
{
    if (comm == nullptr || !ours(*comm) || stays(*comm)) {
        return FT_STOCK(MPI_Comm_disconnect)(comm);
    }
    // Open MPI's own has the runtime wait for every process, those that failed too.
    bool failed = false;
    const int code = guarded(*comm, "MPI_Comm_disconnect", [&](Record &record) -> int {
        Brought brought;
        brought.flags = recovering(all_ids);
        failed = !agree_now(record, brought).failed.empty();
        const Lock lock;
        service().let_go(*comm);
        return MPI_SUCCESS;
    });
    if (code != MPI_SUCCESS) {
        return code;
    }
    return failed ? FT_STOCK(MPI_Comm_free)(comm) : FT_STOCK(MPI_Comm_disconnect)(comm);
}

FT_BOTH_NAMES(MPI_Comm_dup);
FT_BOTH_NAMES(MPI_Comm_idup);
FT_BOTH_NAMES(MPI_Comm_create);
FT_BOTH_NAMES(MPI_Comm_split);
FT_BOTH_NAMES(MPI_Comm_free);
FT_BOTH_NAMES(MPI_Comm_disconnect);

} // extern "C"

// Communicators made by processes that have none in common yet: by a part of one, or by two groups.
// They agree as guests (record.hpp) whose name all of them can work out.
#include "ompi/mpi_ft/communicators.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

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

/// One of the two groups that MPI_Intercomm_create pairs.
struct Side {
    std::uint64_t key = 0;    ///< of its communicator
    std::uint32_t number = 0; ///< of the attempt, as the group counts them
    std::vector<ProcessId> members;
    std::vector<ProcessId> recognised; ///< of these, as failed
};

/// What a leader sends ahead of the members, which follow when there are any, and of the recognised
/// behind them.
struct Header {
    std::uint64_t key = 0;
    std::uint32_t number = 0;
    std::uint32_t count = 0;
    std::uint32_t recognised = 0;
};

Header header_of(const Side &side)
{
    return {side.key, side.number, static_cast<std::uint32_t>(side.members.size()),
            static_cast<std::uint32_t>(side.recognised.size())};
}

std::vector<ProcessId> room_for(const Header &header)
{
    return std::vector<ProcessId>(std::size_t{header.count} + header.recognised);
}

std::vector<ProcessId> names_of(const Side &side)
{
    std::vector<ProcessId> names = side.members;
    names.insert(names.end(), side.recognised.begin(), side.recognised.end());
    return names;
}

Side side_of(const Header &header, const std::vector<ProcessId> &names)
{
    const auto recognised = names.begin() + header.count;
    return {header.key, header.number, {names.begin(), recognised}, {recognised, names.end()}};
}

/// Both leaders tell each other the same number of bytes or fewer. \return whether all came
bool swap(ompi_communicator_t *bridge, int peer, int tag, const void *mine, std::size_t length,
          void *theirs, std::size_t its_length)
{
    ompi_request_t *request = nullptr;
    if (MCA_PML_CALL(irecv(theirs, its_length, &ompi_mpi_byte.dt, peer, tag, bridge, &request)) !=
        OMPI_SUCCESS) {
        return false;
    }
    const int sent = MCA_PML_CALL(
        send(mine, length, &ompi_mpi_byte.dt, peer, tag, MCA_PML_BASE_SEND_STANDARD, bridge));
    ompi_status_public_t status{};
    const int received = ompi_request_wait(&request, &status);
    // One that is recognised as failed is like MPI_PROC_NULL: nothing comes.
    return sent == OMPI_SUCCESS && received == OMPI_SUCCESS && status._ucount == its_length;
}

/// The leader hears of the other group from its leader. \return whether it did
bool ask_leader(ompi_communicator_t *bridge, int peer, int tag, const Side &mine, Side &theirs)
{
    const Header header = header_of(mine);
    Header its;
    if (!swap(bridge, peer, tag, &header, sizeof header, &its, sizeof its)) {
        return false;
    }
    const std::vector<ProcessId> names = names_of(mine);
    std::vector<ProcessId> its_names = room_for(its);
    if (!swap(bridge, peer, tag, names.data(), names.size() * sizeof(ProcessId), its_names.data(),
              its_names.size() * sizeof(ProcessId))) {
        return false;
    }
    theirs = side_of(its, its_names);
    return true;
}

/// The others hear of it from their own leader. \return whether this process knows it in the end;
/// `all_know` is whether nothing went wrong here
bool tell_group(ompi_communicator_t *local, int leader, bool known, Side &theirs, bool &all_know)
{
    const bool leads = local->c_my_rank == leader;
    Header header;
    if (leads && known) {
        header = header_of(theirs);
    }
    mca_coll_base_comm_coll_t &coll = *local->c_coll;
    const auto bcast = [&](void *what, std::size_t bytes) {
        return coll.coll_bcast(what, static_cast<int>(bytes), &ompi_mpi_byte.dt, leader, local,
                               coll.coll_bcast_module) == OMPI_SUCCESS;
    };
    all_know = bcast(&header, sizeof header);
    if (!leads && (!all_know || header.count == 0)) {
        return false;
    }
    std::vector<ProcessId> names = leads && known ? names_of(theirs) : room_for(header);
    // A leader whose first call failed has left those behind that heard of it: they meet the same
    // failure.
    all_know =
        all_know && header.count != 0 && bcast(names.data(), names.size() * sizeof(ProcessId));
    if (!leads && all_know) {
        theirs = side_of(header, names);
    }
    return leads ? known : all_know;
}

bool is_revoked(ompi_communicator_t *comm)
{
    const Lock lock;
    const Record *record = service().find(comm);
    return record != nullptr && record->revoked;
}

/// Tells these members of a guest that they are some.
void announce(const Record &guest, const Side &to, std::uint32_t name, Topic topic = Topic::pairing)
{
    for (const ProcessId id : to.members) {
        const Rank member = guest.members({id}).members().front();
        if (member == guest.self()) {
            continue;
        }
        std::vector<std::byte> &letter = service().post().compose(topic, to.key);
        const auto add = [&](const auto *what, std::size_t count) {
            const auto *bytes = reinterpret_cast<const std::byte *>(what);
            letter.insert(letter.end(), bytes, bytes + count * sizeof *what);
        };
        const std::uint32_t numbers[] = {to.number, name};
        add(numbers, 2);
        for (Rank each = 0; each < guest.size(); ++each) {
            const ProcessId its = guest.process(each);
            add(&its, 1);
        }
        service().post().dispatch(guest.route(member));
    }
}

/// For who waits in MPI_Comm_create_group: when the communicator is revoked, those of the group who
/// know that need not come any more.
void call_off(const Record &from, Record &guest, const Side &group, std::uint32_t name)
{
    if (from.revoked) {
        announce(guest, group, name, Topic::call_off);
    } else {
        guest.alarm = [&from, &guest, &group, name] { call_off(from, guest, group, name); };
    }
}

/// This process is a member and has given the attempt up: it says so, and waits for nobody.
/// \param says of an agreement's flags
void decline(const Invitation &invitation, std::uint64_t says)
{
    Record *guest = service().invite(invitation.members, invitation.name, nullptr);
    Brought brought;
    brought.flags = says;
    guest->agree(brought, [guest](const Value &) {
        service().later([guest] { service().dismiss(guest); });
    });
}

} // namespace

namespace {

std::optional<Invitation> invitation_of(std::span<const std::byte> body)
{
    std::uint32_t numbers[2];
    if (body.size() < sizeof numbers || (body.size() - sizeof numbers) % sizeof(ProcessId) != 0) {
        return std::nullopt;
    }
    std::memcpy(numbers, body.data(), sizeof numbers);
    body = body.subspan(sizeof numbers);
    Invitation invitation{numbers[0], numbers[1],
                          std::vector<ProcessId>(body.size() / sizeof(ProcessId))};
    std::memcpy(invitation.members.data(), body.data(), body.size());
    return invitation;
}

/// What has been called off is not to be called here any more: this process declines, if it has not
/// been in that call already. While it is in one of the same name it cannot be told which.
void look_at_called_off(Record &group)
{
    std::vector<Invitation> &all = group.pairings.called_off;
    for (auto at = all.begin(); at != all.end();) {
        if (service().has_guest(at->name, at->members)) {
            ++at;
            continue;
        }
        const Invitation invitation = std::move(*at);
        at = all.erase(at);
        Record *guest = service().invite(invitation.members, invitation.name, nullptr);
        const bool to_come = guest->next_number() == invitation.number;
        service().dismiss(guest);
        if (to_come) {
            decline(invitation, 0);
        }
    }
}

} // namespace

void decline_pairings(Record &group)
{
    Pairings &all = group.pairings;
    std::vector<Invitation> early;
    early.swap(all.early);
    for (Invitation &one : early) {
        if (one.number <= all.begun) { // as the one at work
            all.early.push_back(std::move(one));
        } else if (std::find(all.declined.begin(), all.declined.end(), one.number) ==
                   all.declined.end()) {
            all.declined.push_back(one.number); // several members invite
            decline(one, unrevoked);
        }
    }
}

void hear_of_pairing(Record &group, std::span<const std::byte> body)
{
    std::optional<Invitation> invitation = invitation_of(body);
    if (!invitation) {
        return;
    }
    Pairings &all = group.pairings;
    if (invitation->number > all.begun || invitation->number == all.at_work) {
        all.early.push_back(std::move(*invitation));
        if (group.revoked) {
            decline_pairings(group);
        }
    } else if (std::erase(all.given_up, invitation->number) != 0) {
        decline(*invitation, unrevoked);
    }
}

void hear_of_call_off(Record &group, std::span<const std::byte> body)
{
    std::optional<Invitation> invitation = invitation_of(body);
    if (!invitation || (group.communicator() == nullptr && !group.freed())) {
        return;
    }
    group.revoke(); // its own word of that may come later
    group.pairings.called_off.push_back(std::move(*invitation));
    look_at_called_off(group);
}

namespace {

/// The attempt is over for this process. \param knew the other group, so that it has answered
void end_pairing(Record &group, bool knew)
{
    const Lock lock;
    Pairings &all = group.pairings;
    const std::uint32_t number = std::exchange(all.at_work, 0);
    const auto its = std::find_if(all.early.begin(), all.early.end(),
                                  [&](const Invitation &one) { return one.number == number; });
    const bool declined = std::erase(all.declined, number) != 0; // before the call
    if (!knew && !declined && its != all.early.end()) {
        decline(*its, unrevoked);
    } else if (!knew && !declined) {
        all.given_up.push_back(number);
    }
    std::erase_if(all.early, [&](const Invitation &one) { return one.number == number; });
}

/// Both groups agree, as one. \param bridge where this process leads
int pair_up(Record &group, bool well, ompi_communicator_t *bridge, const Side &mine,
            const Side &theirs, int tag, ompi_communicator_t **fresh)
{
    // First the group whose first process has the lower name: the same on both sides.
    const bool before = mine.members.front() < theirs.members.front();
    const Side *const sides[] = {before ? &mine : &theirs, before ? &theirs : &mine};
    std::vector<ProcessId> both = sides[0]->members;
    both.insert(both.end(), sides[1]->members.begin(), sides[1]->members.end());
    const std::uint32_t name = name_of({sides[0]->key, sides[0]->number, sides[1]->key,
                                        sides[1]->number, static_cast<std::uint64_t>(tag)});
    Visit visit(both, name, group.communicator());
    Record &guest = visit.guest();
    std::vector<int> world_ranks;
    for (const ProcessId id : theirs.members) {
        world_ranks.push_back(static_cast<int>(static_cast<std::uint32_t>(id)));
    }
    Draft draft;
    draft.inter = true;
    draft.comm = prepare_pair(group.communicator(), world_ranks);
    {
        // Somebody may have been kept from hearing of the other group, by a failure or because
        // something was revoked. Then all are told; whoever has left the call by then declines.
        const Lock lock;
        draft.well = well && draft.comm != nullptr && !group.revoked;
        std::vector<ProcessId> recognised = mine.recognised;
        recognised.insert(recognised.end(), theirs.recognised.begin(), theirs.recognised.end());
        guest.presume(guest.members(recognised));
        guest.alarm = [&guest, &sides, name] {
            announce(guest, *sides[0], name);
            announce(guest, *sides[1], name);
        };
        if (!draft.well || (bridge != nullptr && is_revoked(bridge))) {
            guest.sound_alarm();
        }
    }
    const int code = finish(guest, draft, fresh);
    const Lock lock;
    guest.alarm = nullptr;
    return code;
}

} // namespace

} // namespace ft::validate

using namespace ft::validate;

extern "C" {

int PMPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *newcomm)
{
    if (!ours(comm) || newcomm == nullptr || group == nullptr || group == MPI_GROUP_NULL ||
        tag < 0 || OMPI_COMM_IS_INTER(comm) || group->grp_my_rank == MPI_UNDEFINED) {
        return FT_STOCK(MPI_Comm_create_group)(comm, group, tag, newcomm);
    }
    return guarded(comm, "MPI_Comm_create_group", [&](Record &record) -> int {
        *newcomm = MPI_COMM_NULL;
        // Several threads may be in it, with different tags.
        const std::uint32_t name = name_of({comm->c_contextid, static_cast<std::uint64_t>(tag)});
        Side side;
        side.key = record.key();
        side.members = ids_of(group);
        std::optional<Visit> visit;
        {
            const Lock lock;
            if (record.revoked) {
                return MPIX_ERR_REVOKED; // it declines
            }
            visit.emplace(side.members, name, comm);
            side.number = visit->guest().next_number();
            visit->guest().presume(visit->guest().members(record.recognised_processes()));
            call_off(record, visit->guest(), side, name);
        }
        Record &guest = visit->guest();
        Draft draft;
        draft.comm = prepare_group(comm, group);
        draft.well = draft.comm != nullptr;
        const int code = finish(guest, draft, newcomm);
        const Lock lock;
        guest.alarm = nullptr;
        if (guest.revoked) {
            record.revoke();
        }
        visit.reset();
        look_at_called_off(record);
        return code != MPI_SUCCESS && record.revoked ? MPIX_ERR_REVOKED : code;
    });
}

int PMPI_Intercomm_create(MPI_Comm local, int leader, MPI_Comm bridge, int remote_leader, int tag,
                          MPI_Comm *newcomm)
{
    const auto stock = [&] {
        return FT_STOCK(MPI_Intercomm_create)(local, leader, bridge, remote_leader, tag, newcomm);
    };
    if (!ours(local) || OMPI_COMM_IS_INTER(local) || newcomm == nullptr || leader < 0 ||
        leader >= ompi_comm_size(local)) {
        return stock();
    }
    const bool leads = local->c_my_rank == leader;
    if (leads && (ompi_comm_invalid(bridge) || OMPI_COMM_IS_INTER(bridge) || remote_leader < 0 ||
                  remote_leader >= ompi_comm_size(bridge))) {
        return stock(); // which says what is wrong
    }
    bool between_jobs = false;
    const int code = guarded(local, "MPI_Intercomm_create", [&](Record &group) -> int {
        *newcomm = MPI_COMM_NULL;
        Side mine;
        mine.key = group.key();
        mine.members = ids_of(local->c_local_group);
        {
            const Lock lock;
            mine.recognised = group.recognised_processes();
            mine.number = group.pairings.at_work = ++group.pairings.begun;
        }
        Side theirs;
        bool all_know = false;
        bool knew = leads && ask_leader(bridge, remote_leader, tag, mine, theirs);
        knew = tell_group(local, leader, knew, theirs, all_know);
        int end = MPI_ERR_RANK_FAIL_STOP;
        if (knew &&
            std::find_first_of(mine.members.begin(), mine.members.end(), theirs.members.begin(),
                               theirs.members.end()) != mine.members.end()) {
            end = MPI_ERR_INTERN; // a process in both groups
        } else if (knew) {
            const auto another = [](ProcessId id) {
                return static_cast<std::uint32_t>(id >> 32) != OMPI_PROC_MY_NAME->jobid;
            };
            between_jobs = std::any_of(mine.members.begin(), mine.members.end(), another) ||
                           std::any_of(theirs.members.begin(), theirs.members.end(), another);
            end = between_jobs ? (all_know ? MPI_SUCCESS : MPI_ERR_RANK_FAIL_STOP)
                               : pair_up(group, all_know, leads ? bridge : nullptr, mine, theirs,
                                         tag, newcomm);
        }
        between_jobs = between_jobs && end == MPI_SUCCESS;
        end_pairing(group, knew);
        return end != MPI_SUCCESS && group.revoked ? MPIX_ERR_REVOKED : end;
    });
    // Processes of different jobs have no way to each other yet on which they could agree.
    return between_jobs ? stock() : code;
}

FT_BOTH_NAMES(MPI_Comm_create_group);
FT_BOTH_NAMES(MPI_Intercomm_create);

} // extern "C"

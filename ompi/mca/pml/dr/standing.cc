#include "ompi/mca/pml/dr/standing.hpp"

#include "ompi/mca/pml/dr/peers.hpp"
#include "ompi/mca/pml/dr/recv.hpp"
#include "ompi/mca/pml/dr/send.hpp"
#include "ompi/mpi_ft/mpi_ft.h"
#include "opal/process/standing.hpp"

#include <algorithm>
#include <bit>

namespace ft::dr {

namespace {

/// A tag that a program can give, or the wildcard for these.
constexpr bool users_tag(int tag) noexcept
{
    return tag >= 0 || tag == OMPI_ANY_TAG;
}

/// Where a process stands in a group, -1 when it is not in it.
int rank_in(ompi_group_t *group, const process::Name &who) noexcept
{
    for (int rank = 0; rank < group->grp_proc_count; ++rank) {
        const opal_process_name_t name = ompi_group_get_proc_name(group, rank);
        if (name.jobid == who.jobid && name.vpid == who.vpid) {
            return rank;
        }
    }
    return -1;
}

/// The intercommunicator to which a communicator belongs as that of its own group, nullptr for
/// others. Looks where opal_pointer_array marks a place as taken: the library's context ids begin
/// high up (ompi/mpi_ft/contexts.cc), and every place below would be asked for.
ompi_communicator_t *owner_of(ompi_communicator_t *comm) noexcept
{
    opal_pointer_array_t &all = ompi_mpi_communicators;
    ompi_communicator_t *owner = nullptr;
    constexpr int bits = 64;
    OPAL_THREAD_LOCK(&all.lock);
    for (int first = 0; first < all.size && owner == nullptr; first += bits) {
        for (std::uint64_t taken = all.free_bits[first / bits]; taken != 0; taken &= taken - 1) {
            const int at = first + std::countr_zero(taken);
            auto *other =
                at < all.size ? static_cast<ompi_communicator_t *>(all.addr[at]) : nullptr;
            if (other != nullptr && OMPI_COMM_IS_INTER(other) && other->c_local_comm == comm) {
                owner = other;
                break;
            }
        }
    }
    OPAL_THREAD_UNLOCK(&all.lock);
    return owner;
}

/// What a failed process is to a communicator.
struct Place {
    int rank = -1; ///< by which a program can name it
    bool member = false;
    process::Standing standing = process::Standing::unknown;

    /// Collectives would wait for it.
    bool counts() const { return member && standing != process::Standing::recognised; }
};

Place place_of(ompi_communicator_t *comm, const process::Name &who) noexcept
{
    const int rank = rank_in(comm->c_remote_group, who);
    int index = rank;
    if (rank < 0 && OMPI_COMM_IS_INTER(comm)) {
        // Behind the ranks of the remote group (ompi/mpi_ft/record.hpp).
        const int own = rank_in(comm->c_local_group, who);
        index = own < 0 ? -1 : comm->c_remote_group->grp_proc_count + own;
    }
    if (index < 0) {
        return {};
    }
    return {rank, true, process::standing(comm->c_contextid, static_cast<std::uint32_t>(index))};
}

/// Whether a member that collectives wait for has given up on them, as it finds no way to another.
bool given_up(ompi_communicator_t *comm, const process::Unreachable &one) noexcept
{
    return place_of(comm, one.who).counts() && // many may speak of it
           std::any_of(one.said_by.begin(), one.said_by.end(), [&](const process::Name &by) {
               return !process::is_dead(by) && place_of(comm, by).counts();
           });
}

/// Makes it anew.
void look_at(CommState &comm, std::uint64_t news)
{
    Trouble &trouble = comm.trouble;
    trouble = {};
    trouble.news = news;
    const std::uint32_t context = comm.communicator()->c_contextid;
    trouble.revoked = process::is_revoked(context);
    // Collectives of an intercommunicator run partly on a communicator of the own group, and wait
    // there for those that have given up on the intercommunicator.
    ompi_communicator_t *const owner = owner_of(comm.communicator());
    trouble.revoked |= owner != nullptr && process::is_revoked(owner->c_contextid);
    const auto consider = [&](const process::Name &who) {
        const Place place = place_of(comm.communicator(), who);
        trouble.unrecognised |= place.counts();
        trouble.unacknowledged |= place.rank >= 0 && place.standing == process::Standing::unknown;
        trouble.unrecognised |= owner != nullptr && place_of(owner, who).counts();
    };
    for (std::size_t i = 0; i < process::death_count(); ++i) {
        consider(process::death(i).who);
    }
    const std::vector<process::Unreachable> unreachable = process::unreachable();
    for (const process::Unreachable &one : unreachable) {
        if (one.own) {
            consider(one.who);
        }
    }
    // Others may wait in a collective for a member that has given up; a receive has nothing to do
    // with that, and what was only heard cannot be acknowledged here.
    for (const process::Unreachable &one : unreachable) {
        if (trouble.unrecognised) {
            break;
        }
        trouble.unrecognised =
            given_up(comm.communicator(), one) || (owner != nullptr && given_up(owner, one));
    }
    for (const std::uint32_t rank : process::recognised(context)) {
        trouble.recognised.resize(rank + 1U);
        trouble.recognised[rank] = true;
    }
    const auto left_behind = [](std::uint32_t its) {
        return !process::recognised(its).empty() && !process::stands_in(its);
    };
    trouble.left_behind =
        left_behind(context) || (owner != nullptr && left_behind(owner->c_contextid));
}

const Trouble &trouble_of(CommState &comm) noexcept
try {
    if (const std::uint64_t news = process::news(); OPAL_UNLIKELY(comm.trouble.news != news)) {
        look_at(comm, news);
    }
    return comm.trouble;
} catch (...) {
    ompi_mpi_abort(comm.communicator(), MPI_ERR_NO_MEM);
    return comm.trouble;
}

/// A receive from any source may be waiting for the failed rank. It ends where the program can
/// acknowledge failures and go on, and where nobody would go on anyway: an error ends the job, and
/// without one it would stand. A program that looks at errors and knows nothing of the library may
/// have counted the rank out, and could never receive so again.
bool ends_wildcards(CommState &comm) noexcept
{
    // Open MPI's own layers (osc/pt2pt) do not look whether a receive that calls back has failed:
    // they would take what lies in its buffer for a message, again and again.
    if (__atomic_load_n(&comm.calls_back, __ATOMIC_RELAXED)) {
        return false;
    }
    return process::run_through() ||
           comm.communicator()->error_handler == &ompi_mpi_errors_are_fatal.eh;
}

/// What Open MPI does with a tag of its own beside collectives, and where ranks are recognised:
/// leaders between whom MPI_Intercomm_create is its own agree over the bridge. (One in a thousand
/// million non-blocking collectives has that tag, too.)
bool beside_collectives(const Trouble &trouble, int peer, int tag) noexcept
{
    return tag == OMPI_COMM_ALLREDUCE_TAG && !trouble.recognises(peer);
}

} // namespace

int refusal(CommState &comm, int peer, int tag) noexcept
{
    if (tag == process::agreement_tag) {
        return MPI_SUCCESS;
    }
    const Trouble &trouble = trouble_of(comm);
    if (trouble.revoked) {
        return MPIX_ERR_REVOKED;
    }
    if (!users_tag(tag) && trouble.unrecognised) {
        return MPI_ERR_RANK_FAIL_STOP;
    }
    // Collectives that reach this communicator all the same (persistent ones; one that was under
    // way when others were recognised) end for whoever they concern: a rank that does not name the
    // dead waits for one that does and has given up.
    if (!users_tag(tag) && trouble.left_behind && !beside_collectives(trouble, peer, tag)) {
        return MPI_ERR_RANK_FAIL_STOP;
    }
    if (peer == OMPI_ANY_SOURCE && !users_tag(tag)) {
        return MPI_SUCCESS;
    }
    if (peer == OMPI_ANY_SOURCE) {
        return trouble.unacknowledged && ends_wildcards(comm) ? MPI_ERR_RANK_FAIL_STOP
                                                              : MPI_SUCCESS;
    }
    return trouble.recognises(peer) ? as_proc_null : MPI_SUCCESS;
}

int refusal_of(ompi_communicator_t *comm, int peer, int tag) noexcept
{
    CommState *state = CommState::of(comm);
    if (state == nullptr) {
        return MPI_SUCCESS; // its receiver is going; what is left of it may still leave
    }
    Guard guard(state->lock);
    return refusal(*state, peer, tag);
}

int refusal_of(const SendRequest &request) noexcept
{
    return refusal_of(request.req_base.req_comm, request.req_base.req_peer,
                      request.req_base.req_tag);
}

bool ignored(CommState &comm, int source, int tag) noexcept
{
    return tag >= 0 && trouble_of(comm).ignores(source, tag);
}

void fill_as_proc_null(ompi_status_public_t *status) noexcept
{
    status->MPI_SOURCE = MPI_PROC_NULL;
    status->MPI_TAG = MPI_ANY_TAG;
    status->MPI_ERROR = MPI_SUCCESS;
    status->_ucount = 0;
    status->_cancelled = 0;
}

void end_refused() noexcept
try {
    Completions done;
    List<Unexpected, FromAllTag> dropped; // to forget one a peer's lock is taken
    comms().for_each([&](CommState &state) {
        Guard guard(state.lock);
        std::vector<RecvRequest *> refused;
        state.take_posted_if(
            [&](const RecvRequest &request) {
                return refusal(state, request.req_base.req_peer, request.req_base.req_tag) > 0;
            },
            refused);
        for (RecvRequest *request : refused) {
            fail(*request, refusal(state, request->req_base.req_peer, request->req_base.req_tag),
                 done);
        }
        state.for_each_unexpected([&](Unexpected *message) {
            const Arrival &arrival = message->arrival;
            if (arrival.local == nullptr) {
                if (ignored(state, arrival.source, arrival.tag)) {
                    state.take(message);
                    dropped.push_back(message);
                }
                return;
            }
            // A send to this process itself waits in its message, for a receive that would be
            // refused.
            if (const int error = refusal(state, arrival.source, arrival.tag); error > 0) {
                finish(*arrival.local, error, done);
                state.take(message);
                release(message);
            }
        });
    });
    while (Unexpected *message = dropped.pop_front()) {
        forget(message);
    }
    peers().for_each([&](PeerState &peer) {
        Guard guard(peer.lock);
        // Whoever was told to send (a cts) goes on: its bytes are acknowledged below the level of
        // requests, wanted or not.
        for (SendRequest *request = peer.pending.front(); request != nullptr;) {
            SendRequest *const after = peer.pending.next(request);
            if (const int error = refusal_of(*request); error > 0) {
                List<SendRequest, PendingTag>::remove(request);
                finish(*request, error, done);
            }
            request = after;
        }
        // What is in the engine goes on, too, but nobody waits for a connection that may never be.
        for (SendRequest *request = peer.leaving.front(); request != nullptr;) {
            SendRequest *const after = peer.leaving.next(request);
            if (refusal_of(*request) > 0) {
                List<SendRequest, PendingTag>::remove(request);
                finish(*request, MPI_SUCCESS, done);
            }
            request = after;
        }
        for (SendRequest *request : peer.sends.objects()) {
            if (const int error = refusal_of(*request); error > 0) {
                finish(*request, error, done);
            }
        }
        for (RecvRequest *request : peer.receives.objects()) {
            // It has its message: one from any source waits for nobody but the sender of that, who
            // lives, and whose send ends well.
            const ompi_status_public_t &status = request->ompi().req_status;
            Guard matching(request->comm->lock);
            const int error = refusal(*request->comm, status.MPI_SOURCE, status.MPI_TAG);
            if (error > 0) {
                peer.receives.remove(request->number);
                request->number = 0;
                fail(*request, error, done);
            }
        }
    });
} catch (...) {
    // Without memory for the list of what to fail there is nothing left to try.
    ompi_mpi_abort(&ompi_mpi_comm_world.comm, MPI_ERR_NO_MEM);
}

} // namespace ft::dr

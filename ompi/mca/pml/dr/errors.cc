#include "ompi/mca/pml/dr/errors.hpp"

#include "ompi/mca/pml/dr/parameters.hpp"
#include "ompi/mca/pml/dr/peers.hpp"
#include "ompi/mca/pml/dr/recv.hpp"
#include "ompi/mca/pml/dr/send.hpp"
#include "ompi/mpi_ft/mpi_ft.h"
#include "opal/mca/show_help.hpp"
#include "opal/process/standing.hpp"

namespace ft::dr {

bool detail::some_failed = false;

namespace {

opal_process_name_t name_of(ompi_communicator_t *comm, int rank) noexcept
{
    return ompi_group_get_proc_name(comm->c_remote_group, rank);
}

/// Whether a process is the one of this name.
bool same(const opal_process_name_t &a, const opal_process_name_t &b) noexcept
{
    return a.jobid == b.jobid && a.vpid == b.vpid;
}

/// What a receive from this rank meets. Nothing is made: most ranks are never talked to.
int error_of(ompi_communicator_t *comm, int rank) noexcept
{
    // One that was met is told of its death by take_deaths, or by whoever meets it after that, and
    // what waits for it is ended then; the book of the dead has a lock.
    const PeerState *peer = Peers::met(comm, rank);
    return peer == nullptr ? death_error(name_of(comm, rank))
                           : __atomic_load_n(&peer->error, __ATOMIC_ACQUIRE);
}

/// What a receive from any source of this communicator meets.
int wildcard_error(ompi_communicator_t *comm) noexcept
{
    int error = MPI_SUCCESS;
    const bool inter = OMPI_COMM_IS_INTER(comm);
    for (int rank = 0; rank < comm->c_remote_group->grp_proc_count; ++rank) {
        if (!inter && rank == comm->c_my_rank) {
            // Who waits for it does not send to itself. A program that would have, later or by
            // another thread, is told nevertheless: more wait for others, and would for ever.
            continue;
        }
        const int other = error_of(comm, rank);
        if (other == MPI_SUCCESS) {
            return MPI_SUCCESS;
        }
        error = other;
    }
    return error;
}

void tell(const PeerState &peer) noexcept
{
    const std::string self = OMPI_NAME_PRINT(OMPI_PROC_MY_NAME);
    if (const std::uint32_t lost = peer.engine.lost_for_good(); lost != 0) {
        const std::string count = std::to_string(lost);
        ft::mca::show_help("help-pml-dr.txt", "lost without acknowledgement", count.c_str(),
                           self.c_str(), opal_process_info.nodename, peer.printed_name());
        return;
    }
    const std::string limit = std::to_string(parameters().engine.give_up.ms());
    ft::mca::show_help("help-pml-dr.txt", "peer unreachable", limit.c_str(), self.c_str(),
                       opal_process_info.nodename, peer.printed_name());
}

/// Receives that only this process, or nobody any more, can serve.
void fail_receives(const opal_process_name_t &who, int error, Completions &done)
{
    std::vector<RecvRequest *> posted;
    comms().for_each([&](CommState &state) {
        Guard guard(state.lock);
        ompi_communicator_t *comm = state.communicator();
        bool member = false;
        for (int rank = 0; rank < state.size(); ++rank) {
            const opal_process_name_t name = name_of(comm, rank);
            if (name.jobid == who.jobid && name.vpid == who.vpid) {
                member = true;
                state.take_posted(rank, posted);
            }
        }
        if (member && wildcard_error(comm) != MPI_SUCCESS) {
            state.take_posted_any(posted);
        }
    });
    for (RecvRequest *request : posted) {
        fail(*request, error, done);
    }
}

} // namespace

int death_error(const opal_process_name_t &name) noexcept
{
    return process::is_dead({name.jobid, name.vpid}) ? MPI_ERR_RANK_FAIL_STOP : MPI_SUCCESS;
}

void take_deaths() noexcept
try {
    static std::size_t seen = 0;
    __atomic_store_n(&detail::some_failed, true, __ATOMIC_RELEASE);
    while (seen < process::death_count()) {
        const process::Name dead = process::death(seen++).who;
        opal_process_name_t name;
        name.jobid = dead.jobid;
        name.vpid = dead.vpid;
        PeerState *met = nullptr;
        peers().for_each([&](PeerState &peer) {
            if (same(name, peer.name())) {
                met = &peer;
            }
        });
        if (met != nullptr) {
            fail_peer(*met, MPI_ERR_RANK_FAIL_STOP);
        } else {
            Completions done;
            fail_receives(name, MPI_ERR_RANK_FAIL_STOP, done);
        }
    }
} catch (...) {
    ompi_mpi_abort(&ompi_mpi_comm_world.comm, MPI_ERR_NO_MEM);
}

int receive_error(ompi_communicator_t *comm, int source) noexcept
{
    return source == OMPI_ANY_SOURCE ? wildcard_error(comm) : error_of(comm, source);
}

void fail_peer(PeerState &peer, int error) noexcept
try {
    Completions done;
    {
        Guard guard(peer.lock);
        if (peer.error != MPI_SUCCESS) {
            return;
        }
        // First: a message that fails for it never does so before there is news.
        if (error == MPIX_ERR_UNREACHABLE) {
            const opal_process_name_t name = peer.name();
            process::declare_unreachable({name.jobid, name.vpid});
        }
        // From here on nothing new is begun with it; whoever posts a receive sees this flag.
        __atomic_store_n(&peer.error, error, __ATOMIC_RELEASE);
        __atomic_store_n(&detail::some_failed, true, __ATOMIC_RELEASE);
        peer.engine.declare_dead();
        peer.fail_sends(error, done);
        for (RecvRequest *request : peer.receives.take_all()) {
            request->number = 0;
            fail(*request, error, done);
        }
    }
    if (error == MPIX_ERR_UNREACHABLE) {
        tell(peer);
    }
    fail_receives(peer.name(), error, done);
} catch (...) {
    // Without memory for the list of what to fail there is nothing left to try.
    ompi_mpi_abort(&ompi_mpi_comm_world.comm, MPI_ERR_NO_MEM);
}

} // namespace ft::dr

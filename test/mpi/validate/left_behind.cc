// A communicator that has recognised failures runs its collectives elsewhere. What reaches it all
// the same, persistent ones, ends with the error at every rank instead of leaving the dead out; and
// what Open MPI does there beside collectives goes on.
//
// usage: left_behind intra     with four ranks, of which one dies
//        left_behind inter     with five, in two groups
//        left_behind bridge    with three, which spawn another one
//        left_behind freed     with one, which spawns another one
//        left_behind replaced  with one, which spawns three again and again, of which one dies
#include "ompi/mca/ompi_prelude.hpp"

#include "check.hpp"

extern "C" {
#include "openmpi/mpiext/mpiext_pcollreq_c.h"
}

using namespace check;

namespace {

constexpr int untouched = -1;

/// Persistent collectives on one communicator, and what they receive.
struct Calls {
    int mine = 1 << me;
    int sum = untouched;
    int word = me == 0 ? 77 : untouched;
    int near[4] = {untouched, untouched, untouched, untouched};
    std::vector<MPI_Request> requests;

    MPI_Request *next()
    {
        requests.push_back(MPI_REQUEST_NULL);
        return &requests.back();
    }
};

void make_allreduce(Calls &calls, MPI_Comm comm)
{
    is(MPIX_Allreduce_init(&calls.mine, &calls.sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL,
                           calls.next()),
       MPI_SUCCESS, "MPIX_Allreduce_init");
}

void make_all(Calls &calls, MPI_Comm comm)
{
    make_allreduce(calls, comm);
    is(MPIX_Bcast_init(&calls.word, 1, MPI_INT, 0, comm, MPI_INFO_NULL, calls.next()), MPI_SUCCESS,
       "MPIX_Bcast_init");
    is(MPIX_Barrier_init(comm, MPI_INFO_NULL, calls.next()), MPI_SUCCESS, "MPIX_Barrier_init");
    is(MPIX_Neighbor_allgather_init(&calls.mine, 1, MPI_INT, calls.near, 1, MPI_INT, comm,
                                    MPI_INFO_NULL, calls.next()),
       MPI_SUCCESS, "MPIX_Neighbor_allgather_init");
}

/// Each of them once.
void run(Calls &calls, int wanted, const char *when)
{
    for (std::size_t i = 0; i < calls.requests.size(); ++i) {
        const std::string what = std::string(when) + ", call " + std::to_string(i);
        int code = MPI_Start(&calls.requests[i]);
        if (code == MPI_SUCCESS) { // else it is not to be waited for
            code = MPI_Wait(&calls.requests[i], MPI_STATUS_IGNORE);
        }
        is(code, wanted, what.c_str());
    }
}

/// In a torus of two by two, where each has the other ones of its row and its column on both sides.
MPI_Comm torus()
{
    const int dims[] = {2, 2};
    const int periods[] = {1, 1};
    MPI_Comm fresh = MPI_COMM_NULL;
    is(MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &fresh), MPI_SUCCESS, "cart");
    MPI_Comm_set_errhandler(fresh, MPI_ERRORS_RETURN);
    return fresh;
}

/// \param all of which the victim is a rank
void recognise(MPI_Comm comm, int victim, MPI_Comm all)
{
    int count = 0;
    hear_of(all, {victim});
    is(MPI_Comm_validate_all(comm, &count), MPI_SUCCESS, "MPI_Comm_validate_all");
}

void intra()
{
    constexpr int victim = 2;
    const MPI_Comm comm = torus();
    Calls old;
    make_all(old, comm);
    run(old, MPI_SUCCESS, "before");
    that(old.sum == 15 && old.word == 77, "before: sum %d, word %d", old.sum, old.word);
    all_through({victim});
    if (me == victim) {
        die();
    }
    recognise(comm, victim, comm);
    old.sum = untouched;
    run(old, MPI_ERR_RANK_FAIL_STOP, "made before");
    that(old.sum == untouched, "made before: sum %d", old.sum);
    Calls late;
    make_all(late, comm);
    run(late, MPI_ERR_RANK_FAIL_STOP, "made after");
    that(late.sum == untouched, "made after: sum %d", late.sum);
    // Those of MPI 3.1 go on.
    const int mine = 1 << me;
    int sum = 0;
    is(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm), MPI_SUCCESS, "allreduce");
    that(sum == 11, "allreduce: %d", sum);
    int near[4] = {untouched, untouched, untouched, untouched};
    is(MPI_Neighbor_allgather(&mine, 1, MPI_INT, near, 1, MPI_INT, comm), MPI_SUCCESS,
       "neighbours");
    for (int i = 0; i < 4; ++i) {
        const int rank = i < 2 ? me ^ 2 : me ^ 1; // rows first
        that(near[i] == (rank == victim ? untouched : 1 << rank), "neighbours: %d", near[i]);
    }
}

/// Open MPI's collectives of an intercommunicator run partly on the own group's communicator, which
/// has recognised nobody: in one that is under way there when others are recognised, ranks wait for
/// their leader, who has given up.
void leader_is_not_waited_for(MPI_Comm pair)
{
    constexpr int tag_of_a_collective = -17;
    int word = 0;
    ompi_request_t *request = nullptr;
    is(MCA_PML_CALL(irecv(&word, 1, MPI_INT, 0, tag_of_a_collective, pair->c_local_comm, &request)),
       MPI_SUCCESS, "irecv from the leader");
    is(ompi_request_wait(&request, MPI_STATUS_IGNORE), MPI_ERR_RANK_FAIL_STOP, "from the leader");
}

void inter()
{
    constexpr int victim = 1;
    const int side = me < 3 ? 0 : 1;
    MPI_Comm own = MPI_COMM_NULL;
    MPI_Comm pair = MPI_COMM_NULL;
    is(MPI_Comm_split(MPI_COMM_WORLD, side, 0, &own), MPI_SUCCESS, "split");
    is(MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, side == 0 ? 3 : 0, 8, &pair), MPI_SUCCESS,
       "MPI_Intercomm_create");
    MPI_Comm_set_errhandler(pair, MPI_ERRORS_RETURN);
    Calls old;
    make_allreduce(old, pair);
    run(old, MPI_SUCCESS, "before");
    that(old.sum == (side == 0 ? 24 : 7), "before: sum %d", old.sum);
    all_through({victim});
    if (me == victim) {
        die();
    }
    recognise(pair, victim, MPI_COMM_WORLD);
    run(old, MPI_ERR_RANK_FAIL_STOP, "made before");
    leader_is_not_waited_for(pair);
}

bool was_spawned()
{
    MPI_Comm parent = MPI_COMM_NULL;
    MPI_Comm_get_parent(&parent);
    return parent != MPI_COMM_NULL;
}

/// Those who spawned this process, or as many new ones of this program.
MPI_Comm other_job(char **argv, int children, MPI_Comm over)
{
    MPI_Comm pair = MPI_COMM_NULL;
    MPI_Comm_get_parent(&pair);
    if (pair == MPI_COMM_NULL) {
        is(MPI_Comm_spawn(argv[0], argv + 1, children, MPI_INFO_NULL, 0, over, &pair,
                          MPI_ERRCODES_IGNORE),
           MPI_SUCCESS, "MPI_Comm_spawn");
    }
    MPI_Comm_set_errhandler(pair, MPI_ERRORS_RETURN);
    return pair;
}

MPI_Comm merged(MPI_Comm pair)
{
    MPI_Comm all = MPI_COMM_NULL;
    is(MPI_Intercomm_merge(pair, was_spawned() ? 1 : 0, &all), MPI_SUCCESS, "MPI_Intercomm_merge");
    MPI_Comm_set_errhandler(all, MPI_ERRORS_RETURN);
    return all;
}

/// Open MPI's own MPI_Intercomm_create, of processes of two jobs, over a communicator that has
/// recognised a third one.
void bridge(char **argv)
{
    constexpr int victim = 2;
    const bool spawned = was_spawned();
    const MPI_Comm pair = other_job(argv, 1, MPI_COMM_WORLD);
    const MPI_Comm all = merged(pair);
    MPI_Comm_rank(all, &me);
    MPI_Comm_size(all, &size);
    all_through({victim}, all);
    if (me == victim) {
        die();
    }
    recognise(pair, victim, all);
    recognise(all, victim, all);
    MPI_Comm own = MPI_COMM_SELF;
    if (!spawned) {
        is(MPIX_Comm_shrink(MPI_COMM_WORLD, &own), MPI_SUCCESS, "shrink");
    }
    MPI_Comm joined = MPI_COMM_NULL;
    const int code = MPI_Intercomm_create(own, 0, all, spawned ? 0 : 3, 8, &joined);
    if (is(code, MPI_SUCCESS, "MPI_Intercomm_create")) {
        const int mine = 1 << me;
        int sum = 0;
        is(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, joined), MPI_SUCCESS, "allreduce");
        that(sum == (spawned ? 3 : 8), "allreduce: %d", sum);
    }
}

/// What a job that replaces the dead has behind it when it comes to MPI_Finalize.
void replaced(char **argv)
{
    constexpr int victim = 2;
    const bool spawned = was_spawned();
    for (int round = 0; round < (spawned ? 1 : 3); ++round) {
        MPI_Comm pair = other_job(argv, 3, MPI_COMM_SELF);
        MPI_Comm all = merged(pair);
        const int mine = 1;
        int sum = 0;
        for (int calls = 0; MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, all) == MPI_SUCCESS;) {
            if (spawned && me + 1 == victim && ++calls == 100) {
                die();
            }
        }
        recognise(all, victim, all);
        is(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, all), MPI_SUCCESS, "allreduce");
        that(sum == 3, "allreduce: %d", sum);
        MPI_Comm_free(&all);
        is(MPI_Comm_disconnect(&pair), MPI_SUCCESS, "MPI_Comm_disconnect");
    }
}

/// Receives that were let go end well on a communicator that is freed before their messages come:
/// here one over a communicator that the library has made.
void freed(char **argv)
{
    constexpr int words = 4;
    static int got[words] = {};
    const bool spawned = was_spawned();
    MPI_Comm pair = other_job(argv, 1, twin());
    MPI_Comm other = MPI_COMM_NULL;
    is(MPI_Comm_dup(pair, &other), MPI_SUCCESS, "MPI_Comm_dup");
    for (int i = 0; i < words && !spawned; ++i) {
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Irecv(&got[i], 1, MPI_INT, 0, 5, pair, &request);
        MPI_Request_free(&request);
    }
    if (!spawned) {
        is(MPI_Comm_free(&pair), MPI_SUCCESS, "MPI_Comm_free");
    }
    is(MPI_Barrier(other), MPI_SUCCESS, "barrier");
    for (int i = 1; i <= words && spawned; ++i) {
        MPI_Send(&i, 1, MPI_INT, 0, 5, pair);
    }
    is(MPI_Barrier(other), MPI_SUCCESS, "barrier after the messages");
    for (int i = 0; i < words && !spawned; ++i) {
        that(got[i] == i + 1, "word %d is %d", i, got[i]);
    }
    is(MPI_Comm_disconnect(&other), MPI_SUCCESS, "MPI_Comm_disconnect");
}

} // namespace

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const std::string which = argc > 1 ? argv[1] : "";
    if (which == "intra" || which == "inter") {
        which == "inter" ? inter() : intra();
    } else if (which == "freed") {
        freed(argv);
    } else {
        which == "bridge" ? bridge(argv) : replaced(argv);
    }
    return finish();
}

// Until somebody of a communicator has failed, its collectives are those that Open MPI has chosen:
// coll/validate has nothing in its table of functions. One that is under way at the failure has
// been called by that table, and ends with the right class, by the error handler of its
// communicator.
//
// usage: table HOW      rank 1 of at least four dies, in begun rank 2 of four, in half_enabled
// nobody
//   met           as above
//   waited        what the status of such a collective says, and its communicator's error handler
//   begun         the same when a round begins behind the failure, and ends at once
//   begun_again   and once more, among the others, when rank 3 has died, too
//   half_enabled  coll/validate finds in the middle of its beginning that it cannot go on
//   half_way      one of two ranks waits for a collective that has an error already, and for more;
//                 nobody dies
//   overwritten   coll/han writes into the table what it stands upon (on several hosts, not all of
//                 them with as many ranks, coll_han_priority 90)
#include "ompi/mca/ompi_prelude.hpp"

#include "ompi/request/request_default.h"

#include "check.hpp"
#include "opal/process/deaths.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>

#include <dlfcn.h>
#include <unistd.h>

using namespace check;

namespace {

constexpr int victim = 1;

struct Handled {
    int times = 0;
    int last = MPI_SUCCESS;
};
Handled by_world;
Handled by_comm;

void handle(MPI_Comm *comm, int *code, ...)
{
    Handled &handled = *comm == MPI_COMM_WORLD ? by_world : by_comm;
    ++handled.times;
    handled.last = class_of(*code);
}

/// Whether the function is of this component.
template <class Function>
bool is_of(const char *component, Function *function)
{
    Dl_info info{};
    that(dladdr(reinterpret_cast<void *>(function), &info) != 0, "a function of no library");
    return info.dli_fname != nullptr &&
           std::string(info.dli_fname).find(component) != std::string::npos;
}

template <class Function>
bool replaced(Function *function)
{
    return is_of("coll_validate", function);
}

/// How many of the collectives in its table are of coll/validate; but for the one that is so from
/// the beginning.
int replaced_in(MPI_Comm comm)
{
    const mca_coll_base_comm_coll_t &table = *comm->c_coll;
    return replaced(table.coll_allgather) + replaced(table.coll_allreduce) +
           replaced(table.coll_alltoall) + replaced(table.coll_alltoallv) +
           replaced(table.coll_alltoallw) + replaced(table.coll_barrier) +
           replaced(table.coll_bcast) + replaced(table.coll_exscan) + replaced(table.coll_gather) +
           replaced(table.coll_gatherv) + replaced(table.coll_reduce) +
           replaced(table.coll_reduce_scatter) + replaced(table.coll_reduce_scatter_block) +
           replaced(table.coll_scan) + replaced(table.coll_scatter) +
           replaced(table.coll_scatterv) + replaced(table.coll_iallgather) +
           replaced(table.coll_iallreduce) + replaced(table.coll_ialltoall) +
           replaced(table.coll_ibarrier) + replaced(table.coll_ibcast) +
           replaced(table.coll_igather) + replaced(table.coll_iscan) +
           replaced(table.coll_neighbor_alltoall) + replaced(table.coll_ineighbor_alltoall);
}
constexpr int all = 25;

void met()
{
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_create_errhandler(handle, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Comm whole = MPI_COMM_NULL;
    MPI_Comm others = MPI_COMM_NULL; // without the victim
    is(MPI_Comm_dup(MPI_COMM_WORLD, &whole), MPI_SUCCESS, "dup");
    is(MPI_Comm_split(MPI_COMM_WORLD, me == victim ? MPI_UNDEFINED : 0, me, &others), MPI_SUCCESS,
       "split");
    MPI_Comm_set_errhandler(whole, handler);
    const MPI_Comm before[] = {MPI_COMM_WORLD, MPI_COMM_SELF, whole, others};
    for (const MPI_Comm comm : before) {
        that(comm == MPI_COMM_NULL || replaced_in(comm) == 0, "replaced without a failure");
    }

    MPI_Request request = MPI_REQUEST_NULL;
    if (me != victim) {
        is(MPI_Ibarrier(whole, &request), MPI_SUCCESS, "ibarrier");
    }
    all_through({victim});
    if (me == victim) {
        die();
    }
    // Who comes out of it with an error first sets nobody else free: all hear of the death.
    is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_RANK_FAIL_STOP, "an ibarrier under way");
    that(by_comm.times == 1 && by_comm.last == MPI_ERR_RANK_FAIL_STOP,
         "its communicator's error handler was called %d times, last with %d", by_comm.times,
         by_comm.last);
    that(by_world.times == 0, "MPI_COMM_WORLD's error handler was called");

    MPI_Comm_set_errhandler(whole, MPI_ERRORS_RETURN);
    hear_of(whole, {victim});
    that(replaced_in(whole) == all, "%d of %d are replaced", replaced_in(whole), all);
    that(replaced_in(MPI_COMM_WORLD) == all, "in MPI_COMM_WORLD they are not");
    that(replaced_in(others) == 0 && replaced_in(MPI_COMM_SELF) == 0,
         "replaced where nobody has failed");
    is(MPI_Barrier(others), MPI_SUCCESS, "a barrier of the others");
    int count = 0;
    is(MPI_Comm_validate_all(whole, &count), MPI_SUCCESS, "validate_all");
    that(count == 1, "%d failures", count);
    that(replaced_in(others) == 0, "replaced where nobody has failed");
    // Behind it nobody looks at that any more.
    is(MPI_Barrier(whole), MPI_SUCCESS, "a barrier among the survivors");

    MPI_Comm_set_errhandler(others, MPI_ERRORS_RETURN);
    is(MPIX_Comm_revoke(others), MPI_SUCCESS, "revoke");
    is(MPI_Barrier(others), MPIX_ERR_REVOKED, "a barrier on what is revoked");
    that(replaced_in(others) == all, "of what is revoked %d are replaced", replaced_in(others));
    MPI_Errhandler_free(&handler);
}

/// Collectives of one communicator, whose error handler is `handle`, that a failure has ended: by
/// each call that a program may wait with.
void end_of_a_failure(MPI_Request (&requests)[5])
{
    MPI_Status status{};
    int count = 0;
    int index = 0;
    const auto ends = [&](const char *how, const std::function<int()> &call) {
        status.MPI_ERROR = MPI_SUCCESS;
        by_comm.last = MPI_SUCCESS;
        is(call(), MPI_ERR_IN_STATUS, how);
        that(status.MPI_ERROR == by_comm.last && by_comm.last == MPI_ERR_RANK_FAIL_STOP,
             "%s: the status has class %d, the error handler %d", how, status.MPI_ERROR,
             by_comm.last);
    };
    ends("waitall", [&] { return MPI_Waitall(1, &requests[0], &status); });
    ends("testall", [&] { return MPI_Testall(1, &requests[1], &count, &status); });
    ends("waitsome", [&] { return MPI_Waitsome(1, &requests[2], &count, &index, &status); });
    ends("testsome", [&] { return MPI_Testsome(1, &requests[3], &count, &index, &status); });
    is(MPI_Wait(&requests[4], MPI_STATUS_IGNORE), MPI_ERR_RANK_FAIL_STOP, "wait");
    that(by_comm.times == 5, "its communicator's error handler was called %d times", by_comm.times);
}

/// Everybody's collective has ended before anybody revokes the communicator.
void waited()
{
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_create_errhandler(handle, &handler);
    MPI_Comm whole = MPI_COMM_NULL;
    MPI_Comm others = MPI_COMM_NULL; // without the victim
    is(MPI_Comm_dup(MPI_COMM_WORLD, &whole), MPI_SUCCESS, "dup");
    is(MPI_Comm_split(MPI_COMM_WORLD, me == victim ? MPI_UNDEFINED : 0, me, &others), MPI_SUCCESS,
       "split");
    MPI_Comm_set_errhandler(whole, handler);
    MPI_Request requests[5];
    for (MPI_Request &request : requests) {
        if (me != victim) {
            is(MPI_Ibarrier(whole, &request), MPI_SUCCESS, "ibarrier");
        }
    }
    all_through({victim});
    if (me == victim) {
        die();
    }
    for (const MPI_Request &request : requests) {
        for (int ended = 0; ended == 0;) {
            MPI_Request_get_status(request, &ended, MPI_STATUS_IGNORE);
        }
    }
    is(MPI_Barrier(others), MPI_SUCCESS, "a barrier of the others");
    is(MPIX_Comm_revoke(whole), MPI_SUCCESS, "revoke");

    end_of_a_failure(requests);
    is(MPI_Barrier(whole), MPIX_ERR_REVOKED, "a barrier on what is revoked");
    MPI_Errhandler_free(&handler);
}

/// Reductions to rank 0 of one communicator.
struct Reductions {
    explicit Reductions(MPI_Comm comm)
    {
        for (std::size_t i = 0; i < std::size(requests); ++i) {
            is(MPI_Ireduce(&one, &sums[i], 1, MPI_INT, MPI_SUM, 0, comm, &requests[i]), MPI_SUCCESS,
               "ireduce");
        }
    }
    const int one = 1;
    int sums[5] = {};
    MPI_Request requests[5];
};

void send_only(MPI_Comm comm)
{
    Reductions reductions(comm);
    int token = 0;
    is(MPI_Waitall(std::size(reductions.requests), reductions.requests, MPI_STATUSES_IGNORE),
       MPI_SUCCESS, "what is only sent");
    is(MPI_Send(&token, 1, MPI_INT, 0, 9, MPI_COMM_WORLD), MPI_SUCCESS, "token");
}

/// What these ranks send has come, and when it is looked at this process, which is the next to
/// send, is known to be dead: what is received from it has ended as soon as it has begun.
void lose_the_next(MPI_Comm comm, const std::set<int> &senders, pid_t process)
{
    int token = 0;
    for (const int rank : senders) {
        is(MPI_Recv(&token, 1, MPI_INT, rank, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS,
           "token");
    }
    Reductions reductions(comm);
    const std::size_t dead = ft::process::death_count();
    that(kill(process, SIGKILL) == 0, "kill: %s", std::strerror(errno));
    for (std::uint64_t seen = ft::process::news(); ft::process::death_count() == dead;
         seen = ft::process::news()) {
        ft::process::wait_for_news(seen);
    }
    by_comm = {};
    end_of_a_failure(reductions.requests);
}

[[noreturn]] void wait_for_the_end()
{
    int token = 0;
    MPI_Recv(&token, 1, MPI_INT, 0, 9, MPI_COMM_SELF, MPI_STATUS_IGNORE); // never comes
    std::abort();
}

/// A reduction of four: the root receives from rank 1, then from rank 2, which dies. With `again`
/// one of the others follows, whose requests have been those of the first: rank 3 dies.
void begun(bool again)
{
    constexpr int dead = 2;
    constexpr int next = 3;
    that(size == 4, "%d ranks", size);
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_create_errhandler(handle, &handler);
    MPI_Comm whole = MPI_COMM_NULL;
    MPI_Comm others = MPI_COMM_NULL; // without the first to die
    is(MPI_Comm_dup(MPI_COMM_WORLD, &whole), MPI_SUCCESS, "dup");
    is(MPI_Comm_split(MPI_COMM_WORLD, me == dead ? MPI_UNDEFINED : 0, me, &others), MPI_SUCCESS,
       "split");
    MPI_Comm_set_errhandler(whole, handler);
    const pid_t mine = getpid();
    pid_t processes[4] = {};
    is(MPI_Allgather(&mine, 1, MPI_INT, processes, 1, MPI_INT, MPI_COMM_WORLD), MPI_SUCCESS,
       "allgather");
    if (me == dead) {
        wait_for_the_end();
    } else if (me == 0) {
        lose_the_next(whole, {1, 3}, processes[dead]);
    } else {
        send_only(whole);
    }
    if (again) {
        MPI_Comm_set_errhandler(others, handler);
        if (me == next) {
            wait_for_the_end();
        } else if (me == 0) {
            lose_the_next(others, {1}, processes[next]);
        } else {
            send_only(others);
        }
    }
    MPI_Errhandler_free(&handler);
}

bool half_enabled = false;

/// What has been taken back leaves the tables as they were.
void left_alone()
{
    MPI_Comm twin = MPI_COMM_NULL;
    is(MPI_Comm_dup(MPI_COMM_WORLD, &twin), MPI_SUCCESS, "dup");
    for (const MPI_Comm comm : {MPI_COMM_WORLD, twin}) {
        that(replaced_in(comm) == 0 && !replaced(comm->c_coll->coll_allgatherv) &&
                 !replaced(comm->c_coll->coll_barrier_init),
             "a function is left in the table");
        that(is_of("coll_sync", comm->c_coll->coll_bcast), "coll/sync has no part in it");
        is(MPI_Barrier(comm), MPI_SUCCESS, "a barrier");
        int value = me;
        is(MPI_Bcast(&value, 1, MPI_INT, 0, comm), MPI_SUCCESS, "a broadcast");
        that(value == 0, "a broadcast gave %d", value);
    }
    that(ompi_request_functions.req_wait == ompi_request_default_wait,
         "requests are waited for by another function");
    MPI_Comm_free(&twin);
}

/// Collectives that coll/han has a function for, on ranks that are not among `dead`.
void right_without(MPI_Comm comm, const std::set<int> &dead)
{
    const int left = size - static_cast<int>(dead.size());
    const int root = size - 1;
    int sum = 0;
    const int one = 1;
    is(MPI_Barrier(comm), MPI_SUCCESS, "barrier");
    is(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm), MPI_SUCCESS, "allreduce");
    that(sum == left, "allreduce gave %d", sum);
    sum = 0;
    is(MPI_Reduce(&one, &sum, 1, MPI_INT, MPI_SUM, root, comm), MPI_SUCCESS, "reduce");
    that(sum == (me == root ? left : 0), "reduce gave %d", sum);
    int word = me;
    is(MPI_Bcast(&word, 1, MPI_INT, root, comm), MPI_SUCCESS, "bcast");
    that(word == root, "bcast gave %d", word);
    std::vector<int> every(static_cast<std::size_t>(size), -1);
    is(MPI_Allgather(&me, 1, MPI_INT, every.data(), 1, MPI_INT, comm), MPI_SUCCESS, "allgather");
    std::vector<int> gathered(static_cast<std::size_t>(size), -1);
    is(MPI_Gather(&me, 1, MPI_INT, gathered.data(), 1, MPI_INT, root, comm), MPI_SUCCESS, "gather");
    for (int rank = 0; rank < size; ++rank) {
        const int wanted = dead.count(rank) != 0 ? -1 : rank;
        const auto at = static_cast<std::size_t>(rank);
        that(every[at] == wanted, "allgather gave %d for %d", every[at], rank);
        that(me != root || gathered[at] == wanted, "gather gave %d for %d", gathered[at], rank);
        every[at] = 10 * rank;
    }
    is(MPI_Scatter(every.data(), 1, MPI_INT, &word, 1, MPI_INT, root, comm), MPI_SUCCESS,
       "scatter");
    that(word == 10 * me, "scatter gave %d", word);
}

void overwritten()
{
    MPI_Comm whole = MPI_COMM_NULL;
    is(MPI_Comm_dup(MPI_COMM_WORLD, &whole), MPI_SUCCESS, "dup");
    MPI_Comm_set_errhandler(whole, MPI_ERRORS_RETURN);
    const mca_coll_base_comm_coll_t &table = *whole->c_coll;
    that(is_of("coll_han", table.coll_reduce_module->coll_module_enable),
         "coll/han has no part in it");
    that(replaced_in(whole) == all, "at first %d of %d are replaced", replaced_in(whole), all);
    for (int times = 0; times < 2; ++times) {
        right_without(whole, {});
        that(!is_of("coll_han", table.coll_reduce_module->coll_module_enable),
             "coll/han has not written into the table");
        that(replaced_in(whole) == all, "then %d of %d are replaced", replaced_in(whole), all);
    }
    all_through({victim}, whole);
    if (me == victim) {
        die();
    }
    hear_of(whole, {victim});
    is(MPI_Barrier(whole), MPI_ERR_RANK_FAIL_STOP, "a barrier with the dead");
    int count = 0;
    is(MPI_Comm_validate_all(whole, &count), MPI_SUCCESS, "validate_all");
    that(count == 1, "%d failures", count);
    for (int times = 0; times < 2; ++times) {
        right_without(whole, {victim});
    }
    that(replaced_in(whole) == all, "after it %d of %d are replaced", replaced_in(whole), all);
    // MPI_Finalize would first free what coll/han has made for it, and then coll/han once more.
    is(MPI_Comm_free(&whole), MPI_SUCCESS, "free");
}

/// What libnbc notes of a round goes to no error handler before the round is over.
void half_way()
{
    constexpr int tag = 5;
    const MPI_Comm comm = twin();
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_create_errhandler(handle, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    if (me == 0) {
        MPI_Ibarrier(comm, &requests[0]);
        requests[0]->req_status.MPI_ERROR = MPI_ERR_RANK_FAIL_STOP;
        int sent[2] = {1, 2};
        int received = 0;
        MPI_Request sending = MPI_REQUEST_NULL;
        for (const bool tests : {true, false}) {
            by_comm = {};
            MPI_Irecv(&received, 1, MPI_INT, 0, tag, comm, &requests[1]);
            MPI_Isend(sent, 2, MPI_INT, 0, tag, comm, &sending);
            is(MPI_Wait(&sending, MPI_STATUS_IGNORE), MPI_SUCCESS, "wait for the send");
            for (int flag = 0; flag == 0;) {
                MPI_Request_get_status(requests[1], &flag, MPI_STATUS_IGNORE);
            }
            MPI_Status statuses[2];
            int flag = 1;
            int index = 1;
            const int code = tests ? MPI_Testall(2, requests, &flag, statuses)
                                   : MPI_Waitany(2, requests, &index, statuses);
            that(code != MPI_SUCCESS && flag == 1 && index == 1, "code %d, flag %d, index %d", code,
                 flag, index);
            that(requests[0] != MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL,
                 "the wrong one is freed");
            that(by_world.times == 0 && by_comm.times == 1, "handlers called: %d, %d",
                 by_world.times, by_comm.times);
        }
        is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
        is(MPI_Wait(&requests[0], MPI_STATUS_IGNORE), MPI_ERR_RANK_FAIL_STOP, "wait");
        that(by_world.times == 0 && by_comm.times == 2, "handlers called in the end: %d, %d",
             by_world.times, by_comm.times);
    } else {
        is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
        is(MPI_Ibarrier(comm, &requests[0]), MPI_SUCCESS, "ibarrier");
        is(MPI_Wait(&requests[0], MPI_STATUS_IGNORE), MPI_SUCCESS, "wait");
    }
}

} // namespace

/// In front of Open MPI's own: what half_enabled fails with.
extern "C" int opal_infosubscribe_subscribe(opal_infosubscriber_t *object, char *key, char *value,
                                            char *(*callback)(opal_infosubscriber_t *, char *,
                                                              char *))
{
    if (half_enabled && std::string(key) == "mpi_ft_semantics") {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    static const auto stock = reinterpret_cast<decltype(&opal_infosubscribe_subscribe)>(
        dlsym(RTLD_NEXT, "opal_infosubscribe_subscribe"));
    return stock(object, key, value, callback);
}

int main(int argc, char **argv)
{
    const std::string how = argc > 1 ? argv[1] : "met";
    half_enabled = how == "half_enabled";
    start(&argc, &argv);
    if (half_enabled) {
        left_alone();
    } else if (how == "waited") {
        waited();
    } else if (how == "begun" || how == "begun_again") {
        begun(how == "begun_again");
    } else if (how == "half_way") {
        half_way();
    } else if (how == "overwritten") {
        overwritten();
    } else {
        met();
    }
    return finish();
}

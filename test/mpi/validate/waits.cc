// Waiting for several requests of which some fail.
//
// usage: waits LEVEL [truncated]   of at least three ranks rank 1 dies, and rank 0 waits for it in
//                                  every way that there is; `truncated`: nobody dies. LEVEL is that
//                                  of MPI_Init_thread
#include "check.hpp"

#include <atomic>
#include <thread>

using namespace check;

namespace {

constexpr int victim = 1;
constexpr int other = 2; ///< lives, and answers
constexpr int go = 1;
constexpr int data = 2;
constexpr int open_data = 3; ///< is not sent before that is asked for

int buffers[8][4];

MPI_Request receive(int from, int tag, int place, int count = 1)
{
    MPI_Request request = MPI_REQUEST_NULL;
    is(MPI_Irecv(buffers[place], count, MPI_INT, from, tag, MPI_COMM_WORLD, &request), MPI_SUCCESS,
       "irecv");
    return request;
}

void tell(int rank, int what)
{
    is(MPI_Send(&what, 1, MPI_INT, rank, go, MPI_COMM_WORLD), MPI_SUCCESS, "send");
}

/// What rank 2 does for rank 0: sends as many elements as it says, with the tag that it says.
void serve()
{
    int what = 0;
    int elements[4] = {1, 2, 3, 4};
    while (true) {
        is(MPI_Recv(&what, 1, MPI_INT, 0, go, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS,
           "receive");
        if (what == 0) {
            return;
        }
        MPI_Send(elements, what / 10, MPI_INT, 0, what % 10, MPI_COMM_WORLD);
    }
}

void until_over(MPI_Request request)
{
    int flag = 0;
    while (flag == 0) {
        MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
    }
}

/// A receive that is still open is left alone.
void end_open(MPI_Request &request)
{
    tell(other, 10 + open_data);
    is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, "wait for what was open");
    that(request == MPI_REQUEST_NULL, "what was open is not freed");
}

/// It has failed before anybody waits for it.
void truncated()
{
    for (const bool with_statuses : {true, false}) {
        MPI_Request requests[] = {receive(other, data, 0), receive(other, open_data, 1)};
        MPI_Status statuses[2];
        tell(other, 40 + data);
        until_over(requests[0]);
        is(MPI_Waitall(2, requests, with_statuses ? statuses : MPI_STATUSES_IGNORE),
           MPI_ERR_IN_STATUS, "waitall");
        if (with_statuses) {
            is(statuses[0].MPI_ERROR, MPI_ERR_TRUNCATE, "status of the truncated");
            is(statuses[1].MPI_ERROR, MPI_ERR_PENDING, "status of the open");
        }
        end_open(requests[1]);
    }
    for (const bool some : {true, false}) {
        MPI_Request requests[] = {receive(other, open_data, 1), receive(other, data, 0)};
        MPI_Status status;
        int index = -1;
        int count = 1;
        tell(other, 40 + data);
        until_over(requests[1]);
        is(some ? MPI_Waitsome(2, requests, &count, &index, &status)
                : MPI_Waitany(2, requests, &index, &status),
           some ? MPI_ERR_IN_STATUS : MPI_ERR_TRUNCATE, "waitsome or waitany");
        that(count == 1 && index == 1, "%d have ended, the first is %d", count, index);
        end_open(requests[0]);
    }
    for (const bool with_statuses : {true, false}) {
        MPI_Request requests[] = {receive(other, open_data, 1), receive(other, data, 0)};
        MPI_Status statuses[2];
        int flag = 0;
        tell(other, 40 + data);
        until_over(requests[1]);
        is(MPI_Testall(2, requests, &flag, with_statuses ? statuses : MPI_STATUSES_IGNORE),
           MPI_ERR_IN_STATUS, "testall beside an open one");
        that(flag == 1, "testall does not end while one is open");
        if (with_statuses) {
            is(statuses[0].MPI_ERROR, MPI_ERR_PENDING, "status of the open");
            is(statuses[1].MPI_ERROR, MPI_ERR_TRUNCATE, "status of the truncated");
        }
        end_open(requests[0]);
    }
}

void in_order()
{
    // What is complete is told of and freed beside what has failed and what is open.
    for (const bool with_statuses : {true, false}) {
        MPI_Request requests[] = {receive(other, open_data, 0), receive(victim, data, 1),
                                  receive(other, data, 2, 4), MPI_REQUEST_NULL};
        MPI_Status statuses[4];
        tell(other, 30 + data);
        until_over(requests[2]);
        until_over(requests[1]);
        is(MPI_Waitall(4, requests, with_statuses ? statuses : MPI_STATUSES_IGNORE),
           MPI_ERR_IN_STATUS, "waitall");
        if (with_statuses) {
            is(statuses[0].MPI_ERROR, MPI_ERR_PENDING, "status of the open");
            is(statuses[1].MPI_ERROR, MPI_ERR_RANK_FAIL_STOP, "status of the failed");
            is(statuses[2].MPI_ERROR, MPI_SUCCESS, "status of the complete");
            is(statuses[3].MPI_ERROR, MPI_SUCCESS, "status of none");
            int count = 0;
            MPI_Get_count(&statuses[2], MPI_INT, &count);
            that(count == 3 && statuses[2].MPI_SOURCE == other, "%d elements from %d", count,
                 statuses[2].MPI_SOURCE);
        }
        that(requests[2] == MPI_REQUEST_NULL, "the complete one is not freed");
        end_open(requests[0]);
    }
}

/// Rank 1 dies while rank 0 waits; then more is posted, and ends at once.
void dies()
{
    MPI_Request requests[] = {receive(victim, data, 0), receive(victim, data, 1),
                              receive(other, open_data, 2)};
    tell(victim, 0);
    MPI_Status statuses[3];
    is(MPI_Waitall(3, requests, statuses), MPI_ERR_IN_STATUS, "waitall of what is under way");
    int dead = 0;
    for (int i = 0; i < 2; ++i) {
        const int code = statuses[i].MPI_ERROR;
        dead += class_of(code) == MPI_ERR_RANK_FAIL_STOP ? 1 : 0;
        that(class_of(code) == MPI_ERR_RANK_FAIL_STOP || code == MPI_ERR_PENDING, "status %d",
             code);
        if (code == MPI_ERR_PENDING) {
            is(MPI_Wait(&requests[i], MPI_STATUS_IGNORE), MPI_ERR_RANK_FAIL_STOP, "wait");
        }
    }
    that(dead > 0, "no status is that of the failed rank");
    end_open(requests[2]);
    MPI_Request more[] = {receive(victim, data, 0), receive(victim, data, 1)};
    is(MPI_Waitall(2, more, statuses), MPI_ERR_IN_STATUS, "waitall of what is posted later");
}

/// Both ways of a persistent request, started when the rank is dead. Every way to wait tells it.
void persistent()
{
    const char *const names[] = {"waitall with statuses",
                                 "waitall",
                                 "testall with statuses",
                                 "testall",
                                 "waitany",
                                 "testany",
                                 "waitsome",
                                 "testsome",
                                 "wait"};
    for (int way = 0; way < 9; ++way) {
        MPI_Request requests[2];
        MPI_Recv_init(buffers[0], 1, MPI_INT, victim, data, MPI_COMM_WORLD, &requests[0]);
        MPI_Send_init(buffers[1], 1, MPI_INT, victim, data, MPI_COMM_WORLD, &requests[1]);
        MPI_Startall(2, requests);
        until_over(requests[0]);
        until_over(requests[1]);
        MPI_Status statuses[2];
        int flag = 1;
        int index = 0;
        int indices[2];
        int code = MPI_SUCCESS;
        switch (way) {
        case 0:
        case 1:
            code = MPI_Waitall(2, requests, way == 0 ? statuses : MPI_STATUSES_IGNORE);
            break;
        case 2:
        case 3:
            code = MPI_Testall(2, requests, &flag, way == 2 ? statuses : MPI_STATUSES_IGNORE);
            break;
        case 4:
            code = MPI_Waitany(2, requests, &index, statuses);
            break;
        case 5:
            code = MPI_Testany(2, requests, &index, &flag, statuses);
            break;
        case 6:
            code = MPI_Waitsome(2, requests, &index, indices, statuses);
            break;
        case 7:
            code = MPI_Testsome(2, requests, &index, indices, statuses);
            break;
        default:
            code = MPI_Wait(&requests[0], statuses);
        }
        const int cls = class_of(code);
        that(cls == MPI_ERR_IN_STATUS || cls == MPI_ERR_RANK_FAIL_STOP, "%s: class %d", names[way],
             cls);
        that(flag == 1, "%s: not over", names[way]);
        for (int i = 0; i < 2 && (way == 0 || way == 2); ++i) {
            is(statuses[i].MPI_ERROR, MPI_ERR_RANK_FAIL_STOP, names[way]);
        }
        for (MPI_Request &request : requests) {
            if (request != MPI_REQUEST_NULL) {
                MPI_Request_free(&request);
            }
        }
    }
}

/// One after the other is told of, by MPI_Waitany or MPI_Testany, and the rest are left alone.
void one_by_one()
{
    constexpr int number = 4; // of which the last is open
    for (const bool testing : {false, true}) {
        MPI_Request requests[number];
        for (int i = 0; i < number; ++i) {
            if (i != 1) {
                requests[i] =
                    i == number - 1 ? receive(other, open_data, i) : receive(victim, data, i);
            }
        }
        MPI_Recv_init(buffers[1], 1, MPI_INT, victim, data, MPI_COMM_WORLD, &requests[1]);
        MPI_Start(&requests[1]);
        for (int i = 0; i < number - 1; ++i) {
            until_over(requests[i]);
        }
        for (int told = 0; told < number - 1; ++told) {
            int index = -1;
            int flag = 1;
            MPI_Status status;
            is(testing ? MPI_Testany(number, requests, &index, &flag, &status)
                       : MPI_Waitany(number, requests, &index, &status),
               MPI_ERR_RANK_FAIL_STOP, testing ? "testany" : "waitany");
            that(flag == 1 && index == told, "%d is told of instead of %d", index, told);
            for (int i = 0; i < number; ++i) {
                that((requests[i] == MPI_REQUEST_NULL) == (i <= told),
                     "after %d were told of: request %d", told + 1, i);
            }
        }
        end_open(requests[number - 1]);
    }
}

/// Others have failed when MPI_Waitany tells of one. Every other call tells of those too, and a
/// request that comes in the place of one that was freed has nothing of it.
void left_by_waitany()
{
    for (int way = 0; way < 8; ++way) {
        MPI_Request requests[3];
        for (int i = 0; i < 3; ++i) {
            requests[i] = receive(victim, data, i);
            until_over(requests[i]);
        }
        int index = -1;
        int indices[2];
        int flag = 1;
        MPI_Status statuses[2];
        is(MPI_Waitany(3, requests, &index, statuses), MPI_ERR_RANK_FAIL_STOP, "waitany");
        that(index == 0 && requests[1] != MPI_REQUEST_NULL && requests[2] != MPI_REQUEST_NULL,
             "index %d, or others are freed", index);
        MPI_Request *const left = &requests[1];
        switch (way) {
        case 0:
            is(MPI_Wait(left, statuses), MPI_ERR_RANK_FAIL_STOP, "wait later");
            is(MPI_Wait(left + 1, statuses), MPI_ERR_RANK_FAIL_STOP, "wait later");
            break;
        case 1:
            is(MPI_Test(left, &flag, statuses), MPI_ERR_RANK_FAIL_STOP, "test later");
            is(MPI_Test(left + 1, &flag, statuses), MPI_ERR_RANK_FAIL_STOP, "test later");
            break;
        case 2:
            is(MPI_Waitall(2, left, statuses), MPI_ERR_IN_STATUS, "waitall later");
            break;
        case 3:
            is(MPI_Testall(2, left, &flag, statuses), MPI_ERR_IN_STATUS, "testall later");
            break;
        case 4:
            is(MPI_Waitsome(2, left, &index, indices, statuses), MPI_ERR_IN_STATUS,
               "waitsome later");
            break;
        case 5:
            is(MPI_Testsome(2, left, &index, indices, statuses), MPI_ERR_IN_STATUS,
               "testsome later");
            break;
        case 6:
            is(MPI_Waitall(2, left, MPI_STATUSES_IGNORE), MPI_ERR_IN_STATUS, "waitall later");
            break;
        default:
            MPI_Request_free(left);
            MPI_Request_free(left + 1);
        }
        for (int i = 0; i < 2 && way >= 2 && way <= 5; ++i) {
            is(statuses[i].MPI_ERROR, MPI_ERR_RANK_FAIL_STOP, "status later");
        }
        that(flag == 1 && left[0] == MPI_REQUEST_NULL && left[1] == MPI_REQUEST_NULL,
             "way %d leaves requests", way);
        MPI_Request more[] = {receive(other, data, 0), receive(other, data, 1)};
        tell(other, 10 + data);
        tell(other, 10 + data);
        is(MPI_Waitall(2, more, MPI_STATUSES_IGNORE), MPI_SUCCESS, "receives in their place");
    }
}

/// A request may be the last that knows of its communicator: the program has freed it. The error is
/// its error handler's all the same.
struct Freed {
    MPI_Comm before = MPI_COMM_NULL; ///< freed before rank 1 dies
    MPI_Comm after = MPI_COMM_NULL;
    MPI_Comm thread = MPI_COMM_NULL;  ///< after it, and a thread that ends is told of it
    MPI_Comm revoked = MPI_COMM_NULL; ///< and shrunk
    MPI_Request request = MPI_REQUEST_NULL;

    void make()
    {
        for (MPI_Comm *comm : {&before, &after, &thread, &revoked}) {
            is(MPI_Comm_dup(MPI_COMM_WORLD, comm), MPI_SUCCESS, "dup");
            MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
        }
    }
    void post(MPI_Comm comm) { MPI_Irecv(buffers[0], 1, MPI_INT, victim, data, comm, &request); }
    /// Nobody has it any more once something else was waited for: a new one takes its place in Open
    /// MPI's table for Fortran, where the first free place is taken.
    static void is_gone(MPI_Fint place)
    {
        MPI_Request sent = MPI_REQUEST_NULL;
        MPI_Isend(buffers[0], 1, MPI_INT, 0, data, MPI_COMM_SELF, &sent);
        MPI_Recv(buffers[1], 1, MPI_INT, 0, data, MPI_COMM_SELF, MPI_STATUS_IGNORE);
        is(MPI_Wait(&sent, MPI_STATUS_IGNORE), MPI_SUCCESS, "wait for something else");
        constexpr int many = 8; // there may be other free places
        MPI_Comm fresh[many];
        bool taken = false;
        for (MPI_Comm &one : fresh) {
            is(MPI_Comm_dup(MPI_COMM_SELF, &one), MPI_SUCCESS, "dup");
            taken = taken || MPI_Comm_c2f(one) == place;
        }
        for (MPI_Comm &one : fresh) {
            MPI_Comm_free(&one);
        }
        that(taken, "the freed communicator is still there");
    }
    void before_death()
    {
        if (me == 0) {
            post(before);
        }
        MPI_Comm_free(&before);
    }
    void told_to_thread()
    {
        const MPI_Fint place = MPI_Comm_c2f(thread);
        if (me == 0) {
            post(thread);
            until_over(request);
        }
        MPI_Comm_free(&thread);
        int level = MPI_THREAD_SINGLE;
        MPI_Query_thread(&level);
        if (me == 0 && level == MPI_THREAD_MULTIPLE) {
            std::thread([this] {
                is(MPI_Waitall(1, &request, MPI_STATUSES_IGNORE), MPI_ERR_IN_STATUS,
                   "waitall of another thread");
            }).join();
            is_gone(place);
        } else if (me == 0) {
            is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_RANK_FAIL_STOP, "wait, freed later");
        }
    }
    void after_death()
    {
        if (me == 0) {
            is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_RANK_FAIL_STOP, "wait, freed before");
            post(after);
            until_over(request);
        }
        const MPI_Fint place = MPI_Comm_c2f(after);
        MPI_Comm_free(&after);
        if (me == 0) {
            MPI_Status status;
            is(MPI_Waitall(1, &request, &status), MPI_ERR_IN_STATUS, "waitall, freed later");
            is(status.MPI_ERROR, MPI_ERR_RANK_FAIL_STOP, "status, freed later");
            is_gone(place);
        }
        told_to_thread();
        post(revoked);
        MPI_Comm left = MPI_COMM_NULL;
        is(MPIX_Comm_revoke(revoked), MPI_SUCCESS, "revoke");
        is(MPIX_Comm_shrink(revoked, &left), MPI_SUCCESS, "shrink");
        MPI_Comm_free(&revoked);
        const int cls = class_of(MPI_Wait(&request, MPI_STATUS_IGNORE));
        that(cls == MPI_ERR_RANK_FAIL_STOP || cls == MPIX_ERR_REVOKED, "wait, revoked: class %d",
             cls);
        that(request == MPI_REQUEST_NULL, "a request is left");
        MPI_Comm_free(&left);
    }
};

/// Each of several threads, in turn or at once.
void threads()
{
    constexpr int times = 20;
    std::atomic<int> right{0};
    const auto wait = [&](int place) {
        for (int i = 0; i < times; ++i) {
            MPI_Request requests[2];
            for (int k = 0; k < 2; ++k) {
                MPI_Irecv(buffers[2 * place + k], 1, MPI_INT, victim, data, MPI_COMM_WORLD,
                          &requests[k]);
            }
            right += MPI_Waitall(2, requests, MPI_STATUSES_IGNORE) != MPI_SUCCESS ? 1 : 0;
        }
    };
    std::thread first(wait, 0);
    std::thread second(wait, 1);
    wait(2);
    first.join();
    second.join();
    that(right == 3 * times, "%d of %d ended with an error", right.load(), 3 * times);
}

} // namespace

int main(int argc, char **argv)
{
    const int level = argc > 1 ? std::atoi(argv[1]) : MPI_THREAD_SINGLE;
    const bool deadly = argc < 3;
    int provided = 0;
    MPI_Init_thread(&argc, &argv, level, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    state(MPI_COMM_WORLD, me); // or the program would not be linked with the library
    Freed freed;
    if (deadly) {
        freed.make();
        freed.before_death();
    }
    if (me == victim && deadly) {
        int token = 0;
        MPI_Recv(&token, 1, MPI_INT, 0, go, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        die();
    }
    if (me == other) {
        serve();
    } else if (me == 0) {
        truncated();
        if (deadly) {
            dies();
            in_order();
            persistent();
            one_by_one();
            left_by_waitany();
            if (provided == MPI_THREAD_MULTIPLE) {
                threads();
            }
        }
        tell(other, 0);
    }
    if (deadly) {
        freed.after_death();
    }
    return finish();
}

// All survivors agree on who has failed.
//
// usage: agree DEAD WHEN [ROUNDS [info]]
//   DEAD   ranks that kill themselves: none, 2, 1,3 or 0-2
//   WHEN   known: before the others call, who wait until they have heard of it
//          before: before the others call, who do not wait
//          during: while the others are calling, again and again
//          later: after the first call has returned
//   ROUNDS further calls at the end (3)
//   info   loose semantics, by the communicator's info key
// Every survivor prints "rank R set S" with what it knows in the end, and compares it with the
// others' by messages.
#include "check.hpp"

using namespace check;

namespace {

int validate_all()
{
    int count = -1;
    is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "MPI_Comm_validate_all");
    return count;
}

/// What a receive from MPI_PROC_NULL, or a look for a message of it, gives.
void is_of_nobody(int code, const MPI_Status &status, const char *what)
{
    is(code, MPI_SUCCESS, what);
    int count = -1;
    MPI_Get_count(&status, MPI_INT, &count);
    that(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG && count == 0,
         "%s: not like MPI_PROC_NULL: source %d tag %d count %d", what, status.MPI_SOURCE,
         status.MPI_TAG, count);
}

void send_to_the_dead(int rank)
{
    int value = 17;
    using Send = decltype(&MPI_Send);
    for (const Send send : {Send{MPI_Send}, Send{MPI_Ssend}, Send{MPI_Rsend}}) {
        is(send(&value, 1, MPI_INT, rank, 5, MPI_COMM_WORLD), MPI_SUCCESS, "send to the dead");
    }
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Issend(&value, 1, MPI_INT, rank, 5, MPI_COMM_WORLD, &requests[0]);
    MPI_Send_init(&value, 1, MPI_INT, rank, 5, MPI_COMM_WORLD, &requests[1]);
    is(MPI_Start(&requests[1]), MPI_SUCCESS, "start of a send to the dead");
    is(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS, "sends to the dead");
    MPI_Request_free(&requests[1]);
}

void with_the_dead(int rank)
{
    send_to_the_dead(rank);
    const MPI_Comm comm = MPI_COMM_WORLD;
    int value = 17;
    MPI_Status status;
    is_of_nobody(MPI_Recv(&value, 1, MPI_INT, rank, 5, comm, &status), status, "MPI_Recv");
    is_of_nobody(
        MPI_Sendrecv(&value, 1, MPI_INT, rank, 5, &value, 1, MPI_INT, rank, 5, comm, &status),
        status, "MPI_Sendrecv");
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(&value, 1, MPI_INT, rank, 5, comm, &request);
    is_of_nobody(MPI_Wait(&request, &status), status, "MPI_Irecv");
    MPI_Recv_init(&value, 1, MPI_INT, rank, 5, comm, &request);
    MPI_Start(&request);
    is_of_nobody(MPI_Wait(&request, &status), status, "MPI_Recv_init");
    MPI_Request_free(&request);
    is_of_nobody(MPI_Probe(rank, 5, comm, &status), status, "MPI_Probe");
    int found = 0;
    is_of_nobody(MPI_Iprobe(rank, 5, comm, &found, &status), status, "MPI_Iprobe");
    that(found != 0, "MPI_Iprobe finds nothing");
    MPI_Message message = MPI_MESSAGE_NULL;
    is_of_nobody(MPI_Mprobe(rank, 5, comm, &message, &status), status, "MPI_Mprobe");
    that(message == MPI_MESSAGE_NO_PROC, "MPI_Mprobe gives a message");
    is_of_nobody(MPI_Mrecv(&value, 1, MPI_INT, &message, &status), status, "MPI_Mrecv");
    is_of_nobody(MPI_Improbe(rank, 5, comm, &found, &message, &status), status, "MPI_Improbe");
    that(found != 0 && message == MPI_MESSAGE_NO_PROC, "MPI_Improbe gives a message");
    that(value == 17, "the buffer was written");
}

/// Every survivor tells its next what it holds; the ring closes only over equal sets.
void compare(const std::set<int> &dead)
{
    std::vector<int> mine(static_cast<std::size_t>(size), 0);
    for (const int rank : dead) {
        mine[static_cast<std::size_t>(rank)] = 1;
    }
    std::vector<int> theirs(mine.size(), -1);
    int right = me;
    int left = me;
    do {
        right = (right + 1) % size;
    } while (dead.count(right) != 0);
    do {
        left = (left + size - 1) % size;
    } while (dead.count(left) != 0);
    is(MPI_Sendrecv(mine.data(), size, MPI_INT, right, 6, theirs.data(), size, MPI_INT, left, 6,
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE),
       MPI_SUCCESS, "exchange of sets");
    that(mine == theirs, "rank %d holds another set", left);
}

/// Anything but the two words is ignored.
void choose_by_info()
{
    for (const char *word : {"strict", "loose", "sloppy"}) {
        MPI_Info info = MPI_INFO_NULL;
        MPI_Info_create(&info);
        MPI_Info_set(info, "mpi_ft_semantics", word);
        is(MPI_Comm_set_info(MPI_COMM_WORLD, info), MPI_SUCCESS, "MPI_Comm_set_info");
        MPI_Info_free(&info);
    }
}

} // namespace

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const std::set<int> doomed = ranks_of(argc > 1 ? argv[1] : "none");
    const std::string when = argc > 2 ? argv[2] : "known";
    const int rounds = argc > 3 ? std::atoi(argv[3]) : 3;
    const bool dies = doomed.count(me) != 0;
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
    int count = 0;
    if (argc > 4) {
        choose_by_info();
    }
    if (when == "later") {
        count = validate_all();
        that(count == 0, "%d failures before any", count);
    }
    if (dies && when == "during") {
        for (int i = 0; i < 3 + me; ++i) {
            validate_all();
        }
    }
    if (when != "during") {
        all_through(doomed);
    }
    if (dies) {
        die();
    }
    if (when == "known" || when == "later") {
        hear_of(MPI_COMM_WORLD, doomed);
        if (!doomed.empty()) {
            int value = 0;
            is(MPI_Send(&value, 1, MPI_INT, *doomed.begin(), 5, MPI_COMM_WORLD),
               MPI_ERR_RANK_FAIL_STOP, "send to an unrecognised failure");
            is(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
               MPI_ERR_RANK_FAIL_STOP, "receive from any source");
            that(state(MPI_COMM_WORLD, *doomed.begin()) == MPI_RANK_FAILED, "not MPI_RANK_FAILED");
        }
        count = validate_all();
    } else {
        while ((count = validate_all()) < static_cast<int>(doomed.size())) {
        }
    }
    that(count == static_cast<int>(doomed.size()), "%d failures instead of %zu", count,
         doomed.size());
    const std::set<int> set = failed(MPI_COMM_WORLD);
    that(set == doomed, "the set is %s", text_of(set).c_str());
    for (const int rank : doomed) {
        that(state(MPI_COMM_WORLD, rank) == MPI_RANK_NULL, "rank %d is not MPI_RANK_NULL", rank);
        with_the_dead(rank);
    }
    that(state(MPI_COMM_WORLD, me) == MPI_RANK_OK, "I am not MPI_RANK_OK");
    if (static_cast<int>(doomed.size()) < size - 1) {
        compare(set);
    }
    for (int i = 0; i < rounds; ++i) {
        const int again = validate_all();
        that(again == count, "%d failures, then %d", count, again);
    }
    MPI_Request request = MPI_REQUEST_NULL;
    int again = -1;
    is(MPI_Icomm_validate_all(MPI_COMM_WORLD, &again, &request), MPI_SUCCESS,
       "MPI_Icomm_validate_all");
    is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, "its wait");
    that(again == count, "MPI_Icomm_validate_all gave %d", again);
    std::printf("rank %d set %s\n", me, text_of(set).c_str());
    return finish();
}

// What ends when a communicator is revoked or a rank fails although it waits in none of the usual
// places, and what goes on.
//
// usage: revoked matched    rank 1 has matched long messages of rank 0 and receives them later
//        revoked itself     sends to the own rank wait for their receives
//        revoked any_source a receive from any source has its message, not yet its bytes, rank 1 of
//                           three dies
//        revoked survivors  rank 0 waits in a collective among the survivors of rank 2 of three
//        revoked buffered   persistent buffered sends, rank 1 of at least three dies
#include "check.hpp"

using namespace check;

namespace {

constexpr int long_message = 1 << 20;
constexpr int tag = 3;

/// The signal that a rank outside of MPI waits for.
sigset_t wake_up()
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    return signals;
}

/// The sends have ended before their receives begin.
void matched()
{
    constexpr int sender = 0;
    constexpr int receiver = 1;
    const MPI_Comm comm = twin();
    std::vector<char> buffer(long_message);
    if (me == sender) {
        MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        for (MPI_Request &request : requests) {
            is(MPI_Isend(buffer.data(), long_message, MPI_CHAR, receiver, tag, comm, &request),
               MPI_SUCCESS, "isend");
        }
        for (MPI_Request &request : requests) {
            is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPIX_ERR_REVOKED, "its wait");
        }
        send_word(receiver);
    } else if (me == receiver) {
        MPI_Message messages[2] = {MPI_MESSAGE_NULL, MPI_MESSAGE_NULL};
        for (MPI_Message &message : messages) {
            is(MPI_Mprobe(sender, tag, comm, &message, MPI_STATUS_IGNORE), MPI_SUCCESS, "mprobe");
        }
        is(MPIX_Comm_revoke(comm), MPI_SUCCESS, "revoke");
        wait_for_word(sender);
        is(MPI_Mrecv(buffer.data(), long_message, MPI_CHAR, &messages[0], MPI_STATUS_IGNORE),
           MPIX_ERR_REVOKED, "mrecv");
        MPI_Request request = MPI_REQUEST_NULL;
        is(MPI_Imrecv(buffer.data(), long_message, MPI_CHAR, &messages[1], &request), MPI_SUCCESS,
           "imrecv");
        is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPIX_ERR_REVOKED, "its wait");
        that(messages[0] == MPI_MESSAGE_NULL && messages[1] == MPI_MESSAGE_NULL,
             "a message is there still");
    }
}

/// Of each size and mode that waits. Another communicator's is left alone.
void itself()
{
    const MPI_Comm comm = twin();
    std::vector<char> sent(long_message, 'y');
    std::vector<char> received(long_message, 'n');
    MPI_Request requests[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Issend(sent.data(), long_message, MPI_CHAR, me, tag, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(sent.data(), long_message, MPI_CHAR, me, tag, comm, &requests[1]);
    MPI_Issend(sent.data(), 1, MPI_CHAR, me, tag, comm, &requests[2]);
    is(MPIX_Comm_revoke(comm), MPI_SUCCESS, "revoke");
    is(MPI_Wait(&requests[1], MPI_STATUS_IGNORE), MPIX_ERR_REVOKED, "a long send");
    is(MPI_Wait(&requests[2], MPI_STATUS_IGNORE), MPIX_ERR_REVOKED, "a synchronous send");
    is(MPI_Ssend(sent.data(), 1, MPI_CHAR, me, tag, comm), MPIX_ERR_REVOKED, "a later one");
    is(MPI_Recv(received.data(), 1, MPI_CHAR, me, tag, comm, MPI_STATUS_IGNORE), MPIX_ERR_REVOKED,
       "their receive");
    int ended = 0;
    is(MPI_Test(requests, &ended, MPI_STATUS_IGNORE), MPI_SUCCESS, "test");
    that(ended == 0, "a send ended by the revocation of another communicator");
    is(MPI_Recv(received.data(), long_message, MPI_CHAR, me, tag, MPI_COMM_WORLD,
                MPI_STATUS_IGNORE),
       MPI_SUCCESS, "receive on another communicator");
    is(MPI_Wait(requests, MPI_STATUS_IGNORE), MPI_SUCCESS, "its send");
    that(sent == received, "wrong bytes");
}

/// The sender is outside of MPI when the others hear of the failure, which is nothing to it.
void any_source()
{
    constexpr int victim = 1;
    constexpr int sender = 2;
    constexpr int receiver = 0;
    const MPI_Comm comm = twin();
    std::vector<char> sent(long_message, 'y');
    std::vector<char> received(long_message, 'n');
    MPI_Request request = MPI_REQUEST_NULL;
    if (me == victim) {
        wait_for_word(receiver);
        die();
    }
    if (me == sender) {
        is(MPI_Isend(sent.data(), long_message, MPI_CHAR, receiver, tag, comm, &request),
           MPI_SUCCESS, "isend");
        const int process = getpid();
        is(MPI_Ssend(&process, 1, MPI_INT, receiver, tag, MPI_COMM_WORLD), MPI_SUCCESS, "process");
        const sigset_t signals = wake_up();
        int signal = 0;
        sigwait(&signals, &signal);
        is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, "its wait");
        return;
    }
    is(MPI_Irecv(received.data(), long_message, MPI_CHAR, MPI_ANY_SOURCE, tag, comm, &request),
       MPI_SUCCESS, "irecv");
    int process = 0;
    is(MPI_Recv(&process, 1, MPI_INT, sender, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS,
       "process");
    send_word(victim);
    hear_of(comm, {victim});
    int value = 0;
    is(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, word_tag, comm, MPI_STATUS_IGNORE),
       MPI_ERR_RANK_FAIL_STOP, "another receive from any source");
    kill(process, SIGUSR1);
    is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, "the receive that has its message");
    that(sent == received, "wrong bytes");
}

/// Who does not come revokes instead.
void survivors()
{
    constexpr int victim = 2;
    constexpr int waiter = 0;
    const MPI_Comm comm = twin();
    all_through({victim});
    if (me == victim) {
        die();
    }
    hear_of(comm, {victim});
    int count = -1;
    is(MPI_Comm_validate_all(comm, &count), MPI_SUCCESS, "validate_all");
    is(MPI_Barrier(comm), MPI_SUCCESS, "a barrier of the survivors");
    if (me == waiter) {
        send_word(1);
        is(MPI_Barrier(comm), MPIX_ERR_REVOKED, "one that the other does not come to");
    } else {
        wait_for_word(waiter);
        is(MPIX_Comm_revoke(comm), MPI_SUCCESS, "revoke");
    }
}

/// One run of a persistent request. Its end, not its start, tells; Open MPI frees it then when that
/// is an error.
void run(MPI_Request &request, int wanted, const char *what)
{
    is(MPI_Start(&request), MPI_SUCCESS, "start");
    is(MPI_Wait(&request, MPI_STATUS_IGNORE), wanted, what);
}

/// Too long to leave without the attached buffer: the carrier of its bytes could tell nobody.
void buffered()
{
    constexpr int victim = 1;
    const MPI_Comm comm = twin();
    std::vector<char> space(4 * (long_message + MPI_BSEND_OVERHEAD));
    MPI_Buffer_attach(space.data(), static_cast<int>(space.size()));
    std::vector<char> sent(long_message, 'y');
    std::vector<char> received(long_message, 'n');
    MPI_Request to_dead = MPI_REQUEST_NULL;
    MPI_Request to_recognised = MPI_REQUEST_NULL;
    MPI_Request to_self = MPI_REQUEST_NULL;
    MPI_Request to_next = MPI_REQUEST_NULL;
    const int next = (me + 1) % size == victim ? victim + 1 : (me + 1) % size;
    const auto init = [&](int rank, MPI_Request &request) {
        is(MPI_Bsend_init(sent.data(), long_message, MPI_CHAR, rank, tag, comm, &request),
           MPI_SUCCESS, "bsend_init");
    };
    if (me != victim) {
        init(victim, to_dead);
        init(victim, to_recognised);
        init(me, to_self);
        init(next, to_next);
    }
    all_through({victim});
    if (me == victim) {
        die();
    }
    hear_of(comm, {victim});
    run(to_dead, MPI_ERR_RANK_FAIL_STOP, "to the dead");
    run(to_self, MPI_SUCCESS, "to itself");
    is(MPI_Recv(received.data(), long_message, MPI_CHAR, me, tag, comm, MPI_STATUS_IGNORE),
       MPI_SUCCESS, "its receive");
    that(sent == received, "wrong bytes");
    int count = -1;
    is(MPI_Comm_validate_all(comm, &count), MPI_SUCCESS, "validate_all");
    run(to_recognised, MPI_SUCCESS, "to the recognised");
    everywhere(MPI_COMM_WORLD, true); // nobody hears of another's revocation before
    is(MPIX_Comm_revoke(comm), MPI_SUCCESS, "revoke");
    run(to_recognised, MPIX_ERR_REVOKED, "to the recognised, revoked");
    run(to_self, MPIX_ERR_REVOKED, "to itself, revoked");
    run(to_next, MPIX_ERR_REVOKED, "to the next, revoked");
    void *address = nullptr;
    int bytes = 0;
    is(MPI_Buffer_detach(&address, &bytes), MPI_SUCCESS, "detach");
}

} // namespace

int main(int argc, char **argv)
{
    const std::string what = argc > 1 ? argv[1] : "matched";
    // Before there are other threads, any of which would be given it.
    const sigset_t signals = wake_up();
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    start(&argc, &argv);
    if (what == "any_source") {
        any_source();
    } else if (what == "buffered") {
        buffered();
    } else if (what == "survivors") {
        survivors();
    } else if (what == "itself") {
        itself();
    } else {
        matched();
    }
    return finish();
}

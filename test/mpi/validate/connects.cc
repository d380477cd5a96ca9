// A short message to a rank that lives waits for a connection, which is not made because that rank
// is outside of MPI. Who waits for it comes out when a third rank dies, where it waits in a
// collective, or when the communicator is revoked. What the program itself sends to the one that
// lives goes on waiting when another one dies, and arrives.
//
// usage: connects HOW WHERE FIFO    three ranks over a BTL that connects at the first contact
//   HOW    dies or revokes: rank 2, while rank 0 waits
//   WHERE  barrier, in MPI_Wait for an MPI_Ibarrier; gather, in MPI_Gather to rank 1; send, in
//          MPI_Send to it
#include "ompi/mca/ompi_prelude.hpp"

#include "check.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>

using namespace check;

namespace {

constexpr int away = 1; ///< comes into MPI when rank 0 has come out of it
constexpr int third = 2;
constexpr int word_tag = 7;
constexpr int token_tag = 9;

const MPI_Comm world = MPI_COMM_WORLD;
bool revokes = false;
std::string where;
int gathered[3];
int word = 4711;

/// So many looks at the network without an answer: whoever is there would have been reached.
constexpr int looks = 2000;
int looks_left = 0;
pid_t process_of_third = 0;

int trouble()
{
    return revokes ? MPIX_ERR_REVOKED : MPI_ERR_RANK_FAIL_STOP;
}

/// The third rank does what it is there for.
void strike()
{
    that(kill(process_of_third, revokes ? SIGUSR1 : SIGKILL) == 0, "kill: %s",
         std::strerror(errno));
}

/// In the progress engine: rank 0 is inside its call, and stays there.
int strike_in_the_middle() noexcept
{
    if (looks_left > 0 && --looks_left == 0) {
        strike();
    }
    return 0;
}

int gather()
{
    return MPI_Gather(&me, 1, MPI_INT, gathered, 1, MPI_INT, away, world);
}

void wait_in_call()
{
    opal_progress_register(strike_in_the_middle);
    looks_left = looks;
    const int code =
        where == "gather" ? gather() : MPI_Send(&word, 1, MPI_INT, away, word_tag, world);
    opal_progress_unregister(strike_in_the_middle);
    that(looks_left == 0, "%s did not wait", where.c_str());
    // The bytes are on their way; whether the call has met the trouble, too, is open.
    that(code == MPI_SUCCESS || class_of(code) == trouble(), "%s: %d", where.c_str(), code);
}

void wait_in_barrier(MPI_Request &sent)
{
    MPI_Request barrier = MPI_REQUEST_NULL;
    is(MPI_Ibarrier(world, &barrier), MPI_SUCCESS, "ibarrier");
    for (int i = 0; i < looks; ++i) {
        int ended = 0;
        MPI_Test(&sent, &ended, MPI_STATUS_IGNORE);
        that(ended == 0, "the way to rank %d is open", away);
    }
    strike();
    is(MPI_Wait(&barrier, MPI_STATUS_IGNORE), trouble(), "a barrier that waits for the way");
}

void wait_for_the_way(const char *fifo)
{
    MPI_Recv(&process_of_third, 1, MPI_INT, third, token_tag, world, MPI_STATUS_IGNORE);
    MPI_Request sent = MPI_REQUEST_NULL;
    is(MPI_Isend(&word, 1, MPI_INT, away, word_tag, world, &sent), MPI_SUCCESS, "isend");
    if (where == "barrier") {
        wait_in_barrier(sent);
    } else {
        wait_in_call();
    }
    if (!revokes) {
        int ended = 0;
        MPI_Test(&sent, &ended, MPI_STATUS_IGNORE);
        that(ended == 0, "what the program sends has ended before there is a way");
    }
    const int fd = open(fifo, O_WRONLY);
    that(fd >= 0 && write(fd, "y", 1) == 1, "%s: %s", fifo, std::strerror(errno));
    close(fd);
    is(MPI_Wait(&sent, MPI_STATUS_IGNORE), MPI_SUCCESS, "what the program has sent");
}

void stay_away(const char *fifo)
{
    const int fd = open(fifo, O_RDONLY); // until rank 0 opens it
    char heard = 0;
    that(fd >= 0 && read(fd, &heard, 1) == 1, "%s: %s", fifo, std::strerror(errno));
    close(fd);
    if (!revokes) {
        int came = 0;
        is(MPI_Recv(&came, 1, MPI_INT, 0, word_tag, world, MPI_STATUS_IGNORE), MPI_SUCCESS, "word");
        that(came == word, "the word is %d", came);
        hear_of(world, {third});
    }
    MPI_Request barrier = MPI_REQUEST_NULL;
    int code = where == "barrier" ? MPI_Ibarrier(world, &barrier) : gather();
    code = code == MPI_SUCCESS ? MPI_Wait(&barrier, MPI_STATUS_IGNORE) : code;
    is(code, trouble(), "what the others have come out of");
}

void wait_for_the_strike(const sigset_t &signals)
{
    const int process = getpid();
    MPI_Send(&process, 1, MPI_INT, 0, token_tag, world);
    int signal = 0;
    sigwait(&signals, &signal); // or killed here
    is(MPIX_Comm_revoke(world), MPI_SUCCESS, "revoke");
}

} // namespace

int main(int argc, char **argv)
{
    revokes = argc > 1 && std::string(argv[1]) == "revokes";
    where = argc > 2 ? argv[2] : "barrier";
    const char *const fifo = argc > 3 ? argv[3] : "fifo";
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    start(&argc, &argv);
    that(size == 3, "%d ranks", size);
    if (me == 0) {
        wait_for_the_way(fifo);
    } else if (me == away) {
        stay_away(fifo);
    } else {
        wait_for_the_strike(signals);
    }
    if (revokes) {
        that(everywhere(world, true), "somebody is wrong");
        return finish();
    }
    int count = 0;
    is(MPI_Comm_validate_all(world, &count), MPI_SUCCESS, "validate_all");
    that(count == 1, "%d failures", count);
    is(MPI_Barrier(world), MPI_SUCCESS, "a barrier among the survivors");
    return finish();
}

/* A synchronous send waits for a receive that never comes, and its receiver falls silent: stopped,
 * with every path up. All that was sent is acknowledged, so nothing is outstanding but the request
 * itself; it ends with MPIX_ERR_UNREACHABLE all the same. Two ranks of one machine; rank 0 prints
 * `unmatched: passed` and ends the job by MPI_Abort, for its peer is dead.
 */
#include "ompi/mpi_ft/mpi_ft.h"

#include <mpi.h>

#include <csignal>
#include <cstdio>
#include <unistd.h>

namespace {

constexpr int pid_tag = 1;
constexpr int unmatched_tag = 9;
constexpr int token_tag = 2;
/* Beyond the time after which it is given up, and within the test's. */
constexpr double deadline_seconds = 20;
/* Each takes the acknowledgements of what came before along. */
constexpr int round_trips = 3;

void talk(int other)
{
    for (int i = 0; i < round_trips; ++i) {
        int token = 0;
        MPI_Sendrecv_replace(&token, 1, MPI_INT, other, token_tag, other, token_tag, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
    }
}

bool ends_when_silent()
{
    int pid = 0;
    int value = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Recv(&pid, 1, MPI_INT, 1, pid_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Issend(&value, 1, MPI_INT, 1, unmatched_tag, MPI_COMM_WORLD, &request);
    talk(1);
    // In here the last round trip's acknowledgement comes and goes, too.
    int done = 0;
    for (const double calm = MPI_Wtime() + 0.5; MPI_Wtime() < calm;) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done != 0) {
            std::printf("unmatched: ended although nobody received it\n");
            return false;
        }
    }
    kill(pid, SIGSTOP);
    int rc = MPI_SUCCESS;
    for (const double end = MPI_Wtime() + deadline_seconds; done == 0 && MPI_Wtime() < end;) {
        rc = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
    int error_class = MPI_SUCCESS;
    MPI_Error_class(rc, &error_class);
    kill(pid, SIGKILL);
    std::printf("unmatched: done %d, class %d\n", done, error_class);
    return done != 0 && error_class == MPIX_ERR_UNREACHABLE;
}

} // namespace

int main(int argc, char **argv)
{
    int rank = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0) {
        std::printf("unmatched: %s\n", ends_when_silent() ? "passed" : "failed");
        std::fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    int pid = getpid();
    MPI_Send(&pid, 1, MPI_INT, 0, pid_tag, MPI_COMM_WORLD);
    talk(0);
    for (int flag = 0;;) { // until it is killed
        MPI_Iprobe(0, token_tag, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
}

/* Rank 1 of three is killed while messages to it are under way over btl/ofi; the others hear of it,
 * and go on with each other. Under errmgr/radixft.
 *
 * The victim is stopped first, so that libfabric cannot complete what is sent to it and reports all
 * of it as failed when the victim is killed.
 */
#include <mpi.h>

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <vector>

namespace {

constexpr int victim = 1;
constexpr int messages = 200;
constexpr int bytes = 3000;

/* Each two exchange words, but for `absent`. */
void meet(int rank, int size, int absent)
{
    constexpr int turns = 100;
    std::array<int, 2> word{rank, -1};
    for (int turn = 0; turn < turns; ++turn) {
        for (int other = 0; other < size; ++other) {
            if (other != rank && other != absent) {
                MPI_Sendrecv(word.data(), 1, MPI_INT, other, 0, &word[1], 1, MPI_INT, other, 0,
                             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
        }
    }
}

/* \return error class of what was sent to the victim */
int send_to_victim(int rank, int pid)
{
    std::vector<std::vector<unsigned char>> out(messages, std::vector<unsigned char>(bytes));
    std::vector<MPI_Request> requests(messages);
    for (int i = 0; i < messages; ++i) {
        const auto at = static_cast<std::size_t>(i);
        MPI_Isend(out[at].data(), bytes, MPI_BYTE, victim, 1, MPI_COMM_WORLD, &requests[at]);
    }
    // It is stopped, and rank 0 ends it when both have sent.
    int token = 0;
    const int other = 2 - rank;
    MPI_Sendrecv(&rank, 1, MPI_INT, other, 2, &token, 1, MPI_INT, other, 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (rank == 0) {
        kill(pid, SIGKILL);
    }
    int error = MPI_SUCCESS;
    while (error == MPI_SUCCESS) {
        error = MPI_Ssend(&token, 1, MPI_INT, victim, 3, MPI_COMM_WORLD);
    }
    for (MPI_Request &request : requests) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    return error;
}

} // namespace

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    meet(rank, size, MPI_PROC_NULL);
    int pid = getpid();
    MPI_Bcast(&pid, 1, MPI_INT, victim, MPI_COMM_WORLD);
    if (rank == victim) {
        // Nothing of its own is under way: the others have all they wait for.
        MPI_Recv(nullptr, 0, MPI_BYTE, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(nullptr, 0, MPI_BYTE, 2, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        raise(SIGSTOP);
    }
    MPI_Ssend(nullptr, 0, MPI_BYTE, victim, 4, MPI_COMM_WORLD);
    const int error = send_to_victim(rank, pid);
    int code = 0;
    MPI_Error_class(error, &code);
    meet(rank, size, victim);
    std::printf("rank %d: error class %d, went on\n", rank, code);
    MPI_Finalize();
    return 0;
}

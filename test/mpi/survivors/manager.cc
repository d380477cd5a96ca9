// A manager that gives each worker a piece of work and waits for an answer from any of them, as
// programs are written that know nothing of failures. Rank 1 dies with its piece.
// usage: manager [return], return: errors do not end the job, and it counts on the others alone.
#include <mpi.h>

#include <csignal>
#include <cstdio>
#include <cstring>

namespace {

constexpr int work = 1;
constexpr int answer = 2;

void manage(int size, int answers)
{
    int piece = 0;
    for (int rank = 1; rank < size; ++rank) {
        MPI_Send(&piece, 1, MPI_INT, rank, work, MPI_COMM_WORLD);
    }
    for (int i = 0; i < answers; ++i) {
        MPI_Recv(&piece, 1, MPI_INT, MPI_ANY_SOURCE, answer, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    for (int rank = 2; rank < size; ++rank) {
        MPI_Send(&piece, 1, MPI_INT, rank, work, MPI_COMM_WORLD);
    }
}

} // namespace

int main(int count, char **words)
{
    MPI_Init(&count, &words);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const bool returns = count > 1 && std::strcmp(words[1], "return") == 0;
    if (returns) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    }
    if (rank == 0) {
        manage(size, returns ? size - 2 : size - 1);
    } else {
        int piece = 0;
        MPI_Recv(&piece, 1, MPI_INT, 0, work, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1) {
            std::raise(SIGKILL);
        }
        MPI_Send(&piece, 1, MPI_INT, 0, answer, MPI_COMM_WORLD);
        MPI_Recv(&piece, 1, MPI_INT, 0, work, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    std::printf("rank %d is through\n", rank);
    MPI_Finalize();
    return 0;
}

/* rests: every rank exchanges messages with all others, waits until it has no descriptor for any of
 * them any more, and exchanges messages again. Exits 0 when all are right.
 */
#include <dirent.h>
#include <mpi.h>

#include <cstdio>

namespace {

int descriptors()
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != nullptr && readdir(folder) != nullptr) {
        ++count;
    }
    closedir(folder);
    return count;
}

/// \return how many messages were wrong
int exchange(int rank, int size)
{
    int wrong = 0;
    for (int step = 1; step < size; ++step) {
        const int to = (rank + step) % size;
        const int from = (rank + size - step) % size;
        int got = -1;
        MPI_Sendrecv(&rank, 1, MPI_INT, to, 0, &got, 1, MPI_INT, from, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        wrong += got == from ? 0 : 1;
    }
    return wrong;
}

} // namespace

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int wrong = exchange(rank, size);
    const int busy = descriptors();
    int there = 0;
    while (descriptors() > busy - (size - 1)) {
        MPI_Iprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    }
    wrong += exchange(rank, size);
    std::printf("rank %d: %d wrong after it rested\n", rank, wrong);
    MPI_Finalize();
    return wrong == 0 ? 0 : 1;
}

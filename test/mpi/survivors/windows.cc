// One-sided work without an end, in which rank 1 dies.
//
// usage: windows pscw|lock|lock_all
//
// Between ranks that know nothing of failures, whose error handlers are those that every program
// begins with.
#include <mpi.h>

#include <csignal>
#include <string>
#include <vector>

int main(int argc, char **argv)
{
    constexpr int words = 4000;
    constexpr int rounds = 20;
    MPI_Init(&argc, &argv);
    const std::string how = argc > 1 ? argv[1] : "";
    int me = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    std::vector<double> mine(words);
    std::vector<double> memory(words);
    MPI_Win window = MPI_WIN_NULL;
    MPI_Win_create(memory.data(), words * sizeof(double), sizeof(double), MPI_INFO_NULL,
                   MPI_COMM_WORLD, &window);
    const int to = (me + 1) % size;
    const int from = (me + size - 1) % size;
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group targets = MPI_GROUP_NULL;
    MPI_Group origins = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &to, &targets);
    MPI_Group_incl(world, 1, &from, &origins);
    if (how == "lock_all") {
        MPI_Win_lock_all(0, window);
    }
    for (int round = 0;; ++round) {
        if (round == rounds && me == 1) {
            raise(SIGKILL);
        }
        const int target = how == "lock" ? round % size : to;
        if (how == "pscw") {
            MPI_Win_post(origins, 0, window);
            MPI_Win_start(targets, 0, window);
        } else if (how == "lock") {
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window);
        }
        MPI_Put(mine.data(), words, MPI_DOUBLE, target, 0, words, MPI_DOUBLE, window);
        if (how == "pscw") {
            MPI_Win_complete(window);
            MPI_Win_wait(window);
        } else if (how == "lock") {
            MPI_Win_unlock(target, window);
        } else {
            MPI_Win_flush(target, window);
        }
    }
}

/* forks: each rank has children that do nothing but call exit(), and waits for them, while threads
 * of the runtime's look after it. Exits 0 when all ended at once.
 */
#include <mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int children = 20;
constexpr double patience_s = 10;

bool ends(pid_t child)
{
    for (const double begin = MPI_Wtime(); MPI_Wtime() < begin + patience_s;) {
        int status = 0;
        if (waitpid(child, &status, WNOHANG) == child) {
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        }
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return false;
}

} // namespace

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int bad = 0;
    for (int i = 0; i < children && bad == 0; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            std::exit(0);
        }
        bad += child > 0 && ends(child) ? 0 : 1;
    }
    MPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (bad == 0) {
        std::printf("rank %d: its children ended\n", rank);
    }
    MPI_Finalize();
    return bad == 0 ? 0 : 1;
}

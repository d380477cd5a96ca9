/* leaves: every rank exchanges messages with all others, and then somebody ends by exit() without
 * MPI_Finalize.
 *
 * "leaves children": children that each rank has forked and that do nothing else, with exit code 0.
 * Their parents exchange messages again and end in good order. Exits 0 when all was right.
 * "leaves CODE": the ranks themselves, with that exit code. "leaves CODE threads": rank 0 alone,
 * while another thread of it exchanges messages, and goes on for as long as exit() takes.
 */
#include <mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr int children = 3;

/// \return how many messages were wrong
int exchange(int rank, int size)
{
    int wrong = 0;
    for (const int length : {1, 1, 1, 50000}) {
        for (int step = 1; step < size; ++step) {
            const int to = (rank + step) % size;
            const int from = (rank + size - step) % size;
            const std::vector<int> out(length, rank);
            std::vector<int> in(length, -1);
            MPI_Sendrecv(out.data(), length, MPI_INT, to, 0, in.data(), length, MPI_INT, from, 0,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            wrong += in == std::vector<int>(length, from) ? 0 : 1;
        }
    }
    return wrong;
}

std::atomic<int> rounds{0};

void await_rounds()
{
    constexpr int many = 50;
    int seen = rounds;
    for (const int end = seen + many; seen < end; seen = rounds) {
        rounds.wait(seen);
    }
}

void exchange_without_end(int rank, int size)
{
    for (;;) {
        exchange(rank, size);
        ++rounds;
        rounds.notify_all();
    }
}

bool child_ends_well()
{
    const pid_t child = fork();
    if (child == 0) {
        std::exit(0);
    }
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

} // namespace

int main(int argc, char **argv)
{
    int provided = 0;
    const bool threads = argc > 2 && std::strcmp(argv[2], "threads") == 0;
    if (threads) {
        std::atexit(await_rounds); // called when what MPI_Init loads has been through exit()
    }
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int wrong = exchange(rank, size);
    if (threads && rank == 0) {
        std::thread(exchange_without_end, rank, size).detach();
        await_rounds();
    } else if (threads) {
        exchange_without_end(rank, size); // until the job is ended
    }
    if (argc > 1 && std::strcmp(argv[1], "children") != 0) {
        std::exit(std::atoi(argv[1]));
    }
    for (int i = 0; i < children; ++i) {
        wrong += child_ends_well() ? 0 : 1;
    }
    wrong += exchange(rank, size);
    std::printf("rank %d: %d wrong after its children ended\n", rank, wrong);
    MPI_Finalize();
    return wrong == 0 ? 0 : 1;
}

// A rank dies and leaves something behind that lives on; the others must get through MPI_Finalize.
//
// usage: remains child|kill|exit [FIFO]
//        remains alone
//
// Rank 1 dies by SIGKILL when a child of its own runs (child) or without one (kill), or it calls
// _exit(3) (exit). The others wait until they know of that, and finalize. With a child, each of
// them waits for the end of that, too. At last rank 0 writes a line to the FIFO. Each survivor
// prints "rank R: is through". Alone, every rank dies by SIGKILL as soon as it is through MPI_Init.
#include <mpi.h>

#include "opal/process/deaths.hpp"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

/// More than any of these tests may take.
constexpr unsigned deadline_seconds = 120;

/// Waits for the end of a process, whoever's it is.
void wait_for_end(pid_t pid)
{
    pollfd ended{static_cast<int>(syscall(SYS_pidfd_open, pid, 0)), POLLIN, 0};
    if (ended.fd >= 0) { // else it is gone already
        poll(&ended, 1, -1);
        close(ended.fd);
    }
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 2) {
        return 64;
    }
    MPI_Init(&argc, &argv);
    if (std::strcmp(argv[1], "alone") == 0) {
        raise(SIGKILL);
    }
    int me = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    int child = 0;
    if (me == 1 && std::strcmp(argv[1], "child") == 0) {
        child = fork();
        if (child == 0) {
            alarm(deadline_seconds); // should nobody kill it
            for (;;) {
                pause();
            }
        }
    }
    MPI_Bcast(&child, 1, MPI_INT, 1, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == 1) {
        // The others have left the barrier, or under another PML than dr they may wait there.
        int others = 0;
        MPI_Comm_size(MPI_COMM_WORLD, &others);
        for (int i = 1; i < others; ++i) {
            MPI_Recv(nullptr, 0, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        if (std::strcmp(argv[1], "exit") == 0) {
            _exit(3);
        }
        raise(SIGKILL);
    }
    MPI_Send(nullptr, 0, MPI_INT, 1, 1, MPI_COMM_WORLD);
    while (ft::process::death_count() == 0) {
        int flag = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    if (child != 0) {
        wait_for_end(child);
    }
    std::printf("rank %d: is through\n", me);
    std::fflush(stdout);
    if (argc > 2 && me == 0) {
        std::ofstream(argv[2]) << "over\n";
    }
    return 0;
}

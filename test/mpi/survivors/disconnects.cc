// A rank spawns three others and parts from them, though one has died.
//
// usage: disconnects before    it has died, and all know of it, when they call MPI_Comm_disconnect
//        disconnects during    it dies while they call it
//        disconnects merged    nobody dies; they part twice, the second time from what both groups
//                              were merged into
//        disconnects many      as during; then six more jobs are spawned that end well, and mpirun
//                              keeps none of them in memory
//        disconnects left      two ranks on two hosts spawn two; one of these dies while the others
//                              part from it, but for one that knows of it by then, does not join
//                              them, and leaves when their job is over
//
// Each that lives prints "parted".
#include <mpi.h>

#include "opal/process/deaths.hpp"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

constexpr int children = 3;
constexpr int doomed = 1;
constexpr int later_jobs = 6;
/// What a job takes that is kept is more than 8 MiB.
constexpr long most_growth_kib = 20'000;

void hear_of_death()
{
    while (ft::process::death_count() == 0) {
        int there = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &there, MPI_STATUS_IGNORE);
    }
}

/// Without words: the last to be parted from.
void part(MPI_Comm comm)
{
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (MPI_Comm_disconnect(&comm) == MPI_SUCCESS) {
        std::puts("parted");
        std::fflush(stdout);
    }
}

MPI_Comm spawn(const char *program, const char *how)
{
    std::string copy = how;
    char *arguments[] = {copy.data(), nullptr};
    MPI_Comm inter = MPI_COMM_NULL;
    MPI_Comm_spawn(program, arguments, children, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter,
                   MPI_ERRCODES_IGNORE);
    return inter;
}

/// Waits for the end of a process, whoever's it is.
void wait_for_end(int pid)
{
    pollfd ended{static_cast<int>(syscall(SYS_pidfd_open, pid, 0)), POLLIN, 0};
    if (ended.fd >= 0) { // else it is gone already
        poll(&ended, 1, -1);
        close(ended.fd);
    }
}

/// Rank 1 of both groups is on the second host.
int left(const char *program, MPI_Comm inter, int me)
{
    int word = getpid();
    if (inter == MPI_COMM_NULL) {
        std::string how = "left";
        char *arguments[] = {how.data(), nullptr};
        MPI_Comm_spawn(program, arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                       MPI_ERRCODES_IGNORE);
        if (me == 1) {
            MPI_Send(&word, 1, MPI_INT, 1, 0, inter);
            MPI_Ssend(&word, 1, MPI_INT, 0, 0, inter); // under pml/dr it waits for acknowledgements
        }
    } else if (me == 0) {
        MPI_Recv(&word, 1, MPI_INT, 1, 0, inter, MPI_STATUS_IGNORE);
        // The other one is about to wait for it, which nobody can see. Should it not do so yet, it
        // knows of the death, too, and there is nothing to be seen.
        usleep(500'000);
        raise(SIGKILL);
    } else {
        MPI_Recv(&word, 1, MPI_INT, 1, 0, inter, MPI_STATUS_IGNORE);
        hear_of_death();
    }
    const bool child = word != getpid();
    part(inter);
    if (child) {
        wait_for_end(word);
        usleep(500'000); // until its daemon has forgotten that job, which nobody can see either
    }
    MPI_Finalize();
    return 0;
}

/// Of mpirun, which has started this rank, in KiB.
long resident()
{
    std::ifstream status("/proc/" + std::to_string(getppid()) + "/status");
    std::string word;
    long kib = 0;
    while (status >> word && word != "VmRSS:") {
    }
    status >> kib;
    return kib;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 2) {
        return 64;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm inter = MPI_COMM_NULL;
    MPI_Comm_get_parent(&inter);
    const bool child = inter != MPI_COMM_NULL;
    int me = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    if (std::strcmp(argv[1], "left") == 0) {
        return left(argv[0], inter, me);
    }
    const bool merged = std::strcmp(argv[1], "merged") == 0;
    const bool well = merged || std::strcmp(argv[1], "well") == 0;
    if (!child) {
        inter = spawn(argv[0], argv[1]);
    } else if (me == doomed && !well) {
        raise(SIGKILL);
    }
    if (std::strcmp(argv[1], "before") == 0) {
        hear_of_death();
    }
    MPI_Comm both = MPI_COMM_NULL;
    if (merged) {
        MPI_Intercomm_merge(inter, child ? 1 : 0, &both);
    }
    part(inter);
    if (merged) {
        part(both);
    }
    if (!child && std::strcmp(argv[1], "many") == 0) {
        hear_of_death();
        const long before = resident();
        for (int job = 0; job < later_jobs; ++job) {
            part(spawn(argv[0], "well"));
        }
        while (resident() - before >= most_growth_kib) { // until the test's deadline
            usleep(10'000);                              // the last may not be over yet
        }
        std::puts("mpirun keeps none");
    }
    MPI_Finalize();
    return 0;
}

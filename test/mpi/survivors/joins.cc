// Ranks that spawn others on a host that was not part of the job, and see that host die.
//
// usage: joins HOST FIFO GO
//
// In each of two rounds the ranks wait until the file GO.ROUND is there, spawn one rank on HOST
// (add-host), and rank 0 gets a word from it ("joined ROUND" in the FIFO). The first child computes
// until it is killed: all ranks must learn of its death ("lost RANK"). The second one finishes with
// its parents. Prints "done RANK" at the end.
#include <mpi.h>

#include "opal/process/deaths.hpp"
#include "test/mpi/survivors/mark.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <unistd.h>

namespace {

constexpr int word = 4711;
using marks::mark;

/// Keeps MPI moving, in which the news of deaths come.
void turn()
{
    int flag = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    ::usleep(1000);
}

int child(MPI_Comm parent, bool stays)
{
    MPI_Send(&word, 1, MPI_INT, 0, 1, parent);
    while (stays) {
        turn();
    }
    MPI_Comm_disconnect(&parent);
    MPI_Finalize();
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm parent = MPI_COMM_NULL;
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        return child(parent, std::strcmp(argv[1], "stay") == 0);
    }
    int me = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    char stay[] = "stay";
    char leave[] = "leave";
    for (int round = 1; round <= 2; ++round) {
        const std::string go = std::string(argv[3]) + "." + std::to_string(round);
        while (::access(go.c_str(), F_OK) != 0) {
            turn();
        }
        MPI_Info info = MPI_INFO_NULL;
        MPI_Info_create(&info);
        MPI_Info_set(info, "add-host", argv[1]);
        MPI_Comm children = MPI_COMM_NULL;
        char *arguments[] = {round == 1 ? stay : leave, nullptr};
        MPI_Comm_spawn(argv[0], arguments, 1, info, 0, MPI_COMM_WORLD, &children,
                       MPI_ERRCODES_IGNORE);
        MPI_Info_free(&info);
        int got = 0;
        if (me == 0) {
            MPI_Recv(&got, 1, MPI_INT, 0, 1, children, MPI_STATUS_IGNORE);
            mark(argv[2], got == word ? "joined " + std::to_string(round) : "a wrong word");
        }
        if (round == 2) {
            MPI_Comm_disconnect(&children);
            break;
        }
        while (ft::process::death_count() == 0) {
            turn();
        }
        mark(argv[2], "lost " + std::to_string(me));
        MPI_Comm_free(&children);
    }
    MPI_Finalize();
    std::printf("done %d\n", me);
    return 0;
}

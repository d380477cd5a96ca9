// Ranks of which one dies, or stands still, at a point of MPI_Init.
//
// usage: starts FIFO RANK POINT HOW
//
// RANK does so; POINT and HOW are numbers of dies_at.hpp, or POINT is "before": it stands before
// MPI_Init until its daemon is dead, and goes on then; or "never": it stands before MPI_Init. In
// FIFO everybody says "begins RANK", then "through RANK" behind MPI_Init. Who is through waits
// until it knows of a death if RANK is to die, finishes, and prints "done RANK of SIZE".
#include <mpi.h>

#include "opal/process/deaths.hpp"
#include "test/mpi/survivors/dies_at.hpp"
#include "test/mpi/survivors/mark.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

using marks::mark;

void outlive_daemon(const char *fifo)
{
    pollfd daemon{.fd = static_cast<int>(syscall(SYS_pidfd_open, getppid(), 0)),
                  .events = POLLIN,
                  .revents = 0};
    if (daemon.fd < 0) {
        std::perror("pidfd_open"); // and the test misses the mark
        return;
    }
    mark(fifo, "stands");
    while (poll(&daemon, 1, -1) < 0 && errno == EINTR) {
    }
    close(daemon.fd);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 5) {
        std::fprintf(stderr, "usage: starts FIFO RANK POINT HOW\n");
        return 64;
    }
    const char *const fifo = argv[1];
    const char *const mine = std::getenv("OMPI_COMM_WORLD_RANK");
    const std::string me = mine == nullptr ? "0" : mine;
    const std::string point = argv[3];
    const auto how = static_cast<dies_at::How>(std::atoi(argv[4]));
    if (point != "before" && point != "never") {
        dies_at::arm(static_cast<dies_at::Point>(std::atoi(point.c_str())), argv[2], fifo, how);
    }
    mark(fifo, "begins " + me);
    if (point == "before" && me == argv[2]) {
        outlive_daemon(fifo);
    }
    if (point == "never" && me == argv[2]) {
        mark(fifo, "stands");
        for (;;) {
            pause();
        }
    }
    MPI_Init(&argc, &argv);
    mark(fifo, "through " + me);
    if (how != dies_at::How::waits) {
        for (std::uint64_t seen = 0; ft::process::death_count() == 0; seen = ft::process::news()) {
            ft::process::wait_for_news(seen);
        }
    }
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Finalize();
    std::printf("done %s of %d\n", me.c_str(), size);
    return 0;
}

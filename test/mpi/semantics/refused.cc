/* Rank 1 closes its connections and listens no more, as a process does that dies, but stays for a
 * while. The others, who talk to it, try to connect anew and are refused until they give it up.
 * Open MPI must look at the sockets that are left as often as before: btl/tcp miscounts the
 * connections that were refused, and messages between healthy ranks took tens of milliseconds.
 *
 * usage: refused FIFO
 * Needs three ranks over btl/tcp. The others tell rank 1 through that FIFO that they have finished.
 */
#include "ompi/mpi_ft/mpi_ft.h"

#include <mpi.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

constexpr int others = 2;
constexpr int refused_at_least = 3; /* one live connection at each; more than that */
bool counts = false;                /* in one thread */
long polls = 0;
int refusals = 0;

/* The port of the runtime's server, to which the connection stays. */
int runtime_port()
{
    for (const char *name : {"PMIX_SERVER_URI4", "PMIX_SERVER_URI41", "PMIX_SERVER_URI3"}) {
        const char *text = std::getenv(name);
        const char *colon = text == nullptr ? nullptr : std::strrchr(text, ':');
        if (colon != nullptr) {
            return std::atoi(colon + 1);
        }
    }
    return -1;
}

/* \return how many sockets it had */
int leave_the_network()
{
    const int keep = runtime_port();
    int silence[2] = {-1, -1};
    int count = 0;
    if (pipe(silence) != 0) {
        return 0;
    }
    for (int fd = 3; fd < 1024; ++fd) {
        sockaddr_in peer{};
        socklen_t length = sizeof peer;
        int listens = 0;
        socklen_t size = sizeof listens;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0) {
            continue;
        }
        const bool connected = getpeername(fd, reinterpret_cast<sockaddr *>(&peer), &length) == 0 &&
                               peer.sin_family == AF_INET && ntohs(peer.sin_port) != keep;
        sockaddr_in own{};
        length = sizeof own;
        const bool tcp = getsockname(fd, reinterpret_cast<sockaddr *>(&own), &length) == 0 &&
                         own.sin_family == AF_INET;
        if (tcp && listens != 0) {
            count += dup2(silence[0], fd) == fd ? 1 : 0; /* nobody ever writes to it */
        } else if (tcp && connected) {
            count += shutdown(fd, SHUT_RDWR) == 0 ? 1 : 0;
        }
    }
    return count;
}

void wait_for_the_others(const char *fifo)
{
    const int fd = open(fifo, O_RDWR);
    char mark = 0;
    for (int left = others; left != 0 && read(fd, &mark, 1) == 1;) {
        --left;
    }
    close(fd);
}

void tell(const char *fifo)
{
    const int fd = open(fifo, O_WRONLY);
    if (fd < 0 || write(fd, "x", 1) != 1) {
        std::perror(fifo);
    }
    close(fd);
}

int class_of(int code)
{
    int error_class = -1;
    MPI_Error_class(code, &error_class);
    return error_class;
}

/* \return the class of the error that ends it */
int talk(int with, int times)
{
    std::array<char, 4000> out{};
    std::array<char, 4000> in{};
    for (int i = 0; i < times; ++i) {
        const int rc = MPI_Sendrecv(out.data(), 4000, MPI_CHAR, with, 1, in.data(), 4000, MPI_CHAR,
                                    with, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rc != MPI_SUCCESS) {
            return class_of(rc);
        }
    }
    return MPI_SUCCESS;
}

/* How often Open MPI looks at its sockets in so many calls. */
long looks_in(long times)
{
    int flag = 0;
    counts = true;
    for (long i = 0; i < times; ++i) {
        MPI_Iprobe(MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
    counts = false;
    return polls;
}

} // namespace

/* These two stand before the C library's, which Open MPI calls. */
extern "C" int poll(pollfd *fds, nfds_t count, int timeout)
{
    polls += counts ? 1 : 0;
    return static_cast<int>(syscall(SYS_poll, fds, count, timeout));
}

extern "C" int getsockopt(int fd, int level, int option, void *value, socklen_t *length)
{
    const int rc = static_cast<int>(syscall(SYS_getsockopt, fd, level, option, value, length));
    int error = 0;
    if (rc == 0 && level == SOL_SOCKET && option == SO_ERROR) {
        std::memcpy(&error, value, sizeof error);
    }
    refusals += error == ECONNREFUSED ? 1 : 0;
    return rc;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    bool right = argc == 2;
    for (int other = 0; right && other <= others; ++other) {
        right = other == rank || talk(other, rank + other == others ? 100 : 10) == MPI_SUCCESS;
    }
    if (rank == 1) {
        MPI_Barrier(MPI_COMM_WORLD);
        const int left = leave_the_network();
        std::printf("rank 1 left %d sockets\n", left);
        wait_for_the_others(argv[1]);
    } else {
        MPI_Barrier(MPI_COMM_WORLD);
        const int lost = talk(1, 1000000);
        const int healthy = talk(2 - rank, 200);
        const long looks = looks_in(1000);
        right = right && lost == MPIX_ERR_UNREACHABLE && healthy == MPI_SUCCESS && looks >= 1000;
        std::printf("rank %d: class %d, then %d; %d refused; looked %ld times\n", rank, lost,
                    healthy, refusals, looks);
        tell(argv[1]);
    }
    MPI_Finalize();
    std::printf("rank %d %s\n", rank,
                right && (rank == 1 || refusals >= refused_at_least) ? "right" : "WRONG");
    return 0;
}

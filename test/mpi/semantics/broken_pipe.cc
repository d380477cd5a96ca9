/* What a rank does about SIGPIPE, which the kernel sends to whoever writes to a connection that the
 * other end has reset. Prints how each step ended; without anything that keeps it alive it is ended
 * by the signal.
 *
 * Arguments: "own" sets a handler of its own before MPI_Init.
 */
#include <mpi.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <sys/socket.h>
#include <unistd.h>

namespace {

volatile std::sig_atomic_t own_calls = 0;

void own_handler(int /*signal*/)
{
    own_calls = own_calls + 1;
}

/* Writes twice to a socket whose other end is closed. \return the errno of the last write */
int write_to_nobody()
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
        return -1;
    }
    close(ends[1]);
    int error = 0;
    for (int i = 0; i < 2; ++i) {
        error = write(ends[0], "x", 1) < 0 ? errno : 0;
    }
    close(ends[0]);
    return error;
}

} // namespace

int main(int argc, char **argv)
{
    const bool own = argc > 1 && std::strcmp(argv[1], "own") == 0;
    if (own) {
        std::signal(SIGPIPE, own_handler);
    }
    MPI_Init(&argc, &argv);
    const int error = write_to_nobody();
    std::printf("%s after the write: %s, own handler called %d times\n",
                own ? "own handler" : "default", error == EPIPE ? "EPIPE" : "something else",
                static_cast<int>(own_calls));
    MPI_Finalize();
    struct sigaction left = {};
    sigaction(SIGPIPE, nullptr, &left);
    const bool as_before = left.sa_handler == (own ? own_handler : SIG_DFL);
    std::printf("after MPI_Finalize: %s\n", as_before ? "as before MPI_Init" : "changed");
    return 0;
}

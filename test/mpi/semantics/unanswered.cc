/* The first connection that rank 0 makes is answered by nobody, as where one way through a network
 * swallows what is sent: the kernel gives it up after two minutes. Over the other link the peer is
 * reached. To be run with two links, and with a pml_dr_give_up_ms below these minutes.
 */
#include "cases.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

using cases::check;
using cases::world;

sockaddr_in deaf{};
bool armed = false;
int swallowed = 0;

int connect_to(int fd, const void *where, socklen_t size)
{
    return static_cast<int>(syscall(SYS_connect, fd, where, size));
}

/* An address where connections are asked for in vain: its queue is full, and nobody takes any. */
bool make_deaf()
{
    constexpr int patience_ms = 200;
    socklen_t size = sizeof deaf;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    deaf.sin_family = AF_INET;
    deaf.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto *const address = reinterpret_cast<sockaddr *>(&deaf);
    if (bind(listener, address, size) != 0 || listen(listener, 0) != 0 ||
        getsockname(listener, address, &size) != 0) {
        return false;
    }
    for (int i = 0; i < 16; ++i) {
        pollfd one{socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), POLLOUT, 0};
        (void)connect_to(one.fd, &deaf, sizeof deaf);
        if (poll(&one, 1, patience_ms) == 0) {
            return true;
        }
    }
    return false;
}

void the_other_link_is_taken()
{
    int value = 0;
    if (world().rank == 0) {
        check(make_deaf(), "an address where nobody answers");
        armed = true;
        value = 7;
        check(MPI_Send(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD) == MPI_SUCCESS, "send");
    } else {
        check(MPI_Recv(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS,
              "receive");
        check(value == 7, "what was sent");
    }
    check(swallowed == (world().rank == 0 ? 1 : 0), "connections without an answer", swallowed);
}

const cases::Case all[] = {
    {"a link whose connection nobody answers keeps no other one back", the_other_link_is_taken}};

} // namespace

/* Stands before the C library's, which Open MPI calls. */
extern "C" int connect(int fd, const sockaddr *where, socklen_t size)
{
    if (armed && where->sa_family == AF_INET && (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0) {
        armed = false;
        ++swallowed;
        return connect_to(fd, &deaf, sizeof deaf);
    }
    return connect_to(fd, where, size);
}

int main(int argc, char **argv)
{
    return cases::run(argc, argv, MPI_THREAD_SINGLE, all);
}

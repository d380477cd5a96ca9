/* Who has sent leaves MPI at once and comes back only when the receiver says, by other means, that
 * it has the message: a sender that computes.
 *
 * usage: computing [meetings]
 * Without an argument the message is the first contact of the two. With one, they have met that
 * often before, so that a fault can be made to strike the message that matters.
 */
#include "test/mpi/semantics/cases.hpp"

#include <array>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using cases::check;
using cases::world;

constexpr int path_bytes = 256;
int meetings = 0;

void meet(int other)
{
    for (int i = 0; i < meetings; ++i) {
        int token = i;
        if (world().rank % 2 == 0) {
            MPI_Send(&token, 1, MPI_INT, other, 2, MPI_COMM_WORLD);
            MPI_Recv(&token, 1, MPI_INT, other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&token, 1, MPI_INT, other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&token, 1, MPI_INT, other, 2, MPI_COMM_WORLD);
        }
        check(token == i, "token", token);
    }
}

/* The message is the name of a FIFO, at whose one end the sender waits. */
void send_and_compute(int other)
{
    const char *temporary = std::getenv("TMPDIR");
    std::string folder =
        std::string(temporary == nullptr ? "/tmp" : temporary) + "/computingXXXXXX";
    if (mkdtemp(folder.data()) == nullptr) {
        check(false, "mkdtemp");
        folder.clear();
    }
    std::array<char, path_bytes> path{};
    (folder + "/heard").copy(path.data(), path_bytes - 1);
    check(mkfifo(path.data(), 0600) == 0, "mkfifo");
    MPI_Send(path.data(), path_bytes, MPI_CHAR, other, 1, MPI_COMM_WORLD);
    const int fd = open(path.data(), O_RDONLY); // until the receiver opens it
    char word = 0;
    check(fd >= 0 && read(fd, &word, 1) == 1 && word == 'y', "the receiver's word", word);
    close(fd);
    unlink(path.data());
    rmdir(folder.c_str());
}

void receive_and_tell(int other)
{
    std::array<char, path_bytes> path{};
    MPI_Recv(path.data(), path_bytes, MPI_CHAR, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    const int fd = open(path.data(), O_WRONLY);
    check(fd >= 0 && write(fd, "y", 1) == 1, "telling the sender", fd);
    close(fd);
}

void computing_sender()
{
    const int other = world().rank ^ 1;
    if (other >= world().size) {
        return;
    }
    meet(other);
    if (world().rank % 2 == 0) {
        send_and_compute(other);
    } else {
        receive_and_tell(other);
    }
}

constexpr std::array all{
    cases::Case{"who has sent may leave MPI, and the message arrives", computing_sender},
};

} // namespace

int main(int argc, char **argv)
{
    meetings = argc > 1 ? std::atoi(argv[1]) : 0;
    return cases::run(argc, argv, MPI_THREAD_SINGLE, all);
}

// Rank 0 has no file descriptor left when rank 1 sends to it for the first time. What it says of
// that on standard error is printed on standard output; then it closes some, and gets the message.
//
// usage: starved FOLDER      which rank 0 makes when it has opened all that it may
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr int word = 4711;

/// Whether standard error has the message. Takes no descriptor.
bool is_said()
{
    std::array<char, 16384> text{};
    return pread(STDERR_FILENO, text.data(), text.size() - 1, 0) > 0 &&
           std::strstr(text.data(), "file descriptors are free") != nullptr;
}

/// What rank 1 has sent; 0 when there was something wrong.
int take(const std::vector<int> &held)
{
    int got = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(&got, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, &request);
    int over = 0;
    while (over == 0 && !is_said()) {
        MPI_Test(&request, &over, MPI_STATUS_IGNORE);
    }
    if (over != 0) {
        return 0; // it was taken in all the same
    }
    for (const int fd : held) {
        close(fd);
    }
    return MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS ? got : 0;
}

} // namespace

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1) {
        while (access(argv[1], F_OK) != 0) {
            sched_yield();
        }
        MPI_Send(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
        return MPI_Finalize();
    }
    std::FILE *const said = std::tmpfile();
    if (said == nullptr) {
        std::perror("starved: no temporary file");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    dup2(fileno(said), STDERR_FILENO);
    std::vector<int> held;
    for (int fd = 0; (fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)) >= 0;) {
        held.push_back(fd);
    }
    mkdir(argv[1], 0700); // takes none
    const int got = take(held);
    std::rewind(said);
    for (int byte = 0; (byte = std::fgetc(said)) != EOF;) {
        std::putchar(byte);
    }
    std::printf("got %d\n", got);
    std::fclose(said);
    return MPI_Finalize();
}

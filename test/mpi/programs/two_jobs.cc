/* two_jobs: two jobs of an mpirun each meet, exchange messages of several sizes, and part.
 *
 * usage: two_jobs accept|connect FILE
 *   The one that accepts writes the name of its port into the file, a FIFO, from which the other
 *   one reads it. Each rank prints `two_jobs: right` when every byte was.
 */
#include <mpi.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace {

constexpr std::size_t sizes[] = {1, 2000, 70'000, 3'000'000};

MPI_Comm meet(bool accepts, const char *file)
{
    MPI_Comm other = MPI_COMM_NULL;
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (accepts) {
        char port[MPI_MAX_PORT_NAME];
        MPI_Open_port(MPI_INFO_NULL, port);
        if (rank == 0) {
            std::ofstream(file) << port; // waits for who reads; the test has the deadline
        }
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other);
        return other;
    }
    std::string port;
    if (rank == 0) {
        std::getline(std::ifstream(file), port);
    }
    MPI_Comm_connect(port.c_str(), MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other);
    return other;
}

unsigned char byte(bool of_accepting, int rank, std::size_t at)
{
    return static_cast<unsigned char>(at * 7 + at / 251 + static_cast<std::size_t>(rank) * 3 +
                                      (of_accepting ? 1 : 0));
}

} // namespace

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc != 3) {
        std::fprintf(stderr, "usage: two_jobs accept|connect FILE\n");
        return 2;
    }
    const bool accepts = std::strcmp(argv[1], "accept") == 0;
    MPI_Comm other = meet(accepts, argv[2]);
    int rank = 0;
    int theirs = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_remote_size(other, &theirs);
    bool right = true;
    for (const std::size_t size : sizes) {
        std::vector<unsigned char> mine(size);
        for (std::size_t i = 0; i < size; ++i) {
            mine[i] = byte(accepts, rank, i);
        }
        std::vector<MPI_Request> sends(static_cast<std::size_t>(theirs));
        for (int peer = 0; peer < theirs; ++peer) {
            MPI_Isend(mine.data(), static_cast<int>(size), MPI_BYTE, peer, 3, other,
                      &sends[static_cast<std::size_t>(peer)]);
        }
        for (int peer = 0; peer < theirs; ++peer) {
            std::vector<unsigned char> got(size);
            MPI_Recv(got.data(), static_cast<int>(size), MPI_BYTE, peer, 3, other,
                     MPI_STATUS_IGNORE);
            for (std::size_t i = 0; i < size; ++i) {
                right = right && got[i] == byte(!accepts, peer, i);
            }
        }
        MPI_Waitall(theirs, sends.data(), MPI_STATUSES_IGNORE);
    }
    MPI_Comm_disconnect(&other);
    std::printf("two_jobs: %s\n", right ? "right" : "wrong");
    MPI_Finalize();
    return right ? 0 : 1;
}

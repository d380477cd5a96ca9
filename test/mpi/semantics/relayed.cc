/* Two ranks whose connection a relay holds and breaks at chosen moments
 * (test/mpi/test_freed_buffer.py).
 *
 * usage: relayed freed FOLDER   rank 0 gives its buffer back to the system as soon as MPI_Send
 *                               returns, and makes the file FOLDER/freed
 * Every byte is checked; in the end rank 0 prints "relayed: right".
 */
#include <mpi.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

constexpr int long_bytes = 1 << 20;
constexpr int short_bytes = 3000;
std::string folder;
long wrong = 0;

unsigned char expected(int message, int at)
{
    return static_cast<unsigned char>(message * 31 + at * 7 + (at >> 8));
}

void fill(unsigned char *bytes, int size, int message)
{
    for (int i = 0; i < size; ++i) {
        bytes[i] = expected(message, i);
    }
}

void examine(const unsigned char *bytes, int size, int message)
{
    for (int i = 0; i < size; ++i) {
        wrong += bytes[i] != expected(message, i) ? 1 : 0;
    }
}

void send_short(int to, int message)
{
    std::vector<unsigned char> bytes(short_bytes);
    fill(bytes.data(), short_bytes, message);
    MPI_Send(bytes.data(), short_bytes, MPI_BYTE, to, message, MPI_COMM_WORLD);
}

void receive_short(int from, int message)
{
    std::vector<unsigned char> bytes(short_bytes);
    MPI_Recv(bytes.data(), short_bytes, MPI_BYTE, from, message, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    examine(bytes.data(), short_bytes, message);
}

void freed(int rank)
{
    if (rank == 0) {
        void *memory =
            mmap(nullptr, long_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        fill(static_cast<unsigned char *>(memory), long_bytes, 1);
        MPI_Send(memory, long_bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        munmap(memory, long_bytes);
        close(open((folder + "/freed").c_str(), O_CREAT | O_WRONLY, 0600));
    } else {
        std::vector<unsigned char> bytes(long_bytes);
        MPI_Recv(bytes.data(), long_bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        examine(bytes.data(), long_bytes, 1);
    }
}

} // namespace

int main(int argc, char **argv)
{
    int rank = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 3 || std::strcmp(argv[1], "freed") != 0) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    folder = argv[2];
    if (rank == 0) {
        send_short(1, 0);
        receive_short(1, 0);
    } else {
        receive_short(0, 0);
        send_short(0, 0);
    }
    freed(rank);
    if (rank == 0) {
        send_short(1, 1);
        receive_short(1, 2);
    } else {
        receive_short(0, 1);
        send_short(0, 2);
    }
    long all = 0;
    MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        std::puts(all == 0 ? "relayed: right" : "relayed: wrong");
    }
    MPI_Finalize();
    return all == 0 ? 0 : 1;
}

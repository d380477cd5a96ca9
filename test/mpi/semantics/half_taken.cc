// Receivers are killed with a message half taken: every send to one of them ends with
// MPI_ERR_RANK_FAIL_STOP, and those to the last rank, which lives, arrive whole: the sender's
// buffers that the dead had are neither lost nor used twice. Rank 0 sends; it prints `half_taken:
// passed`. The last rank sends short messages to those who will die until they do, so that its
// fragments stand in their queues among rank 0's. Wants errmgr/radixft and three ranks at least.
#include <mpi.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <vector>

namespace {

constexpr int message_bytes = 8 << 20;
constexpr int fail_stop = 75; // MPI_ERR_RANK_FAIL_STOP of mpi_ft.h
constexpr double fill_seconds = 0.1;
constexpr int whole_messages = 4;
constexpr int short_bytes = 2048;
constexpr int short_tag = 2;

void need(bool good, const char *what, int number)
{
    if (!good) {
        std::fprintf(stderr, "half_taken: %s: %d\n", what, number);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/// Of message number `round`, byte `at`.
char byte_of(int round, std::size_t at)
{
    constexpr unsigned step = 2654435761U;
    return static_cast<char>(
        (static_cast<unsigned>(at / 8) + static_cast<unsigned>(round)) * step >> 24);
}

/// \return the error class
int send(std::vector<char> &message, int to, int round)
{
    for (std::size_t i = 1; i < message.size(); ++i) {
        message[i] = byte_of(round, i);
    }
    message[0] = 0;
    int error_class = 0;
    MPI_Error_class(MPI_Send(message.data(), message_bytes, MPI_CHAR, to, 1, MPI_COMM_WORLD),
                    &error_class);
    return error_class;
}

void receive_whole(std::vector<char> &message, int round)
{
    MPI_Recv(message.data(), message_bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (std::size_t i = 1; i < message.size(); ++i) {
        need(message[i] == byte_of(round, i), "a byte of one who lives", static_cast<int>(i));
    }
}

/// One after the other until it is dead.
void send_short(int victim)
{
    const std::vector<char> few(short_bytes, 1);
    int error_class = MPI_SUCCESS;
    while (error_class == MPI_SUCCESS) {
        MPI_Error_class(
            MPI_Send(few.data(), short_bytes, MPI_CHAR, victim, short_tag, MPI_COMM_WORLD),
            &error_class);
    }
    need(error_class == fail_stop, "class of a short send to one who dies", error_class);
}

/// Takes the first bytes, then nothing, so that the sender's buffers fill; then dies.
[[noreturn]] void take_half(std::vector<char> &message)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(message.data(), message_bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &request);
    const volatile char &first = message.front(); // 0 when it has come
    int whole = 0;
    while (first != 0 && whole == 0) {
        MPI_Test(&request, &whole, MPI_STATUS_IGNORE);
    }
    const double began = MPI_Wtime();
    while (MPI_Wtime() - began < fill_seconds) {
    }
    kill(getpid(), SIGKILL);
    std::abort();
}

} // namespace

int main(int argc, char **argv)
{
    int rank = 0;
    int size = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    std::vector<char> message(message_bytes, static_cast<char>(rank));
    if (rank == 0) {
        for (int victim = 1; victim < size - 1; ++victim) {
            const int found = send(message, victim, victim);
            need(found == fail_stop, "class of a send to one who dies", found);
        }
        for (int round = 0; round < whole_messages; ++round) {
            const int found = send(message, size - 1, round);
            need(found == MPI_SUCCESS, "class of a send to one who lives", found);
        }
    } else if (rank == size - 1) {
        for (int victim = 1; victim < rank; ++victim) {
            send_short(victim);
        }
        for (int round = 0; round < whole_messages; ++round) {
            receive_whole(message, round);
        }
    } else {
        take_half(message);
    }
    MPI_Finalize();
    if (rank == 0) {
        std::printf("half_taken: passed\n");
    }
    return 0;
}

/* Two ranks whose connection a relay holds and breaks at chosen moments
 * (test/mpi/test_freed_buffer.py, test/mpi/test_failed_accept.py, test/mpi/test_cut_points.py).
 *
 * usage: relayed freed FOLDER     rank 0 gives its buffer back to the system as soon as MPI_Send
 *                                 returns, and makes the file FOLDER/freed
 *        relayed let_go FOLDER   rank 0 frees the request of a send that is not complete, and gives
 *                                 its buffer back once FOLDER/received tells that it has come;
 *                                 FOLDER/freed then
 *        relayed given_up FOLDER  rank 1 calls MPI no more once FOLDER/held exists; rank 0, whose
 *                                 send ends for that, fills the buffer anew and makes FOLDER/freed,
 *                                 and rank 1 goes on: its receive fails, or brings what was sent
 *        relayed computes FOLDER  rank 0 makes FOLDER/ready and calls MPI no more until FOLDER/cut
 *                                 exists; then it sends, and calls MPI again when rank 1 has it
 *        relayed stepped FOLDER   rank 0 calls MPI once for each byte 's' that comes through the
 *                                 FIFO FOLDER/steps, and answers through FOLDER/taken, until there
 *                                 comes another; rank 1 sends to it once FOLDER/send exists
 * Every byte is checked; in the end rank 0 (given_up: rank 1) prints "relayed: right".
 */
#include <mpi.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

void look_for_nothing()
{
    int any = 0;
    constexpr int no_such_tag = 99;
    MPI_Iprobe(MPI_ANY_SOURCE, no_such_tag, MPI_COMM_WORLD, &any, MPI_STATUS_IGNORE);
}

void make_file(const char *name)
{
    close(open((folder + name).c_str(), O_CREAT | O_WRONLY, 0600));
}

void await_file(const char *name)
{
    while (access((folder + name).c_str(), F_OK) != 0) {
        look_for_nothing();
    }
}

void freed(int rank, bool while_active)
{
    if (rank == 0) {
        void *memory =
            mmap(nullptr, long_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        fill(static_cast<unsigned char *>(memory), long_bytes, 1);
        if (while_active) {
            MPI_Request request = MPI_REQUEST_NULL;
            MPI_Isend(memory, long_bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
            MPI_Request_free(&request);
            await_file("/received");
        } else {
            MPI_Send(memory, long_bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        }
        munmap(memory, long_bytes);
        make_file("/freed");
        if (!while_active) {
            await_file("/goes_on"); // or it might be over before a copy that waits goes on
        }
    } else {
        std::vector<unsigned char> bytes(long_bytes);
        MPI_Recv(bytes.data(), long_bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        examine(bytes.data(), long_bytes, 1);
        make_file("/received");
    }
}

/// Is not the library's: who is to look dead waits by it.
void await_file_in_silence(const char *name)
{
    const int news = inotify_init1(IN_CLOEXEC);
    inotify_add_watch(news, folder.c_str(), IN_CREATE);
    char events[4096];
    while (access((folder + name).c_str(), F_OK) != 0 && read(news, events, sizeof events) > 0) {
    }
    close(news);
}

/// \return whether what rank 1 received is right, or nothing at all
bool given_up(int rank)
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    std::vector<unsigned char> bytes(long_bytes);
    if (rank == 0) {
        fill(bytes.data(), long_bytes, 1);
        const bool ended =
            MPI_Send(bytes.data(), long_bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD) != MPI_SUCCESS;
        fill(bytes.data(), long_bytes, 2);
        make_file("/freed");
        while (access((folder + "/judged").c_str(), F_OK) != 0) {
            int any = 0;
            MPI_Iprobe(0, 0, MPI_COMM_SELF, &any, MPI_STATUS_IGNORE);
        }
        return ended;
    }
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(bytes.data(), long_bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
    await_file("/held");
    await_file_in_silence("/freed");
    if (MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS) {
        examine(bytes.data(), long_bytes, 1);
    }
    make_file("/judged");
    return wrong == 0;
}

void computes(int rank)
{
    if (rank == 0) {
        make_file("/ready");
        await_file_in_silence("/cut");
        send_short(1, 4);
        await_file_in_silence("/received");
    } else {
        receive_short(0, 4);
        make_file("/received");
    }
}

void stepped(int rank)
{
    if (rank == 1) {
        await_file("/send");
        send_short(0, 3);
        return;
    }
    const std::string steps = folder + "/steps";
    const std::string taken = folder + "/taken";
    mkfifo(steps.c_str(), 0600);
    mkfifo(taken.c_str(), 0600);
    make_file("/stepping");
    const int in = open(steps.c_str(), O_RDONLY);
    const int out = open(taken.c_str(), O_WRONLY);
    char wanted = 0;
    while (read(in, &wanted, 1) == 1 && wanted == 's') {
        look_for_nothing();
        wrong += write(out, "t", 1) == 1 ? 0 : 1;
    }
    close(in);
    close(out);
}

} // namespace

int main(int argc, char **argv)
{
    int rank = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const std::string what(argc == 3 ? argv[1] : "");
    const bool steps = what == "stepped";
    if (!steps && what != "freed" && what != "let_go" && what != "given_up" && what != "computes") {
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
    if (what == "given_up") {
        const bool right = given_up(rank);
        if (rank == 1) {
            std::puts(right ? "relayed: right" : "relayed: wrong");
        }
        MPI_Finalize();
        return right ? 0 : 1;
    }
    if (what == "computes") {
        computes(rank);
    } else {
        steps ? stepped(rank) : freed(rank, what == "let_go");
    }
    if (rank == 0) {
        send_short(1, 1);
        receive_short(1, 2);
        if (steps) {
            receive_short(1, 3);
        }
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

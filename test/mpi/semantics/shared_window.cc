/* A sender with long messages for several receivers that are all stopped: what is under way to all
 * of them together stays bounded, and when they go on everything arrives. Ranks of one machine.
 *
 * usage: shared_window BYTES WINDOW_BYTES FRAGMENT_BYTES
 * Each receiver says that it takes the message, and stops itself before anything of it comes. Rank
 * 0 goes on then, for a while; no more than WINDOW_BYTES, and FRAGMENT_BYTES for each receiver, may
 * be under way at a time, and at some time half of WINDOW_BYTES must be.
 */
#include "test/mpi/semantics/cases.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

namespace {

using cases::check;
using cases::expect;
using cases::is_stopped;
using cases::pattern;
using cases::Variable;
using cases::world;

constexpr int long_tag = 1;
constexpr int pid_tag = 2;
constexpr double deadline_seconds = 30;
constexpr double watched_seconds = 2; // many timeouts, each of which could let something more out

unsigned long long bytes = 0;
unsigned long long most_together = 0;
unsigned long long fragment_bytes = 0;

void receive()
{
    std::vector<unsigned char> in(bytes);
    const int pid = getpid();
    MPI_Send(&pid, 1, MPI_INT, 0, pid_tag, MPI_COMM_WORLD);
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Mprobe(0, long_tag, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    MPI_Imrecv(in.data(), static_cast<int>(bytes), MPI_BYTE, &message, &request);
    raise(SIGSTOP);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(in, static_cast<std::uint64_t>(world().rank), "wrong byte");
}

void send()
{
    const int ranks = world().size;
    Variable window("pml_dr_window_bytes_used", MPI_T_PVAR_CLASS_LEVEL, true);
    std::vector<std::vector<unsigned char>> out;
    std::vector<MPI_Request> requests;
    std::vector<int> pids;
    for (int rank = 1; rank < ranks; ++rank) {
        out.push_back(pattern(bytes, static_cast<std::uint64_t>(rank)));
        pids.push_back(0);
        MPI_Recv(&pids.back(), 1, MPI_INT, rank, pid_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    for (int rank = 1; rank < ranks; ++rank) {
        requests.emplace_back();
        MPI_Isend(out[static_cast<std::size_t>(rank - 1)].data(), static_cast<int>(bytes), MPI_BYTE,
                  rank, long_tag, MPI_COMM_WORLD, &requests.back());
    }
    const double end = MPI_Wtime() + deadline_seconds;
    const auto in_time = [end](const char *what) {
        check(MPI_Wtime() <= end, what);
        return MPI_Wtime() <= end;
    };
    /* Not a call of MPI that makes progress: nothing of the messages goes out before all are
     * stopped. */
    while (!std::all_of(pids.begin(), pids.end(), is_stopped) &&
           in_time("a receiver did not stop")) {
    }
    unsigned long long largest = 0;
    for (const double watched = MPI_Wtime() + watched_seconds; MPI_Wtime() < watched;) {
        int flag = 0;
        MPI_Iprobe(1, long_tag, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        largest = std::max(largest, window.sum());
    }
    std::printf("# at most %llu bytes under way to %d receivers\n", largest, ranks - 1);
    check(std::all_of(pids.begin(), pids.end(), is_stopped),
          "a receiver was not stopped all the time");
    const unsigned long long bound =
        most_together + fragment_bytes * static_cast<unsigned long long>(ranks - 1);
    check(largest <= bound, "bytes under way", static_cast<long long>(largest));
    check(largest >= most_together / 2, "too few bytes under way", static_cast<long long>(largest));
    for (const int pid : pids) {
        kill(pid, SIGCONT);
    }
    MPI_Waitall(ranks - 1, requests.data(), MPI_STATUSES_IGNORE);
}

void together()
{
    check(world().size >= 3, "wants three ranks or more", world().size);
    if (world().rank == 0) {
        send();
    } else {
        receive();
    }
    MPI_T_finalize(); // behind MPI_Finalize it crashes in Open MPI 4.1.4
}

constexpr std::array all{
    cases::Case{"what is under way to several stopped receivers is bounded together", together},
};

} // namespace

int main(int argc, char **argv)
{
    if (argc != 4) {
        std::fprintf(stderr, "usage: shared_window BYTES WINDOW_BYTES FRAGMENT_BYTES\n");
        return 2;
    }
    bytes = std::strtoull(argv[1], nullptr, 10);
    most_together = std::strtoull(argv[2], nullptr, 10);
    fragment_bytes = std::strtoull(argv[3], nullptr, 10);
    int provided = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    return cases::run(argc, argv, MPI_THREAD_SINGLE, all);
}

/* A sender whose receiver is stopped: what it keeps for it stays bounded, and when the receiver
 * goes on everything arrives. Two ranks of one machine.
 *
 * usage: stalled MESSAGES BYTES WINDOW_BYTES MEBIBYTES
 * Rank 0 stops itself. Rank 1 begins to send it so many messages of so many bytes, short enough to
 * be copied, and waits until dr has sent several times again; of them no more than WINDOW_BYTES may
 * be under way at a time, and its memory must not grow by more than MEBIBYTES.
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
using cases::peak;
using cases::Variable;
using cases::world;

int messages = 0;
int bytes = 0;
unsigned long long most_in_window = 0;
long most_kibibytes = 0;

constexpr int flood_tag = 1;
constexpr int pid_tag = 2;
constexpr unsigned long long times_again = 20; // each of which could keep something more
constexpr double deadline_seconds = 30;

void receive()
{
    std::vector<unsigned char> in(static_cast<std::size_t>(bytes));
    const int pid = getpid();
    MPI_Send(&pid, 1, MPI_INT, 1, pid_tag, MPI_COMM_WORLD);
    raise(SIGSTOP);
    for (int i = 0; i < messages; ++i) {
        MPI_Recv(in.data(), bytes, MPI_BYTE, 1, flood_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        expect(in, static_cast<std::uint64_t>(i), "wrong byte");
    }
}

/* \return largest window seen */
unsigned long long send_in_vain(Variable &window, Variable &again)
{
    const double end = MPI_Wtime() + deadline_seconds;
    const unsigned long long before = again.sum();
    unsigned long long largest = 0;
    while (again.sum() < before + times_again) {
        int flag = 0;
        MPI_Iprobe(0, flood_tag, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        largest = std::max(largest, window.sum());
        if (MPI_Wtime() > end) {
            check(false, "nothing was sent again");
            break;
        }
    }
    return largest;
}

void send()
{
    Variable window("pml_dr_window_bytes_used", MPI_T_PVAR_CLASS_LEVEL, true);
    Variable again("pml_dr_retransmitted_timeout", MPI_T_PVAR_CLASS_COUNTER, false);
    std::vector<std::vector<unsigned char>> out;
    for (int i = 0; i < messages; ++i) {
        out.push_back(pattern(static_cast<std::size_t>(bytes), static_cast<std::uint64_t>(i)));
    }
    std::vector<MPI_Request> requests(out.size());
    int pid = 0;
    MPI_Recv(&pid, 1, MPI_INT, 0, pid_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    while (!is_stopped(pid)) {
    }
    const long before = peak();
    unsigned long long largest = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
        MPI_Isend(out[i].data(), bytes, MPI_BYTE, 0, flood_tag, MPI_COMM_WORLD, &requests[i]);
        largest = std::max(largest, window.sum());
    }
    largest = std::max(largest, send_in_vain(window, again));
    const long grown = peak() - before;
    check(is_stopped(pid), "the receiver was not stopped all the time");
    kill(pid, SIGCONT);
    MPI_Waitall(messages, requests.data(), MPI_STATUSES_IGNORE);
    std::printf("# window %llu bytes at most, grew by %ld KiB, the payload is %ld KiB\n", largest,
                grown, static_cast<long>(messages) * bytes / 1024);
    check(largest > most_in_window / 2, "the window was never filled", static_cast<long>(largest));
    check(largest <= most_in_window, "bytes in the window", static_cast<long>(largest));
    check(before > 0 && grown <= most_kibibytes, "rank 1 grew by KiB", grown);
}

void stalled()
{
    if (world().rank == 0) {
        receive();
    } else {
        send();
    }
    MPI_T_finalize(); // behind MPI_Finalize it crashes in Open MPI 4.1.4
}

constexpr std::array all{
    cases::Case{"a sender to a stopped receiver keeps no more than its window", stalled},
};

} // namespace

int main(int argc, char **argv)
{
    if (argc != 5) {
        std::fprintf(stderr, "usage: stalled MESSAGES BYTES WINDOW_BYTES MEBIBYTES\n");
        return 2;
    }
    messages = std::atoi(argv[1]);
    bytes = std::atoi(argv[2]);
    most_in_window = std::strtoull(argv[3], nullptr, 10);
    most_kibibytes = std::atol(argv[4]) * 1024;
    int provided = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    return cases::run(argc, argv, MPI_THREAD_SINGLE, all);
}

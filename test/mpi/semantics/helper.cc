/* When the thread of pml_dr_progress thread runs: while something is unacknowledged, and else
 * never. Two ranks of one machine. What is counted is how often it went to sleep.
 */
#include "test/mpi/semantics/cases.hpp"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

namespace {

using cases::check;
using cases::is_stopped;
using cases::world;

constexpr const char *helper_name = "pml_dr_helper";
constexpr double deadline_seconds = 20;
/* It sleeps for 2 ms at a time while it has something to do, and for a while after. */
constexpr long many_times = 20;
constexpr double calm_seconds = 0.5;
/* So long without anything to do, and it has dozed off for good: it has to be woken. */
constexpr useconds_t dozes_us = 1000000;

/* \return the folder of the thread in /proc, empty when there is none. It names itself, once it
 * runs. */
std::filesystem::path find_helper()
{
    const double end = MPI_Wtime() + deadline_seconds;
    do {
        for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
            std::string name;
            std::ifstream(task.path() / "comm") >> name;
            if (name == helper_name) {
                return task.path();
            }
        }
    } while (MPI_Wtime() < end);
    return {};
}

/* How often it has gone to sleep. */
long sleeps(const std::filesystem::path &thread)
{
    std::ifstream status(thread / "status");
    for (std::string word; status >> word;) {
        if (word == "voluntary_ctxt_switches:") {
            long count = -1;
            status >> count;
            return count;
        }
    }
    return -1;
}

void talk(int other)
{
    int token = 0;
    MPI_Sendrecv_replace(&token, 1, MPI_INT, other, 1, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* The other one is stopped: what is sent to it stays unacknowledged. */
void runs_while_unacknowledged(const std::filesystem::path &thread, int other)
{
    int pid = 0;
    MPI_Recv(&pid, 1, MPI_INT, other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    const double end = MPI_Wtime() + deadline_seconds;
    while (!is_stopped(pid) && MPI_Wtime() < end) {
    }
    // Between the two the program calls nothing of MPI, and what is counted does not begin before
    // the thread would have dozed again, had nobody told it.
    usleep(dozes_us);
    MPI_Send(&pid, 1, MPI_INT, other, 3, MPI_COMM_WORLD);
    usleep(dozes_us);
    const long before = sleeps(thread);
    while (sleeps(thread) < before + many_times && MPI_Wtime() < end) {
    }
    check(sleeps(thread) >= before + many_times, "it did not run", sleeps(thread) - before);
    check(is_stopped(pid), "the receiver was not stopped all the time");
    kill(pid, SIGCONT);
}

void sleeps_while_idle(const std::filesystem::path &thread)
{
    const double end = MPI_Wtime() + deadline_seconds;
    double calm_since = MPI_Wtime();
    for (long known = sleeps(thread); MPI_Wtime() < calm_since + calm_seconds;) {
        if (const long now = sleeps(thread); now != known) {
            known = now;
            calm_since = MPI_Wtime();
        }
        if (MPI_Wtime() > end) {
            check(false, "it runs although there is nothing to do");
            return;
        }
    }
}

void helper()
{
    const int other = 1 - world().rank;
    const std::filesystem::path thread = find_helper();
    check(!thread.empty() && sleeps(thread) >= 0, "there is no such thread");
    talk(other);
    if (world().rank == 0) {
        runs_while_unacknowledged(thread, other);
    } else {
        int pid = getpid();
        MPI_Send(&pid, 1, MPI_INT, other, 2, MPI_COMM_WORLD);
        raise(SIGSTOP);
        MPI_Recv(&pid, 1, MPI_INT, other, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    talk(other);
    sleeps_while_idle(thread);
}

constexpr std::array all{
    cases::Case{"the helper thread runs while something is unacknowledged, and sleeps else",
                helper},
};

} // namespace

int main(int argc, char **argv)
{
    return cases::run(argc, argv, MPI_THREAD_SINGLE, all);
}

/* Rank 1 is stopped before anybody has met it; the others send to it meanwhile, short messages and
 * long ones, to be received in their order, each once, when it goes on. It sends to them first,
 * too, so that connections are opened from both sides.
 *
 * usage: stopped FIFO SECONDS
 * Rank 1 writes its process id to the FIFO when MPI_Init is over, and calls nothing of MPI before
 * it reads from there that it may. Rank 0 stops it meanwhile, and lets it go on SECONDS later: for
 * long enough that all has been sent again and asked for many times. The ranks share a machine.
 */
#include "test/mpi/semantics/cases.hpp"

#include <csignal>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace {

using cases::check;
using cases::expect;
using cases::is_stopped;
using cases::pattern;
using cases::world;

constexpr int stopped_rank = 1;
constexpr int tag = 3;
constexpr int answer_tag = 4;
/* Empty, short, the longest that some BTL sends unasked, longer than that, of many fragments. */
constexpr std::array lengths{0, 8, 300, 4000, 30000, 100000, 3000000};
constexpr int asked_for = 2; ///< the last two, by their receiver
constexpr int rounds = 20;

const char *fifo = nullptr;
double seconds = 0;

std::uint64_t seed_of(int from, int number)
{
    return static_cast<std::uint64_t>(from) * 1000003U + static_cast<std::uint64_t>(number);
}

int length_of(int number)
{
    // The long ones in the first round only.
    const auto at = static_cast<std::size_t>(number);
    return at < lengths.size() ? lengths[at] : lengths[at % 4];
}

/* Those who send learn from rank 0, hence without rank 1, that it is stopped. */
int hear_of_it()
{
    int pid = 0;
    if (world().rank == 0) {
        std::ifstream(fifo) >> pid;
        kill(pid, SIGSTOP);
        for (int rank = 2; rank < world().size; ++rank) {
            MPI_Send(&pid, 1, MPI_INT, rank, tag, MPI_COMM_WORLD);
        }
    } else {
        MPI_Recv(&pid, 1, MPI_INT, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return pid;
}

/* Progress until `end`. \return how many of the requests were complete then */
int progress_until(double end, std::vector<MPI_Request> &requests)
{
    int complete = 0;
    do {
        int flag = 0;
        complete = 0;
        for (MPI_Request &request : requests) {
            MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
            complete += flag;
        }
    } while (MPI_Wtime() < end);
    return complete;
}

void send_to_the_stopped()
{
    const int pid = hear_of_it();
    const int number = static_cast<int>(lengths.size()) + rounds;
    std::vector<std::vector<unsigned char>> out;
    std::vector<MPI_Request> requests;
    for (int i = 0; i < number; ++i) {
        const int length = length_of(i);
        out.push_back(pattern(static_cast<std::size_t>(length), seed_of(world().rank, i)));
        MPI_Isend(out.back().data(), length, MPI_BYTE, stopped_rank, tag, MPI_COMM_WORLD,
                  &requests.emplace_back());
    }
    if (world().rank == 0) { // for the others it may have gone on when their time is over
        const int complete = progress_until(MPI_Wtime() + seconds, requests);
        check(complete <= number - asked_for, "sends complete without their receiver", complete);
        check(is_stopped(pid), "rank 1 was not stopped all the time");
        kill(pid, SIGCONT);
        std::ofstream(fifo) << "go on" << std::endl;
    }
    MPI_Waitall(number, requests.data(), MPI_STATUSES_IGNORE);
    auto in = std::vector<unsigned char>(100000);
    for (const int length : {8, 100000}) {
        MPI_Recv(in.data(), length, MPI_BYTE, stopped_rank, answer_tag, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        expect(std::span(in).first(static_cast<std::size_t>(length)),
               seed_of(stopped_rank, world().rank), "wrong byte of an answer");
    }
}

void be_stopped()
{
    std::ofstream(fifo) << getpid() << std::endl;
    std::string word;
    std::ifstream(fifo) >> word;
    std::vector<std::vector<unsigned char>> out;
    std::vector<MPI_Request> requests;
    for (int rank = 0; rank < world().size; ++rank) {
        for (const int length : {8, 100000}) {
            if (rank == stopped_rank) {
                continue;
            }
            out.push_back(pattern(static_cast<std::size_t>(length), seed_of(stopped_rank, rank)));
            MPI_Isend(out.back().data(), length, MPI_BYTE, rank, answer_tag, MPI_COMM_WORLD,
                      &requests.emplace_back());
        }
    }
    const int number = static_cast<int>(lengths.size()) + rounds;
    std::vector<int> next(static_cast<std::size_t>(world().size));
    std::vector<unsigned char> in(static_cast<std::size_t>(*std::ranges::max_element(lengths)));
    for (int i = 0; i < number * (world().size - 1); ++i) {
        MPI_Status status;
        MPI_Recv(in.data(), static_cast<int>(in.size()), MPI_BYTE, MPI_ANY_SOURCE, tag,
                 MPI_COMM_WORLD, &status);
        const int from = status.MPI_SOURCE;
        const int length = cases::count_of(status);
        const int turn = next[static_cast<std::size_t>(from)]++;
        check(length == length_of(turn), "length", length);
        expect(std::span(in).first(static_cast<std::size_t>(length)), seed_of(from, turn),
               "wrong byte");
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
}

void first_contact()
{
    if (world().rank == stopped_rank) {
        be_stopped();
    } else {
        send_to_the_stopped();
    }
    // Everybody has had all that was for it: what comes now came twice.
    MPI_Barrier(MPI_COMM_WORLD);
    int flag = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    check(flag == 0, "a message that was not sent");
}

constexpr std::array all{
    cases::Case{"a rank is met first while it is stopped", first_contact},
};

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) {
        std::fprintf(stderr, "usage: stopped FIFO SECONDS\n");
        return 2;
    }
    fifo = argv[1];
    seconds = std::atof(argv[2]);
    return cases::run(argc, argv, MPI_THREAD_SINGLE, all);
}

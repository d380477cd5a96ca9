/* A flood: every rank but 0 sends rank 0 far more short messages than it may keep, and rank 0 takes
 * none of them before all are on their way. What it keeps stays bounded; nothing is lost, nothing
 * stands still.
 *
 * usage: flood MESSAGES BYTES MEBIBYTES
 * Each sends so many messages of so many bytes, and rank 0 must not grow by more than that.
 */
#include "test/mpi/semantics/cases.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using cases::check;
using cases::expect;
using cases::pattern;
using cases::peak;
using cases::world;

int messages = 0;
int bytes = 0;
long most_kibibytes = 0;

constexpr int flood_tag = 1;
constexpr int last_tag = 2;

std::uint64_t seed_of(int rank, int number)
{
    return static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint32_t>(number);
}

void send_flood()
{
    std::vector<std::vector<unsigned char>> out;
    std::vector<MPI_Request> requests(static_cast<std::size_t>(messages) + 1);
    for (int i = 0; i < messages; ++i) {
        out.push_back(pattern(static_cast<std::size_t>(bytes), seed_of(world().rank, i)));
        MPI_Isend(out.back().data(), bytes, MPI_BYTE, 0, flood_tag, MPI_COMM_WORLD,
                  &requests[static_cast<std::size_t>(i)]);
    }
    // Behind all the others: messages of one sender do not overtake each other.
    MPI_Isend(nullptr, 0, MPI_BYTE, 0, last_tag, MPI_COMM_WORLD, &requests.back());
    MPI_Waitall(messages + 1, requests.data(), MPI_STATUSES_IGNORE);
}

void take_flood()
{
    const long before = peak();
    for (int rank = 1; rank < world().size; ++rank) {
        MPI_Recv(nullptr, 0, MPI_BYTE, rank, last_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    const long grown = peak() - before;
    std::printf("# grew by %ld KiB, the payload is %ld KiB\n", grown,
                static_cast<long>(world().size - 1) * messages * bytes / 1024);
    check(before > 0 && grown <= most_kibibytes, "rank 0 grew by KiB", grown);
    std::vector<unsigned char> in(static_cast<std::size_t>(bytes));
    for (int i = 0; i < messages; ++i) {
        for (int rank = 1; rank < world().size; ++rank) {
            MPI_Recv(in.data(), bytes, MPI_BYTE, rank, flood_tag, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            expect(in, seed_of(rank, i), "wrong byte");
        }
    }
}

void flood()
{
    if (world().rank == 0) {
        take_flood();
    } else {
        send_flood();
    }
}

/* Credit comes back: what was exhausted once serves again, many times over. */
void credit_comes_back()
{
    std::vector<unsigned char> in(static_cast<std::size_t>(bytes));
    for (int i = 0; i < messages; ++i) {
        const auto out = pattern(in.size(), seed_of(world().rank, i));
        MPI_Sendrecv(out.data(), bytes, MPI_BYTE, world().right(), flood_tag, in.data(), bytes,
                     MPI_BYTE, world().left(), flood_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        expect(in, seed_of(world().left(), i), "wrong byte");
    }
}

constexpr std::array all{
    cases::Case{"a flood is kept back", flood},
    cases::Case{"credit comes back", credit_comes_back},
    cases::Case{"a flood is kept back again", flood},
};

} // namespace

int main(int argc, char **argv)
{
    if (argc != 4) {
        std::fprintf(stderr, "usage: flood MESSAGES BYTES MEBIBYTES\n");
        return 2;
    }
    messages = std::atoi(argv[1]);
    bytes = std::atoi(argv[2]);
    most_kibibytes = std::atol(argv[3]) * 1024;
    return cases::run(argc, argv, MPI_THREAD_SINGLE, all);
}

/* one_way: rank 0 sends a short message and then many long ones to rank 1, which has not sent
 * anything yet. Exits 0 when all are right.
 *
 * Rank 1 looks for the long ones late, so that several are there at that look: what its PML answers
 * to the first of them is the first that it sends at all, while more has been read behind it.
 */
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <vector>

int main(int argc, char **argv)
{
    constexpr int messages = 16;
    constexpr int words = 1 << 16;
    constexpr double late_s = 0.1;
    MPI_Init(&argc, &argv);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::vector<std::vector<int>> all(messages, std::vector<int>(words));
    std::vector<MPI_Request> requests(messages);
    int wrong = 0;
    if (rank == 0) {
        MPI_Send(&wrong, 1, MPI_INT, 1, messages, MPI_COMM_WORLD); // there is a connection
        for (int i = 0; i < messages; ++i) {
            std::fill(all[i].begin(), all[i].end(), i + 1);
            MPI_Isend(all[i].data(), words, MPI_INT, 1, i, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(messages, requests.data(), MPI_STATUSES_IGNORE);
        MPI_Recv(&wrong, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        MPI_Recv(&wrong, 1, MPI_INT, 0, messages, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < messages; ++i) {
            MPI_Irecv(all[i].data(), words, MPI_INT, 0, i, MPI_COMM_WORLD, &requests[i]);
        }
        for (const double begin = MPI_Wtime(); MPI_Wtime() < begin + late_s;) {
        }
        MPI_Waitall(messages, requests.data(), MPI_STATUSES_IGNORE);
        for (int i = 0; i < messages; ++i) {
            wrong += std::count(all[i].begin(), all[i].end(), i + 1) == words ? 0 : 1;
        }
        MPI_Send(&wrong, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    }
    std::printf("rank %d: %d of %d messages wrong\n", rank, wrong, messages);
    MPI_Finalize();
    return wrong == 0 ? 0 : 1;
}

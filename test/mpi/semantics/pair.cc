/* Ranks 0 and 1 exchange messages, and nobody else sends or receives anything. */
#include <mpi.h>

#include <cstdio>
#include <vector>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    bool right = true;
    if (rank < 2) {
        for (int i = 0; i < 100; ++i) {
            const std::vector<int> out(i % 10 == 0 ? 50000 : 2, i);
            std::vector<int> in(out.size(), -1);
            const int count = static_cast<int>(out.size());
            MPI_Sendrecv(out.data(), count, MPI_INT, 1 - rank, 0, in.data(), count, MPI_INT,
                         1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            right = right && in == out;
        }
        std::printf("rank %d %s\n", rank, right ? "right" : "wrong");
    }
    MPI_Finalize();
    return right ? 0 : 1;
}

/* A program that ends MPI while it exits, as libraries with an object for MPI do: what the
 * components have for the whole process must be there still. A new communicator asks all of them
 * for something. */
#include <cstdio>

#include <mpi.h>

namespace {

int rank = 0;

/* Older than anything of the components, so that it goes after all that they leave to exit(). */
struct Library {
    ~Library()
    {
        int sum = 0;
        for (int i = 0; i < 20; ++i) {
            MPI_Comm comm = MPI_COMM_NULL;
            MPI_Comm_dup(MPI_COMM_WORLD, &comm);
            const int one = 1;
            MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
            MPI_Comm_free(&comm);
        }
        int size = 0;
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        MPI_Finalize();
        if (rank == 0) {
            std::printf("%s 1 - communicators made while the program exits\n",
                        sum == size ? "ok" : "not ok");
            std::fflush(stdout);
        }
    }
} library;

} // namespace

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        std::printf("1..1\n");
    }
    MPI_Comm comm = MPI_COMM_NULL; // the first that components see after MPI_Init
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_free(&comm);
    return 0;
}

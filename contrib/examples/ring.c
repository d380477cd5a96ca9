/*
 * A token travels around a ring of processes. Members die, the leader too; the ring closes without
 * them and the token goes on.
 *
 * The example of the run-through stabilization proposal (Hursey and Graham, "Building a Fault
 * Tolerant MPI Application: A Ring Communication Example", 2011). There each member watches its
 * neighbour. Here whoever waits, waits for a message from any source: such a receive ends with an
 * error when anybody has died, so that all come to MPI_Comm_validate_all, agree on who is left, and
 * begin the lap again that not all have finished.
 *
 * usage: ring LAPS [RANK:LAP...]     each of these ranks kills itself in that lap
 */
#include <mpi.h>
#include <mpi_ft.h>
#include <stdio.h>
#include <stdlib.h>

#include "doomed.h"

static int rank, size;

static int lives(int other)
{
    MPI_Rank_info info;
    MPI_Comm_validate_rank(MPI_COMM_WORLD, other, &info);
    return info.state != MPI_RANK_NULL; /* what is not recognised shows itself as an error */
}

static int next_alive(int from)
{
    do {
        from = (from + 1) % size;
    } while (!lives(from));
    return from;
}

/* Goes on from *lap. Returns an error class when somebody has died. Messages of an earlier try have
   another tag. */
static int run(int argc, char **argv, int *lap, int laps, int try)
{
    const int right = next_alive(rank);
    const int leader = next_alive(size - 1);
    for (; *lap < laps; ++*lap) {
        int visited = 0;
        int rc = MPI_SUCCESS;
        die_if_doomed(argc, argv, rank, *lap);
        if (rank != leader) {
            rc = MPI_Recv(&visited, 1, MPI_INT, MPI_ANY_SOURCE, try, MPI_COMM_WORLD,
                          MPI_STATUS_IGNORE);
        }
        ++visited;
        if (rc == MPI_SUCCESS) {
            rc = MPI_Send(&visited, 1, MPI_INT, right, try, MPI_COMM_WORLD);
        }
        if (rc == MPI_SUCCESS && rank == leader) {
            rc = MPI_Recv(&visited, 1, MPI_INT, MPI_ANY_SOURCE, try, MPI_COMM_WORLD,
                          MPI_STATUS_IGNORE);
            if (rc == MPI_SUCCESS) {
                printf("lap %d: %d members\n", *lap, visited);
            }
        }
        if (rc != MPI_SUCCESS) {
            return rc;
        }
    }
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    const int laps = argc > 1 ? atoi(argv[1]) : 10;
    int lap = 0;
    int done = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int try = 0; !done; ++try) {
        int failed = 0;
        int least = 0;
        run(argc, argv, &lap, laps, try);
        /* All that live come here: at the end, or because somebody has died. */
        MPI_Comm_validate_all(MPI_COMM_WORLD, &failed);
        const int rc = MPI_Allreduce(&lap, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        if (rc == MPI_SUCCESS) {
            lap = least;
        }
        /* A collective may succeed at some and fail at others; this is the same at all. */
        done = rc == MPI_SUCCESS && least == laps;
        MPIX_Comm_agree(MPI_COMM_WORLD, &done);
    }
    printf("rank %d of the ring: all %d laps done\n", rank, laps);
    MPI_Finalize();
    return 0;
}

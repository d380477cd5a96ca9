/*
 * A matrix product that survives the loss of a rank (algorithm-based fault tolerance, Huang and
 * Abraham 1984): C = A B with the rows of A and C in blocks, one a rank; the last rank holds the
 * sums of the others' blocks. The product keeps that property: after each step its block of C is
 * the sum of theirs. So a block that is lost is the checksum less the blocks that are left. No
 * checkpoint is written, nothing is computed again.
 *
 * usage: abft ROWS [RANK:STEP]     that rank kills itself in that step; ROWS of each block
 */
#include <mpi.h>
#include <mpi_ft.h>
#include <stdio.h>
#include <stdlib.h>

#include "doomed.h"

enum { columns = 64, panel = 8, steps = columns / panel };

/* A block of A and its part of C, so far. */
struct block {
    double *a;
    double *c;
};

static int rank, size, rows;

/* Whole numbers, so that sums are exact. */
static double entry_a(int block, int i, int k)
{
    return (block * 31 + i * 7 + k * 3) % 11 - 5;
}

static double entry_b(int k, int j)
{
    return (k * 5 + j * 13) % 7 - 3;
}

static struct block make_block(void)
{
    struct block fresh;
    fresh.a = calloc((size_t)rows * columns, sizeof(double));
    fresh.c = calloc((size_t)rows * columns, sizeof(double));
    return fresh;
}

static void multiply_panel(struct block *block, int step)
{
    for (int i = 0; i < rows; ++i) {
        for (int k = step * panel; k < (step + 1) * panel; ++k) {
            for (int j = 0; j < columns; ++j) {
                block->c[i * columns + j] += block->a[i * columns + k] * entry_b(k, j);
            }
        }
    }
}

/* The block of the dead rank, at `heir`: the checksum less the sum of the others. */
static int rebuild(const struct block *mine, struct block *lost, int heir)
{
    const int sign = rank == size - 1 ? 1 : -1;
    const int count = rows * columns;
    double *part = malloc((size_t)count * sizeof *part);
    int rc = MPI_SUCCESS;
    for (int which = 0; which < 2 && rc == MPI_SUCCESS; ++which) {
        const double *from = which == 0 ? mine->a : mine->c;
        for (int i = 0; i < count; ++i) {
            part[i] = sign * from[i];
        }
        rc = MPI_Reduce(part, which == 0 ? lost->a : lost->c, count, MPI_DOUBLE, MPI_SUM, heir,
                        MPI_COMM_WORLD);
    }
    free(part);
    return rc;
}

static int right(const struct block *block, int number)
{
    for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < columns; ++j) {
            double wanted = 0.0;
            for (int k = 0; k < columns; ++k) {
                wanted += entry_a(number, i, k) * entry_b(k, j);
            }
            if (block->c[i * columns + j] != wanted) {
                return 0;
            }
        }
    }
    return 1;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    rows = argc > 1 ? atoi(argv[1]) : 16;

    struct block mine = make_block();
    struct block adopted = {NULL, NULL};
    int lost = -1;
    int step = 0;
    int code = 0;
    for (int i = 0; i < rows; ++i) {
        for (int k = 0; k < columns; ++k) {
            for (int block = 0; block < size - 1; ++block) {
                if (rank == block || rank == size - 1) {
                    mine.a[i * columns + k] += entry_a(block, i, k);
                }
            }
        }
    }
    for (int done = 0; !done;) {
        int rc = MPI_SUCCESS;
        while (step < steps && rc == MPI_SUCCESS) {
            die_if_doomed(argc, argv, rank, step);
            multiply_panel(&mine, step);
            if (adopted.a != NULL) {
                multiply_panel(&adopted, step);
            }
            ++step;
            rc = MPI_Barrier(MPI_COMM_WORLD); /* nobody is more than a step ahead */
        }
        done = rc == MPI_SUCCESS;
        MPIX_Comm_agree(MPI_COMM_WORLD, &done);
        if (done) {
            break;
        }
        /* Somebody has died. Everybody comes here, at most a step apart. */
        int failed = 0;
        int furthest = step;
        MPI_Rank_info dead = {-1, MPI_RANK_OK, 0};
        MPI_Comm_validate_all(MPI_COMM_WORLD, &failed);
        MPI_Comm_validate(MPI_COMM_WORLD, 1, &failed, &dead);
        if (failed > 1 || lost >= 0) {
            fprintf(stderr, "rank %d: two blocks are lost, the checksum makes up for one\n", rank);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        lost = dead.rank;
        rc = MPI_Allreduce(&step, &furthest, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        for (; step < furthest; ++step) {
            multiply_panel(&mine, step);
        }
        if (lost != size - 1 && rc == MPI_SUCCESS) {
            const int heir = lost == 0 ? 1 : lost - 1;
            if (rank == heir) {
                adopted = make_block();
            }
            rc = rebuild(&mine, &adopted, heir);
            if (rank == heir && rc == MPI_SUCCESS) {
                printf("rank %d has the block of rank %d, rebuilt in step %d\n", rank, lost, step);
            }
        }
    }
    if (rank < size - 1) {
        const int good = right(&mine, rank) && (adopted.a == NULL || right(&adopted, lost));
        printf("rank %d: its part of the product is %s\n", rank, good ? "right" : "WRONG");
        code = good ? 0 : 1;
    }
    MPI_Finalize();
    return code;
}

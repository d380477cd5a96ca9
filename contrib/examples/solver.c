/*
 * An iterative solver that loses ranks and converges. Jacobi's method on a tridiagonal system; each
 * rank holds a block of the unknowns. When ranks die the survivors agree on who is left, divide the
 * unknowns among themselves anew, and make up those that were lost between their neighbours: the
 * method converges from anywhere, it only takes some more steps.
 *
 * Steps exchange by collectives alone. These end with an error at all ranks when somebody has died,
 * so all come to MPI_Comm_validate_all.
 *
 * usage: solver UNKNOWNS [RANK:STEP...]     each of these ranks kills itself at that step
 */
#include <math.h>
#include <mpi.h>
#include <mpi_ft.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doomed.h"

static const double diagonal = 2.1; /* beside it -1: barely dominant, some hundred steps */
static const double small_enough = 1e-10;

static int rank, size, unknowns;
static int first, end; /* the block of this rank */
static double *x;      /* only the block and one unknown at each side are kept up to date */
static double *fresh;

static double right_side(int i)
{
    return 1.0 + i % 7;
}

static double at(int i)
{
    return i < 0 || i >= unknowns ? 0.0 : x[i];
}

/* Who holds what: equal blocks for those that live, in the order of their ranks. */
static void divide(const int *lives, int alive)
{
    int mine = 0;
    for (int other = 0; other < rank; ++other) {
        mine += lives[other];
    }
    first = (int)((long)unknowns * mine / alive);
    end = (int)((long)unknowns * (mine + 1) / alive);
}

/* Agrees on who is left and brings everybody to the same state. Until nobody dies meanwhile. */
static void recover(void)
{
    int *lives = malloc((size_t)size * sizeof *lives);
    double *known = malloc(2 * (size_t)unknowns * sizeof *known);
    double *all = malloc(2 * (size_t)unknowns * sizeof *all);
    int ok = 0;
    while (!ok) {
        int failed = 0;
        MPI_Comm_validate_all(MPI_COMM_WORLD, &failed);
        for (int other = 0; other < size; ++other) {
            MPI_Rank_info info;
            MPI_Comm_validate_rank(MPI_COMM_WORLD, other, &info);
            lives[other] = info.state != MPI_RANK_NULL;
        }
        /* The blocks that are left, and where they are. */
        memset(known, 0, 2 * (size_t)unknowns * sizeof *known);
        for (int i = first; i < end; ++i) {
            known[i] = x[i];
            known[unknowns + i] = 1.0;
        }
        ok = MPI_Allreduce(known, all, 2 * unknowns, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) ==
             MPI_SUCCESS;
        /* A collective may succeed at some and fail at others; this is the same at all. */
        MPIX_Comm_agree(MPI_COMM_WORLD, &ok);
        if (ok) {
            int last = -1; /* the last that is known */
            for (int i = 0; i <= unknowns; ++i) {
                if (i < unknowns && all[unknowns + i] == 0.0) {
                    continue;
                }
                const double from = last < 0 ? 0.0 : x[last];
                const double to = i == unknowns ? 0.0 : all[i] / all[unknowns + i];
                for (int j = last + 1; j < i; ++j) {
                    x[j] = from + (to - from) * (j - last) / (i - last);
                }
                if (i < unknowns) {
                    x[i] = to;
                }
                last = i;
            }
            divide(lives, size - failed);
        }
    }
    free(lives);
    free(known);
    free(all);
}

/* One step of Jacobi's method. *change: the largest of any unknown, on all ranks. */
static int step(double *change)
{
    double edges[2];
    double *all = malloc(2 * (size_t)size * sizeof *all);
    double largest = 0.0;
    for (int i = first; i < end; ++i) {
        fresh[i] = (right_side(i) + at(i - 1) + at(i + 1)) / diagonal;
        largest = fmax(largest, fabs(fresh[i] - x[i]));
    }
    memcpy(x + first, fresh + first, (size_t)(end - first) * sizeof *x);
    edges[0] = x[first];
    edges[1] = x[end - 1];
    for (int other = 0; other < size; ++other) {
        all[2 * other] = NAN; /* the blocks of the dead are left untouched */
    }
    int rc = MPI_Allgather(edges, 2, MPI_DOUBLE, all, 2, MPI_DOUBLE, MPI_COMM_WORLD);
    if (rc == MPI_SUCCESS) {
        for (int other = rank - 1; other >= 0; --other) {
            if (!isnan(all[2 * other])) {
                x[first - 1] = all[2 * other + 1];
                break;
            }
        }
        for (int other = rank + 1; other < size; ++other) {
            if (!isnan(all[2 * other])) {
                x[end] = all[2 * other];
                break;
            }
        }
        rc = MPI_Allreduce(&largest, change, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    }
    free(all);
    return rc;
}

int main(int argc, char **argv)
{
    int done = 0;
    int steps = 0;
    unknowns = argc > 1 ? atoi(argv[1]) : 1000;
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (unknowns < size) {
        unknowns = size; /* nobody without any */
    }
    x = calloc((size_t)unknowns + 1, sizeof *x);
    fresh = calloc((size_t)unknowns + 1, sizeof *fresh);
    recover(); /* divides */
    while (!done) {
        double change = 1.0;
        int rc = MPI_SUCCESS;
        while (rc == MPI_SUCCESS && change > small_enough) {
            die_if_doomed(argc, argv, rank, steps++);
            rc = step(&change);
        }
        done = rc == MPI_SUCCESS;
        MPIX_Comm_agree(MPI_COMM_WORLD, &done);
        if (!done) {
            recover();
            if (rank == 0) {
                printf("step %d: on with those that are left\n", steps);
            }
        }
    }
    double residual = 0.0;
    for (int i = first; i < end; ++i) {
        residual = fmax(residual, fabs(diagonal * at(i) - at(i - 1) - at(i + 1) - right_side(i)));
    }
    printf("rank %d: unknowns %d to %d after %d steps, residual %.1e: %s\n", rank, first, end - 1,
           steps, residual, residual < 1e-8 ? "converged" : "WRONG");
    MPI_Finalize();
    return residual < 1e-8 ? 0 : 1;
}

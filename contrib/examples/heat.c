/* A plate that is heated along one edge: Jacobi's iteration, run to its end whatever dies
 * meanwhile.
 *
 * usage: mpirun --mca errmgr radixft --mca pml dr ... heat FOLDER [SIZE [ITERATIONS
 *        [RANK:ITERATION...]]]     each of these ranks kills itself at that iteration
 * build: mpicc -o heat heat.c $(pkg-config --cflags --libs mpi_ft)
 *
 * The rows of the plate are spread over the ranks, and neighbours exchange their edges in each
 * iteration. Every so often the whole plate is kept in a file in FOLDER, which all ranks must see.
 * When a rank is dead, some call of its neighbours ends with an error. Who gets one revokes the
 * communicator, which makes all others get one too; then all shrink it to the ranks that live,
 * spread the rows over them, and go on from the plate that was kept last.
 *
 * In the end the first rank computes the same by itself, and compares: "heat: right" or "heat:
 * WRONG". The result does not depend on how many ranks took part.
 */
#include <mpi.h>
#include <mpi_ft.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doomed.h"

static int size = 512;         /* rows and columns */
static int iterations = 40000; /* in all */
static int keep_every = 1000;  /* iterations */
static char kept[4096];        /* the file */

/* One rank's rows: `count` of them from `first` on, and one more above and below. */
struct slab {
    int first, count;
    double *now, *next;
};

static double *row(double *rows, int number)
{
    return rows + (size_t)number * (size_t)size;
}

static double *plate_of(int rows)
{
    double *all = calloc((size_t)rows * (size_t)size, sizeof *all);
    if (all == NULL) {
        perror("heat");
        exit(1);
    }
    return all;
}

/* The upper edge is hot, the others are cold, and so is all between in the beginning. */
static void begin_with(double *plate)
{
    for (int x = 0; x < size; ++x) {
        plate[x] = 100.0;
    }
}

/* Rows `from` to `to`, in which `rows` begins with row number `base`. The edges of the plate stay.
 */
static void step(const double *now, double *next, int from, int to)
{
    for (int y = from; y < to; ++y) {
        const double *here = now + (size_t)y * (size_t)size;
        double *out = row(next, y);
        out[0] = here[0];
        for (int x = 1; x < size - 1; ++x) {
            out[x] = 0.25 * (here[x - 1] + here[x + 1] + here[x - size] + here[x + size]);
        }
        out[size - 1] = here[size - 1];
    }
}

static int rows_before(int rank, int ranks)
{
    return 1 + (int)((long)(size - 2) * rank / ranks);
}

/* What was kept last, and after how many iterations; the beginning if nothing was. */
static int read_kept(double *plate)
{
    int done = 0;
    FILE *file = fopen(kept, "rb");
    memset(plate, 0, sizeof *plate * (size_t)size * (size_t)size);
    if (file == NULL) {
        begin_with(plate);
        return 0;
    }
    if (fread(&done, sizeof done, 1, file) != 1 ||
        fread(plate, sizeof *plate, (size_t)size * (size_t)size, file) !=
            (size_t)size * (size_t)size) {
        fprintf(stderr, "heat: %s is damaged\n", kept);
        exit(1);
    }
    fclose(file);
    return done;
}

/* Under another name first, so that what was kept before is there until the new one is whole. */
static void write_kept(const double *plate, int done)
{
    char fresh[sizeof kept + 8];
    snprintf(fresh, sizeof fresh, "%s.new", kept);
    FILE *file = fopen(fresh, "wb");
    if (file == NULL || fwrite(&done, sizeof done, 1, file) != 1 ||
        fwrite(plate, sizeof *plate, (size_t)size * (size_t)size, file) !=
            (size_t)size * (size_t)size ||
        fclose(file) != 0 || rename(fresh, kept) != 0) {
        perror("heat: the plate cannot be kept");
        exit(1);
    }
}

/* All rows at the first rank. */
static int collect(MPI_Comm comm, struct slab *s, double *plate)
{
    int rank = 0;
    int ranks = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    if (rank != 0) {
        return MPI_Send(row(s->now, 1), s->count * size, MPI_DOUBLE, 0, 3, comm);
    }
    memcpy(row(plate, s->first), row(s->now, 1), sizeof *plate * (size_t)(s->count * size));
    for (int other = 1; other < ranks; ++other) {
        const int first = rows_before(other, ranks);
        const int count = rows_before(other + 1, ranks) - first;
        const int rc = MPI_Recv(row(plate, first), count * size, MPI_DOUBLE, other, 3, comm,
                                MPI_STATUS_IGNORE);
        if (rc != MPI_SUCCESS) {
            return rc;
        }
    }
    return MPI_SUCCESS;
}

/* From what was kept to the end. MPI_SUCCESS, or the error of the call that could not complete. */
static int solve(MPI_Comm comm, double *plate, int argc, char **argv)
{
    int me = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    int rank = 0;
    int ranks = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    const int up = rank == 0 ? MPI_PROC_NULL : rank - 1;
    const int down = rank == ranks - 1 ? MPI_PROC_NULL : rank + 1;
    /* Nobody keeps a plate before all have read the last one. */
    int done = read_kept(plate);
    int rc = MPI_Barrier(comm);
    struct slab s;
    s.first = rows_before(rank, ranks);
    s.count = rows_before(rank + 1, ranks) - s.first;
    s.now = plate_of(s.count + 2);
    s.next = plate_of(s.count + 2);
    memcpy(s.now, row(plate, s.first - 1), sizeof *plate * (size_t)((s.count + 2) * size));
    memcpy(s.next, s.now, sizeof *plate * (size_t)((s.count + 2) * size));
    if (rank == 0 && rc == MPI_SUCCESS) {
        printf("heat: %d ranks go on after %d iterations\n", ranks, done);
        fflush(stdout);
    }
    while (rc == MPI_SUCCESS && done < iterations) {
        die_if_doomed(argc, argv, me, done);
        rc = MPI_Sendrecv(row(s.now, 1), size, MPI_DOUBLE, up, 1, row(s.now, s.count + 1), size,
                          MPI_DOUBLE, down, 1, comm, MPI_STATUS_IGNORE);
        if (rc == MPI_SUCCESS) {
            rc = MPI_Sendrecv(row(s.now, s.count), size, MPI_DOUBLE, down, 2, row(s.now, 0), size,
                              MPI_DOUBLE, up, 2, comm, MPI_STATUS_IGNORE);
        }
        if (rc != MPI_SUCCESS) {
            break;
        }
        step(s.now, s.next, 1, s.count + 1);
        double *const old = s.now;
        s.now = s.next;
        s.next = old;
        ++done;
        if (done % keep_every == 0 || done == iterations) {
            rc = collect(comm, &s, plate);
            if (rc == MPI_SUCCESS && rank == 0) {
                write_kept(plate, done);
                printf("heat: %d of %d iterations\n", done, iterations);
                fflush(stdout);
            }
        }
    }
    free(s.now);
    free(s.next);
    return rc;
}

/* The same by one process: 1 if every number is the same. */
static int right(const double *plate)
{
    double *now = plate_of(size);
    double *next = plate_of(size);
    begin_with(now);
    memcpy(next, now, sizeof *now * (size_t)size * (size_t)size);
    for (int i = 0; i < iterations; ++i) {
        step(now, next, 1, size - 1);
        double *const old = now;
        now = next;
        next = old;
    }
    const int same = memcmp(now, plate, sizeof *now * (size_t)size * (size_t)size) == 0;
    free(now);
    free(next);
    return same;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc < 2) {
        fprintf(stderr, "usage: heat FOLDER [SIZE [ITERATIONS [RANK:ITERATION...]]]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    snprintf(kept, sizeof kept, "%s/heat.kept", argv[1]);
    size = argc > 2 ? atoi(argv[2]) : size;
    iterations = argc > 3 ? atoi(argv[3]) : iterations;
    keep_every = iterations >= 40 ? iterations / 40 : 1;
    double *plate = plate_of(size);
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    /* Each meets each before anything can go wrong. */
    MPI_Barrier(comm);
    for (;;) {
        MPI_Comm rest = MPI_COMM_NULL;
        int through = solve(comm, plate, argc, argv) == MPI_SUCCESS;
        if (!through) {
            MPIX_Comm_revoke(comm);
        }
        /* A rank that has done its part must not leave while others have to do theirs again. */
        MPIX_Comm_agree(comm, &through);
        if (through) {
            break;
        }
        if (MPIX_Comm_shrink(comm, &rest) != MPI_SUCCESS) {
            fprintf(stderr, "heat: the ranks that live do not find together\n");
            MPI_Abort(MPI_COMM_WORLD, 3);
        }
        MPI_Comm_free(&comm);
        comm = rest;
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    }
    int rank = 0;
    MPI_Comm_rank(comm, &rank);
    int good = 1;
    if (rank == 0) {
        read_kept(plate);
        good = right(plate);
        printf("heat: %s\n", good ? "right" : "WRONG");
        fflush(stdout);
    }
    free(plate);
    MPI_Finalize();
    return good ? 0 : 1;
}

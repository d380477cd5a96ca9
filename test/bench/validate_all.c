/* What MPI_Comm_validate_all costs, and what collectives cost beside it. test/bench/validate runs
 * it and makes the table.
 *
 * usage: validate_all MODE ROUNDS [FILE]
 *   pattern      a broadcast and a reduction of 8 bytes against strict and loose calls
 *   first        a call in which nobody has failed against the first one after a failure that all
 *                know, each on a communicator of its own; the rank in the middle kills itself
 *   kill         the last rank kills itself while the others wait for it: how long until the last
 *                of them knows, and until the last has returned. FILE: where it leaves the time
 *   after        collectives of a communicator of which one has failed, validated, against those
 *                of a communicator without it, and another such against that
 *   collectives  collectives of a communicator without coll/validate against one with it, and
 *                against another without
 * Rank 0 prints a line for each round, `NAME us us [us]`: what is compared with first. A figure is
 * the time of a call in a row: of as many as make up about 2 ms of what is compared with, 16 at
 * least, the same number for all, since a row ends with a barrier. The order turns from round to
 * round; in `first` it is the time of a single call, the slowest rank's. */
#include <fcntl.h>
#include <mpi.h>
#include <mpi_ft.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { fewest_calls = 16, most_calls = 2000, most_ranks = 64, kinds = 3 };
static const double row_s = 2e-3;

static int rank, size, rounds;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(int error, const char *what)
{
    if (error != MPI_SUCCESS) {
        fprintf(stderr, "validate_all: rank %d: %s: error %d\n", rank, what, error);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* What is measured: a call on a communicator. */
typedef struct {
    void (*call)(MPI_Comm comm);
    MPI_Comm comm;
    int calls; /* in a row */
} Kind;

static void pattern(MPI_Comm comm)
{
    long value = 1, sum;
    MPI_Bcast(&value, 1, MPI_LONG, 0, comm);
    MPI_Reduce(&value, &sum, 1, MPI_LONG, MPI_SUM, 0, comm);
}

static void validate(MPI_Comm comm)
{
    int count;
    must(MPI_Comm_validate_all(comm, &count), "MPI_Comm_validate_all");
}

static long in[most_ranks], out[most_ranks];

static void barrier(MPI_Comm c)
{
    MPI_Barrier(c);
}
static void bcast(MPI_Comm c)
{
    MPI_Bcast(in, 1, MPI_LONG, 0, c);
}
static void reduce(MPI_Comm c)
{
    MPI_Reduce(in, out, 1, MPI_LONG, MPI_SUM, 0, c);
}
static void allreduce(MPI_Comm c)
{
    MPI_Allreduce(in, out, 1, MPI_LONG, MPI_SUM, c);
}
static void gather(MPI_Comm c)
{
    MPI_Gather(in, 1, MPI_LONG, out, 1, MPI_LONG, 0, c);
}
static void scatter(MPI_Comm c)
{
    MPI_Scatter(in, 1, MPI_LONG, out, 1, MPI_LONG, 0, c);
}
static void allgather(MPI_Comm c)
{
    MPI_Allgather(in, 1, MPI_LONG, out, 1, MPI_LONG, c);
}
static void alltoall(MPI_Comm c)
{
    MPI_Alltoall(in, 1, MPI_LONG, out, 1, MPI_LONG, c);
}
static void scan(MPI_Comm c)
{
    MPI_Scan(in, out, 1, MPI_LONG, MPI_SUM, c);
}
static void reduce_scatter(MPI_Comm c)
{
    MPI_Reduce_scatter_block(in, out, 1, MPI_LONG, MPI_SUM, c);
}
static void iallreduce(MPI_Comm c)
{
    MPI_Request request;
    MPI_Iallreduce(in, out, 1, MPI_LONG, MPI_SUM, c, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static const struct {
    const char *name;
    void (*call)(MPI_Comm comm);
} collectives[] = {{"barrier", barrier},
                   {"bcast", bcast},
                   {"reduce", reduce},
                   {"allreduce", allreduce},
                   {"gather", gather},
                   {"scatter", scatter},
                   {"allgather", allgather},
                   {"alltoall", alltoall},
                   {"scan", scan},
                   {"reduce_scatter_block", reduce_scatter},
                   {"iallreduce", iallreduce}};
enum { collective_count = sizeof collectives / sizeof *collectives };

/* Microseconds a call of a row of them, on rank 0. */
static double row(const Kind *kind, MPI_Comm meeting)
{
    MPI_Barrier(meeting);
    const double start = now();
    for (int i = 0; i < kind->calls; ++i) {
        kind->call(kind->comm);
    }
    // A rank that leaves a broadcast early must not leave the measurement early.
    MPI_Barrier(meeting);
    return 1e6 * (now() - start) / kind->calls;
}

/* How many calls make up a row. */
static int calls_a_row(Kind *kind, MPI_Comm meeting)
{
    kind->calls = 4;
    row(kind, meeting);
    const double each = 1e-6 * row(kind, meeting);
    const double wanted = row_s / each;
    int calls = wanted < fewest_calls ? fewest_calls
                : wanted > most_calls ? most_calls
                                      : (int)wanted;
    MPI_Bcast(&calls, 1, MPI_INT, 0, meeting);
    return calls;
}

/* Rounds of all kinds, the order turning; a line for each. */
static void compare(const char *name, Kind *what, int count, MPI_Comm meeting)
{
    const int calls = calls_a_row(&what[0], meeting);
    for (int k = 0; k < count; ++k) {
        what[k].calls = calls;
        row(&what[k], meeting);
    }
    for (int r = 0; r < rounds; ++r) {
        double took[kinds] = {0};
        for (int k = 0; k < count; ++k) {
            const int turn = (r + k) % count;
            took[turn] = row(&what[turn], meeting);
        }
        if (rank == 0) {
            printf("%s", name);
            for (int k = 0; k < count; ++k) {
                printf(" %.3f", took[k]);
            }
            printf("\n");
        }
    }
}

static void loosen(MPI_Comm comm)
{
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_ft_semantics", "loose");
    MPI_Comm_set_info(comm, info);
    MPI_Info_free(&info);
}

static void measure_pattern(void)
{
    Kind what[kinds] = {
        {pattern, MPI_COMM_NULL, 0}, {validate, MPI_COMM_NULL, 0}, {validate, MPI_COMM_NULL, 0}};
    for (int k = 0; k < kinds; ++k) {
        MPI_Comm_dup(MPI_COMM_WORLD, &what[k].comm);
    }
    loosen(what[2].comm);
    compare("pattern", what, kinds, MPI_COMM_WORLD);
}

/* Everybody but `victim`, which knows of no such communicator. */
static MPI_Comm without(int victim)
{
    MPI_Comm others;
    MPI_Comm_split(MPI_COMM_WORLD, rank == victim ? MPI_UNDEFINED : 0, rank, &others);
    return others;
}

/* `victim` dies here; the others go on when all of them know. */
static void lose(int victim, MPI_Comm others)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == victim) {
        kill(getpid(), SIGKILL);
        pause();
    }
    for (int known = 0; known == 0;) {
        must(MPI_Comm_validate(MPI_COMM_WORLD, 0, &known, NULL), "MPI_Comm_validate");
        usleep(200);
    }
    MPI_Barrier(others);
}

/* A single call, as long as the slowest took: all begin together. */
static double single(MPI_Comm comm, MPI_Comm meeting)
{
    for (int i = 0; i < 3; ++i) {
        MPI_Barrier(meeting);
    }
    const double start = now();
    validate(comm);
    const double mine = 1e6 * (now() - start);
    double slowest = 0;
    MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, meeting);
    return slowest;
}

static void measure_first(void)
{
    const int victim = size / 2;
    MPI_Comm *comms = malloc((size_t)rounds * sizeof *comms);
    double *free_of_failure = malloc((size_t)rounds * sizeof *free_of_failure);
    const MPI_Comm others = without(victim);
    for (int r = 0; r < rounds; ++r) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[r]);
        MPI_Comm_set_errhandler(comms[r], MPI_ERRORS_RETURN);
    }
    single(comms[0], MPI_COMM_WORLD);
    for (int r = 0; r < rounds; ++r) {
        free_of_failure[r] = single(comms[r], MPI_COMM_WORLD);
    }
    lose(victim, others);
    for (int r = 0; r < rounds; ++r) {
        const double first = single(comms[r], others);
        if (rank == 0) {
            printf("first %.3f %.3f\n", free_of_failure[r], first);
        }
    }
    free(comms);
    free(free_of_failure);
}

/* Where the dying rank leaves the time for the others, who are on the same machine. */
static volatile double *blackboard(const char *path)
{
    const int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(double)) != 0) {
        must(MPI_ERR_OTHER, path);
    }
    double *at = mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED) {
        must(MPI_ERR_OTHER, path);
    }
    return at;
}

static void measure_kill(const char *path)
{
    const int victim = size - 1;
    volatile double *struck = blackboard(path);
    validate(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == victim) {
        usleep(20000); // until the others wait
        *struck = now();
        kill(getpid(), SIGKILL);
        pause();
    }
    int nothing, class = MPI_SUCCESS;
    const int error = MPI_Recv(&nothing, 1, MPI_INT, victim, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    double times[2] = {now(), 0}, last[2];
    if (error != MPI_SUCCESS) {
        MPI_Error_class(error, &class);
    }
    // The connection's end may be noticed before the runtime has told of the death.
    const int known = class == MPI_ERR_RANK_FAIL_STOP || class == MPIX_ERR_UNREACHABLE;
    must(known ? MPI_SUCCESS : MPI_ERR_OTHER, "the receive from the dead ended otherwise");
    validate(MPI_COMM_WORLD);
    times[1] = now();
    must(MPI_Reduce(times, last, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD), "MPI_Reduce");
    if (rank == 0) {
        printf("kill %.1f %.1f\n", 1e6 * (last[0] - *struck), 1e6 * (last[1] - *struck));
    }
}

static void measure_after(void)
{
    const int victim = size / 2 - 1;
    MPI_Comm others = without(victim), again = without(victim), validated;
    MPI_Comm_dup(MPI_COMM_WORLD, &validated);
    lose(victim, others);
    validate(validated);
    validate(MPI_COMM_WORLD); // MPI_Finalize
    // One that returns an error at once would pass for a quick one.
    MPI_Comm_set_errhandler(validated, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(others, MPI_ERRORS_ARE_FATAL);
    for (int i = 0; i < collective_count; ++i) {
        Kind what[] = {{collectives[i].call, others, 0},
                       {collectives[i].call, validated, 0},
                       {collectives[i].call, again, 0}};
        compare(collectives[i].name, what, 3, others);
    }
}

/* coll/validate's priority for communicators made from now on; -1: it keeps out. */
static void set_priority(int priority)
{
    int index, count;
    MPI_T_cvar_handle handle;
    must(MPI_T_cvar_get_index("coll_validate_priority", &index), "coll_validate_priority");
    must(MPI_T_cvar_handle_alloc(index, NULL, &handle, &count), "MPI_T_cvar_handle_alloc");
    must(MPI_T_cvar_write(handle, &priority), "MPI_T_cvar_write");
    must(MPI_T_cvar_handle_free(&handle), "MPI_T_cvar_handle_free");
}

static void measure_collectives(void)
{
    MPI_Comm plain, with, again;
    int provided;
    must(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided), "MPI_T_init_thread");
    set_priority(-1);
    MPI_Comm_dup(MPI_COMM_WORLD, &plain);
    set_priority(100);
    MPI_Comm_dup(MPI_COMM_WORLD, &with);
    set_priority(-1);
    MPI_Comm_dup(MPI_COMM_WORLD, &again); // what two communicators differ by that are alike
    for (int i = 0; i < collective_count; ++i) {
        Kind what[] = {{collectives[i].call, plain, 0},
                       {collectives[i].call, with, 0},
                       {collectives[i].call, again, 0}};
        compare(collectives[i].name, what, 3, MPI_COMM_WORLD);
    }
    MPI_T_finalize();
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    rounds = argc > 2 ? atoi(argv[2]) : 0;
    const char *mode = argc > 2 ? argv[1] : "";
    if (rounds < 1 || size > most_ranks) {
        must(MPI_ERR_ARG, "MODE ROUNDS, of at most 64 ranks");
    } else if (strcmp(mode, "pattern") == 0) {
        measure_pattern();
    } else if (strcmp(mode, "first") == 0) {
        measure_first();
    } else if (strcmp(mode, "kill") == 0 && argc > 3) {
        measure_kill(argv[3]);
    } else if (strcmp(mode, "after") == 0) {
        measure_after();
    } else if (strcmp(mode, "collectives") == 0) {
        measure_collectives();
    } else {
        must(MPI_ERR_ARG, mode);
    }
    MPI_Finalize();
    return 0;
}

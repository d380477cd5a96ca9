/* What one lost fragment adds to a message: round trips (a message there, an empty one back) under
 * btl/fault, each told by dr's own performance variables to be one in which nothing was sent again,
 * one in which a single fragment was since later ones had arrived (lost in the middle), or one in
 * which a single fragment was since the peer, asked, did not have it, or its time had run out (lost
 * at the tail).
 *
 * usage: lost [--bytes N] [--trips N]
 *   N bytes a message (default 1048576), N round trips (default 2000). Losses are to happen to rank
 * 0 alone: --mca btl fault,tcp,self --mca btl_fault_drop 1 --mca btl_fault_ranks 0 --mca
 * btl_fault_direction send. Rank 0 prints `kind count median_us` for clean, middle and tail, and
 * `srtt 0 US`, dr's own smoothed round-trip time at the end. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { clean, middle, tail, kinds, most_paths = 16 };

static const char *const names[] = {"clean", "middle", "tail"};
static MPI_T_pvar_session session;

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A variable of dr, bound to a communicator where it wants one. */
static MPI_T_pvar_handle variable(const char *name, int var_class, MPI_Comm *comm)
{
    MPI_T_pvar_handle handle;
    int index, count;
    if (MPI_T_pvar_get_index(name, var_class, &index) != MPI_SUCCESS ||
        MPI_T_pvar_handle_alloc(session, index, comm, &handle, &count) != MPI_SUCCESS) {
        fprintf(stderr, "lost: no variable %s; it takes --mca pml dr\n", name);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return handle;
}

static unsigned long long read_one(MPI_T_pvar_handle handle)
{
    unsigned long long value = 0;
    MPI_T_pvar_read(session, handle, &value);
    return value;
}

static void count_trips(char *data, int bytes, int trips)
{
    MPI_Comm world = MPI_COMM_WORLD;
    const MPI_T_pvar_handle gap =
        variable("pml_dr_retransmitted_gap", MPI_T_PVAR_CLASS_COUNTER, NULL);
    const MPI_T_pvar_handle timeout =
        variable("pml_dr_retransmitted_timeout", MPI_T_PVAR_CLASS_COUNTER, NULL);
    const MPI_T_pvar_handle asked =
        variable("pml_dr_retransmitted_tail", MPI_T_PVAR_CLASS_COUNTER, NULL);
    const MPI_T_pvar_handle srtt = variable("pml_dr_path_srtt", MPI_T_PVAR_CLASS_LEVEL, &world);
    double *times[kinds], paths[2 * most_paths];
    int counts[kinds] = {0};
    unsigned long long gaps = read_one(gap), timeouts = read_one(timeout) + read_one(asked);
    for (int k = 0; k < kinds; ++k)
        times[k] = malloc((size_t)trips * sizeof(double));
    for (int i = 0; i < trips; ++i) {
        const double start = MPI_Wtime();
        MPI_Send(data, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(NULL, 0, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        const double took = MPI_Wtime() - start;
        const unsigned long long gaps_now = read_one(gap);
        const unsigned long long timeouts_now = read_one(timeout) + read_one(asked);
        const unsigned long long by_gap = gaps_now - gaps, by_time = timeouts_now - timeouts;
        gaps = gaps_now;
        timeouts = timeouts_now;
        if (by_gap + by_time <= 1) {
            const int kind = by_gap ? middle : by_time ? tail : clean;
            times[kind][counts[kind]++] = took;
        }
    }
    for (int k = 0; k < kinds; ++k) {
        qsort(times[k], (size_t)counts[k], sizeof(double), compare);
        printf("%s %d %.3f\n", names[k], counts[k],
               counts[k] ? times[k][counts[k] / 2] * 1e6 : 0.0);
        free(times[k]);
    }
    MPI_T_pvar_read(session, srtt, paths);
    printf("srtt 0 %.3f\n", paths[most_paths]);
}

int main(int argc, char **argv)
{
    int rank, size, provided, bytes = 1 << 20, trips = 2000;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--bytes"))
            bytes = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--trips"))
            trips = atoi(argv[i + 1]);
    }
    if (size != 2 || bytes < 0 || trips < 1) {
        fprintf(stderr, "lost: two ranks, no negative size, one trip or more\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_session_create(&session);
    char *data = calloc((size_t)bytes + 1, 1);
    if (rank == 0) {
        count_trips(data, bytes, trips);
    } else {
        for (int i = 0; i < trips; ++i) {
            MPI_Recv(data, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(NULL, 0, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
        }
    }
    free(data);
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
    MPI_Finalize();
    return 0;
}

/* Bandwidth over time: rank 0 sends one message after the other to rank 1, which writes what
 * arrived in each slice of time.
 *
 * usage: stream [--bytes N] [--window N] [--slice-ms T] [--seconds T]
 *   N bytes a message (default 262144), N messages under way (default 8, at most 64), T ms a slice
 * (default 100), T s in all (default 10). Rank 1 prints `slice END_S MB_PER_S` (10^6 bytes) for
 * each slice, END_S in seconds since the first message, and a first line `start UNIX_TIME`, so that
 * others can note on the same axis what they did; last comes `bandwidth N MEAN GB/s`, of all
 * messages but the first (10^9 bytes a second). Rank 1 ends it, by a word with its replies. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { max_window = 64, data_tag = 1, reply_tag = 2 };

static int bytes = 262144, window = 8;
static double slice = 0.1, seconds = 10;

static double unix_time(void)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    return (double)now.tv_sec + (double)now.tv_usec * 1e-6;
}

static void send_all(const char *data)
{
    MPI_Request requests[max_window];
    char more = 1;
    while (more) {
        for (int i = 0; i < window; ++i)
            MPI_Isend(data, bytes, MPI_CHAR, 1, data_tag, MPI_COMM_WORLD, &requests[i]);
        MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
        MPI_Recv(&more, 1, MPI_CHAR, 1, reply_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void receive_all(char *data)
{
    MPI_Request requests[max_window];
    double start = 0, last = 0, slice_end = slice, arrived = 0, total = 0;
    char more = 1;
    for (int i = 0; i < window; ++i)
        MPI_Irecv(data + (size_t)i * (size_t)bytes, bytes, MPI_CHAR, 0, data_tag, MPI_COMM_WORLD,
                  &requests[i]);
    while (more) {
        for (int i = 0; i < window; ++i) {
            MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
            if (start == 0) {
                start = MPI_Wtime();
                printf("start %.6f\n", unix_time());
            }
            const double now = MPI_Wtime() - start;
            /* What comes after a gap belongs to the slice it came in: the gap shows as zeros. */
            while (now >= slice_end) {
                printf("slice %.3f %.3f\n", slice_end, arrived / slice * 1e-6);
                arrived = 0;
                slice_end += slice;
            }
            arrived += bytes;
            total += last > 0 ? bytes : 0;
            last = now;
        }
        more = MPI_Wtime() - start < seconds;
        if (more)
            for (int i = 0; i < window; ++i)
                MPI_Irecv(data + (size_t)i * (size_t)bytes, bytes, MPI_CHAR, 0, data_tag,
                          MPI_COMM_WORLD, &requests[i]);
        MPI_Send(&more, 1, MPI_CHAR, 0, reply_tag, MPI_COMM_WORLD);
        fflush(stdout);
    }
    printf("bandwidth %d %.4f GB/s\n", bytes, last > 0 ? total / last * 1e-9 : 0);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--bytes"))
            bytes = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--window"))
            window = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--slice-ms"))
            slice = atof(argv[i + 1]) * 1e-3;
        else if (!strcmp(argv[i], "--seconds"))
            seconds = atof(argv[i + 1]);
    }
    if (size != 2 || bytes < 1 || window < 1 || window > max_window || slice <= 0 || seconds <= 0) {
        if (rank == 0)
            fprintf(stderr,
                    "stream: two ranks, 1 byte or more, a window of 1 to %d, times above 0\n",
                    max_window);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    char *data = calloc((size_t)window, (size_t)bytes);
    if (data == NULL)
        MPI_Abort(MPI_COMM_WORLD, 3);
    if (rank == 0)
        send_all(data);
    else
        receive_all(data);
    free(data);
    MPI_Finalize();
    return 0;
}

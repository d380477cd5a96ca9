/* Message rate between two ranks, each with several threads that send at once
 * (MPI_THREAD_MULTIPLE), every thread in a communicator of its own: what they have in common is
 * the library alone.
 *
 * usage: threads [--threads N] [--bytes B] [--seconds T]
 *   N threads a rank (default 2, 1 to 64), messages of B bytes (default 8), for T seconds (default
 * 0.3). As in p2p, a window of 64 is ended by an empty reply. Rank 0 prints the rate of all
 * threads together, and of the slowest and the fastest of them, in M/s. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { max_threads = 64, window = 64, max_bytes = 1 << 20 };

static int rank, threads = 2, bytes = 8;
static double seconds = 0.3;
static pthread_barrier_t start;

struct worker {
    pthread_t thread;
    MPI_Comm comm;
    double rate;
};

static void *work(void *argument)
{
    struct worker *const self = argument;
    MPI_Request requests[window];
    char *const buffer = calloc(window, (size_t)bytes);
    long sent = 0;
    int last = 0;
    if (!buffer)
        MPI_Abort(MPI_COMM_WORLD, 1);
    pthread_barrier_wait(&start);
    const double begin = MPI_Wtime();
    double took = 0;
    while (!last) {
        for (int i = 0; i < window; ++i) {
            char *const place = buffer + (size_t)i * (size_t)bytes;
            if (rank == 0)
                MPI_Isend(place, bytes, MPI_CHAR, 1, 1, self->comm, &requests[i]);
            else
                MPI_Irecv(place, bytes, MPI_CHAR, 0, 1, self->comm, &requests[i]);
        }
        MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
        sent += window;
        if (rank == 0) {
            took = MPI_Wtime() - begin;
            last = took >= seconds;
            MPI_Sendrecv(&last, 1, MPI_INT, 1, 2, NULL, 0, MPI_INT, 1, 3, self->comm,
                         MPI_STATUS_IGNORE);
        } else {
            MPI_Sendrecv(NULL, 0, MPI_INT, 0, 3, &last, 1, MPI_INT, 0, 2, self->comm,
                         MPI_STATUS_IGNORE);
        }
    }
    self->rate = (double)sent / (MPI_Wtime() - begin) * 1e-6;
    free(buffer);
    return NULL;
}

int main(int argc, char **argv)
{
    static struct worker workers[max_threads];
    int provided, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--threads"))
            threads = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--bytes"))
            bytes = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--seconds"))
            seconds = atof(argv[i + 1]);
    }
    if (size != 2 || provided != MPI_THREAD_MULTIPLE || threads < 1 || threads > max_threads ||
        bytes < 1 || bytes > max_bytes || seconds <= 0) {
        fprintf(stderr, "threads: needs 2 ranks, MPI_THREAD_MULTIPLE, 1 to 64 threads, messages of "
                        "1 to 1048576 bytes and a positive --seconds\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    for (int t = 0; t < threads; ++t)
        MPI_Comm_dup(MPI_COMM_WORLD, &workers[t].comm);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int t = 0; t < threads; ++t)
        if (pthread_create(&workers[t].thread, NULL, work, &workers[t]) != 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
    double sum = 0, least = 0, most = 0;
    for (int t = 0; t < threads; ++t) {
        pthread_join(workers[t].thread, NULL);
        const double rate = workers[t].rate;
        sum += rate;
        least = t == 0 || rate < least ? rate : least;
        most = rate > most ? rate : most;
        MPI_Comm_free(&workers[t].comm);
    }
    if (rank == 0)
        printf("threads %d rate %.4f M/s %.4f %.4f\n", threads, sum, least, most);
    pthread_barrier_destroy(&start);
    MPI_Finalize();
    return 0;
}

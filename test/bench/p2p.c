/* Point-to-point figures between two ranks: half round trip by size, bandwidth by size, message
 * rate; with a probe of the two cores' cache-line latency before and after, which tells whether two
 * runs may be compared at all.
 *
 * usage: p2p [--latency S,S,...] [--echo S,S,...] [--bandwidth S,S,...] [--rate S] [--seconds T]
 *   sizes in bytes; T is the time each figure is measured for (default 0.15 s, after a warm-up of a
 * fifth of it). Rank 0 prints one line per figure: `name size value unit best mean`, times in
 * us, bandwidth in GB/s (10^9), rate in M/s. The value is the median over some fifty batches,
 * `best` that of the fastest batch, which says more than the median where others use the machine,
 * and `mean` of all of them together, which rare losses do not hide from.
 *   Half round trip is of MPI_Send and MPI_Recv, of memory that is never written anew: who copies
 * straight from there may find it in the receiver's own cache. Echo is the same where each sends
 * what it has just received, as a program sends what it has just computed. Bandwidth keeps a window
 * of non-blocking sends and is ended by an empty reply; rate is the same with small messages and a
 * window of 64. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { max_sizes = 32, max_window = 64 };

static int rank;
static double seconds_each = 0.15;
static char *send_buffer, *receive_buffer;

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Both ranks are here. The one that is here first makes progress until the other is, too: what it
 * sent last may have been lost, and is sent again only inside MPI. */
static void meet(atomic_uint *line)
{
    static unsigned meeting = 0;
    atomic_uint *const here = line + 64 + 32 * rank, *const there = line + 64 + 32 * (1 - rank);
    MPI_Barrier(MPI_COMM_WORLD);
    atomic_store_explicit(here, ++meeting, memory_order_release);
    while (atomic_load_explicit(there, memory_order_acquire) < meeting) {
        int flag;
        MPI_Iprobe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
}

/* Half a round trip of one cache line between the two ranks' cores, in ns: the median of 9 batches.
 */
static double probe(atomic_uint *line)
{
    enum { batches = 9, trips = 2000 };
    static unsigned turn = 0;
    double times[batches];
    meet(line);
    for (int b = 0; b < batches; ++b) {
        const double start = MPI_Wtime();
        for (int i = 0; i < trips; ++i) {
            if (rank == 0) {
                atomic_store_explicit(line, ++turn, memory_order_release);
                while (atomic_load_explicit(line + 32, memory_order_acquire) != turn)
                    ;
            } else {
                ++turn;
                while (atomic_load_explicit(line, memory_order_acquire) != turn)
                    ;
                atomic_store_explicit(line + 32, turn, memory_order_release);
            }
        }
        times[b] = (MPI_Wtime() - start) / trips / 2 * 1e9;
    }
    qsort(times, batches, sizeof *times, compare);
    return times[batches / 2];
}

/* Both ranks map the same two cache lines. NULL when they are not on one machine. */
static atomic_uint *shared_lines(void)
{
    char name[64] = "";
    int file = -1, good;
    if (rank == 0) {
        snprintf(name, sizeof name, "/p2p-probe-%ld", (long)getpid());
        file = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
        if (file >= 0 && ftruncate(file, 4096) != 0) {
            close(file);
            file = -1;
        }
    }
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank != 0)
        file = shm_open(name, O_RDWR, 0600);
    good = file >= 0;
    MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    void *map = good ? mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (file >= 0)
        close(file);
    if (rank == 0 && name[0])
        shm_unlink(name);
    good = map != MAP_FAILED;
    MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return good ? map : NULL;
}

static void round_trip(int bytes)
{
    if (rank == 0) {
        MPI_Send(send_buffer, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(receive_buffer, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(receive_buffer, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(send_buffer, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
    }
}

static void echo(int bytes, int window)
{
    char *const memory = rank == 0 ? send_buffer : receive_buffer;
    (void)window;
    if (rank == 0)
        MPI_Send(memory, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
    MPI_Recv(memory, bytes, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1)
        MPI_Send(memory, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
}

static void burst(int bytes, int window)
{
    MPI_Request requests[max_window];
    char done = 0;
    for (int i = 0; i < window; ++i) {
        if (rank == 0)
            MPI_Isend(send_buffer, bytes, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(receive_buffer, bytes, MPI_CHAR, 0, 2, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
    if (rank == 0)
        MPI_Recv(&done, 1, MPI_CHAR, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(&done, 1, MPI_CHAR, 0, 3, MPI_COMM_WORLD);
}

static void trip(int bytes, int window)
{
    (void)window;
    round_trip(bytes);
}

/* How often an action fits into so many seconds: rank 0 decides for both. */
static int repetitions(void (*action)(int, int), int bytes, int window, double seconds)
{
    int n = 1;
    for (;;) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double start = MPI_Wtime();
        for (int i = 0; i < n; ++i)
            action(bytes, window);
        double took = MPI_Wtime() - start;
        MPI_Bcast(&took, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        if (took >= seconds / 5) {
            const double wanted = n * seconds / took;
            return wanted < 1 ? 1 : (int)wanted;
        }
        n *= 2;
    }
}

struct timing {
    double median, best, mean;
};

/* Seconds that an action takes: median, least and mean over batches. */
static struct timing measure(void (*action)(int, int), int bytes, int window)
{
    enum { batches = 51 };
    double times[batches], sum = 0;
    const int n = repetitions(action, bytes, window, seconds_each) / batches + 1;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int b = 0; b < batches; ++b) {
        const double start = MPI_Wtime();
        for (int i = 0; i < n; ++i)
            action(bytes, window);
        times[b] = (MPI_Wtime() - start) / n;
        sum += times[b];
    }
    qsort(times, batches, sizeof *times, compare);
    return (struct timing){times[batches / 2], times[0], sum / batches};
}

static int parse_sizes(const char *text, int *sizes)
{
    int n = 0;
    while (n < max_sizes && *text) {
        char *end;
        const long size = strtol(text, &end, 10);
        if (end == text || size < 0 || size > (64 << 20)) {
            fprintf(stderr, "p2p: '%s' is not a list of sizes from 0 to 67108864\n", text);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        sizes[n++] = (int)size;
        text = *end == ',' ? end + 1 : end;
    }
    return n;
}

int main(int argc, char **argv)
{
    int latencies[max_sizes], echoes[max_sizes], bandwidths[max_sizes], rates[max_sizes];
    int n_latencies = 0, n_echoes = 0, n_bandwidths = 0, n_rates = 0, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--latency"))
            n_latencies = parse_sizes(argv[i + 1], latencies);
        else if (!strcmp(argv[i], "--echo"))
            n_echoes = parse_sizes(argv[i + 1], echoes);
        else if (!strcmp(argv[i], "--bandwidth"))
            n_bandwidths = parse_sizes(argv[i + 1], bandwidths);
        else if (!strcmp(argv[i], "--rate"))
            n_rates = parse_sizes(argv[i + 1], rates);
        else if (!strcmp(argv[i], "--seconds"))
            seconds_each = atof(argv[i + 1]);
    }
    if (size != 2 || seconds_each <= 0) {
        fprintf(stderr, "p2p: needs exactly 2 ranks and a positive --seconds\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    send_buffer = malloc(64 << 20);
    receive_buffer = malloc(64 << 20);
    memset(send_buffer, 1, 64 << 20);
    memset(receive_buffer, 2, 64 << 20);
    atomic_uint *lines = shared_lines();
    if (lines) {
        const double before = probe(lines);
        if (rank == 0)
            printf("probe 0 %.1f ns\n", before);
    }
    for (int i = 0; i < n_latencies; ++i) {
        const struct timing t = measure(trip, latencies[i], 1);
        if (rank == 0)
            printf("latency %d %.4f us %.4f\n", latencies[i], t.median / 2 * 1e6, t.best / 2 * 1e6);
    }
    for (int i = 0; i < n_echoes; ++i) {
        const struct timing t = measure(echo, echoes[i], 1);
        if (rank == 0)
            printf("echo %d %.4f us %.4f\n", echoes[i], t.median / 2 * 1e6, t.best / 2 * 1e6);
    }
    for (int i = 0; i < n_bandwidths; ++i) {
        const int window = bandwidths[i] >= 1 << 20 ? 8 : 32;
        const struct timing t = measure(burst, bandwidths[i], window);
        const double gigabytes = bandwidths[i] * 1e-9 * window;
        if (rank == 0)
            printf("bandwidth %d %.4f GB/s %.4f %.4f\n", bandwidths[i], gigabytes / t.median,
                   gigabytes / t.best, gigabytes / t.mean);
    }
    for (int i = 0; i < n_rates; ++i) {
        const struct timing t = measure(burst, rates[i], max_window);
        if (rank == 0)
            printf("rate %d %.4f M/s %.4f %.4f\n", rates[i], max_window / t.median * 1e-6,
                   max_window / t.best * 1e-6, max_window / t.mean * 1e-6);
    }
    if (lines) {
        const double after = probe(lines);
        if (rank == 0)
            printf("probe 1 %.1f ns\n", after);
    }
    MPI_Finalize();
    return 0;
}

#include "ompi/mca/ompi_prelude.hpp"

#include "test/mpi/survivors/stand.hpp"

#include <chrono>
#include <cstdio>

#include <pthread.h>

namespace {

constexpr int trip_tag = 97;

int stand_for_ms = 0;
bool stood = false;

void wait_for_ever()
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    pthread_mutex_lock(&mutex);
}

/// Only after a while, in which the self-checking thread finds out that this function is there.
int deadlock()
{
    static const auto begin = std::chrono::steady_clock::now();
    if (std::chrono::steady_clock::now() - begin < std::chrono::seconds(1)) {
        return 0;
    }
    wait_for_ever();
    return 0;
}

int deadlock_on_completion(ompi_request_t * /*request*/)
{
    wait_for_ever();
    return OMPI_SUCCESS;
}

int stand()
{
    if (!stood) {
        compute(stand_for_ms);
        stood = true;
    }
    return 0;
}

void announce(int ms)
{
    int provided = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    int index = 0;
    int count = 0;
    MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
    if (MPI_T_cvar_get_index("errmgr_radixft_announce", &index) != MPI_SUCCESS ||
        MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS ||
        MPI_T_cvar_write(handle, &ms) != MPI_SUCCESS) {
        std::printf("an announcement was refused\n");
        std::fflush(stdout);
    }
    // MPI_T stays: in Open MPI 4.1.4 its end takes more with it than it began.
}

} // namespace

void compute(int ms)
{
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
    while (std::chrono::steady_clock::now() < end) {
    }
}

void deadlock_in_mpi()
{
    opal_progress_register(deadlock);
    int word = 0;
    MPI_Recv(&word, 1, MPI_INT, MPI_ANY_SOURCE, 98, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

void deadlock_in_handler()
{
    int word = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(&word, 1, MPI_INT, MPI_ANY_SOURCE, trip_tag, MPI_COMM_WORLD, &request);
    request->req_complete_cb = deadlock_on_completion;
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

void trip_handler(int rank)
{
    // Not before the other one waits in the progress engine.
    compute(1000);
    static int word = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(&word, 1, MPI_INT, rank, trip_tag, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
}

void stand_in_mpi(int ms)
{
    announce(2 * ms);
    stand_for_ms = ms;
    opal_progress_register(stand);
    while (!stood) {
        int flag = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, 98, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
    opal_progress_unregister(stand);
}

#include "test/mpi/survivors/stand.hpp"

#include <mpi.h>

#include <chrono>
#include <cstdio>

#include <pthread.h>

// Open MPI's own: what a BTL registers for itself.
extern "C" {
int opal_progress_register(int (*callback)());
int opal_progress_unregister(int (*callback)());
}

namespace {

int stand_for_ms = 0;
bool stood = false;

/// Only after a while, in which the self-checking thread finds out that this function is there.
int deadlock()
{
    static const auto begin = std::chrono::steady_clock::now();
    if (std::chrono::steady_clock::now() - begin < std::chrono::seconds(1)) {
        return 0;
    }
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    pthread_mutex_lock(&mutex);
    return 0;
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

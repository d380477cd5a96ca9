/* Rank 0 sends one last message to rank 1 and both part, by MPI_Finalize or, with the argument
 * `disconnect`, by MPI_Comm_disconnect: whatever became of the acknowledgement, they come to the
 * end.
 *
 * usage: last_ack finalize|disconnect
 * After a disconnect rank 0 prints how many bytes to rank 1 are unacknowledged still.
 */
#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include <unistd.h>

namespace {

unsigned long long unacknowledged_by(int rank, MPI_Comm comm)
{
    int index = 0;
    int count = 0;
    MPI_T_pvar_session session = nullptr;
    MPI_T_pvar_handle handle = nullptr;
    if (MPI_T_pvar_get_index("pml_dr_window_bytes_used", MPI_T_PVAR_CLASS_LEVEL, &index) !=
            MPI_SUCCESS ||
        MPI_T_pvar_session_create(&session) != MPI_SUCCESS ||
        MPI_T_pvar_handle_alloc(session, index, &comm, &handle, &count) != MPI_SUCCESS) {
        return ~0ULL;
    }
    std::vector<unsigned long long> values(static_cast<std::size_t>(count));
    MPI_T_pvar_read(session, handle, values.data());
    MPI_T_pvar_handle_free(session, &handle);
    MPI_T_pvar_session_free(&session);
    return values[static_cast<std::size_t>(rank)];
}

} // namespace

int main(int argc, char **argv)
{
    int provided = 0;
    int rank = 0;
    int word = 4711;
    const bool disconnect = argc > 1 && std::strcmp(argv[1], "disconnect") == 0;
    MPI_Init(&argc, &argv);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm comm = MPI_COMM_WORLD;
    if (disconnect) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    }
    if (rank == 0) {
        MPI_Send(&word, 1, MPI_INT, 1, 1, comm);
    } else if (rank == 1) {
        word = 0;
        MPI_Recv(&word, 1, MPI_INT, 0, 1, comm, MPI_STATUS_IGNORE);
    }
    if (disconnect) {
        // Most likely rank 1 is there first, and has nothing to send when the last message comes
        // that an acknowledgement could ride on.
        usleep(rank == 0 ? 50000 : 0);
        MPI_Comm_disconnect(&comm);
        if (rank == 0) {
            std::printf("unacknowledged: %llu\n", unacknowledged_by(1, MPI_COMM_WORLD));
            std::fflush(stdout);
        }
    }
    MPI_T_finalize();
    MPI_Finalize();
    return word == 4711 ? 0 : 1;
}

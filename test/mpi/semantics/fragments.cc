// How large btl/tcp's fragments may be, and how many pml/dr makes of a message of 1 MiB: prints
// `max_send_size BYTES` and, under dr, `fragments COUNT`. Two ranks.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int message_bytes = 1 << 20;

void need(bool good, const char *what)
{
    if (!good) {
        std::fprintf(stderr, "fragments: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

std::size_t max_send_size()
{
    int index = 0;
    int count = 0;
    std::size_t value = 0;
    MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
    need(MPI_T_cvar_get_index("btl_tcp_max_send_size", &index) == MPI_SUCCESS &&
             MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) == MPI_SUCCESS &&
             MPI_T_cvar_read(handle, &value) == MPI_SUCCESS,
         "btl_tcp_max_send_size cannot be read");
    MPI_T_cvar_handle_free(&handle);
    return value;
}

} // namespace

int main(int argc, char **argv)
{
    int rank = 0;
    int provided = 0;
    int index = 0;
    // "early": MPI_T before MPI_Init, which registers every framework's parameters.
    const bool early = argc > 1;
    if (early) {
        MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!early) {
        MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    }
    if (rank == 0) {
        std::printf("max_send_size %zu\n", max_send_size());
    }
    MPI_T_pvar_session session = MPI_T_PVAR_SESSION_NULL;
    MPI_T_pvar_handle sent = MPI_T_PVAR_HANDLE_NULL;
    const bool dr = MPI_T_pvar_get_index("pml_dr_fragments_sent", MPI_T_PVAR_CLASS_COUNTER,
                                         &index) == MPI_SUCCESS;
    unsigned long long before = 0;
    unsigned long long after = 0;
    if (dr) {
        int count = 0;
        need(MPI_T_pvar_session_create(&session) == MPI_SUCCESS &&
                 MPI_T_pvar_handle_alloc(session, index, nullptr, &sent, &count) == MPI_SUCCESS,
             "pml_dr_fragments_sent cannot be read");
        MPI_T_pvar_read(session, sent, &before);
    }
    std::vector<char> message(message_bytes, static_cast<char>(rank));
    if (rank == 0) {
        MPI_Ssend(message.data(), message_bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Recv(message.data(), message_bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        need(message.front() == 0 && message.back() == 0, "the message is not what was sent");
    }
    if (dr && rank == 0) {
        MPI_T_pvar_read(session, sent, &after);
        std::printf("fragments %llu\n", after - before);
    }
    if (dr) {
        MPI_T_pvar_handle_free(session, &sent);
        MPI_T_pvar_session_free(&session);
    }
    MPI_T_finalize();
    MPI_Finalize();
    return 0;
}

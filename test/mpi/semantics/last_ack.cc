/* Rank 0 sends one last message to rank 1 and both part, by MPI_Finalize or, with the argument
 * `disconnect`, by MPI_Comm_disconnect: whatever became of the acknowledgement, they come to the
 * end.
 *
 * usage: last_ack finalize|disconnect|freed
 * After a disconnect rank 0 prints how many bytes to rank 1 are unacknowledged still.
 * freed: alone, it spawns two, and the message to rank 1 of those is a long one whose request it
 * has freed; they receive it when it is disconnecting already.
 */
#include <mpi.h>

#include <algorithm>
#include <array>
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

constexpr int long_bytes = 1 << 20;

/* `beside`, the same processes once more, is there to ask about them when the first is gone. */
void part_from_children(const char *program)
{
    MPI_Comm children = MPI_COMM_NULL;
    MPI_Comm beside = MPI_COMM_NULL;
    std::array<char, 6> word{"freed"};
    std::array<char *, 2> arguments{word.data(), nullptr};
    MPI_Comm_spawn(program, arguments.data(), 2, MPI_INFO_NULL, 0, MPI_COMM_SELF, &children,
                   MPI_ERRCODES_IGNORE);
    MPI_Comm_dup(children, &beside);
    const std::vector<unsigned char> bytes(long_bytes, 47);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(bytes.data(), long_bytes, MPI_BYTE, 1, 1, children, &request);
    MPI_Request_free(&request);
    MPI_Comm_disconnect(&children);
    std::printf("unacknowledged: %llu\n", unacknowledged_by(1, beside));
    std::fflush(stdout);
    MPI_Comm_disconnect(&beside);
}

/* \return whether every byte was right */
bool part_from_parent(MPI_Comm parent)
{
    MPI_Comm beside = MPI_COMM_NULL;
    MPI_Comm_dup(parent, &beside);
    int rank = 0;
    MPI_Comm_rank(parent, &rank);
    std::vector<unsigned char> bytes(rank == 1 ? long_bytes : 0);
    if (rank == 1) {
        MPI_Probe(0, 1, parent, MPI_STATUS_IGNORE);
        // Most likely the parent is disconnecting by then.
        const double began = MPI_Wtime();
        while (MPI_Wtime() - began < 0.2) {
            int any = 0;
            MPI_Iprobe(0, 2, parent, &any, MPI_STATUS_IGNORE);
        }
        MPI_Recv(bytes.data(), long_bytes, MPI_BYTE, 0, 1, parent, MPI_STATUS_IGNORE);
    }
    MPI_Comm_disconnect(&parent);
    MPI_Comm_disconnect(&beside);
    return std::ranges::all_of(bytes, [](unsigned char byte) { return byte == 47; });
}

int run_freed(const char *program)
{
    int provided = 0;
    MPI_Comm parent = MPI_COMM_NULL;
    bool right = true;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Comm_get_parent(&parent);
    if (parent == MPI_COMM_NULL) {
        part_from_children(program);
    } else {
        right = part_from_parent(parent);
    }
    MPI_T_finalize();
    MPI_Finalize();
    return right ? 0 : 1;
}

} // namespace

int main(int argc, char **argv)
{
    int provided = 0;
    int rank = 0;
    int word = 4711;
    const bool disconnect = argc > 1 && std::strcmp(argv[1], "disconnect") == 0;
    MPI_Init(&argc, &argv);
    if (argc > 1 && std::strcmp(argv[1], "freed") == 0) {
        return run_freed(argv[0]);
    }
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

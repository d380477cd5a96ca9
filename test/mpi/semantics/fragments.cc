// How large btl/tcp's fragments may be, and how many pml/dr makes of a message of 1 MiB: prints
// `max_send_size BYTES` and, under dr, `fragments COUNT`, each counted once however often it was
// sent. Two ranks.
#include <mpi.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
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

/* The fragments that this process sends from now on under dr, each counted once. */
class Fragments {
  public:
    Fragments()
    {
        need(MPI_T_pvar_session_create(&session_) == MPI_SUCCESS, "no session");
        for (std::size_t i = 0; i < counters.size(); ++i) {
            int index = 0;
            int count = 0;
            need(has(counters[i], index) &&
                     MPI_T_pvar_handle_alloc(session_, index, nullptr, &handles_[i], &count) ==
                         MPI_SUCCESS,
                 counters[i]);
        }
    }
    Fragments(const Fragments &) = delete;
    Fragments &operator=(const Fragments &) = delete;
    ~Fragments()
    {
        for (MPI_T_pvar_handle &handle : handles_) {
            MPI_T_pvar_handle_free(session_, &handle);
        }
        MPI_T_pvar_session_free(&session_);
    }
    [[nodiscard]] static bool under_dr()
    {
        int index = 0;
        return has(counters[0], index);
    }
    [[nodiscard]] unsigned long long number() const
    {
        unsigned long long sent = read(0);
        for (std::size_t i = 1; i < counters.size(); ++i) {
            sent -= read(i);
        }
        return sent;
    }

  private:
    // All that were sent, and those of them that had been sent before.
    static constexpr std::array counters{
        "pml_dr_fragments_sent",         "pml_dr_retransmitted_timeout",
        "pml_dr_retransmitted_watchdog", "pml_dr_retransmitted_gap",
        "pml_dr_retransmitted_tail",     "pml_dr_retransmitted_nack",
        "pml_dr_retransmitted_failover",
    };

    static bool has(const char *name, int &index)
    {
        return MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &index) == MPI_SUCCESS;
    }
    [[nodiscard]] unsigned long long read(std::size_t i) const
    {
        unsigned long long value = 0;
        need(MPI_T_pvar_read(session_, handles_[i], &value) == MPI_SUCCESS, counters[i]);
        return value;
    }

    MPI_T_pvar_session session_ = MPI_T_PVAR_SESSION_NULL;
    std::array<MPI_T_pvar_handle, counters.size()> handles_{};
};

} // namespace

int main(int argc, char **argv)
{
    int rank = 0;
    int provided = 0;
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
    std::optional<Fragments> fragments;
    if (Fragments::under_dr()) {
        fragments.emplace();
    }
    std::vector<char> message(message_bytes, static_cast<char>(rank));
    if (rank == 0) {
        MPI_Ssend(message.data(), message_bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Recv(message.data(), message_bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        need(message.front() == 0 && message.back() == 0, "the message is not what was sent");
    }
    if (fragments && rank == 0) {
        std::printf("fragments %llu\n", fragments->number());
    }
    fragments.reset();
    MPI_T_finalize();
    MPI_Finalize();
    return 0;
}

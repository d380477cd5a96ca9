/* usage: parted [child]
 *
 * Who has parted in order from a process that it spawned is not asked whether it lives: it may be
 * gone. To be run with a short pml_dr_keepalive_ms, and with a long pml_dr_drain_ms: a question
 * that nobody answers would hold MPI_Finalize up for that long.
 */
#include "cases.hpp"

#include <cstring>

namespace {

using cases::check;

const char *own_path = nullptr;

/* Many times pml_dr_keepalive_ms. */
constexpr double silence_seconds = 1;

void exchange(MPI_Comm other)
{
    int value = 1;
    MPI_Sendrecv_replace(&value, 1, MPI_INT, 0, 0, 0, 0, other, MPI_STATUS_IGNORE);
}

void silence()
{
    for (const double end = MPI_Wtime() + silence_seconds; MPI_Wtime() < end;) {
        int flag = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
}

void not_asked()
{
    char child[] = "child";
    char *arguments[] = {child, nullptr};
    MPI_Comm other = MPI_COMM_NULL;
    MPI_Comm_spawn(own_path, arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other,
                   MPI_ERRCODES_IGNORE);
    cases::Variable sent("pml_dr_fragments_sent", MPI_T_PVAR_CLASS_COUNTER, false);
    exchange(other);
    const unsigned long long before = sent.sum();
    silence();
    check(sent.sum() > before, "with a communicator it is asked");
    MPI_Comm_disconnect(&other);
    const unsigned long long parted = sent.sum();
    silence();
    check(sent.sum() == parted, "without one it is not");
}

const cases::Case all[] = {{"who has parted is not asked for a sign of life", not_asked}};

} // namespace

int main(int argc, char **argv)
{
    own_path = argv[0];
    int provided = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    if (argc < 2 || std::strcmp(argv[1], "child") != 0) {
        return cases::run(argc, argv, MPI_THREAD_SINGLE, all);
    }
    cases::begin(argc, argv, MPI_THREAD_SINGLE);
    MPI_Comm parent = MPI_COMM_NULL;
    MPI_Comm_get_parent(&parent);
    exchange(parent);
    MPI_Comm_disconnect(&parent);
    MPI_Finalize();
    return 0;
}

/* usage: parted [waits]
 *
 * Who has parted in order from a process that it spawned is not asked whether it lives: it may be
 * gone. To be run with a short pml_dr_keepalive_ms, and with a long pml_dr_drain_ms: a question
 * that nobody answers would hold MPI_Finalize up for that long.
 *
 * waits: but while a message to it is under way it is asked, and given up when it says nothing. To
 * be run with a short pml_dr_give_up_ms.
 */
#include "cases.hpp"

#include "ompi/mpi_ft/mpi_ft.h"

#include <csignal>
#include <string>
#include <vector>

#include <unistd.h>

namespace {

using cases::check;

const char *own_path = nullptr;

/* Many times pml_dr_keepalive_ms. */
constexpr double silence_seconds = 1;
constexpr double patience_seconds = 30;

/* A child that waits for that. */
void end(int pid)
{
    if (pid > 0) { // 0 would be all that mpirun has started
        kill(pid, SIGUSR1);
    }
}

/* Waits in MPI until it holds, so long at most. */
template <class Condition>
bool until(double seconds, Condition holds)
{
    const double end = MPI_Wtime() + seconds;
    while (!holds()) {
        if (MPI_Wtime() > end) {
            return false;
        }
        int flag = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
    return true;
}

/* Whether nothing is sent in a silence. The last words to who has parted may be sent again before,
 * where it is slow to say that it has them. */
bool falls_silent(cases::Variable &sent)
{
    for (const double end = MPI_Wtime() + patience_seconds; MPI_Wtime() < end;) {
        const unsigned long long before = sent.sum();
        if (!until(silence_seconds, [&] { return sent.sum() > before; })) {
            return true;
        }
    }
    return false;
}

MPI_Comm spawn(const char *word)
{
    std::string argument = word;
    char *arguments[] = {argument.data(), nullptr};
    MPI_Comm other = MPI_COMM_NULL;
    MPI_Comm_spawn(own_path, arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other,
                   MPI_ERRCODES_IGNORE);
    return other;
}

void not_asked()
{
    int pid = 0;
    MPI_Comm other = spawn("child");
    MPI_Comm last = MPI_COMM_NULL;
    cases::Variable sent("pml_dr_fragments_sent", MPI_T_PVAR_CLASS_COUNTER, false);
    MPI_Comm_dup(other, &last);
    MPI_Comm_disconnect(&other); // it is not the last one
    MPI_Recv(&pid, 1, MPI_INT, 0, 0, last, MPI_STATUS_IGNORE);
    const unsigned long long before = sent.sum();
    check(until(patience_seconds, [&] { return sent.sum() > before; }),
          "with a communicator left it is asked");
    MPI_Comm_disconnect(&last);
    check(falls_silent(sent), "without one it is not");
    end(pid);
}

void asked_while_a_message_is_under_way()
{
    constexpr int bytes = 8 << 20;
    const std::vector<char> message(bytes);
    int pid = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm other = spawn("silent");
    MPI_Comm_set_errhandler(other, MPI_ERRORS_RETURN);
    MPI_Recv(&pid, 1, MPI_INT, 0, 0, other, MPI_STATUS_IGNORE);
    MPI_Isend(message.data(), bytes, MPI_CHAR, 0, 0, other, &request);
    MPI_Comm_disconnect(&other);
    int error_class = MPI_SUCCESS;
    MPI_Error_class(MPI_Wait(&request, MPI_STATUS_IGNORE), &error_class);
    check(error_class == MPIX_ERR_UNREACHABLE, "who says nothing is given up", error_class);
    end(pid);
}

volatile std::sig_atomic_t told = 0;

void be_told(int /*signal*/)
{
    told = 1;
}

void say_who_it_is(MPI_Comm parent)
{
    int pid = getpid();
    MPI_Send(&pid, 1, MPI_INT, 0, 0, parent);
}

/* Takes nothing, and says nothing any more until it is told to end. */
void silent_child(MPI_Comm parent)
{
    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &end, nullptr);
    say_who_it_is(parent);
    MPI_Comm_disconnect(&parent);
    int signal = 0;
    sigwait(&end, &signal);
}

/* Answers until it is told to end: who is not answered is not asked again for long. */
void child_of_two(MPI_Comm parent)
{
    MPI_Comm last = MPI_COMM_NULL;
    std::signal(SIGUSR1, be_told);
    MPI_Comm_dup(parent, &last);
    MPI_Comm_disconnect(&parent);
    say_who_it_is(last);
    MPI_Comm_disconnect(&last);
    until(2 * patience_seconds, [] { return told != 0; });
}

const cases::Case all[] = {
    {"who has parted from two communicators is not asked for a sign of life", not_asked}};
const cases::Case waits[] = {{"who has parted is asked while a message to it is under way",
                              asked_while_a_message_is_under_way}};

} // namespace

int main(int argc, char **argv)
{
    own_path = argv[0];
    int provided = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    const std::string word = argc < 2 ? "" : argv[1];
    if (word.empty() || word == "waits") {
        return cases::run(argc, argv, MPI_THREAD_SINGLE, word.empty() ? all : waits);
    }
    cases::begin(argc, argv, MPI_THREAD_SINGLE);
    MPI_Comm parent = MPI_COMM_NULL;
    MPI_Comm_get_parent(&parent);
    if (word == "silent") {
        silent_child(parent);
    } else {
        child_of_two(parent);
    }
    MPI_Finalize();
    return 0;
}

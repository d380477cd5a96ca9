/* usage: parted [waits | gone]
 *
 * Who has parted in order from a process that it spawned is not asked whether it lives: it may be
 * gone. To be run with a short pml_dr_keepalive_ms, and with a long pml_dr_drain_ms: a question
 * that nobody answers would hold MPI_Finalize up for that long.
 *
 * waits: but while a message to it is under way it is asked, and given up when it says nothing. To
 * be run with a short pml_dr_give_up_ms.
 *
 * gone: those who have ended since, one child after the other, are no longer among those whose
 * connections are looked at in each pass; who is met again is. To be run over tcp with
 * pml_dr_verbose.
 */
#include "cases.hpp"

#include "ompi/mpi_ft/mpi_ft.h"

#include <array>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
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

/* What this process says on its standard error meanwhile. */
class StandardError {
  public:
    StandardError() : file_(std::tmpfile()), before_(dup(STDERR_FILENO))
    {
        std::fflush(stderr);
        dup2(fileno(file_), STDERR_FILENO);
    }
    StandardError(const StandardError &) = delete;
    StandardError &operator=(const StandardError &) = delete;
    ~StandardError()
    {
        std::fflush(stderr);
        dup2(before_, STDERR_FILENO);
        close(before_);
        std::fputs(text().c_str(), stderr);
        std::fclose(file_);
    }
    std::string text() const
    {
        std::array<char, 16384> bytes{};
        const ssize_t size = pread(fileno(file_), bytes.data(), bytes.size(), 0);
        return {bytes.data(), size < 0 ? 0 : static_cast<std::size_t>(size)};
    }

  private:
    std::FILE *file_;
    int before_;
};

/* How often it was said that no path is watched any more. */
int unwatched(const StandardError &error)
{
    const std::string text = error.text();
    const std::string words = "watched: 0\n";
    int found = 0;
    for (std::size_t at = text.find(words); at != std::string::npos;
         at = text.find(words, at + 1)) {
        ++found;
    }
    return found;
}

void ended()
{
    constexpr int children = 3;
    bool good = true;
    for (int child = 0; good && child < children; ++child) {
        const StandardError error;
        int pid = 0;
        MPI_Comm other = spawn("brief");
        MPI_Recv(&pid, 1, MPI_INT, 0, 0, other, MPI_STATUS_IGNORE);
        check(error.text().find("watched: ") == std::string::npos, "who is there is watched");
        MPI_Comm_disconnect(&other);
        good = until(patience_seconds, [&] { return unwatched(error) > 0; });
        check(good, "who has ended is watched no more", child);
    }
}

void met_again()
{
    const StandardError error;
    std::array<char, MPI_MAX_PORT_NAME> port{};
    int pid = 0;
    MPI_Open_port(MPI_INFO_NULL, port.data());
    MPI_Comm other = spawn("again");
    MPI_Send(port.data(), port.size(), MPI_CHAR, 0, 0, other);
    MPI_Recv(&pid, 1, MPI_INT, 0, 0, other, MPI_STATUS_IGNORE);
    MPI_Comm_disconnect(&other);
    check(until(patience_seconds, [&] { return unwatched(error) > 0; }),
          "who has parted and has no connection is watched no more");
    const int before = unwatched(error);
    MPI_Comm_accept(port.data(), MPI_INFO_NULL, 0, MPI_COMM_SELF, &other);
    MPI_Recv(&pid, 1, MPI_INT, 0, 0, other, MPI_STATUS_IGNORE);
    MPI_Comm_disconnect(&other);
    MPI_Close_port(port.data());
    check(until(patience_seconds, [&] { return unwatched(error) > before; }),
          "it was watched again meanwhile");
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

/* Of this process to others under pml/dr, which has marked them. */
void end_connections()
{
    constexpr int most_files = 1024;
    for (int file = 0; file < most_files; ++file) {
        int tries = 0;
        socklen_t size = sizeof tries;
        if (getsockopt(file, IPPROTO_TCP, TCP_KEEPCNT, &tries, &size) == 0 && tries == 127) {
            shutdown(file, SHUT_RDWR);
        }
    }
}

void child_that_comes_back(MPI_Comm parent)
{
    std::array<char, MPI_MAX_PORT_NAME> port{};
    MPI_Recv(port.data(), port.size(), MPI_CHAR, 0, 0, parent, MPI_STATUS_IGNORE);
    say_who_it_is(parent);
    MPI_Comm_disconnect(&parent);
    end_connections();
    MPI_Comm_connect(port.data(), MPI_INFO_NULL, 0, MPI_COMM_SELF, &parent);
    say_who_it_is(parent);
    MPI_Comm_disconnect(&parent);
}

const cases::Case all[] = {
    {"who has parted from two communicators is not asked for a sign of life", not_asked}};
const cases::Case waits[] = {{"who has parted is asked while a message to it is under way",
                              asked_while_a_message_is_under_way}};
const cases::Case gone[] = {
    {"connections to who has parted and ended are not watched in each pass", ended},
    {"those to who is met again are", met_again}};

} // namespace

int main(int argc, char **argv)
{
    own_path = argv[0];
    int provided = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    const std::string word = argc < 2 ? "" : argv[1];
    if (word.empty()) {
        return cases::run(argc, argv, MPI_THREAD_SINGLE, all);
    }
    if (word == "waits") {
        return cases::run(argc, argv, MPI_THREAD_SINGLE, waits);
    }
    if (word == "gone") {
        return cases::run(argc, argv, MPI_THREAD_SINGLE, gone);
    }
    cases::begin(argc, argv, MPI_THREAD_SINGLE);
    MPI_Comm parent = MPI_COMM_NULL;
    MPI_Comm_get_parent(&parent);
    if (word == "silent") {
        silent_child(parent);
    } else if (word == "again") {
        child_that_comes_back(parent);
    } else if (word == "brief") {
        say_who_it_is(parent);
        MPI_Comm_disconnect(&parent);
    } else {
        child_of_two(parent);
    }
    MPI_Finalize();
    return 0;
}

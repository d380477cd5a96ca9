// Ranks that spawn others on a host that was not part of the job, and see that host die.
//
// usage: joins HOST FIFO GO [HOSTS]
//
// Rank 0 reads commands from the FIFO named GO, one letter each, and tells the others, who wait for
// it in MPI_Recv:
//   w  all spawn one rank on HOST (add-host), rank 0 gets a word from it ("joined" in the FIFO
//      named FIFO), the child waits until it is killed, and all ranks until they know of that
//      ("lost RANK")
//   l  all spawn one rank there, which finishes with its parents ("joined")
//   a  rank 0 alone spawns one, which finishes with it: "joined", or "refused CLASS" if
//      MPI_Comm_spawn returned an error of that class
//   b  rank 0 alone spawns one on each of HOSTS, which finish with it: "joined", when all have said
//      a word
//   k  rank 0 alone waits until it knows that the last rank of them is dead ("knows"): only then
//   may
//      others be commanded
//   h  all spawn two ranks there, which say "held" and never call MPI_Init: "refused CLASS" from
//      each of them, when one has died
//   A to J  all spawn two ranks there, of which rank 0 (A, C, ...) or 1 (B, D, ...) dies at a point
//      of MPI_Init (dies_at.hpp), which it tells: "refused CLASS" or "went on" from each of them
//   K to T  the same, but that rank stands there ("stands"), so that its host can be taken away
//   U  the same, and rank 1 calls MPI_Abort in MPI_Init
//   q  all finish
// Prints "done RANK" at the end.
#include <mpi.h>

#include "opal/process/deaths.hpp"
#include "test/mpi/survivors/dies_at.hpp"
#include "test/mpi/survivors/mark.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <unistd.h>

namespace {

constexpr int word = 4711;
constexpr int command_tag = 2;
using marks::mark;

int child(MPI_Comm parent, bool stays)
{
    MPI_Send(&word, 1, MPI_INT, 0, 1, parent);
    while (stays) {
        ::pause();
    }
    MPI_Comm_disconnect(&parent);
    MPI_Finalize();
    return 0;
}

/// Whether a rank of MPI_COMM_WORLD is known to be dead.
bool is_lost(int rank)
{
    static const char *const mine = std::getenv("PMIX_NAMESPACE");
    const auto job = static_cast<std::uint32_t>(std::strtoul(mine ? mine : "0", nullptr, 10));
    return ft::process::is_dead({job, static_cast<std::uint32_t>(rank)});
}

/// The next command, the same for all who live.
char next_command(const char *go, int me)
{
    char command = 'q';
    if (me != 0) {
        MPI_Recv(&command, 1, MPI_CHAR, 0, command_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return command;
    }
    static const int fd = ::open(go, O_RDWR); // never sees an end
    if (fd < 0 || ::read(fd, &command, 1) != 1) {
        std::perror(go);
        std::exit(64);
    }
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int rank = 1; rank < size; ++rank) {
        if (!is_lost(rank)) {
            MPI_Send(&command, 1, MPI_CHAR, rank, command_tag, MPI_COMM_WORLD);
        }
    }
    return command;
}

/// Spawns `count` ranks on `host` from `who`, with arguments `how` and `fifo`; the class of the
/// error.
int spawn(char *program, char *host, int count, std::string how, char *fifo, MPI_Comm who,
          MPI_Comm &children)
{
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    MPI_Info_set(info, "add-host", host);
    char *arguments[] = {how.data(), fifo, nullptr};
    const int rc =
        MPI_Comm_spawn(program, arguments, count, info, 0, who, &children, MPI_ERRCODES_IGNORE);
    MPI_Info_free(&info);
    int error = MPI_SUCCESS;
    MPI_Error_class(rc, &error);
    return error;
}

void hear_from_child(MPI_Comm children, const char *fifo)
{
    int count = 0;
    MPI_Comm_remote_size(children, &count);
    bool right = true;
    for (int child = 0; child < count; ++child) {
        int got = 0;
        MPI_Recv(&got, 1, MPI_INT, child, 1, children, MPI_STATUS_IGNORE);
        right = right && got == word;
    }
    mark(fifo, right ? "joined" : "a wrong word");
}

} // namespace

int main(int argc, char **argv)
{
    if (argc > 2 && std::strcmp(argv[1], "hold") == 0) {
        mark(argv[2], "held");
        for (;;) {
            ::pause();
        }
    }
    const bool mortal = argc > 2 && std::strncmp(argv[1], "die", 3) == 0;
    if (mortal) {
        const int letter = argv[1][3] - 'A';
        if (argv[1][3] == 'U') {
            dies_at::arm(dies_at::Point::context_id, "1", argv[2], dies_at::How::aborts);
        } else {
            dies_at::arm(static_cast<dies_at::Point>(letter % 10 / 2 + 1),
                         letter % 2 == 0 ? "0" : "1", argv[2],
                         letter >= 10 ? dies_at::How::stands : dies_at::How::killed);
        }
    }
    MPI_Init(&argc, &argv);
    MPI_Comm parent = MPI_COMM_NULL;
    MPI_Comm_get_parent(&parent);
    if (mortal) {
        MPI_Finalize(); // the other one: this far it may come
        return 0;
    }
    if (parent != MPI_COMM_NULL) {
        return child(parent, std::strcmp(argv[1], "stay") == 0);
    }
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int me = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Barrier(MPI_COMM_WORLD);
    mark(argv[2], "ready " + std::to_string(me));
    for (char command = next_command(argv[3], me); command != 'q';
         command = next_command(argv[3], me)) {
        const bool alone = command == 'a' || command == 'b' || command == 'k';
        if (alone && me != 0) {
            continue;
        }
        if (command == 'k') {
            for (std::uint64_t seen = 0; !is_lost(size - 1); seen = ft::process::news()) {
                ft::process::wait_for_news(seen);
            }
            mark(argv[2], "knows");
            continue;
        }
        MPI_Comm children = MPI_COMM_NULL;
        const MPI_Comm who = alone ? MPI_COMM_SELF : MPI_COMM_WORLD;
        const std::uint64_t before = ft::process::news();
        const std::size_t dead = ft::process::death_count();
        const bool two = command == 'h' || (command >= 'A' && command <= 'U');
        const std::string how = command == 'w'   ? "stay"
                                : command == 'h' ? "hold"
                                : two            ? std::string("die") + command
                                                 : "leave";
        std::string host = command == 'b' && argc > 4 ? argv[4] : argv[1];
        if (two) {
            host += ":2";
        }
        const int count = two ? 2 : 1 + static_cast<int>(std::count(host.begin(), host.end(), ','));
        const int error = spawn(argv[0], host.data(), count, how, argv[2], who, children);
        if (error != MPI_SUCCESS) {
            mark(argv[2], "refused " + std::to_string(error));
            continue;
        }
        if (two) {
            mark(argv[2], "went on");
            MPI_Comm_free(&children);
            continue;
        }
        if (me == 0) {
            hear_from_child(children, argv[2]);
        }
        if (command != 'w') {
            MPI_Comm_disconnect(&children);
            continue;
        }
        for (std::uint64_t seen = before; ft::process::death_count() == dead;
             seen = ft::process::news()) {
            ft::process::wait_for_news(seen);
        }
        mark(argv[2], "lost " + std::to_string(me));
        MPI_Comm_free(&children);
    }
    MPI_Finalize();
    std::printf("done %d\n", me);
    return 0;
}

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
//   x  all spawn two ranks on HOSTS, with the last of them as root, where there are no slots for
//      them: "refused CLASS" from each of them
//   y  rank 0 alone spawns one there, which finishes with it: "joined" or "refused CLASS"
//   k  rank 0 alone waits until it knows that the last rank of them is dead ("knows"): only
//      then may others be commanded
//   c  the same of rank 1
//   h  all spawn two ranks there, which say "held" and never call MPI_Init: "refused CLASS" from
//      each of them, when one has died
//   A to J  all spawn two ranks there, of which rank 0 (A, C, ...) or 1 (B, D, ...) dies at a point
//      of MPI_Init (dies_at.hpp), which it tells: "refused CLASS" or "went on" from each of them
//   K to T  the same, but that rank stands there ("stands"), so that its host can be taken away
//   U  the same, and rank 1 calls MPI_Abort in MPI_Init
//   V  as Q, and the spawning ranks say "there" when they have come to that point, too
//   0x80 and more: all spawn two ranks on HOSTS, where the last of them runs, which dies at a point
//      of the call (its number in the low three bits) or, with 0x10, stands there; with 0x08 it is
//      the call's root. It tells, and the others "refused CLASS" or "went on"
//   0xc0 and more: all but rank 0 spawn two ranks on HOST, of which rank 0 (with 0x10: 1) stands
//      ("stands") at a point of MPI_Init (its number in the low four bits; 0: before it, so "held"
//      from both; 0xcf: as 0). They tell "refused CLASS" or "went on", and finish
//   m  rank 1 waits in MPI_Comm_accept from before rank 0 is dead, and rank 2 connects after that
//      ("met"), by a name that is published then; both spawn in vain ("refused CLASS"), and finish
//   n  the same, but rank 1 has only told who is on its side when rank 0 dies, and asks then
//   z  the last of them alone spawns two ranks on HOST
//   0 to 4  all spawn two ranks that cannot be started, of a program in the FIFO's folder: on HOST
//   one
//      that does not exist (0), that is not executable (1), whose interpreter does not exist (2);
//      one of this program and one of 0 (3); and on the host on which rank 0 runs (4)
//   5  all spawn one rank on HOST and one on n2, of the program /dev/shm/joins
//      From 0 to 5 "refused CLASS" from each of them
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
#include <vector>

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

/// What is to be spawned.
struct Plan {
    std::string host;
    int count = 1;
    std::string how; ///< the new ranks' first argument
    MPI_Comm who = MPI_COMM_WORLD;
    int root = 0;
    bool added = true;          ///< the host may not be part of the job yet
    std::string program{};      ///< empty: this one
    std::string another{};      ///< as many ranks of this one, too
    std::string another_host{}; ///< empty: the same
};

/// The class of the error.
int spawn(const Plan &plan, char **argv, MPI_Comm &children)
{
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    MPI_Info_set(info, plan.added ? "add-host" : "host", plan.host.c_str());
    MPI_Info second = MPI_INFO_NULL;
    MPI_Info_dup(info, &second);
    if (!plan.another_host.empty()) {
        MPI_Info_set(second, plan.added ? "add-host" : "host", plan.another_host.c_str());
    }
    std::string how = plan.how;
    char *arguments[] = {how.data(), argv[2], nullptr};
    std::string program = plan.program.empty() ? argv[0] : plan.program;
    std::string another = plan.another;
    char *programs[] = {program.data(), another.data()};
    char **each[] = {arguments, arguments};
    const int counts[] = {plan.count, plan.count};
    const MPI_Info infos[] = {info, second};
    const int rc = another.empty()
                       ? MPI_Comm_spawn(programs[0], arguments, plan.count, info, plan.root,
                                        plan.who, &children, MPI_ERRCODES_IGNORE)
                       : MPI_Comm_spawn_multiple(2, programs, each, counts, infos, plan.root,
                                                 plan.who, &children, MPI_ERRCODES_IGNORE);
    MPI_Info_free(&info);
    MPI_Info_free(&second);
    int error = MPI_SUCCESS;
    MPI_Error_class(rc, &error);
    return error;
}

/// A caller is to die that runs where the new ranks do.
Plan plan_of_the_doomed(unsigned command, char **argv, int victim)
{
    dies_at::arm(static_cast<dies_at::Point>(command & 7), std::to_string(victim), argv[2],
                 (command & 0x10) != 0 ? dies_at::How::stands : dies_at::How::killed);
    return {.host = std::string(argv[4]) + ":2",
            .count = 2,
            .how = "die-",
            .root = (command & 8) != 0 ? victim : 0,
            .added = false};
}

/// Something that cannot be started.
Plan plan_in_vain(char command, char **argv)
{
    const std::string fifo = argv[2];
    const std::string folder = fifo.substr(0, fifo.rfind('/') + 1);
    const std::string absent = folder + "absent";
    Plan plan{.host = argv[1], .count = 2, .how = "leave"};
    switch (command) {
    case '1':
        plan.program = folder + "plain";
        break;
    case '2':
        plan.program = folder + "no_interpreter";
        break;
    case '3':
        plan.count = 1;
        plan.another = absent;
        break;
    case '5':
        plan.count = 1;
        plan.program = plan.another = "/dev/shm/joins";
        plan.another_host = "n2";
        break;
    default:
        plan.program = absent;
    }
    if (command == '4') {
        plan.host = "n0";
        plan.added = false;
    }
    if (command != '5') {
        plan.host += ":2";
    }
    return plan;
}

Plan plan_of(char command, int argc, char **argv, int last)
{
    if (command >= '0' && command <= '5') {
        return plan_in_vain(command, argv);
    }
    Plan plan;
    const bool alone = command == 'a' || command == 'b' || command == 'y';
    const bool there = command == 'x' || command == 'y';
    if (there) {
        return {.host = std::string(argc > 4 ? argv[4] : argv[1]) + ":2",
                .count = alone ? 1 : 2,
                .how = "leave",
                .who = alone ? MPI_COMM_SELF : MPI_COMM_WORLD,
                .root = alone ? 0 : last,
                .added = false};
    }
    const bool two = command == 'h' || command == 'z' || (command >= 'A' && command <= 'V');
    plan.who = alone || command == 'z' ? MPI_COMM_SELF : MPI_COMM_WORLD;
    plan.host = command == 'b' && argc > 4 ? argv[4] : argv[1];
    plan.count =
        two ? 2 : 1 + static_cast<int>(std::count(plan.host.begin(), plan.host.end(), ','));
    plan.how = command == 'w'   ? "stay"
               : command == 'h' ? "hold"
               : command == 'z' ? "leave"
               : two            ? std::string("die") + (command == 'V' ? 'Q' : command)
                                : "leave";
    if (two) {
        plan.host += ":2";
    }
    return plan;
}

/// All but rank 0, which is to die with mpirun: what becomes of a spawn that is under way then.
void spawn_without_mpirun(unsigned command, int me, char **argv)
{
    MPI_Comm others = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, me == 0 ? MPI_UNDEFINED : 0, me, &others);
    if (me == 0) {
        ::pause();
    }
    MPI_Comm_set_errhandler(others, MPI_ERRORS_RETURN);
    const std::string point = std::to_string(command & 0xf);
    const std::string how =
        point == "0" ? "hold" : "at " + point + ((command & 0x10) != 0 ? " 1" : " 0");
    Plan plan{.host = std::string(argv[1]) + ":2", .count = 2, .how = how, .who = others};
    if (command == 0xcf) {
        plan = plan_in_vain('0', argv);
        plan.who = others;
    }
    MPI_Comm children = MPI_COMM_NULL;
    const int error = spawn(plan, argv, children);
    mark(argv[2], error == MPI_SUCCESS ? "went on" : "refused " + std::to_string(error));
}

void await_death_of(int rank)
{
    for (std::uint64_t seen = 0; !is_lost(rank); seen = ft::process::news()) {
        ft::process::wait_for_news(seen);
    }
}

/// Ranks 1 and 2: what is left to them without mpirun, on whose host rank 0 runs.
void go_on_without_mpirun(int me, char **argv, bool asks_later)
{
    char port[MPI_MAX_PORT_NAME] = "";
    if (me == 1) {
        MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Send(port, sizeof port, MPI_CHAR, 2, command_tag, MPI_COMM_WORLD);
        if (asks_later) {
            dies_at::hold(dies_at::Point::published, [argv] {
                mark(argv[2], "accepts");
                await_death_of(0);
            });
        } else {
            mark(argv[2], "accepts");
        }
    } else {
        MPI_Recv(port, sizeof port, MPI_CHAR, 1, command_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        await_death_of(0);
    }
    for (const bool again : {false, true}) {
        MPI_Comm met = MPI_COMM_NULL;
        if (again && me == 1) {
            MPI_Open_port(MPI_INFO_NULL, port);
            MPI_Publish_name("a later port", MPI_INFO_NULL, port);
        } else if (again) {
            while (MPI_Lookup_name("a later port", MPI_INFO_NULL, port) != MPI_SUCCESS) {
            }
        }
        (me == 1 ? MPI_Comm_accept : MPI_Comm_connect)(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &met);
        int got = 0;
        MPI_Sendrecv(&me, 1, MPI_INT, 0, 1, &got, 1, MPI_INT, 0, 1, met, MPI_STATUS_IGNORE);
        mark(argv[2], me + got == 3 ? "met" : "met somebody else");
        MPI_Comm_disconnect(&met);
    }
    MPI_Comm children = MPI_COMM_NULL;
    const Plan plan{.host = argv[1], .how = "leave", .who = MPI_COMM_SELF};
    mark(argv[2], "refused " + std::to_string(spawn(plan, argv, children)));
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
        } else if (letter >= 0) { // or it lives, and one of those who spawned it is to die
            dies_at::arm(static_cast<dies_at::Point>(letter % 10 / 2 + 1),
                         letter % 2 == 0 ? "0" : "1", argv[2],
                         letter >= 10 ? dies_at::How::stands : dies_at::How::killed);
        }
    }
    const bool stands = argc > 2 && std::strncmp(argv[1], "at ", 3) == 0;
    if (stands) {
        const std::string text = argv[1];
        const auto space = text.find(' ', 3);
        dies_at::arm(static_cast<dies_at::Point>(std::atoi(argv[1] + 3)), text.substr(space + 1),
                     argv[2], dies_at::How::stands);
    }
    MPI_Init(&argc, &argv);
    MPI_Comm parent = MPI_COMM_NULL;
    MPI_Comm_get_parent(&parent);
    if (mortal || stands) {
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
    // Each asks its daemon for the others' addresses now: it may be stopped later.
    std::vector<int> mine(size, me), all(size);
    MPI_Alltoall(mine.data(), 1, MPI_INT, all.data(), 1, MPI_INT, MPI_COMM_WORLD);
    mark(argv[2], "ready " + std::to_string(me));
    for (char command = next_command(argv[3], me); command != 'q';
         command = next_command(argv[3], me)) {
        const bool alone = std::strchr("abcky", command) != nullptr;
        if ((alone && me != 0) || (command == 'z' && me != size - 1)) {
            continue;
        }
        if (command == 'k' || command == 'c') {
            await_death_of(command == 'k' ? size - 1 : 1);
            mark(argv[2], "knows");
            continue;
        }
        if (static_cast<unsigned char>(command) >= 0xc0) {
            spawn_without_mpirun(static_cast<unsigned char>(command), me, argv);
            break;
        }
        if (command == 'm' || command == 'n') {
            if (me == 0) {
                ::pause();
            }
            go_on_without_mpirun(me, argv, command == 'n');
            break;
        }
        if (command == 'V') {
            dies_at::hold(dies_at::Point::context_id, [argv] { mark(argv[2], "there"); });
        }
        MPI_Comm children = MPI_COMM_NULL;
        const std::uint64_t before = ft::process::news();
        const std::size_t dead = ft::process::death_count();
        const auto number = static_cast<unsigned char>(command);
        const Plan plan = number >= 0x80 ? plan_of_the_doomed(number, argv, size - 1)
                                         : plan_of(command, argc, argv, size - 1);
        const int error = spawn(plan, argv, children);
        if (error != MPI_SUCCESS) {
            mark(argv[2], "refused " + std::to_string(error));
            continue;
        }
        if (plan.count == 2 && plan.who == MPI_COMM_WORLD) {
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

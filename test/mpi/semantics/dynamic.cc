/* Processes and communicators that come and go, under test/mpi/dynamic.py: spawn, connect and
 * accept, disconnect, traffic over the intercommunicators, and sub-communicators made while
 * messages are on their way.
 *
 * usage: dynamic [spawns]
 * With the word only the ways to spawn that are not among the others.
 * The program spawns itself; a child finds a parent and does its half.
 */
#include "test/mpi/semantics/cases.hpp"

#include <array>
#include <numeric>
#include <string>

namespace {

using cases::check;
using cases::expect;
using cases::pattern;
using cases::world;

/* Empty, short, longer than any eager limit, of several fragments. */
constexpr std::array sizes{0, 8, 5000, 300000};
constexpr int data_tag = 11;
constexpr int reply_tag = 12;

const char *own_path = nullptr;

std::uint64_t seed_of(int from, int to, int size)
{
    return static_cast<std::uint64_t>(from) * 1000003U + static_cast<std::uint64_t>(to) * 1009U +
           static_cast<std::uint64_t>(size);
}

/* Each process here sends messages of all sizes to each process over there, and the other way. */
void exchange(MPI_Comm inter)
{
    int mine = 0;
    int others = 0;
    MPI_Comm_rank(inter, &mine);
    MPI_Comm_remote_size(inter, &others);
    std::vector<std::vector<unsigned char>> out;
    std::vector<MPI_Request> requests;
    for (int other = 0; other < others; ++other) {
        for (const int size : sizes) {
            out.push_back(pattern(static_cast<std::size_t>(size), seed_of(mine, other, size)));
            MPI_Isend(out.back().data(), size, MPI_BYTE, other, data_tag, inter,
                      &requests.emplace_back());
        }
    }
    std::vector<int> next(static_cast<std::size_t>(others));
    for (std::size_t i = 0; i < static_cast<std::size_t>(others) * sizes.size(); ++i) {
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Status status;
        MPI_Mprobe(MPI_ANY_SOURCE, data_tag, inter, &message, &status);
        const int size = cases::count_of(status);
        const int from = status.MPI_SOURCE;
        std::vector<unsigned char> in(static_cast<std::size_t>(size));
        MPI_Mrecv(in.data(), size, MPI_BYTE, &message, &status);
        int &turn = next[static_cast<std::size_t>(from)];
        check(size == sizes[static_cast<std::size_t>(turn)], "out of order", size);
        ++turn;
        expect(in, seed_of(from, mine, size), "wrong byte over an intercommunicator");
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
}

/* Collectives over the intercommunicator, and over the one communicator that both groups make. */
void collectives(MPI_Comm inter, bool high)
{
    int others = 0;
    MPI_Comm_remote_size(inter, &others);
    const int one = high ? 100 : 1;
    int sum = -1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter);
    check(sum == others * (high ? 1 : 100), "allreduce over an intercommunicator", sum);

    MPI_Comm both = MPI_COMM_NULL;
    MPI_Intercomm_merge(inter, high ? 1 : 0, &both);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(both, &rank);
    MPI_Comm_size(both, &size);
    auto token = pattern(70000, static_cast<std::uint64_t>(rank));
    std::vector<unsigned char> in(token.size());
    const int left = (rank + size - 1) % size;
    MPI_Sendrecv(token.data(), 70000, MPI_BYTE, (rank + 1) % size, data_tag, in.data(), 70000,
                 MPI_BYTE, left, data_tag, both, MPI_STATUS_IGNORE);
    expect(in, static_cast<std::uint64_t>(left), "wrong byte in the merged communicator");
    int ranks = -1;
    MPI_Allreduce(&rank, &ranks, 1, MPI_INT, MPI_SUM, both);
    check(ranks == size * (size - 1) / 2, "allreduce over the merged communicator", ranks);
    MPI_Comm_free(&both);
}

/* The child's failures come to the parents before they part. */
void report_up(MPI_Comm parent)
{
    const long mine = cases::failures();
    long sum = 0;
    MPI_Reduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (world().rank == 0) {
        MPI_Send(&sum, 1, MPI_LONG, 0, reply_tag, parent);
    }
}

void hear_from_children(MPI_Comm children)
{
    int rank = 0;
    MPI_Comm_rank(children, &rank);
    if (rank == 0) {
        long failed = -1;
        MPI_Recv(&failed, 1, MPI_LONG, 0, reply_tag, children, MPI_STATUS_IGNORE);
        check(failed == 0, "failures among the spawned", failed);
    }
}

MPI_Comm spawn(MPI_Comm comm, int count, const char *what)
{
    std::string word(what);
    std::array<char *, 2> arguments{word.data(), nullptr};
    MPI_Comm children = MPI_COMM_NULL;
    MPI_Comm_spawn(own_path, arguments.data(), count, MPI_INFO_NULL, 0, comm, &children,
                   MPI_ERRCODES_IGNORE);
    return children;
}

/* The half of those whose children run be_brief. \param which command each child was started by */
void take_brief(MPI_Comm children, int count, const std::vector<int> &which)
{
    int others = 0;
    MPI_Comm_remote_size(children, &others);
    check(others == count, "spawned processes", others);
    int rank = 0;
    MPI_Comm_rank(children, &rank);
    if (rank == 0) {
        for (int child = 0; child < others; ++child) {
            int command = -1;
            MPI_Recv(&command, 1, MPI_INT, child, data_tag, children, MPI_STATUS_IGNORE);
            check(command == which[static_cast<std::size_t>(child)], "command of a child", command);
        }
    }
    collectives(children, false);
    hear_from_children(children);
    MPI_Comm_disconnect(&children);
}

void spawned_together()
{
    MPI_Comm children = spawn(MPI_COMM_WORLD, 2, "exchange");
    exchange(children);
    collectives(children, false);
    hear_from_children(children);
    MPI_Comm_disconnect(&children);
    check(children == MPI_COMM_NULL, "not disconnected");
}

/* One call starts two commands with arguments of their own; only those of the root count. */
void spawned_from_two_commands()
{
    constexpr int root = 1;
    std::array<std::string, 2> words{"first", "second"};
    std::string kind("brief");
    std::array<char *, 3> first{kind.data(), words[0].data(), nullptr};
    std::array<char *, 3> second{kind.data(), words[1].data(), nullptr};
    std::array<char **, 2> arguments{first.data(), second.data()};
    std::string path(own_path);
    std::array<char *, 2> commands{path.data(), path.data()};
    const std::array counts{1, 2};
    const std::array infos{MPI_INFO_NULL, MPI_INFO_NULL};
    std::array<int, 3> errors{-1, -1, -1};
    const bool counted = world().rank == root || world().size <= root;
    MPI_Comm children = MPI_COMM_NULL;
    MPI_Comm_spawn_multiple(2, counted ? commands.data() : nullptr,
                            counted ? arguments.data() : nullptr, counted ? counts.data() : nullptr,
                            counted ? infos.data() : nullptr, world().size > root ? root : 0,
                            MPI_COMM_WORLD, &children, errors.data());
    for (const int error : errors) {
        check(error == MPI_SUCCESS, "error code of a spawned process", error);
    }
    take_brief(children, 3, {0, 1, 1});
}

/* All ranks at once, each with children of its own, time and again. */
void spawned_at_once()
{
    constexpr int turns = 2;
    for (int turn = 0; turn < turns; ++turn) {
        take_brief(spawn(MPI_COMM_SELF, 1, "brief"), 1, {0});
    }
}

/* A program that has spawned, merged and parted many times goes on doing so. */
void spawned_in_turn()
{
    constexpr int turns = 5;
    for (int turn = 0; turn < turns; ++turn) {
        take_brief(spawn(MPI_COMM_WORLD, 1 + turn % 2, "brief"), 1 + turn % 2, {0, 0});
    }
}

/* Each rank has children of its own, while the others go on talking. */
void spawned_by_each()
{
    for (int turn = 0; turn < world().size; ++turn) {
        if (turn == world().rank) {
            MPI_Comm children = spawn(MPI_COMM_SELF, 1, "exchange");
            exchange(children);
            collectives(children, false);
            hear_from_children(children);
            MPI_Comm_disconnect(&children);
        }
        int token = turn;
        MPI_Bcast(&token, 1, MPI_INT, turn, MPI_COMM_WORLD);
        check(token == turn, "token", token);
    }
}

/* The last thing before parting is a message that nobody answers: whoever sends it has nothing left
 * to do but to disconnect, and whoever waits for it must get it all the same. */
void last_word_before_parting()
{
    for (int turn = 0; turn < 3; ++turn) {
        MPI_Comm children = spawn(MPI_COMM_WORLD, 2, "last_word");
        int word = -1;
        MPI_Recv(&word, 1, MPI_INT, MPI_ANY_SOURCE, data_tag, children, MPI_STATUS_IGNORE);
        check(word == world().rank, "the last word", word);
        if (world().rank == 0) {
            const int answer = 77;
            MPI_Send(&answer, 1, MPI_INT, 0, reply_tag, children);
        }
        MPI_Comm_disconnect(&children);
    }
}

/* The even ranks accept, the odd ones connect, twice. */
void connect_and_accept()
{
    if (world().size < 2) {
        return;
    }
    MPI_Comm half = MPI_COMM_NULL;
    const bool accepts = world().rank % 2 == 0;
    MPI_Comm_split(MPI_COMM_WORLD, accepts ? 0 : 1, 0, &half);
    for (int turn = 0; turn < 2; ++turn) {
        std::array<char, MPI_MAX_PORT_NAME> port{};
        if (world().rank == 0) {
            MPI_Open_port(MPI_INFO_NULL, port.data());
        }
        MPI_Bcast(port.data(), MPI_MAX_PORT_NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
        MPI_Comm inter = MPI_COMM_NULL;
        if (accepts) {
            MPI_Comm_accept(port.data(), MPI_INFO_NULL, 0, half, &inter);
        } else {
            MPI_Comm_connect(port.data(), MPI_INFO_NULL, 0, half, &inter);
        }
        exchange(inter);
        collectives(inter, accepts);
        MPI_Comm_disconnect(&inter);
        if (world().rank == 0) {
            MPI_Close_port(port.data());
        }
    }
    MPI_Comm_free(&half);
}

/* Communicators are made, used at once and freed, while long and short messages of the world are
 * under way; who is quick sends into one that its peers do not know yet. */
void communicators_amid_traffic()
{
    for (int turn = 0; turn < 30; ++turn) {
        const auto own = static_cast<std::uint64_t>(world().rank * 100 + turn);
        const auto left = static_cast<std::uint64_t>(world().left() * 100 + turn);
        const std::array lengths{16, 200000};
        std::array<std::vector<unsigned char>, 2> out{pattern(16, own), pattern(200000, own)};
        std::array<std::vector<unsigned char>, 2> in{};
        std::array<MPI_Request, 4> requests{};
        for (std::size_t i = 0; i < 2; ++i) {
            MPI_Isend(out[i].data(), lengths[i], MPI_BYTE, world().right(), 5, MPI_COMM_WORLD,
                      &requests[i]);
        }
        MPI_Comm part = MPI_COMM_NULL;
        MPI_Comm_split(MPI_COMM_WORLD, turn % 3 == 0 ? world().rank % 2 : 0, -world().rank, &part);
        MPI_Comm twin = MPI_COMM_NULL;
        MPI_Comm_dup(part, &twin);
        int rank = 0;
        int size = 0;
        MPI_Comm_rank(twin, &rank);
        MPI_Comm_size(twin, &size);
        // To everybody in both, before anybody has received anything.
        std::vector<int> from_part(static_cast<std::size_t>(size));
        std::vector<int> from_twin(static_cast<std::size_t>(size));
        std::vector<MPI_Request> small;
        const int mine = rank * 1000 + turn;
        for (int other = 0; other < size; ++other) {
            MPI_Isend(&mine, 1, MPI_INT, other, 6, part, &small.emplace_back());
            MPI_Isend(&rank, 1, MPI_INT, other, 6, twin, &small.emplace_back());
        }
        for (std::size_t other = 0; other < from_part.size(); ++other) {
            const int peer = static_cast<int>(other);
            MPI_Irecv(&from_twin[other], 1, MPI_INT, peer, 6, twin, &small.emplace_back());
            MPI_Irecv(&from_part[other], 1, MPI_INT, peer, 6, part, &small.emplace_back());
        }
        MPI_Waitall(static_cast<int>(small.size()), small.data(), MPI_STATUSES_IGNORE);
        for (std::size_t other = 0; other < from_part.size(); ++other) {
            const int peer = static_cast<int>(other);
            check(from_part[other] == peer * 1000 + turn, "value in a part", from_part[other]);
            check(from_twin[other] == peer, "value in a duplicate", from_twin[other]);
        }
        MPI_Comm_free(&twin);
        MPI_Comm_free(&part);
        for (std::size_t i = 0; i < 2; ++i) {
            in[i].resize(out[i].size());
            MPI_Irecv(in[i].data(), lengths[i], MPI_BYTE, world().left(), 5, MPI_COMM_WORLD,
                      &requests[2 + i]);
        }
        MPI_Waitall(4, requests.data(), MPI_STATUSES_IGNORE);
        expect(in[0], left, "wrong byte of a short message");
        expect(in[1], left, "wrong byte of a long message");
    }
}

/* A group that makes its communicator without the others, who go on meanwhile. */
void group_apart()
{
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    for (int turn = 0; turn < 10; ++turn) {
        const int left_out = turn % world().size;
        MPI_Group group = MPI_GROUP_NULL;
        MPI_Group_excl(all, 1, &left_out, &group);
        if (world().rank != left_out && world().size > 1) {
            MPI_Comm comm = MPI_COMM_NULL;
            MPI_Comm_create_group(MPI_COMM_WORLD, group, turn, &comm);
            int sum = 0;
            const int one = 1;
            MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
            check(sum == world().size - 1, "sum in a group", sum);
            MPI_Comm_free(&comm);
        }
        MPI_Group_free(&group);
        int token = turn;
        MPI_Bcast(&token, 1, MPI_INT, left_out, MPI_COMM_WORLD);
        check(token == turn, "token", token);
    }
    MPI_Group_free(&all);
}

/* \param command the word by which this process was told from those of another command */
void be_brief(MPI_Comm parent, const std::string &command)
{
    const void *value = nullptr;
    int found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, static_cast<void *>(&value), &found);
    const int number = found != 0 && value != nullptr ? *static_cast<const int *>(value) : -1;
    check(command.empty() || command == (number == 0 ? "first" : "second"),
          "argument of another command", number);
    MPI_Send(&number, 1, MPI_INT, 0, data_tag, parent);
    collectives(parent, true);
    report_up(parent);
}

int be_child(MPI_Comm parent, const std::string &what, const std::string &command)
{
    if (what == "exchange") {
        exchange(parent);
        collectives(parent, true);
        report_up(parent);
    } else if (what == "brief") {
        be_brief(parent, command);
    } else {
        int parents = 0;
        MPI_Comm_remote_size(parent, &parents);
        for (int i = world().rank; i < parents; i += world().size) {
            MPI_Send(&i, 1, MPI_INT, i, data_tag, parent);
        }
        if (world().rank == 0) {
            int answer = -1;
            MPI_Recv(&answer, 1, MPI_INT, 0, reply_tag, parent, MPI_STATUS_IGNORE);
            check(answer == 77, "the parent's last word", answer);
        }
    }
    MPI_Comm_disconnect(&parent);
    MPI_Comm_get_parent(&parent);
    check(parent == MPI_COMM_NULL, "a parent after parting");
    const bool well = cases::failures() == 0;
    MPI_Finalize();
    return well ? 0 : 1;
}

constexpr std::array all{
    cases::Case{"communicators made amid traffic", communicators_amid_traffic},
    cases::Case{"communicators of groups apart", group_apart},
    cases::Case{"spawn by all, exchange, disconnect", spawned_together},
    cases::Case{"spawn by each rank by itself", spawned_by_each},
    cases::Case{"a last word before parting", last_word_before_parting},
    cases::Case{"connect and accept, twice", connect_and_accept},
};

constexpr std::array spawning{
    cases::Case{"spawn from two commands", spawned_from_two_commands},
    cases::Case{"spawn by all ranks at once", spawned_at_once},
    cases::Case{"spawn, merge and part in turn", spawned_in_turn},
};

} // namespace

int main(int argc, char **argv)
{
    own_path = argv[0];
    const std::string what(argc > 1 ? argv[1] : "");
    if (what == "spawns") {
        return cases::run(argc, argv, MPI_THREAD_SINGLE, spawning);
    }
    if (argc > 1) {
        MPI_Comm parent = MPI_COMM_NULL;
        cases::begin(argc, argv, MPI_THREAD_SINGLE);
        MPI_Comm_get_parent(&parent);
        return be_child(parent, what, argc > 2 ? argv[2] : "");
    }
    return cases::run(argc, argv, MPI_THREAD_SINGLE, all);
}

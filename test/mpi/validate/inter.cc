// Intercommunicators that lose processes of either group.
//
// usage: inter create|spawn SPAWNED DEAD   the groups are halves of MPI_COMM_WORLD, or it and
//                                          SPAWNED processes that it starts. Those of DEAD die:
//                                          a0, a1, ... in the first group, b0, b1, ... in the other
#include "sides.hpp"

#include <algorithm>

using namespace check;

namespace {

int side = 0; ///< of this process: 0 or 1

int number(int of_side, int rank)
{
    return of_side * 100 + rank;
}

std::set<int> doomed_of(const std::string &text)
{
    std::set<int> all;
    for (std::size_t at = 0; at + 1 < text.size(); at += 3) {
        all.insert(number(text[at] - 'a', text[at + 1] - '0'));
    }
    return all;
}

std::vector<int> group_of(int of_side, int members)
{
    std::vector<int> all;
    for (int rank = 0; rank < members; ++rank) {
        all.push_back(number(of_side, rank));
    }
    return all;
}

/// \param own becomes a communicator of this side
sides::Pair make(const std::string &how, int spawned, char **argv, MPI_Comm &own)
{
    sides::Pair pair;
    MPI_Comm parent = MPI_COMM_NULL;
    MPI_Comm_get_parent(&parent);
    if (how == "create") {
        side = me < (size + 1) / 2 ? 0 : 1;
        is(MPI_Comm_split(MPI_COMM_WORLD, side, 0, &own), MPI_SUCCESS, "split");
        is(MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, side == 0 ? (size + 1) / 2 : 0, 8,
                                &pair.comm),
           MPI_SUCCESS, "MPI_Intercomm_create");
    } else if (parent == MPI_COMM_NULL) {
        is(MPI_Comm_spawn(argv[0], argv + 1, spawned, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &pair.comm,
                          MPI_ERRCODES_IGNORE),
           MPI_SUCCESS, "MPI_Comm_spawn");
        own = MPI_COMM_WORLD;
    } else {
        side = 1;
        pair.comm = parent;
        own = MPI_COMM_WORLD;
    }
    MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(pair.comm, MPI_ERRORS_RETURN);
    int rank = 0;
    int here = 0;
    int there = 0;
    MPI_Comm_rank(pair.comm, &rank);
    MPI_Comm_size(pair.comm, &here);
    MPI_Comm_remote_size(pair.comm, &there);
    pair.self = number(side, rank);
    pair.local = group_of(side, here);
    pair.remote = group_of(1 - side, there);
    return pair;
}

std::set<int> ranks_among(const std::set<int> &dead, const std::vector<int> &group)
{
    std::set<int> ranks;
    for (std::size_t rank = 0; rank < group.size(); ++rank) {
        if (dead.count(group[rank]) != 0) {
            ranks.insert(static_cast<int>(rank));
        }
    }
    return ranks;
}

/// Everybody is through with what went before, before anybody dies.
void await_all(const sides::Pair &pair, MPI_Comm own, const std::set<int> &doomed)
{
    const bool mine = doomed.count(pair.self) != 0;
    const auto exchange = [&](const std::vector<int> &group, MPI_Comm comm) {
        for (const int process : group) {
            int token = 0;
            if (process == pair.self) {
                continue;
            }
            if (doomed.count(process) != 0) {
                is(MPI_Send(&token, 1, MPI_INT, process % 100, 7, comm), MPI_SUCCESS, "token");
            }
            if (mine) {
                is(MPI_Recv(&token, 1, MPI_INT, process % 100, 7, comm, MPI_STATUS_IGNORE),
                   MPI_SUCCESS, "receive of a token");
            }
        }
    };
    exchange(pair.local, own);
    exchange(pair.remote, pair.comm);
}

void refused(const sides::Pair &pair)
{
    for (int which = 0; which < sides::count(); ++which) {
        for (const bool starting : {false, true}) {
            is(sides::call(which, pair, pair.local.front(), starting).code, MPI_ERR_RANK_FAIL_STOP,
               sides::name(which));
            is(sides::call(which, pair, pair.remote.back(), starting).code, MPI_ERR_RANK_FAIL_STOP,
               sides::name(which));
        }
    }
}

/// Every collective, against an intercommunicator of the survivors.
void all_collectives(const sides::Pair &pair, const sides::Pair &survivors,
                     const std::set<int> &dead)
{
    for (int which = 0; which < sides::count(); ++which) {
        for (const bool starting : {false, true}) {
            for (const int root : {number(0, 0), number(1, 1), number(0, 2), number(1, 0)}) {
                if (dead.count(root) != 0) {
                    continue;
                }
                sides::must_be_right(which, pair, survivors, root, starting, dead);
            }
        }
        for (const int root : dead) { // whose own side does not take part
            if (sides::rooted(which) && root / 100 != side) {
                is(sides::call(which, pair, root, false).code, MPI_ERR_RANK_FAIL_STOP,
                   sides::name(which));
            }
        }
    }
}

void point_to_point(const sides::Pair &pair, const std::set<int> &dead_ranks)
{
    int value = 1;
    MPI_Status status;
    for (const int rank : dead_ranks) {
        is(MPI_Send(&value, 1, MPI_INT, rank, 3, pair.comm), MPI_SUCCESS, "send to the recognised");
        is(MPI_Recv(&value, 1, MPI_INT, rank, 3, pair.comm, &status), MPI_SUCCESS,
           "receive from the recognised");
        that(status.MPI_SOURCE == MPI_PROC_NULL, "source %d", status.MPI_SOURCE);
    }
}

/// One process of each side, from any source.
void any_source(const sides::Pair &pair, const std::set<int> &dead)
{
    const std::vector<int> here = sides::left_of(pair.local, dead);
    const std::vector<int> there = sides::left_of(pair.remote, dead);
    if (pair.self != here.front()) {
        return;
    }
    int value = pair.self;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(&value, 1, MPI_INT, there.front() % 100, 4, pair.comm, &request);
    int other = -1;
    is(MPI_Recv(&other, 1, MPI_INT, MPI_ANY_SOURCE, 4, pair.comm, MPI_STATUS_IGNORE), MPI_SUCCESS,
       "receive from any source");
    that(other == there.front(), "from %d", other);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/// Communicators made of one that has lost processes.
void offspring(const sides::Pair &pair, const sides::Pair &survivors, const std::set<int> &dead)
{
    const auto sum = [](MPI_Comm comm, std::size_t wanted, const char *what) {
        int one = 1;
        int total = 0;
        is(MPI_Allreduce(&one, &total, 1, MPI_INT, MPI_SUM, comm), MPI_SUCCESS, what);
        that(total == static_cast<int>(wanted), "%s: the sum is %d", what, total);
    };
    sides::Pair twin = pair;
    is(MPI_Comm_dup(pair.comm, &twin.comm), MPI_SUCCESS, "dup");
    sum(twin.comm, survivors.remote.size(), "a duplicate");
    that(failed(twin.comm) == ranks_among(dead, pair.remote), "the duplicate forgot who failed");
    is(MPI_Comm_free(&twin.comm), MPI_SUCCESS, "free");

    // The last survivor of each side goes by itself.
    const bool last = pair.self == survivors.local.back();
    MPI_Comm part = MPI_COMM_NULL;
    is(MPI_Comm_split(pair.comm, last ? 1 : 0, 0, &part), MPI_SUCCESS, "split");
    const bool empty = !last && (survivors.local.size() == 1 || survivors.remote.size() == 1);
    that((part == MPI_COMM_NULL) == empty, "split gave the wrong one");
    if (part != MPI_COMM_NULL) {
        sum(part, last ? 1 : survivors.remote.size() - 1, "a part");
        is(MPI_Comm_free(&part), MPI_SUCCESS, "free");
    }
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group some = MPI_GROUP_NULL;
    MPI_Comm_group(pair.comm, &all);
    const int rank = survivors.local.back() % 100;
    MPI_Group_incl(all, 1, &rank, &some);
    is(MPI_Comm_create(pair.comm, some, &part), MPI_SUCCESS, "create");
    that((part != MPI_COMM_NULL) == last, "create gave the wrong one");
    if (part != MPI_COMM_NULL) {
        sum(part, 1, "a created one");
        is(MPI_Comm_free(&part), MPI_SUCCESS, "free");
    }
    MPI_Group_free(&all);
    MPI_Group_free(&some);
}

/// The failed of both groups, as MPIX_Comm_get_failed tells them.
void group_of_failed(const sides::Pair &pair, const std::set<int> &dead)
{
    MPI_Group failed_group = MPI_GROUP_NULL;
    int number_of = 0;
    is(MPIX_Comm_get_failed(pair.comm, &failed_group), MPI_SUCCESS, "MPIX_Comm_get_failed");
    MPI_Group_size(failed_group, &number_of);
    that(number_of == static_cast<int>(dead.size()), "%d in the group", number_of);
    MPI_Group_free(&failed_group);
}

/// Acknowledged are the first of MPIX_Comm_get_failed, on either side. All of `dead` are known of.
void first_acknowledged(MPI_Comm comm, const std::set<int> &dead)
{
    for (int wanted = 0; wanted <= static_cast<int>(dead.size()); ++wanted) {
        int number_of = -1;
        MPI_Group failed_group = MPI_GROUP_NULL;
        MPI_Group acked = MPI_GROUP_NULL;
        is(MPIX_Comm_ack_failed(comm, wanted, &number_of), MPI_SUCCESS, "MPIX_Comm_ack_failed");
        is(MPIX_Comm_get_failed(comm, &failed_group), MPI_SUCCESS, "MPIX_Comm_get_failed");
        is(MPIX_Comm_failure_get_acked(comm, &acked), MPI_SUCCESS, "MPIX_Comm_failure_get_acked");
        MPI_Group first = MPI_GROUP_NULL;
        std::vector<int> places(static_cast<std::size_t>(wanted));
        for (int i = 0; i < wanted; ++i) {
            places[static_cast<std::size_t>(i)] = i;
        }
        MPI_Group_incl(failed_group, wanted, places.data(), &first);
        int result = MPI_UNEQUAL;
        MPI_Group_compare(first, acked, &result);
        that(number_of == wanted && (wanted == 0 || result == MPI_IDENT),
             "%d of %d acknowledged are not the first", number_of, wanted);
        for (MPI_Group *group : {&first, &acked, &failed_group}) {
            if (*group != MPI_GROUP_EMPTY) {
                MPI_Group_free(group);
            }
        }
    }
}

/// \return the survivors', made without the one that lost processes where that is possible
sides::Pair reference(const sides::Pair &pair, const std::string &how, MPI_Comm own,
                      const std::set<int> &dead)
{
    sides::Pair left;
    left.self = pair.self;
    left.local = sides::left_of(pair.local, dead);
    left.remote = sides::left_of(pair.remote, dead);
    if (left.remote.empty()) {
        return left;
    }
    if (how == "spawn") {
        is(MPIX_Comm_shrink(pair.comm, &left.comm), MPI_SUCCESS, "MPIX_Comm_shrink");
    } else {
        MPI_Comm ours = MPI_COMM_NULL;
        MPI_Comm bridge = MPI_COMM_NULL;
        is(MPIX_Comm_shrink(own, &ours), MPI_SUCCESS, "MPIX_Comm_shrink");
        is(MPIX_Comm_shrink(MPI_COMM_WORLD, &bridge), MPI_SUCCESS, "MPIX_Comm_shrink");
        const int leader = side == 0 ? static_cast<int>(left.local.size()) : 0;
        is(MPI_Intercomm_create(ours, 0, bridge, leader, 9, &left.comm), MPI_SUCCESS,
           "MPI_Intercomm_create");
        MPI_Comm_free(&ours);
        MPI_Comm_free(&bridge);
    }
    MPI_Comm_set_errhandler(left.comm, MPI_ERRORS_RETURN);
    return left;
}

} // namespace

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const std::string how = argc > 1 ? argv[1] : "create";
    const std::set<int> dead = doomed_of(argc > 3 ? argv[3] : "");
    MPI_Comm own = MPI_COMM_NULL;
    sides::Pair pair = make(how, argc > 2 ? std::atoi(argv[2]) : 0, argv, own);
    int count = -1;
    is(MPI_Comm_validate_all(pair.comm, &count), MPI_SUCCESS, "validate_all, nobody has failed");
    that(count == 0, "%d failures", count);
    for (int which = 0; which < sides::count(); ++which) {
        is(sides::call(which, pair, number(0, 0), false).code, MPI_SUCCESS, sides::name(which));
    }
    await_all(pair, own, dead);
    if (dead.count(pair.self) != 0) {
        die();
    }
    const std::set<int> dead_there = ranks_among(dead, pair.remote);
    hear_of(pair.comm, dead_there);
    hear_of(own, ranks_among(dead, pair.local));
    if (!dead.empty()) {
        refused(pair);
    }
    first_acknowledged(pair.comm, dead);
    // The blocking form and the other one.
    if (dead.size() % 2 == 0) {
        is(MPI_Comm_validate_all(pair.comm, &count), MPI_SUCCESS, "validate_all");
    } else {
        MPI_Request request = MPI_REQUEST_NULL;
        is(MPI_Icomm_validate_all(pair.comm, &count, &request), MPI_SUCCESS, "ivalidate_all");
        is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, "wait");
    }
    that(count == static_cast<int>(dead_there.size()), "%d failures on the other side", count);
    that(failed(pair.comm) == dead_there, "others have failed: %s",
         text_of(failed(pair.comm)).c_str());
    for (const int rank : dead_there) {
        that(state(pair.comm, rank) == MPI_RANK_NULL, "rank %d is not recognised", rank);
    }
    group_of_failed(pair, dead);
    point_to_point(pair, dead_there);
    sides::Pair survivors = reference(pair, how, own, dead);
    if (survivors.remote.empty()) { // then collectives have nobody to work with
        refused(pair);
        MPI_Comm nobody = MPI_COMM_NULL;
        is(MPIX_Comm_shrink(pair.comm, &nobody), MPI_ERR_RANK_FAIL_STOP, "shrink to one group");
        is(MPI_Comm_split(pair.comm, 0, 0, &nobody), MPI_ERR_RANK_FAIL_STOP, "split of one group");
        is(MPI_Intercomm_merge(pair.comm, side, &nobody), MPI_ERR_RANK_FAIL_STOP,
           "merge of one group");
    } else {
        any_source(pair, dead);
        all_collectives(pair, survivors, dead);
        offspring(pair, survivors, dead);
        is(MPI_Comm_free(&survivors.comm), MPI_SUCCESS, "free");
    }
    is(MPI_Comm_disconnect(&pair.comm), MPI_SUCCESS, "disconnect");
    MPI_Finalize();
    std::printf("process %c%d %s\n", 'a' + side, pair.self % 100,
                failures == 0 ? "right" : "WRONG");
    return failures == 0 ? 0 : 1;
}

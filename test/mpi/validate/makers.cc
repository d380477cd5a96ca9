// Ranks that die while all make a communicator: all that live get one, or nobody does.
//
// usage: makers FIRST [NAME]
//
// One rank after the other dies in MPI_Comm_dup, MPI_Comm_split, ...: before its first
// point-to-point operation, those of the agreement included, a third and two thirds on its way, and
// before its last one, as a run without a failure has counted them. Of these cases, four for each
// call, it begins with FIRST, and ends when three ranks are left. With NAME it is always this call,
// and the moments are FIRST, FIRST + 1, ... of sixteen; from 16 on the highest rank dies in place
// of the lowest.
#include "among.hpp"
#include "strike.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

using namespace among;

namespace {

constexpr int left_over = 3;
constexpr int moments = 4;

MPI_Comm grid = MPI_COMM_NULL; ///< all, in two rows
MPI_Comm pair = MPI_COMM_NULL; ///< even ranks and odd ones
MPI_Comm own = MPI_COMM_NULL;  ///< those that are even, or odd, as this one
MPI_Comm half = MPI_COMM_NULL; ///< those of them that live
int other_leader = -1;         ///< the lowest that lives of the other half

int create(MPI_Comm *fresh)
{
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    const int code = MPI_Comm_create(MPI_COMM_WORLD, all, fresh);
    MPI_Group_free(&all);
    return code;
}

int dup_with_info(MPI_Comm *fresh)
{
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_ft_semantics", "strict");
    const int code = MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, fresh);
    MPI_Info_free(&info);
    return code;
}

int cart(MPI_Comm *fresh)
{
    const int dims[] = {size};
    const int periods[] = {1};
    return MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, fresh);
}

int cart_sub(MPI_Comm *fresh)
{
    const int remain[] = {0, 1};
    return MPI_Cart_sub(grid, remain, fresh);
}

int graph(MPI_Comm *fresh)
{
    std::vector<int> index;
    std::vector<int> edges;
    for (int rank = 0; rank < size; ++rank) {
        edges.push_back((rank + 1) % size);
        index.push_back(rank + 1);
    }
    return MPI_Graph_create(MPI_COMM_WORLD, size, index.data(), edges.data(), 0, fresh);
}

int dist_graph(MPI_Comm *fresh)
{
    const int from[] = {(me + size - 1) % size};
    const int to[] = {(me + 1) % size};
    return MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, from, MPI_UNWEIGHTED, 1, to,
                                          MPI_UNWEIGHTED, MPI_INFO_NULL, 0, fresh);
}

/// The same ring, each edge named by the process behind its end, with weights.
int whole_graph(MPI_Comm *fresh)
{
    const int node = (me + 1) % size;
    const int degree = 1;
    const int target = (me + 2) % size;
    const int weight = me;
    return MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &node, &degree, &target, &weight, MPI_INFO_NULL,
                                 0, fresh);
}

int idup(MPI_Comm *fresh)
{
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Comm_idup(MPI_COMM_WORLD, fresh, &request);
    return code != MPI_SUCCESS ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/// Called by the even ranks only, and by the odd ones, with a group and a tag of their own.
int create_group(MPI_Comm *fresh)
{
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group some = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    int range[1][3] = {{me % 2, size - 1, 2}};
    MPI_Group_range_incl(all, 1, range, &some);
    const int code = MPI_Comm_create_group(MPI_COMM_WORLD, some, me % 2, fresh);
    MPI_Group_free(&all);
    MPI_Group_free(&some);
    return code;
}

/// The even ranks that live and the odd ones. The leaders are the lowest.
int intercomm_create(MPI_Comm *fresh)
{
    return MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, other_leader, 5, fresh);
}

/// A call that makes a communicator.
struct Maker {
    const char *name;
    int (*make)(MPI_Comm *);
    bool leaves_out; ///< those that are recognised as failed, who cannot say where they want to go
};

const Maker all_makers[] = {
    {"dup", [](MPI_Comm *fresh) { return MPI_Comm_dup(MPI_COMM_WORLD, fresh); }, false},
    {"split", [](MPI_Comm *fresh) { return MPI_Comm_split(MPI_COMM_WORLD, me % 2, -me, fresh); },
     true},
    {"create", create, false},
    {"dup_with_info", dup_with_info, false},
    {"split_type",
     [](MPI_Comm *fresh) {
         return MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, me, MPI_INFO_NULL, fresh);
     },
     true},
    {"merge", [](MPI_Comm *fresh) { return MPI_Intercomm_merge(pair, me % 2, fresh); }, false},
    {"cart_create", cart, false},
    {"cart_sub", cart_sub, false},
    {"graph_create", graph, false},
    {"dist_graph_create_adjacent", dist_graph, false},
    {"idup", idup, false},
    {"dist_graph_create", whole_graph, false},
    {"create_group", create_group, false},
    {"intercomm_create", intercomm_create, true},
};
constexpr int makers = sizeof all_makers / sizeof *all_makers;

/// The ranks of MPI_COMM_WORLD that are to be in it, in their order there.
std::vector<int> wanted_in(const std::string &name)
{
    std::vector<int> ranks;
    for (int rank = 0; rank < size; ++rank) {
        if (((name == "split" || name == "create_group") && rank % 2 != me % 2) ||
            (name == "cart_sub" && rank / (size / 2) != me / (size / 2))) {
            continue;
        }
        ranks.push_back(rank);
    }
    if (name == "split") {
        std::reverse(ranks.begin(), ranks.end());
    } else if (name == "merge") { // the odd ones want to be behind
        std::stable_partition(ranks.begin(), ranks.end(), [](int rank) { return rank % 2 == 0; });
    }
    return ranks;
}

void must_pair(MPI_Comm fresh, const std::set<int> &dead)
{
    int wanted = 0;
    for (int rank = 1 - me % 2; rank < size; rank += 2) {
        wanted += dead.count(rank) == 0 ? rank : 0;
    }
    int sum = 0;
    is(MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, fresh), MPI_SUCCESS, "allreduce");
    that(sum == wanted, "intercomm_create: the sum is %d", sum);
}

void must_be_right(const Maker &maker, MPI_Comm fresh, const std::set<int> &dead)
{
    if (maker.make == intercomm_create) {
        must_pair(fresh, dead);
        return;
    }
    std::vector<int> wanted = wanted_in(maker.name);
    const auto failed = [&](int rank) { return dead.count(rank) != 0; };
    const auto alive = std::count_if(wanted.begin(), wanted.end(), std::not_fn(failed));
    if (maker.leaves_out) {
        wanted.erase(std::remove_if(wanted.begin(), wanted.end(), failed), wanted.end());
    }
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group its = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Comm_group(fresh, &its);
    int number = 0;
    MPI_Group_size(its, &number);
    std::vector<int> places(static_cast<std::size_t>(number));
    std::iota(places.begin(), places.end(), 0);
    std::vector<int> ranks(places.size());
    MPI_Group_translate_ranks(its, number, places.data(), all, ranks.data());
    MPI_Group_free(&all);
    MPI_Group_free(&its);
    that(ranks == wanted, "%s: other ranks, %d", maker.name, number);
    int one = 1;
    int sum = 0;
    is(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, fresh), MPI_SUCCESS, maker.name);
    that(sum == static_cast<int>(alive), "%s: %d are left", maker.name, sum);
    if (maker.make == cart) {
        int left = -1;
        int right = -1;
        MPI_Cart_shift(fresh, 0, 1, &left, &right);
        that(left == (me + size - 1) % size && right == (me + 1) % size, "cart: %d %d", left,
             right);
    } else if (maker.make == graph || maker.make == dist_graph || maker.make == whole_graph) {
        int mine = me;
        int from = -1;
        const int left = (me + size - 1) % size;
        if (maker.make == whole_graph) { // whoever names the edge must live
            const int before = (left + size - 1) % size;
            int degree[3] = {-1, -1, -1};
            MPI_Dist_graph_neighbors_count(fresh, &degree[0], &degree[1], &degree[2]);
            that(degree[0] == (dead.count(before) != 0 ? 0 : 1) &&
                     degree[1] == (dead.count(left) != 0 ? 0 : 1) && degree[2] != 0,
                 "dist_graph_create: %d %d %d", degree[0], degree[1], degree[2]);
            int source = -1;
            int weight = -1;
            int target = -1;
            int load = -1;
            MPI_Dist_graph_neighbors(fresh, degree[0], &source, &weight, degree[1], &target, &load);
            that(degree[0] == 0 || (source == left && weight == before), "from %d, weight %d",
                 source, weight);
            that(degree[1] == 0 || (target == (me + 1) % size && load == left), "to %d, weight %d",
                 target, load);
        } else if (maker.make == dist_graph) {
            is(MPI_Neighbor_allgather(&mine, 1, MPI_INT, &from, 1, MPI_INT, fresh), MPI_SUCCESS,
               "MPI_Neighbor_allgather");
            that(from == (dead.count(left) != 0 ? -1 : left), "from %d", from);
        } else {
            int next = -1;
            MPI_Graph_neighbors(fresh, me, 1, &next);
            that(next == (me + 1) % size, "graph: %d", next);
        }
    }
}

/// Those of this half that live are a communicator again.
void take_half(const std::set<int> &dead)
{
    if (half != MPI_COMM_NULL) {
        is(MPI_Comm_free(&half), MPI_SUCCESS, "free");
    }
    is(MPIX_Comm_shrink(own, &half), MPI_SUCCESS, "MPIX_Comm_shrink");
    MPI_Comm_set_errhandler(half, MPI_ERRORS_RETURN);
    for (other_leader = 1 - me % 2; dead.count(other_leader) != 0; other_leader += 2) {
    }
}

void walk_through(int first, const std::string &only)
{
    const auto named = std::find_if(std::begin(all_makers), std::end(all_makers),
                                    [&](const Maker &maker) { return maker.name == only; });
    const int parts = named == std::end(all_makers) ? moments : 16;
    std::set<int> dead;
    int got = 0;
    for (int step = 0; size - static_cast<int>(dead.size()) > left_over; ++step) {
        const int which = parts == moments ? (first + step) / moments % makers
                                           : static_cast<int>(named - std::begin(all_makers));
        const int moment = (first + step) % parts;
        // The lowest, which leads an agreement that has met a failure; or the highest.
        const int victim = first < parts || parts == moments ? step : size - 1 - step;
        MPI_Comm fresh = MPI_COMM_NULL;
        strike::arm(0);
        is(all_makers[which].make(&fresh), MPI_SUCCESS, all_makers[which].name);
        const int operations = strike::counted();
        must_be_right(all_makers[which], fresh, dead);
        is(MPI_Comm_free(&fresh), MPI_SUCCESS, "free");
        await_all(victim, dead);
        if (me == victim) {
            const int k = 1 + (operations - 1) * moment / (parts - 1);
            std::printf("rank %d dies in case %d, %s, operation %d of %d\n", me, first + step,
                        all_makers[which].name, k, operations);
            std::fflush(stdout);
            strike::arm(k);
            all_makers[which].make(&fresh);
            die(); // it was done with less
        }
        const bool here = all_makers[which].make(&fresh) == MPI_SUCCESS;
        // Of two halves that make one each, the other one has lost nobody.
        const bool concerned = all_makers[which].make != create_group || me % 2 == victim % 2;
        that(here || concerned, "case %d: the other half has failed", first + step);
        all_or_nobody(MPI_COMM_WORLD, here, concerned);
        that(here == (fresh != MPI_COMM_NULL), "case %d: the handle and the code differ",
             first + step);
        got += here ? 1 : 0;
        if (here) {
            is(MPI_Comm_free(&fresh), MPI_SUCCESS, "free");
        }
        dead.insert(victim);
        hear_of(MPI_COMM_WORLD, {victim});
        validate(dead.size());
        validate(dead.size(), grid);
        int count = -1;
        is(MPI_Comm_validate_all(pair, &count), MPI_SUCCESS, "validate_all of both groups");
        take_half(dead);
    }
    std::printf("rank %d got %d communicators\n", me, got);
}

} // namespace

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const int dims[] = {2, size / 2};
    const int periods[] = {0, 0};
    is(MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid), MPI_SUCCESS, "the grid");
    is(MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &own), MPI_SUCCESS, "the groups");
    is(MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, 1 - me % 2, 3, &pair), MPI_SUCCESS,
       "MPI_Intercomm_create");
    for (MPI_Comm comm : {grid, own, pair}) {
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    }
    take_half({});
    strike::install(true);
    walk_through(argc > 1 ? std::atoi(argv[1]) : 0, argc > 2 ? argv[2] : "");
    for (MPI_Comm *comm : {&half, &pair, &own, &grid}) {
        is(MPI_Comm_free(comm), MPI_SUCCESS, "free");
    }
    return finish();
}

// Processes of an intercommunicator that die inside a collective, or at its edges.
//
// usage: inter_middle ROLE WHEN FIRST
//
// The groups are the halves of MPI_COMM_WORLD. One process after the other, of either group in
// turn, dies in collective FIRST, FIRST + 1, ... of all that there are for intercommunicators,
// blocking and non-blocking in turn. ROLE says which of its group: root (the lowest; it is the root
// of collectives that have one), inner or leaf (the highest), the root being in its group or in the
// other. WHEN as in middle.cc. Nobody may hang, all of both groups must learn of it, and after
// MPI_Comm_validate_all the same collective must be right.
#include "sides.hpp"
#include "strike.hpp"

using namespace check;

namespace {

constexpr int deaths = 5;

int side = 0;

sides::Pair make_pair()
{
    sides::Pair pair;
    const int first = size / 2; // of the other half
    side = me < first ? 0 : 1;
    MPI_Comm own = MPI_COMM_NULL;
    is(MPI_Comm_split(MPI_COMM_WORLD, side, 0, &own), MPI_SUCCESS, "split");
    is(MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, side == 0 ? first : 0, 8, &pair.comm),
       MPI_SUCCESS, "MPI_Intercomm_create");
    MPI_Comm_free(&own);
    MPI_Comm_set_errhandler(pair.comm, MPI_ERRORS_RETURN);
    for (int rank = 0; rank < size; ++rank) {
        const int its = rank < first ? 0 : 1;
        const int number = its * 100 + rank - its * first;
        (its == side ? pair.local : pair.remote).push_back(number);
        pair.self = rank == me ? number : pair.self;
    }
    return pair;
}

/// All are through with what went before, and the victim goes on last.
void await_all(const sides::Pair &pair, const std::vector<int> *alive, int victim)
{
    const auto rank = [](int number) { return number / 100 * (size / 2) + number % 100; };
    int token = 0;
    if (pair.self != victim) {
        is(MPI_Send(&token, 1, MPI_INT, rank(victim), 7, MPI_COMM_WORLD), MPI_SUCCESS, "token");
        return;
    }
    for (const std::vector<int> *group : {&alive[0], &alive[1]}) {
        for (const int number : *group) {
            if (number != victim) {
                is(MPI_Recv(&token, 1, MPI_INT, rank(number), 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                   MPI_SUCCESS, "receive of a token");
            }
        }
    }
}

[[noreturn]] void be_struck(const sides::Pair &pair, int which, bool starting, int root,
                            const std::string &when, int operations)
{
    // Who only looks on has none.
    const int k = when == "after" || operations == 0 ? 0 : when == "entry" ? 1 : operations / 2 + 1;
    std::printf("process %c%d dies in %s%s, %s, operation %d of %d\n", 'a' + side, pair.self % 100,
                starting ? "i" : "", sides::name(which), when.c_str(), k, operations);
    std::fflush(stdout);
    strike::arm(k);
    sides::call(which, pair, root, starting);
    that(k == 0, "the fault did not strike %s", sides::name(which));
    die();
}

void walk_through(const sides::Pair &pair, const std::string &role, const std::string &when,
                  int first)
{
    std::set<int> dead;
    std::vector<int> alive[2] = {pair.local, pair.remote};
    if (side == 1) {
        std::swap(alive[0], alive[1]);
    }
    for (int step = 0; step < deaths; ++step) {
        const int kind = (first + step) % (2 * sides::count());
        const int which = kind / 2;
        const bool starting = kind % 2 != 0;
        std::vector<int> &its = alive[step % 2];
        const std::size_t place = role == "root"   ? 0
                                  : role == "leaf" ? its.size() - 1
                                                   : its.size() / 2;
        const int victim = its[place];
        const int root_side = role == "root" ? step % 2 : (first + step) / 4 % 2;
        const int root = alive[root_side].front();
        strike::arm(0);
        is(sides::call(which, pair, root, starting).code, MPI_SUCCESS, sides::name(which));
        const int operations = strike::counted();
        await_all(pair, alive, victim);
        if (pair.self == victim) {
            be_struck(pair, which, starting, root, when, operations);
        }
        // Who did not need the dead one may be through; the next meets the failure.
        int code = sides::call(which, pair, root, starting).code;
        while (code == MPI_SUCCESS) {
            code = MPI_Barrier(pair.comm);
        }
        is(code, MPI_ERR_RANK_FAIL_STOP, sides::name(which));
        dead.insert(victim);
        its.erase(its.begin() + static_cast<std::ptrdiff_t>(place));
        int count = -1;
        is(MPI_Comm_validate_all(pair.comm, &count), MPI_SUCCESS, "MPI_Comm_validate_all");
        sides::Pair left;
        left.self = pair.self;
        left.local = sides::left_of(pair.local, dead);
        left.remote = sides::left_of(pair.remote, dead);
        that(count == static_cast<int>(pair.remote.size() - left.remote.size()),
             "%d failures on the other side", count);
        is(MPIX_Comm_shrink(pair.comm, &left.comm), MPI_SUCCESS, "MPIX_Comm_shrink");
        MPI_Comm_set_errhandler(left.comm, MPI_ERRORS_RETURN);
        sides::must_be_right(which, pair, left, alive[root_side].front(), starting, dead);
        is(MPI_Comm_free(&left.comm), MPI_SUCCESS, "free");
    }
}

} // namespace

int main(int argc, char **argv)
{
    start(&argc, &argv);
    sides::Pair pair = make_pair();
    strike::install();
    walk_through(pair, argc > 1 ? argv[1] : "root", argc > 2 ? argv[2] : "middle",
                 argc > 3 ? std::atoi(argv[3]) : 0);
    MPI_Comm_free(&pair.comm);
    return finish();
}

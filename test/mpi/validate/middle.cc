// Ranks that die inside a collective, or at its edges.
//
// usage: middle ROLE WHEN FIRST
//
// One rank after the other dies in collective FIRST, FIRST + 1, ... of all that mpi.h has, blocking
// and non-blocking in turn, until three are left. ROLE says which of the ranks that are left: root
// (the lowest; it is the root of collectives that have one), inner or leaf (the highest). WHEN:
// entry, before its first point-to-point operation in it; middle, before the operation in the
// middle of those it does in a run without a failure; after, when it has returned. Nobody may hang;
// all must learn of it; after MPI_Comm_validate_all the same collective must be right.
#include "among.hpp"
#include "around.hpp"
#include "strike.hpp"

using namespace among;

namespace {

constexpr int left_over = 3;

/// One collective in one form.
struct Kind {
    int which;
    bool starting;
    bool around() const { return which >= walk::count(); }
    int neighbour() const { return which - walk::count(); }
    const char *name() const { return around() ? around::name(neighbour()) : walk::name(which); }
    walk::Form form() const { return starting ? walk::Form::starting : walk::Form::blocking; }
};

MPI_Comm ring = MPI_COMM_NULL;

int call(const Kind &kind, int root)
{
    return kind.around() ? around::call(kind.neighbour(), ring, kind.starting).code
                         : walk::call(kind.which, world(), root, kind.form()).code;
}

/// Its result, against one of a communicator of the survivors.
void must_be_right(const Kind &kind, int root, const std::set<int> &dead)
{
    if (kind.around()) {
        around::must_be_right(kind.neighbour(), around::call(kind.neighbour(), ring, kind.starting),
                              dead);
        return;
    }
    walk::Group theirs = survivors(dead);
    compare(kind.which, kind.form(), walk::call(kind.which, world(), root, kind.form()),
            walk::call(kind.which, theirs, root, kind.form()), dead);
    MPI_Comm_free(&theirs.comm);
}

[[noreturn]] void be_struck(const Kind &kind, int root, const std::string &when, int operations)
{
    const bool after = when == "after";
    const int k = after ? 0 : when == "entry" ? 1 : operations / 2 + 1;
    std::printf("rank %d dies in %s%s, %s, operation %d of %d\n", me, kind.starting ? "i" : "",
                kind.name(), when.c_str(), k, operations);
    std::fflush(stdout);
    strike::arm(k);
    call(kind, root);
    that(after, "the fault did not strike %s", kind.name());
    die();
}

void walk_through(const std::string &role, const std::string &when, int first)
{
    std::set<int> dead;
    std::vector<int> alive = world().world;
    for (int step = 0; static_cast<int>(alive.size()) > left_over; ++step) {
        const int all = 2 * (walk::count() + around::count());
        const Kind kind{(first + step) % all / 2, (first + step) % 2 != 0};
        const std::size_t place = role == "root"   ? 0
                                  : role == "leaf" ? alive.size() - 1
                                                   : alive.size() / 2;
        const int victim = alive[place];
        const int root = alive.front(); // the victim, when that is its role
        strike::arm(0);
        is(call(kind, root), MPI_SUCCESS, kind.name());
        const int operations = strike::counted();
        await_all(victim, dead);
        if (me == victim) {
            be_struck(kind, root, when, operations);
        }
        // Who did not need the dead one may be through; the next meets the failure.
        int code = call(kind, root);
        while (code == MPI_SUCCESS) {
            code = MPI_Barrier(kind.around() ? ring : MPI_COMM_WORLD);
        }
        is(code, MPI_ERR_RANK_FAIL_STOP, kind.name());
        dead.insert(victim);
        alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(place));
        validate(dead.size());
        validate(dead.size(), ring);
        must_be_right(kind, alive.front(), dead);
    }
}

} // namespace

int main(int argc, char **argv)
{
    start(&argc, &argv);
    ring = around::make_ring();
    strike::install();
    walk_through(argc > 1 ? argv[1] : "root", argc > 2 ? argv[2] : "middle",
                 argc > 3 ? std::atoi(argv[3]) : 0);
    MPI_Comm_free(&ring);
    return finish();
}

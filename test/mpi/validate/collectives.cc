// Every collective while ranks die, and after their failures are recognised.
//
// usage: collectives recognised DEAD   the ranks die; validate_all; every collective, in each form,
//                                      must give what it gives on a communicator of the survivors
//        collectives refused DEAD      the ranks die, and all know: every collective must end with
//                                      the error at every survivor
//        collectives entry FIRST [root]  ranks 1, 2, ... die one after the other at the entry of
//                                      collective FIRST, FIRST + 1, ...; nobody may hang; then
//                                      validate_all, then the same collective must be right. With
//                                      "root", the one that dies is its root
//        collectives killed FIFO NUMBER   the test kills so many ranks, and reads from the FIFO
//        when
//                                      it may begin; then as with "recognised"
#include "among.hpp"
#include "test/mpi/survivors/mark.hpp"

using namespace among;

namespace {

constexpr walk::Form forms[] = {walk::Form::blocking, walk::Form::starting, walk::Form::in_place,
                                walk::Form::starting_in_place};
/// Elements of a block. Blocks that are few bytes in all are packed, others stay where they are.
constexpr int blocks[] = {2, 9000};

void all_collectives(const std::set<int> &dead)
{
    const walk::Group mine = world();
    walk::Group theirs = survivors(dead);
    for (int which = 0; which < walk::count(); ++which) {
        for (const walk::Form form : forms) {
            for (const int root : {theirs.world.front(), theirs.world.back()}) {
                for (const int block : blocks) {
                    const walk::Outcome wanted = walk::call(which, theirs, root, form, block);
                    const walk::Outcome got = walk::call(which, mine, root, form, block);
                    compare(which, form, got, wanted, dead);
                }
            }
        }
        if (walk::rooted(which) && !dead.empty()) {
            const walk::Outcome none = walk::call(which, mine, *dead.begin(), walk::Form::blocking);
            is(none.code, MPI_ERR_RANK_FAIL_STOP, walk::name(which));
        }
    }
    MPI_Comm_free(&theirs.comm);
}

void recognised(const std::set<int> &doomed)
{
    if (doomed.count(me) != 0) {
        die();
    }
    hear_of(MPI_COMM_WORLD, doomed);
    validate(doomed.size());
    all_collectives(doomed);
}

/// What validate_all recognised. A rank that failed since is not in it.
std::set<int> failed_by_agreement()
{
    std::set<int> ranks;
    for (const int rank : failed(MPI_COMM_WORLD)) {
        if (state(MPI_COMM_WORLD, rank) == MPI_RANK_NULL) {
            ranks.insert(rank);
        }
    }
    return ranks;
}

void refused(const std::set<int> &doomed)
{
    if (doomed.count(me) != 0) {
        die();
    }
    hear_of(MPI_COMM_WORLD, doomed);
    const walk::Group mine = world();
    for (int which = 0; which < walk::count(); ++which) {
        for (const walk::Form form : forms) {
            for (const int root : {0, size - 1}) {
                is(walk::call(which, mine, root, form).code, MPI_ERR_RANK_FAIL_STOP,
                   walk::name(which));
            }
        }
    }
    validate(doomed.size());
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
}

void entry(int first, bool roots)
{
    const walk::Group mine = world();
    std::set<int> dead;
    for (int victim = 1; victim < size - 1; ++victim) {
        const int which = (first + victim - 1) % walk::count();
        const walk::Form form = victim % 2 == 0 ? walk::Form::starting : walk::Form::blocking;
        is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier before");
        await_all(victim, dead);
        if (me == victim) {
            die();
        }
        dead.insert(victim);
        // Who did not need the dead one may be through; the next meets the failure.
        int code = walk::call(which, mine, roots ? victim : 0, form).code;
        while (code == MPI_SUCCESS) {
            code = MPI_Barrier(MPI_COMM_WORLD);
        }
        is(code, MPI_ERR_RANK_FAIL_STOP, walk::name(which));
        validate(dead.size());
        walk::Group theirs = survivors(dead);
        compare(which, form, walk::call(which, mine, 0, form), walk::call(which, theirs, 0, form),
                dead);
        MPI_Comm_free(&theirs.comm);
    }
}

/// Until so many have been killed all work together; each time somebody is, they agree.
void killed(const std::string &fifo, std::size_t wanted)
{
    marks::mark(fifo.c_str(), "ready " + std::to_string(me));
    const walk::Group mine = world();
    int which = 0;
    std::set<int> dead;
    while (dead.size() < wanted) {
        int root = 0;
        while (dead.count(root) != 0) {
            ++root;
        }
        const int code = walk::call(which, mine, root, walk::Form::blocking).code;
        which = (which + 1) % walk::count();
        if (code != MPI_SUCCESS) {
            is(code, MPI_ERR_RANK_FAIL_STOP, walk::name(which));
            int count = 0;
            is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "validate_all");
            dead = failed_by_agreement();
            that(static_cast<int>(dead.size()) == count, "%d failures, but %zu known", count,
                 dead.size());
            which = 0; // all are at one place again
        }
    }
    std::printf("rank %d set %s\n", me, text_of(dead).c_str());
    all_collectives(dead);
}

} // namespace

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const std::string what = argc > 1 ? argv[1] : "recognised";
    const std::string which = argc > 2 ? argv[2] : "none";
    if (what == "killed") {
        killed(which, static_cast<std::size_t>(std::atoi(argv[3])));
    } else if (what == "entry") {
        entry(std::atoi(which.c_str()), argc > 3);
    } else {
        is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
        all_through(ranks_of(which));
        (what == "refused" ? refused : recognised)(ranks_of(which));
    }
    return finish();
}

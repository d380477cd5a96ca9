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
#include "walk.hpp"

using namespace check;

namespace {

walk::Group world()
{
    walk::Group group;
    group.comm = MPI_COMM_WORLD;
    for (int r = 0; r < size; ++r) {
        group.world.push_back(r);
    }
    return group;
}

/// The survivors' own communicator, to compare with.
walk::Group survivors(const std::set<int> &dead)
{
    walk::Group group;
    is(MPIX_Comm_shrink(MPI_COMM_WORLD, &group.comm), MPI_SUCCESS, "MPIX_Comm_shrink");
    MPI_Comm_set_errhandler(group.comm, MPI_ERRORS_RETURN);
    for (int r = 0; r < size; ++r) {
        if (dead.count(r) == 0) {
            group.world.push_back(r);
        }
    }
    int n = 0;
    MPI_Comm_size(group.comm, &n);
    that(n == group.size(), "%d survivors instead of %d", n, group.size());
    return group;
}

const char *form_of(walk::Form form)
{
    return form == walk::Form::blocking   ? "blocking"
           : form == walk::Form::starting ? "non-blocking"
                                          : "in place";
}

void compare(int which, walk::Form form, const walk::Outcome &got, const walk::Outcome &wanted,
             const std::set<int> &dead)
{
    is(got.code, MPI_SUCCESS, walk::name(which));
    is(wanted.code, MPI_SUCCESS, walk::name(which));
    for (const auto &[rank, block] : wanted.blocks) {
        const auto its = got.blocks.find(rank);
        that(its != got.blocks.end() && its->second == block, "%s %s: block of rank %d differs",
             walk::name(which), form_of(form), rank);
    }
    for (const auto &[rank, block] : got.blocks) {
        if (dead.count(rank) != 0 && form != walk::Form::in_place) {
            for (const int x : block) {
                that(x == walk::untouched, "%s %s: the block of dead rank %d was written",
                     walk::name(which), form_of(form), rank);
            }
        }
    }
}

constexpr walk::Form forms[] = {walk::Form::blocking, walk::Form::starting, walk::Form::in_place};

void all_collectives(const std::set<int> &dead)
{
    const walk::Group mine = world();
    walk::Group theirs = survivors(dead);
    for (int which = 0; which < walk::count(); ++which) {
        for (const walk::Form form : forms) {
            for (const int root : {theirs.world.front(), theirs.world.back()}) {
                const walk::Outcome wanted = walk::call(which, theirs, root, form);
                const walk::Outcome got = walk::call(which, mine, root, form);
                compare(which, form, got, wanted, dead);
            }
        }
        if (walk::rooted(which) && !dead.empty()) {
            const walk::Outcome none = walk::call(which, mine, *dead.begin(), walk::Form::blocking);
            is(none.code, MPI_ERR_RANK_FAIL_STOP, walk::name(which));
        }
    }
    MPI_Comm_free(&theirs.comm);
}

void validate(std::size_t wanted)
{
    int count = -1;
    is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "MPI_Comm_validate_all");
    that(count == static_cast<int>(wanted), "%d failures instead of %zu", count, wanted);
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

/// All are behind a barrier before `last` goes on: else one that waits in it yet meets the failure.
void await_all(int last, const std::set<int> &dead)
{
    int token = 0;
    for (int rank = 0; rank < size; ++rank) {
        if (rank == last || dead.count(rank) != 0) {
            continue;
        }
        if (me == last) {
            is(MPI_Recv(&token, 1, MPI_INT, rank, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
               MPI_SUCCESS, "receive of a token");
        } else if (me == rank) {
            is(MPI_Send(&token, 1, MPI_INT, last, 7, MPI_COMM_WORLD), MPI_SUCCESS, "token");
        }
    }
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

} // namespace

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const std::string what = argc > 1 ? argv[1] : "recognised";
    const std::string which = argc > 2 ? argv[2] : "none";
    if (what == "entry") {
        entry(std::atoi(which.c_str()), argc > 3);
    } else {
        is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
        (what == "refused" ? refused : recognised)(ranks_of(which));
    }
    return finish();
}

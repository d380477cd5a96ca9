// Ranks that die while all make a communicator: all that live get one, or nobody does.
//
// usage: makers FIRST
//
// One rank after the other dies in MPI_Comm_dup, MPI_Comm_split or MPI_Comm_create: before its
// first point-to-point operation, those of the agreement included, a third and two thirds on its
// way, and before its last one, as a run without a failure has counted them. Of these twelve cases
// it begins with FIRST, and ends when three ranks are left.
#include "among.hpp"
#include "strike.hpp"

using namespace among;

namespace {

constexpr int left_over = 3;
constexpr int makers = 3;
constexpr int moments = 4;

int make(int which, MPI_Comm *fresh)
{
    *fresh = MPI_COMM_NULL;
    if (which == 0) {
        return MPI_Comm_dup(MPI_COMM_WORLD, fresh);
    }
    if (which == 1) {
        return MPI_Comm_split(MPI_COMM_WORLD, me % 2, -me, fresh);
    }
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    const int code = MPI_Comm_create(MPI_COMM_WORLD, all, fresh);
    MPI_Group_free(&all);
    return code;
}

/// Whether this is so at all that live.
bool everywhere(bool here)
{
    int flag = here ? 1 : 0;
    const int code = MPIX_Comm_agree(MPI_COMM_WORLD, &flag);
    that(code == MPI_SUCCESS || class_of(code) == MPIX_ERR_PROC_FAILED, "agree: %d", code);
    return flag == 1;
}

void walk_through(int first)
{
    std::set<int> dead;
    int got = 0;
    for (int step = 0; size - static_cast<int>(dead.size()) > left_over; ++step) {
        const int which = (first + step) / moments % makers;
        const int moment = (first + step) % moments;
        const int victim = step; // the lowest, which leads an agreement that has met a failure
        MPI_Comm fresh = MPI_COMM_NULL;
        strike::arm(0);
        is(make(which, &fresh), MPI_SUCCESS, "nobody dies");
        const int operations = strike::counted();
        is(MPI_Comm_free(&fresh), MPI_SUCCESS, "free");
        await_all(victim, dead);
        if (me == victim) {
            const int k = 1 + (operations - 1) * moment / (moments - 1);
            std::printf("rank %d dies in case %d, operation %d of %d\n", me, first + step, k,
                        operations);
            std::fflush(stdout);
            strike::arm(k);
            make(which, &fresh);
            die(); // it was done with less
        }
        const bool here = make(which, &fresh) == MPI_SUCCESS;
        const bool all = everywhere(here);
        const bool none = everywhere(!here);
        that(all != none, "case %d: some have a communicator, and some have not", first + step);
        that(here == (fresh != MPI_COMM_NULL), "case %d: the handle and the code differ",
             first + step);
        got += here ? 1 : 0;
        if (here) {
            is(MPI_Comm_free(&fresh), MPI_SUCCESS, "free");
        }
        dead.insert(victim);
        hear_of(MPI_COMM_WORLD, {victim});
        validate(dead.size());
    }
    std::printf("rank %d got %d communicators\n", me, got);
}

} // namespace

int main(int argc, char **argv)
{
    start(&argc, &argv);
    strike::install(true);
    walk_through(argc > 1 ? std::atoi(argv[1]) : 0);
    return finish();
}

// A rank that dies while all call MPI_Comm_spawn: all that live get the communicator, or nobody
// does.
//
// usage: spawns VICTIM PART PARTS
//
// The first call, in which nobody dies, counts the victim's point-to-point operations, those of the
// agreements included. In the second it dies before the one that is PART of PARTS on the way.
#include "check.hpp"
#include "strike.hpp"

using namespace check;

namespace {

constexpr int children = 2;
constexpr int never_dies = 2; ///< of the parents

/// All that live go on together.
void let_in(MPI_Comm fresh, int failed)
{
    MPI_Comm_set_errhandler(fresh, MPI_ERRORS_RETURN);
    int token = 0;
    for (int child = 0; me == never_dies && child < children; ++child) {
        is(MPI_Send(&token, 1, MPI_INT, child, 4, fresh), MPI_SUCCESS, "send");
    }
    is(MPI_Comm_validate_all(fresh, &token), MPI_SUCCESS, "validate_all of both");
    that(token == failed, "%d children have failed", token);
    MPI_Comm_disconnect(&fresh);
}

/// A spawned process stays until its parents let it in, or have given up.
int be_child(MPI_Comm parent)
{
    MPI_Comm_set_errhandler(parent, MPI_ERRORS_RETURN);
    int token = 0;
    const int code = MPI_Recv(&token, 1, MPI_INT, never_dies, 4, parent, MPI_STATUS_IGNORE);
    std::printf("child %d %s\n", me, code == MPI_SUCCESS ? "was let in" : "was left alone");
    std::fflush(stdout);
    if (code == MPI_SUCCESS) {
        is(MPI_Comm_validate_all(parent, &token), MPI_SUCCESS, "MPI_Comm_validate_all");
        MPI_Comm_disconnect(&parent);
    }
    MPI_Finalize();
    return 0;
}

int spawn(char **argv, MPI_Comm *fresh)
{
    return MPI_Comm_spawn(argv[0], argv + 1, children, MPI_INFO_NULL, 0, MPI_COMM_WORLD, fresh,
                          MPI_ERRCODES_IGNORE);
}

} // namespace

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm parent = MPI_COMM_NULL;
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        return be_child(parent);
    }
    const int victim = std::atoi(argv[1]);
    strike::install(true);
    strike::arm(0);
    MPI_Comm fresh = MPI_COMM_NULL;
    is(spawn(argv, &fresh), MPI_SUCCESS, "MPI_Comm_spawn");
    const int operations = strike::counted();
    let_in(fresh, 0);
    fresh = MPI_COMM_NULL;
    all_through({victim});
    if (me == victim) {
        const int k = 1 + (operations - 1) * std::atoi(argv[2]) / std::atoi(argv[3]);
        std::printf("rank %d dies at operation %d of %d\n", me, k, operations);
        std::fflush(stdout);
        strike::arm(k);
        spawn(argv, &fresh);
        die();
    }
    const bool here = spawn(argv, &fresh) == MPI_SUCCESS;
    std::printf("rank %d %s it\n", me, here ? "has" : "does not have");
    all_or_nobody(MPI_COMM_WORLD, here);
    that(here == (fresh != MPI_COMM_NULL), "the handle and the code differ");
    hear_of(MPI_COMM_WORLD, {victim});
    int count = -1;
    is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "MPI_Comm_validate_all");
    that(count == 1, "%d failures", count);
    if (here) {
        let_in(fresh, 0);
    }
    return finish();
}

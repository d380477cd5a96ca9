// Spawned processes of which one dies when all have come through MPI_Init, while the parents are
// held before they look at what MPI_Comm_spawn gave them (after_spawn.cc): the call fails at the
// parents, who live on and have left the others alone with a communicator. Those recover on it.
//
// usage: let_go FIFO
//   It is opened to write when the death is known to the children that live.
#include "check.hpp"

#include <fcntl.h>

using namespace check;

namespace {

constexpr int children = 3;
constexpr int victim = 1;
constexpr int left_behind = MPIX_ERR_PROC_FAILED; ///< or a revoked communicator

bool ends_with_an_error(int code)
{
    return code != MPI_SUCCESS &&
           (class_of(code) == left_behind || class_of(code) == MPIX_ERR_REVOKED);
}

int be_child(MPI_Comm parent, const char *fifo)
{
    MPI_Comm_set_errhandler(parent, MPI_ERRORS_RETURN);
    all_through({victim}); // MPI_Init
    if (me == victim) {
        die();
    }
    hear_of(MPI_COMM_WORLD, {victim});
    int count = -1;
    is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "validate_all of the children");
    that(count == 1, "%d children have failed", count);
    // To read as well, which does not wait for the parents; until the end, for they may come late.
    that(open(fifo, O_RDWR) >= 0, "the FIFO cannot be opened");
    int token = 0;
    that(ends_with_an_error(MPI_Recv(&token, 1, MPI_INT, 0, 4, parent, MPI_STATUS_IGNORE)),
         "a receive from a parent that has let go");
    is(MPI_Comm_validate_all(parent, &count), MPI_SUCCESS, "validate_all with the parents");
    that(count == 2, "%d of 2 parents have left", count);
    int flag = 1;
    MPIX_Comm_agree(parent, &flag);
    that(flag == 1, "agreed on %d", flag);
    MPI_Comm_disconnect(&parent);
    std::printf("child %d %s\n", me, failures == 0 ? "recovered" : "is wrong");
    std::fflush(stdout);
    MPI_Finalize();
    return failures == 0 ? 0 : 1;
}

} // namespace

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm parent = MPI_COMM_NULL;
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        return be_child(parent, argv[1]);
    }
    MPI_Comm fresh = MPI_COMM_NULL;
    is(MPI_Comm_spawn(argv[0], argv + 1, children, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &fresh,
                      MPI_ERRCODES_IGNORE),
       MPIX_ERR_PROC_FAILED, "MPI_Comm_spawn");
    that(fresh == MPI_COMM_NULL, "a communicator with it");
    int flag = 1;
    is(MPIX_Comm_agree(MPI_COMM_WORLD, &flag), MPI_SUCCESS, "the parents' own");
    return finish();
}

// A rank dies at a point of a call that joins two jobs, or two parts of one: all that live return.
//
// usage: meets CALL VICTIM POINT WAY FIFO
//
// CALL is "spawn": all ranks spawn two, or "accept": the lower half of them accepts, the upper half
// connects. Rank VICTIM dies at POINT (dies_at.hpp, by number) of it. WAY is "agreed": then the
// call gives the communicator to all of a side that live, or to nobody; or "stock": Open MPI's call
// alone, as of a program without the library, which has to return, no more. FIFO is empty, and
// nobody's else.
#include "check.hpp"

#include "test/mpi/survivors/dies_at.hpp"

#include <cstring>

#include <fcntl.h>
#include <unistd.h>

using namespace check;

namespace {

constexpr int children = 2;

/// A spawned process, if it came through MPI_Init, hears of its parents' end, or is let go.
int be_child(MPI_Comm parent)
{
    MPI_Comm_set_errhandler(parent, MPI_ERRORS_RETURN);
    int count = 0;
    const int code = MPI_Comm_validate_all(parent, &count);
    std::printf("child %d: class %d\n", me, code == MPI_SUCCESS ? 0 : class_of(code));
    MPI_Finalize();
    return 0;
}

struct Call {
    bool spawns;
    bool accepts;
    bool agreed;
    MPI_Comm side; ///< those who call it together
};

int join(const Call &call, char **argv, const char *port, MPI_Comm *fresh)
{
    if (call.spawns) {
        return (call.agreed ? MPI_Comm_spawn : PMPI_Comm_spawn)(
            argv[0], argv + 1, children, MPI_INFO_NULL, 0, call.side, fresh, MPI_ERRCODES_IGNORE);
    }
    if (call.accepts) {
        return (call.agreed ? MPI_Comm_accept : PMPI_Comm_accept)(port, MPI_INFO_NULL, 0, call.side,
                                                                  fresh);
    }
    return (call.agreed ? MPI_Comm_connect : PMPI_Comm_connect)(port, MPI_INFO_NULL, 0, call.side,
                                                                fresh);
}

/// A side that has met nobody goes on waiting, and in this way nobody comes again: no death before
/// the other side's root has read who is there. Its word comes through a FIFO, for both are then on
/// threads that pml/dr has made for a call of the runtime, and may not call MPI.
void let_them_meet(int victim, int other_root, dies_at::Point point, const char *fifo)
{
    static const int fd = ::open(fifo, O_RDWR); // does not block, and keeps what nobody has read
    static char token = 0;
    if (!that(fd >= 0, "no FIFO")) {
        return;
    }
    if (me == other_root) {
        dies_at::hold(dies_at::Point::looked_up,
                      [] { that(::write(fd, &token, 1) == 1, "cannot write to the FIFO"); });
    } else if (me == victim) {
        dies_at::hold(point, [] { that(::read(fd, &token, 1) == 1, "cannot read the FIFO"); });
    }
}

/// Those who are left meet at the same port: nothing of the first time is there any more. A side
/// that was not met by the one that lost somebody meets it now, in its first call.
void meet_again(Call call, const char *port, MPI_Comm fresh)
{
    if (fresh == MPI_COMM_NULL) {
        MPI_Comm left = MPI_COMM_NULL;
        is(MPIX_Comm_shrink(call.side, &left), MPI_SUCCESS, "MPIX_Comm_shrink");
        MPI_Comm_set_errhandler(left, MPI_ERRORS_RETURN);
        call.side = left;
        is(join(call, nullptr, port, &fresh), MPI_SUCCESS, "the second time");
    }
    MPI_Comm_set_errhandler(fresh, MPI_ERRORS_RETURN);
    int sum = 0;
    is(MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, fresh), MPI_SUCCESS, "MPI_Allreduce");
    MPI_Comm_free(&fresh);
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
    const int victim = std::atoi(argv[2]);
    Call call{};
    call.spawns = std::strcmp(argv[1], "spawn") == 0;
    call.accepts = me < size / 2;
    call.agreed = std::strcmp(argv[4], "agreed") == 0;
    MPI_Comm_split(MPI_COMM_WORLD, call.spawns || call.accepts ? 0 : 1, me, &call.side);
    MPI_Comm_set_errhandler(call.side, MPI_ERRORS_RETURN);
    char port[MPI_MAX_PORT_NAME] = "";
    if (me == 0 && !call.spawns) {
        MPI_Open_port(MPI_INFO_NULL, port);
    }
    MPI_Bcast(port, sizeof port, MPI_CHAR, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    const auto point = static_cast<dies_at::Point>(std::atoi(argv[3]));
    const int other_root = victim < size / 2 ? size / 2 : 0;
    // Then the other side's root has told its names, and reads nothing before it hears of the
    // death.
    const bool unread = point == dies_at::Point::looked_up && call.accepts != (victim < size / 2);
    if (me == victim) {
        dies_at::arm(point, argv[2], "");
    } else if (unread && me == other_root) {
        dies_at::hold(dies_at::Point::published, [victim] { hear_of(MPI_COMM_WORLD, {victim}); });
    }
    if (!call.spawns && !call.agreed) {
        let_them_meet(victim, other_root, point, argv[5]);
    }
    MPI_Comm fresh = MPI_COMM_NULL;
    const int code = join(call, argv, port, &fresh);
    const bool here = code == MPI_SUCCESS;
    std::printf("rank %d returned, class %d\n", me, here ? 0 : class_of(code));
    std::fflush(stdout);
    if (me == victim) {
        return 1; // it was not to come here
    }
    that(here == (fresh != MPI_COMM_NULL), "the handle and the code differ");
    that(here || !unread, "those who had met nobody were to wait for the next");
    hear_of(MPI_COMM_WORLD, {victim});
    if (call.agreed) {
        all_or_nobody(call.side, here);
    }
    if (!call.spawns && call.agreed) {
        meet_again(call, port, fresh);
    }
    int count = -1;
    is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "MPI_Comm_validate_all");
    that(count == 1, "%d failures", count);
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "MPI_Barrier");
    return finish();
}

// The ULFM calls, and communicators made before, between and after a failure. Rank 2 kills itself.
//
// usage: ulfm    with at least four ranks
#include "check.hpp"

using namespace check;

namespace {

constexpr int victim = 2;

MPI_Comm returning(MPI_Comm comm)
{
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    return comm;
}

int size_of(MPI_Comm comm)
{
    int n = -1;
    MPI_Comm_size(comm, &n);
    return n;
}

MPI_Comm before_any_failure()
{
    MPI_Comm twin = MPI_COMM_NULL;
    is(MPI_Comm_dup(MPI_COMM_WORLD, &twin), MPI_SUCCESS, "dup");
    is(MPI_Barrier(returning(twin)), MPI_SUCCESS, "barrier on it");
    MPI_Comm half = MPI_COMM_NULL;
    is(MPI_Comm_split(MPI_COMM_WORLD, me % 2, -me, &half), MPI_SUCCESS, "split");
    that(size_of(half) == (size + 1 - me % 2) / 2, "split gave %d ranks", size_of(half));
    is(MPI_Barrier(half), MPI_SUCCESS, "barrier on it");
    MPI_Comm_free(&half);
    int flag = me == 1 ? 6 : 7;
    is(MPIX_Comm_agree(MPI_COMM_WORLD, &flag), MPI_SUCCESS, "agree");
    that(flag == 6, "agreed on %d", flag);
    return twin;
}

void unrecognised(MPI_Comm twin)
{
    MPI_Comm none = MPI_COMM_NULL;
    is(MPI_Comm_dup(twin, &none), MPI_ERR_RANK_FAIL_STOP, "dup with a failure");
    that(none == MPI_COMM_NULL, "it gave a communicator nevertheless");
    int flag = me + 8;
    is(MPIX_Comm_agree(twin, &flag), MPIX_ERR_PROC_FAILED, "agree, unacknowledged");
    is(MPIX_Comm_failure_ack(twin), MPI_SUCCESS, "failure_ack");
    MPI_Group acked = MPI_GROUP_NULL;
    is(MPIX_Comm_failure_get_acked(twin, &acked), MPI_SUCCESS, "failure_get_acked");
    int count = -1;
    MPI_Group_size(acked, &count);
    that(count == 1, "%d acknowledged", count);
    MPI_Group_free(&acked);
    MPI_Request request = MPI_REQUEST_NULL;
    flag = 3;
    is(MPIX_Comm_iagree(twin, &flag, &request), MPI_SUCCESS, "iagree");
    is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, "iagree, acknowledged");
    that(flag == 3, "agreed on %d", flag);
}

/// \return a communicator of all that live
MPI_Comm recognised(MPI_Comm twin)
{
    int count = -1;
    is(MPI_Comm_validate_all(twin, &count), MPI_SUCCESS, "validate_all");
    that(count == 1, "%d failures", count);
    MPI_Comm heir = MPI_COMM_NULL;
    is(MPI_Comm_dup(twin, &heir), MPI_SUCCESS, "dup with a recognised failure");
    that(size_of(heir) == size, "dup gave %d ranks", size_of(heir));
    int one = 1;
    int sum = 0;
    is(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, returning(heir)), MPI_SUCCESS, "allreduce");
    that(sum == size - 1, "the sum is %d", sum);
    is(MPI_Send(&one, 1, MPI_INT, victim, 1, heir), MPI_SUCCESS, "send to nobody");
    MPI_Comm rest = MPI_COMM_NULL;
    is(MPI_Comm_split(heir, 0, 0, &rest), MPI_SUCCESS, "split with a recognised failure");
    that(size_of(rest) == size - 1, "split gave %d ranks", size_of(rest));
    return returning(rest);
}

void revoked(MPI_Comm comm)
{
    if (me == 0) {
        is(MPIX_Comm_revoke(comm), MPI_SUCCESS, "revoke");
    } else {
        int never = 0;
        is(MPI_Recv(&never, 1, MPI_INT, 0, 9, comm, MPI_STATUS_IGNORE), MPIX_ERR_REVOKED,
           "receive on a revoked communicator");
    }
    is(MPI_Barrier(comm), MPIX_ERR_REVOKED, "barrier on a revoked communicator");
    int flag = 0;
    is(MPIX_Comm_is_revoked(comm, &flag), MPI_SUCCESS, "is_revoked");
    that(flag == 1, "it is not revoked");
    MPI_Comm fresh = MPI_COMM_NULL;
    is(MPIX_Comm_shrink(comm, &fresh), MPI_SUCCESS, "shrink of a revoked communicator");
    is(MPI_Barrier(fresh), MPI_SUCCESS, "barrier on what it gave");
}

} // namespace

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const MPI_Comm twin = before_any_failure();
    if (me == victim) {
        die();
    }
    hear_of(twin, {victim});
    unrecognised(twin);
    revoked(recognised(twin));
    return finish();
}

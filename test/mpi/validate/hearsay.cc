// What one rank has said of another that lives: that it finds no way to it.
//
// usage: hearsay dies         rank 2 suspects rank 1, tells the others so, and dies
//        hearsay heard        rank 2 suspects rank 1 and tells the others so
//        hearsay beside       a communicator without rank 2
//        hearsay across       an intercommunicator on whose other side rank 2 is
//        hearsay meanwhile    the others hear it in an agreement that rank 2 is in, too
//        hearsay counted_out  rank 2 is recognised as failed, and what it has said comes after that
#include "ompi/mca/ompi_prelude.hpp"

#include "check.hpp"
#include "opal/process/standing.hpp"

using namespace check;

namespace {

constexpr int victim = 1;
constexpr int teller = 2;

ft::process::Name name_of(int rank)
{
    return {OMPI_PROC_MY_NAME->jobid, static_cast<std::uint32_t>(rank)};
}

bool bystander(int rank)
{
    return rank != victim && rank != teller;
}

/// The teller goes on when all who are neither it nor the victim have come here.
void let_teller_go_on()
{
    for (int rank = 0; rank < size; ++rank) {
        if (bystander(rank) && me == teller) {
            wait_for_word(rank);
        } else if (bystander(rank) && me == rank) {
            send_word(teller);
        }
    }
}

/// Everybody else has heard that the teller suspects the victim, which is not told.
void suspect()
{
    if (me == teller) {
        ft::process::declare_unreachable(name_of(victim));
    }
    while (me != victim && ft::process::unreachable().empty()) {
        opal_progress();
    }
    let_teller_go_on();
}

/// What the dead has said of one that lives is worth nothing where the dead is not.
void teller_dies()
{
    suspect();
    if (me == teller) {
        die();
    }
    hear_of(MPI_COMM_WORLD, {teller}); // which would tell the victim to stop, if that spoke to it
    MPI_Comm left = MPI_COMM_NULL;
    is(MPIX_Comm_shrink(MPI_COMM_WORLD, &left), MPI_SUCCESS, "shrink");
    MPI_Comm_set_errhandler(left, MPI_ERRORS_RETURN);
    if (!is(MPI_Barrier(left), MPI_SUCCESS, "barrier of the shrunk")) {
        MPIX_Comm_revoke(left); // the victim waits in it
        return;
    }
    MPI_Comm copy = MPI_COMM_NULL;
    is(MPI_Comm_dup(left, &copy), MPI_SUCCESS, "dup of the shrunk");
    int one = 1;
    int sum = 0;
    is(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, copy), MPI_SUCCESS, "allreduce");
    that(sum == size - 1, "the sum is %d", sum);
}

/// What was heard ends collectives with the one that said it, and nothing else. Nothing was agreed
/// before: by an agreement that is kept the victim would be told to stop.
void heard_only()
{
    suspect();
    int value = -1;
    if (me == victim) {
        is(MPI_Send(&me, 1, MPI_INT, 0, 10, MPI_COMM_WORLD), MPI_SUCCESS, "send");
    } else if (me == 0) {
        is(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 10, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
           MPI_SUCCESS, "receive from any source");
        that(value == victim, "it came from %d", value);
    }
    if (me != victim) { // which knows of nothing, and would wait
        is(MPI_Barrier(MPI_COMM_WORLD), MPI_ERR_RANK_FAIL_STOP, "barrier with who suspects");
    }
}

/// As if the teller had said so. It does not know of that: by an agreement in which it was with the
/// victim it would tell that to stop.
void hear()
{
    if (bystander(me)) {
        ft::process::hear_unreachable(name_of(victim), name_of(teller));
        is(state(MPI_COMM_WORLD, victim), MPI_RANK_OK, "what is only heard"); // looks at the news
    }
}

/// Nobody waits for the teller where it is not.
void beside()
{
    MPI_Comm others = MPI_COMM_NULL;
    is(MPI_Comm_split(MPI_COMM_WORLD, me == teller ? MPI_UNDEFINED : 0, me, &others), MPI_SUCCESS,
       "split");
    hear();
    if (me != teller) {
        MPI_Comm_set_errhandler(others, MPI_ERRORS_RETURN);
        if (!is(MPI_Barrier(others), MPI_SUCCESS, "barrier without the teller")) {
            MPIX_Comm_revoke(others); // the victim waits in it
        }
    }
}

/// Collectives of an intercommunicator wait on the own group's communicator too, in which the
/// teller is not.
void across()
{
    MPI_Comm side = MPI_COMM_NULL;
    MPI_Comm both = MPI_COMM_NULL;
    is(MPI_Comm_split(MPI_COMM_WORLD, me == teller ? 1 : 0, me, &side), MPI_SUCCESS, "split");
    is(MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, me == teller ? 0 : teller, 1, &both),
       MPI_SUCCESS, "intercomm_create");
    MPI_Comm_set_errhandler(both, MPI_ERRORS_RETURN);
    if (bystander(me)) {
        // What is for the other side is sent; then all but the first of a side wait for that.
        const std::vector<int> values(static_cast<std::size_t>(size));
        int sum = 0;
        MPI_Request request = MPI_REQUEST_NULL;
        is(MPI_Ireduce_scatter_block(values.data(), &sum, 1, MPI_INT, MPI_SUM, both, &request),
           MPI_SUCCESS, "ireduce_scatter_block");
        hear();
        is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_RANK_FAIL_STOP, "wait");
    }
}

/// Who suspects another after its own part in an agreement goes on to do so when that has not
/// confirmed it.
void meanwhile()
{
    int count = -1;
    if (me == teller) {
        let_teller_go_on();
        is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "validate_all");
        that(count == 0, "%d failures", count);
    } else {
        MPI_Request request = MPI_REQUEST_NULL;
        is(MPI_Icomm_validate_all(MPI_COMM_WORLD, &count, &request), MPI_SUCCESS, "ivalidate_all");
        if (me != victim) {
            hear(); // before the teller is in the agreement
            is(MPI_Barrier(MPI_COMM_WORLD), MPI_ERR_RANK_FAIL_STOP, "barrier meanwhile");
        }
        let_teller_go_on();
        is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, "wait");
        that(count == 0, "%d failures", count);
        if (me != victim) {
            is(MPI_Barrier(MPI_COMM_WORLD), MPI_ERR_RANK_FAIL_STOP, "barrier after it");
        }
    }
}

/// Everybody who is not the teller is through with what went before. Who the teller is, for a
/// signal.
int through()
{
    int pid = getpid();
    if (me == teller) {
        is(MPI_Send(&pid, 1, MPI_INT, 0, 8, MPI_COMM_WORLD), MPI_SUCCESS, "send");
        while (true) {
            pause(); // outside MPI
        }
    }
    if (me != 0) {
        send_word(0);
        wait_for_word(0);
        return 0;
    }
    is(MPI_Recv(&pid, 1, MPI_INT, teller, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS,
       "receive");
    for (const bool all_here : {false, true}) {
        for (int rank = 1; rank < size; ++rank) {
            if (rank != teller && all_here) {
                send_word(rank);
            } else if (rank != teller) {
                wait_for_word(rank);
            }
        }
    }
    return pid;
}

/// Nobody waits for the teller, which has not stopped yet, where it is recognised.
void counted_out()
{
    const int all[] = {size};
    const int around[] = {1};
    MPI_Comm ring = MPI_COMM_NULL;
    is(MPI_Cart_create(MPI_COMM_WORLD, 1, all, around, 0, &ring), MPI_SUCCESS, "cart_create");
    MPI_Comm_set_errhandler(ring, MPI_ERRORS_RETURN);
    const int pid = through();
    ft::process::declare_unreachable(name_of(teller));
    int count = 0;
    for (const MPI_Comm comm : {MPI_COMM_WORLD, ring}) {
        is(MPI_Comm_validate_all(comm, &count), MPI_SUCCESS, "validate_all");
        that(count == 1, "%d failures", count);
    }
    hear();
    int values[] = {0, 0};
    MPI_Comm copy = MPI_COMM_NULL;
    if (!is(MPI_Neighbor_allgather(&me, 1, MPI_INT, values, 1, MPI_INT, ring), MPI_SUCCESS,
            "neighbor_allgather")) {
        MPIX_Comm_revoke(ring); // the victim waits in it
    }
    if (!is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier among the others")) {
        MPIX_Comm_revoke(MPI_COMM_WORLD);
    } else {
        is(MPI_Comm_dup(MPI_COMM_WORLD, &copy), MPI_SUCCESS, "dup");
        is(MPI_Barrier(copy), MPI_SUCCESS, "barrier of the copy");
    }
    if (me == 0) {
        kill(pid, SIGKILL);
    }
}

} // namespace

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const std::string what = argc > 1 ? argv[1] : "";
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
    if (what == "dies") {
        teller_dies();
    } else if (what == "heard") {
        heard_only();
    } else if (what == "beside") {
        beside();
    } else if (what == "across") {
        across();
    } else if (what == "meanwhile") {
        meanwhile();
    } else {
        counted_out();
    }
    return finish();
}

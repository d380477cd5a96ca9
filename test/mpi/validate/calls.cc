// Calls that the other programs of this folder leave out.
//
// usage: calls failures       rank 1 of at least four dies: local recognition, groups of failed
//                             ranks, communicators made and freed meanwhile
//        calls threads        two threads validate a communicator each, rank 1 dies meanwhile
//        calls unsupported    MPI_COMM_NULL, null pointers, ranks that are none: errors
//        calls early          a call before MPI_Init: ends the program
//        calls calm           validates, whatever the PML
//        calls other_pml      rank 1 dies, over a PML that knows nothing of failures
//        calls revoker        rank 1 dies when it has told one other that it revokes
//        calls wronged        rank 0 suspects rank 1, which lives
//        calls cut            rank 1 lives, nobody finds a way to it: rank 0 says so first
//        calls kept           MPI_COMM_WORLD and MPI_COMM_SELF are freed in vain
//        calls own_types      rank 1 dies; non-blocking collectives with datatypes and an operation
//                             of the program's own, before, meanwhile and after
//        calls fatal          rank 1 dies, and the error handler is MPI_ERRORS_ARE_FATAL
#include "ompi/mca/ompi_prelude.hpp"

#include "check.hpp"
#include "opal/process/standing.hpp"

#include <atomic>
#include <cstring>
#include <thread>

using namespace check;

namespace {

constexpr int victim = 1;

std::set<int> ranks_in(MPI_Group group)
{
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    int count = 0;
    MPI_Group_size(group, &count);
    std::set<int> ranks;
    for (int i = 0; i < count; ++i) {
        int rank = MPI_UNDEFINED;
        MPI_Group_translate_ranks(group, 1, &i, all, &rank);
        ranks.insert(rank);
    }
    MPI_Group_free(&all);
    return ranks;
}

/// A communicator of all but rank 0, asked for by all.
int create(MPI_Comm comm, MPI_Comm *fresh)
{
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group some = MPI_GROUP_NULL;
    const int none[] = {0};
    MPI_Comm_group(comm, &all);
    MPI_Group_excl(all, 1, none, &some);
    const int code = MPI_Comm_create(comm, some, fresh);
    MPI_Group_free(&all);
    MPI_Group_free(&some);
    return code;
}

void acknowledged(MPI_Comm comm)
{
    MPI_Group group = MPI_GROUP_NULL;
    is(MPIX_Comm_get_failed(comm, &group), MPI_SUCCESS, "get_failed");
    that(ranks_in(group) == std::set<int>{victim}, "get_failed gave others");
    MPI_Group_free(&group);
    int number = -1;
    is(MPIX_Comm_ack_failed(comm, 0, &number), MPI_SUCCESS, "ack_failed of none");
    that(number == 0, "%d acknowledged", number);
    int value = 0;
    is(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 3, comm, MPI_STATUS_IGNORE),
       MPI_ERR_RANK_FAIL_STOP, "receive from any source, nothing acknowledged");
    is(MPIX_Comm_ack_failed(comm, 1, &number), MPI_SUCCESS, "ack_failed");
    that(number == 1, "%d acknowledged", number);
    is(MPIX_Comm_failure_get_acked(comm, &group), MPI_SUCCESS, "failure_get_acked");
    that(ranks_in(group) == std::set<int>{victim}, "failure_get_acked gave others");
    MPI_Group_free(&group);
    // Around the ring of the others, from any source.
    const int right = me + 1 < size ? (me + 1 == victim ? victim + 1 : me + 1) : 0;
    is(MPI_Send(&me, 1, MPI_INT, right, 4, comm), MPI_SUCCESS, "send");
    is(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 4, comm, MPI_STATUS_IGNORE), MPI_SUCCESS,
       "receive from any source, acknowledged");
    is(MPIX_Comm_ack_failed(comm, -1, &number), MPI_ERR_COUNT, "ack_failed of a negative number");
}

void cleared(MPI_Comm comm)
{
    int value = 5;
    is(MPI_Send(&value, 1, MPI_INT, victim, 3, comm), MPI_ERR_RANK_FAIL_STOP, "send to it");
    MPI_Rank_info infos[2] = {{victim, -1, -1}, {0, -1, -1}};
    is(MPI_Comm_validate_clear(comm, 2, infos), MPI_SUCCESS, "validate_clear");
    that(infos[0].state == MPI_RANK_NULL && infos[1].state == MPI_RANK_OK, "states %d and %d",
         infos[0].state, infos[1].state);
    is(MPI_Send(&value, 1, MPI_INT, victim, 3, comm), MPI_SUCCESS, "send to the recognised");
    MPI_Status status;
    is(MPI_Recv(&value, 1, MPI_INT, victim, 3, comm, &status), MPI_SUCCESS, "receive from it");
    that(status.MPI_SOURCE == MPI_PROC_NULL, "source %d", status.MPI_SOURCE);
    is(MPI_Barrier(comm), MPI_ERR_RANK_FAIL_STOP, "barrier, recognised by validate_clear alone");
    infos[0].rank = size;
    is(MPI_Comm_validate_clear(comm, 1, infos), MPI_ERR_RANK, "validate_clear of no rank");
}

void failures_met()
{
    const MPI_Comm first = twin();
    const MPI_Comm second = twin();
    MPI_Comm third = twin();
    all_through({victim});
    if (me == victim) {
        die();
    }
    hear_of(first, {victim});
    acknowledged(first);
    cleared(second);
    // Made and freed while the failure is not recognised: nobody gets one, all can let go.
    MPI_Comm fresh = MPI_COMM_NULL;
    is(create(second, &fresh), MPI_ERR_RANK_FAIL_STOP, "create with a failure");
    that(fresh == MPI_COMM_NULL, "it gave a communicator nevertheless");
    is(MPI_Comm_split(second, 0, me, &fresh), MPI_ERR_RANK_FAIL_STOP, "split with a failure");
    that(fresh == MPI_COMM_NULL, "it gave a communicator nevertheless");
    is(MPI_Comm_free(&third), MPI_SUCCESS, "free with a failure");
    int count = -1;
    is(MPI_Comm_validate_all(second, &count), MPI_SUCCESS, "validate_all");
    that(count == 1, "%d failures", count);
    is(create(second, &fresh), MPI_SUCCESS, "create with a recognised failure");
    that((fresh == MPI_COMM_NULL) == (me == 0), "who is to be in it is not");
    if (fresh != MPI_COMM_NULL) {
        int one = 1;
        int sum = 0;
        is(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, fresh), MPI_SUCCESS, "allreduce");
        that(sum == size - 2, "the sum is %d", sum);
        is(MPI_Comm_free(&fresh), MPI_SUCCESS, "free");
    }
}

/// How often the receive of the agreements' messages is started, and how often without the callback
/// that takes what it receives: another thread may complete it as soon as it is started.
mca_pml_base_module_t behind;
std::atomic<int> started{0};
std::atomic<int> without_callback{0};

int watched_start(std::size_t count, ompi_request_t **requests) noexcept
{
    for (std::size_t i = 0; i < count; ++i) {
        const auto *request = reinterpret_cast<mca_pml_base_request_t *>(requests[i]);
        if (request->req_tag == ft::process::agreement_tag) {
            ++started;
            without_callback += requests[i]->req_complete_cb == nullptr;
        }
    }
    return behind.pml_start(count, requests);
}

int last_isend(const void *buffer, std::size_t count, ompi_datatype_t *type, int to, int tag,
               mca_pml_base_send_mode_t mode, ompi_communicator_t *comm,
               ompi_request_t **request) noexcept
{
    const int rc = behind.pml_isend(buffer, count, type, to, tag, mode, comm, request);
    if (tag == ft::process::agreement_tag) {
        die();
    }
    return rc;
}

/// One has heard of it, and the one that revoked tells nobody else any more.
void revoker_dies()
{
    const MPI_Comm comm = twin();
    all_through({victim});
    if (me == victim) {
        behind = mca_pml;
        mca_pml.pml_isend = last_isend;
        MPIX_Comm_revoke(comm);
        that(false, "it lives");
    }
    for (int revoked = 0; revoked == 0;) { // else the test's deadline ends it
        is(MPIX_Comm_is_revoked(comm, &revoked), MPI_SUCCESS, "is_revoked");
    }
    is(MPI_Barrier(comm), MPIX_ERR_REVOKED, "barrier on a revoked communicator");
}

void two_threads()
{
    behind = mca_pml;
    mca_pml.pml_start = watched_start;
    const MPI_Comm comms[2] = {twin(), twin()};
    const auto run = [&](MPI_Comm comm) {
        int count = 0;
        for (int i = 0; i < 50 || count == 0; ++i) {
            is(MPI_Comm_validate_all(comm, &count), MPI_SUCCESS, "validate_all in a thread");
            if (me == victim && i == 20) {
                die();
            }
        }
        is(MPI_Barrier(comm), MPI_SUCCESS, "barrier in a thread");
    };
    std::thread other(run, comms[1]);
    run(comms[0]);
    other.join();
    that(started > 0 && without_callback == 0, "%d of %d receives had no callback",
         without_callback.load(), started.load());
}

void unsupported()
{
    int count = 0;
    is(MPI_Comm_validate_all(MPI_COMM_NULL, &count), MPI_ERR_COMM, "MPI_COMM_NULL");
    is(MPIX_Comm_agree(MPI_COMM_NULL, &count), MPI_ERR_COMM, "MPI_COMM_NULL");
    is(MPI_Comm_validate_all(MPI_COMM_WORLD, nullptr), MPI_ERR_ARG, "a null pointer");
    MPI_Rank_info info{};
    is(MPI_Comm_validate_rank(MPI_COMM_WORLD, size, &info), MPI_ERR_RANK, "no rank");
    is(MPI_Comm_validate(MPI_COMM_WORLD, -1, &count, &info), MPI_ERR_COUNT, "a negative count");
    is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "afterwards");
}

/// The victim lives, and rank 0 finds no way to it, as pml/dr would say. It must not return from
/// the call that puts it into the set; nobody else may return before it has stopped.
void wronged()
{
    if (me == 0) {
        ft::process::declare_unreachable({OMPI_PROC_MY_NAME->jobid, victim});
    }
    int count = 0;
    while (count == 0) {
        is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "validate_all");
        that(me != victim || count == 0, "the wronged process returned");
    }
    that(failed(MPI_COMM_WORLD) == std::set<int>{victim}, "the set is %s",
         text_of(failed(MPI_COMM_WORLD)).c_str());
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier among the others");
}

/// Nobody reaches the victim, which lives and cannot be told to stop. Rank 0 finds that out first
/// and says so; the others find it out themselves when they have heard it.
void cut_off()
{
    int pid = getpid();
    if (me == victim) {
        is(MPI_Send(&pid, 1, MPI_INT, 0, 8, MPI_COMM_WORLD), MPI_SUCCESS, "send");
        while (true) {
            pause(); // outside MPI
        }
    }
    if (me == 0) {
        is(MPI_Recv(&pid, 1, MPI_INT, victim, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS,
           "receive");
    }
    while (me != 0 && ft::process::unreachable().empty()) {
        opal_progress();
    }
    that(ft::process::declare_unreachable({OMPI_PROC_MY_NAME->jobid, victim}),
         "what was heard keeps from finding it");
    int count = 0;
    is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "validate_all");
    that(count == 1, "%d failures", count);
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier among the others");
    if (me == 0) {
        kill(pid, SIGKILL);
    }
}

/// The letters of every agreement come on MPI_COMM_WORLD, also when somebody has tried to free it.
void kept()
{
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (const MPI_Comm comm : {MPI_COMM_WORLD, MPI_COMM_SELF}) {
        MPI_Comm copy = comm;
        is(MPI_Comm_free(&copy), MPI_ERR_COMM, "free");
        copy = comm;
        is(MPI_Comm_disconnect(&copy), MPI_ERR_COMM, "disconnect");
    }
    MPI_Comm fresh = twin();
    is(MPI_Barrier(fresh), MPI_SUCCESS, "barrier");
    is(MPI_Comm_free(&fresh), MPI_SUCCESS, "free of a copy");
}

/// A communicator without an error handler of its own: the program ends at the first error.
void fatal()
{
    MPI_Comm comm = twin();
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
    all_through({victim});
    if (me == victim) {
        die();
    }
    while (MPI_Barrier(comm) == MPI_SUCCESS) {
    }
    std::printf("rank %d goes on\n", me);
}

/// A death over a PML that cannot end what waits for it: what agrees works, and so do collectives
/// that begin after it. Its error classes are known to MPI over this PML too.
void over_another_pml()
{
    all_through({victim});
    if (me == victim) {
        die();
    }
    hear_of(MPI_COMM_WORLD, {victim});
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_ERR_RANK_FAIL_STOP, "barrier before validation");
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    is(MPI_Error_string(MPIX_ERR_REVOKED, text, &length), MPI_SUCCESS, "error string");
    that(std::strstr(text, "MPIX_ERR_REVOKED") != nullptr, "the error's text is %s", text);
    int count = 0;
    is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "validate_all");
    that(count == 1, "%d failures", count);
    that(failed(MPI_COMM_WORLD) == std::set<int>{victim}, "another set");
    MPI_Request request = MPI_REQUEST_NULL;
    is(MPI_Icomm_validate_all(MPI_COMM_WORLD, &count, &request), MPI_SUCCESS, "ivalidate_all");
    is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, "wait");
    int flag = me == 0 ? 6 : 3;
    const int code = MPIX_Comm_agree(MPI_COMM_WORLD, &flag);
    that(code == MPIX_ERR_PROC_FAILED || code == MPI_SUCCESS, "agree: %d", code);
    that(flag == 2, "the flags are %d", flag);
    int one = 1;
    int sum = 0;
    is(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD), MPI_SUCCESS, "allreduce");
    that(sum == size - 1, "the sum is %d", sum);
    MPI_Comm left = MPI_COMM_NULL;
    is(MPIX_Comm_shrink(MPI_COMM_WORLD, &left), MPI_SUCCESS, "shrink");
    is(MPI_Barrier(left), MPI_SUCCESS, "barrier of the shrunk");
    is(MPI_Comm_free(&left), MPI_SUCCESS, "free");
}

void calm()
{
    int count = -1;
    is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "validate_all");
    that(count == 0, "%d failures", count);
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
}

/// Two ints with a gap between them.
MPI_Datatype pair_type()
{
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_vector(2, 1, 2, MPI_INT, &type);
    MPI_Type_commit(&type);
    return type;
}

constexpr int pair_length = 3;

MPI_Request start_bcast(int *pair, int root)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Datatype type = pair_type();
    is(MPI_Ibcast(pair, 1, type, root, MPI_COMM_WORLD, &request), MPI_SUCCESS, "Ibcast");
    MPI_Type_free(&type); // which the request needs on
    return request;
}

/// The others wait for the root for certain: it begins when they have begun.
void bcast_of_pairs(const std::set<int> &alive)
{
    const int root = *alive.begin();
    int token = 0;
    int pair[pair_length] = {-1, -1, -1};
    MPI_Request request = MPI_REQUEST_NULL;
    if (me == root) {
        for (const int rank : alive) {
            if (rank != root) {
                MPI_Recv(&token, 1, MPI_INT, rank, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
        }
        pair[0] = 17;
        pair[2] = 19;
        request = start_bcast(pair, root);
    } else {
        request = start_bcast(pair, root);
        MPI_Send(&token, 1, MPI_INT, root, 6, MPI_COMM_WORLD);
    }
    is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, "wait for Ibcast");
    that(pair[0] == 17 && pair[1] == -1 && pair[2] == 19, "Ibcast: %d %d %d", pair[0], pair[1],
         pair[2]);
}

void add_pairs(void *in, void *inout, int *count, MPI_Datatype * /*type*/)
{
    const int *from = static_cast<int *>(in);
    int *into = static_cast<int *>(inout);
    for (int i = 0; i < *count * pair_length; i += pair_length) {
        into[i] += from[i];
        into[i + 2] += from[i + 2];
    }
}

void allreduce_of_pairs(const std::set<int> &alive)
{
    MPI_Datatype type = pair_type();
    MPI_Op op = MPI_OP_NULL;
    MPI_Op_create(add_pairs, 1, &op);
    const int mine[pair_length] = {1, 0, me};
    int sums[pair_length] = {-1, -1, -1};
    MPI_Request request = MPI_REQUEST_NULL;
    is(MPI_Iallreduce(mine, sums, 1, type, op, MPI_COMM_WORLD, &request), MPI_SUCCESS,
       "Iallreduce");
    MPI_Type_free(&type);
    MPI_Op_free(&op);
    is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, "wait for Iallreduce");
    int ranks = 0;
    for (const int rank : alive) {
        ranks += rank;
    }
    that(sums[0] == static_cast<int>(alive.size()) && sums[2] == ranks, "Iallreduce: %d %d",
         sums[0], sums[2]);
}

void alltoall_of_pairs(const std::set<int> &alive)
{
    const auto all = static_cast<std::size_t>(size);
    std::vector<MPI_Datatype> types(all);
    std::vector<int> counts(all, 1);
    std::vector<int> places(all);
    std::vector<int> sent(all * pair_length, me);
    std::vector<int> got(all * pair_length, -1);
    for (std::size_t rank = 0; rank < all; ++rank) {
        types[rank] = pair_type();
        places[rank] = static_cast<int>(rank * pair_length * sizeof(int));
    }
    MPI_Request request = MPI_REQUEST_NULL;
    is(MPI_Ialltoallw(sent.data(), counts.data(), places.data(), types.data(), got.data(),
                      counts.data(), places.data(), types.data(), MPI_COMM_WORLD, &request),
       MPI_SUCCESS, "Ialltoallw");
    const std::vector<MPI_Datatype> lent = types; // MPI may look at them until it is done
    for (MPI_Datatype type : lent) {
        MPI_Type_free(&type);
    }
    is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, "wait for Ialltoallw");
    for (int rank = 0; rank < size; ++rank) {
        const int *block = &got[static_cast<std::size_t>(rank) * pair_length];
        const int wanted = alive.count(rank) != 0 ? rank : -1;
        that(block[0] == wanted && block[1] == -1 && block[2] == wanted, "Ialltoallw: rank %d: %d",
             rank, block[0]);
    }
}

void own_types()
{
    std::set<int> alive;
    for (int rank = 0; rank < size; ++rank) {
        alive.insert(rank);
    }
    const auto all = [&] {
        for (int i = 0; i < 5; ++i) {
            bcast_of_pairs(alive);
            allreduce_of_pairs(alive);
            alltoall_of_pairs(alive);
        }
    };
    all();
    // It dies when all others wait for it.
    int token = 0;
    if (me == victim) {
        for (int rank = 0; rank < size; ++rank) {
            if (rank != me) {
                MPI_Recv(&token, 1, MPI_INT, rank, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
        }
        die();
    }
    int pair[pair_length] = {};
    MPI_Request request = start_bcast(pair, victim);
    MPI_Send(&token, 1, MPI_INT, victim, 7, MPI_COMM_WORLD);
    is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_RANK_FAIL_STOP, "wait for the dead root");
    int count = -1;
    is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "validate_all");
    that(count == 1, "%d failures", count);
    alive.erase(victim);
    all();
}

} // namespace

int main(int argc, char **argv)
{
    const std::string what = argc > 1 ? argv[1] : "failures";
    if (what == "early") {
        int count = 0;
        MPI_Comm_validate_all(MPI_COMM_WORLD, &count);
        return 0;
    }
    int provided = 0;
    MPI_Init_thread(&argc, &argv, what == "threads" ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE,
                    &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
    if (what == "threads") {
        that(provided == MPI_THREAD_MULTIPLE, "threads are not provided");
        two_threads();
    } else if (what == "unsupported") {
        unsupported();
    } else if (what == "calm") {
        calm();
    } else if (what == "wronged") {
        wronged();
    } else if (what == "cut") {
        cut_off();
    } else if (what == "kept") {
        kept();
    } else if (what == "revoker") {
        revoker_dies();
    } else if (what == "own_types") {
        own_types();
    } else if (what == "fatal") {
        fatal();
    } else if (what == "other_pml") {
        over_another_pml();
    } else {
        failures_met();
    }
    return finish();
}

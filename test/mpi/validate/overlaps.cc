// Several calls under way on one communicator, and what becomes of them when it is freed.
//
// usage: overlaps pairs   a call tries once more at rank 0 while rank 1 waits for its first attempt
//        overlaps order   rank 1 hears of a later call's decision first
//        overlaps verdicts rank 2 dies; one call makes a communicator, the next recognises it
//        overlaps freed   rank 2 dies; calls are under way on a communicator that is freed
//        overlaps many    communicators by the hundred, one after another and several at once
//        overlaps several a call on each of several communicators at once
//        overlaps exhausted until there is no context id left; then rank 2 dies
//        overlaps replaced ranks 2 and 3 die; a collective is under way among the survivors of one
//        overlaps handles requests that Fortran has a handle of
#include "ompi/mca/ompi_prelude.hpp"

#include "check.hpp"
#include "opal/ft/consensus/message.hpp"
#include "opal/process/standing.hpp"

#include <dlfcn.h>

#include <cstring>
#include <mutex>
#include <optional>
#include <span>

using namespace check;

namespace {

constexpr int held_back = 1; ///< rank that does not hear of a decision for a while
constexpr int victim = 2;

/// Rank 0 is the root along the tree: what it sends with this stage is a decision.
bool is_decision(const ft::consensus::Message &message)
{
    return message.kind != ft::consensus::Kind::exchange ||
           message.stage == ft::consensus::Stage::commit;
}

/// Keeps the letters of one agreement from `held_back`, from the moment at which it would be
/// decided there. Agreements are counted from the first that sends a letter.
struct Hold {
    std::uint32_t which = 0;   ///< 0: the first
    std::uint32_t release = 0; ///< lets them go itself when this one is decided; 0: never
    std::optional<std::uint32_t> first;
    std::uint32_t decided = 0; ///< how many of the first attempts that are not held
    std::vector<std::vector<char>> letters;
};
Hold hold;
mca_pml_base_module_t behind;

void post(const std::vector<char> &letter)
{
    is(behind.pml_send(letter.data(), letter.size(), &ompi_mpi_byte.dt, held_back,
                       ft::process::agreement_tag, MCA_PML_BASE_SEND_STANDARD,
                       &ompi_mpi_comm_world.comm),
       MPI_SUCCESS, "send of a letter");
}

void let_go()
{
    mca_pml.pml_isend = behind.pml_isend;
    for (const std::vector<char> &letter : hold.letters) {
        post(letter);
    }
    hold.letters.clear();
}

int holding_isend(const void *buffer, std::size_t count, ompi_datatype_t *type, int to, int tag,
                  mca_pml_base_send_mode_t mode, ompi_communicator_t *comm,
                  ompi_request_t **request) noexcept
{
    constexpr std::size_t envelope = 16;
    std::optional<ft::consensus::Message> message;
    if (tag == ft::process::agreement_tag && to == held_back && count > envelope) {
        const auto *bytes = static_cast<const std::byte *>(buffer);
        message = ft::consensus::decode({bytes + envelope, count - envelope},
                                        static_cast<ft::consensus::Rank>(size));
    }
    if (message) {
        hold.first = hold.first.value_or(message->instance.sequence);
        const std::uint32_t number = message->instance.sequence - *hold.first;
        if (number == hold.which && message->instance.context == 0 && is_decision(*message)) {
            const char *letter = static_cast<const char *>(buffer);
            hold.letters.emplace_back(letter, letter + count);
            *request = &ompi_request_empty;
            return OMPI_SUCCESS;
        }
    }
    const int rc = behind.pml_isend(buffer, count, type, to, tag, mode, comm, request);
    if (message && is_decision(*message)) {
        ++hold.decided;
        if (hold.release != 0 && message->instance.sequence - *hold.first == hold.release) {
            let_go();
        }
    }
    return rc;
}

/// At rank 0, once all are through with what went before.
void hold_back(std::uint32_t which, std::uint32_t release)
{
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
    if (me == 0) {
        hold = {which, release, {}, 0, {}};
        behind = mca_pml;
        mca_pml.pml_isend = holding_isend;
    }
}

/// All have got the same communicator, and can use it.
void same_everywhere(MPI_Comm comm, const char *what)
{
    const int mine = static_cast<int>(comm->c_contextid);
    std::vector<int> all(static_cast<std::size_t>(size));
    MPI_Allgather(&mine, 1, MPI_INT, all.data(), 1, MPI_INT, MPI_COMM_WORLD);
    for (const int other : all) {
        that(other == mine, "%s has context id %d here and %d elsewhere", what, mine, other);
    }
    if (std::set<int>(all.begin(), all.end()).size() == 1) {
        is(MPI_Barrier(comm), MPI_SUCCESS, "barrier on the new communicator");
    }
}

/// The second call finds no context id, since the first one has offered all of them: it tries once
/// more as soon as that is decided. Rank 0 knows it, rank 1 does not and makes its third call.
void pairs()
{
    hold_back(1, 2);
    MPI_Comm comms[3] = {MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL};
    MPI_Request requests[2];
    is(MPI_Comm_idup(MPI_COMM_WORLD, &comms[0], &requests[0]), MPI_SUCCESS, "idup");
    is(MPI_Comm_idup(MPI_COMM_WORLD, &comms[1], &requests[1]), MPI_SUCCESS, "idup");
    if (me == 0) { // both are decided here
        while (hold.letters.empty()) {
            opal_progress();
        }
    }
    is(MPI_Comm_dup(MPI_COMM_WORLD, &comms[2]), MPI_SUCCESS, "dup");
    is(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS, "waitall");
    const char *const names[] = {"the first idup", "the second idup", "dup"};
    for (int i = 0; i < 3; ++i) {
        same_everywhere(comms[i], names[i]);
        is(MPI_Comm_free(&comms[i]), MPI_SUCCESS, "free");
    }
}

/// Rank 1 hears of the second call's decision first: neither is over before the first one is.
void order()
{
    hold_back(0, 0);
    MPI_Comm fresh = MPI_COMM_NULL;
    int count = -1;
    int token = 0;
    MPI_Request requests[2];
    is(MPI_Comm_idup(MPI_COMM_WORLD, &fresh, &requests[0]), MPI_SUCCESS, "idup");
    is(MPI_Icomm_validate_all(MPI_COMM_WORLD, &count, &requests[1]), MPI_SUCCESS, "ivalidate_all");
    if (me == 0) {
        while (hold.decided == 0) {
            opal_progress();
        }
        // Behind the letters that rank 1 has got.
        is(MPI_Send(&token, 1, MPI_INT, held_back, 2, MPI_COMM_WORLD), MPI_SUCCESS, "send");
        is(MPI_Recv(&token, 1, MPI_INT, held_back, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
           MPI_SUCCESS, "receive");
        let_go();
    } else if (me == held_back) {
        is(MPI_Recv(&token, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS,
           "receive");
        int over[2] = {0, 0};
        for (int i = 1; i >= 0; --i) {
            MPI_Test(&requests[i], &over[i], MPI_STATUS_IGNORE);
        }
        that(over[0] == 0, "the first call has not been held");
        that(over[1] == 0, "the second call is over before the first one");
        is(MPI_Send(&token, 1, MPI_INT, 0, 2, MPI_COMM_WORLD), MPI_SUCCESS, "send");
    }
    is(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS, "waitall");
    that(fresh != MPI_COMM_NULL && count == 0, "%d failures", count);
    is(MPI_Comm_free(&fresh), MPI_SUCCESS, "free");
}

/// All but the victim know that it has died, and nobody has agreed on it.
void lose_victim()
{
    all_through({victim});
    if (me == victim) {
        die();
    }
    hear_of(MPI_COMM_WORLD, {victim});
}

/// A communicator fails to be made, because of a failure that the next call recognises. By then it
/// may be that the one that fails has not been told of yet.
void verdicts()
{
    constexpr int rounds = 20;
    MPI_Comm comms[rounds];
    for (MPI_Comm &comm : comms) {
        is(MPI_Comm_dup(MPI_COMM_WORLD, &comm), MPI_SUCCESS, "dup");
    }
    lose_victim();
    for (MPI_Comm &comm : comms) {
        MPI_Comm fresh = MPI_COMM_NULL;
        int count = -1;
        MPI_Request requests[2];
        is(MPI_Comm_idup(comm, &fresh, &requests[0]), MPI_SUCCESS, "idup");
        is(MPI_Icomm_validate_all(comm, &count, &requests[1]), MPI_SUCCESS, "ivalidate_all");
        is(MPI_Wait(&requests[1], MPI_STATUS_IGNORE), MPI_SUCCESS, "wait for ivalidate_all");
        is(MPI_Wait(&requests[0], MPI_STATUS_IGNORE), MPI_ERR_RANK_FAIL_STOP, "wait for idup");
        that(fresh == MPI_COMM_NULL && count == 1, "%d failures", count);
        is(MPI_Barrier(comm), MPI_SUCCESS, "barrier among the survivors");
    }
}

int handled = 0;

void count_error(MPI_Comm *comm, int *code, ...)
{
    char name[MPI_MAX_OBJECT_NAME] = "";
    int length = 0;
    MPI_Comm_get_name(*comm, name, &length);
    that(std::strcmp(name, "freed") == 0, "an error of %s", name);
    is(*code, MPI_ERR_RANK_FAIL_STOP, "error handler");
    ++handled;
}

/// Rank 0 calls last, when the others have freed it, and others more.
void free_pending(MPI_Comm comm, int failures, std::vector<MPI_Comm> others)
{
    int token = 0;
    for (int rank = 1; me == 0 && rank < size; ++rank) {
        if (rank != victim) {
            is(MPI_Recv(&token, 1, MPI_INT, rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
               MPI_SUCCESS, "receive");
        }
    }
    handled = 0;
    MPI_Comm fresh = MPI_COMM_NULL;
    int count = -1;
    int flag = 1;
    MPI_Request requests[3];
    is(MPI_Comm_idup(comm, &fresh, &requests[0]), MPI_SUCCESS, "idup");
    is(MPI_Icomm_validate_all(comm, &count, &requests[1]), MPI_SUCCESS, "ivalidate_all");
    is(MPIX_Comm_iagree(comm, &flag, &requests[2]), MPI_SUCCESS, "iagree");
    is(MPI_Comm_free(&comm), MPI_SUCCESS, "free");
    for (MPI_Comm &one : others) {
        is(MPI_Comm_free(&one), MPI_SUCCESS, "free");
    }
    if (me != 0) {
        is(MPI_Send(&token, 1, MPI_INT, 0, 2, MPI_COMM_WORLD), MPI_SUCCESS, "send");
    }
    is(MPI_Wait(&requests[1], MPI_STATUS_IGNORE), MPI_SUCCESS, "wait for ivalidate_all");
    that(count == failures, "%d failures", count);
    is(MPI_Wait(&requests[2], MPI_STATUS_IGNORE), MPIX_ERR_PROC_FAILED, "wait for iagree");
    is(MPI_Wait(&requests[0], MPI_STATUS_IGNORE), MPI_ERR_RANK_FAIL_STOP, "wait for idup");
    that(handled == 2, "the error handler was called %d times", handled);
}

/// What is under way on a communicator goes on when it is freed, and its errors are the
/// communicator's.
void freed()
{
    MPI_Comm comms[2] = {MPI_COMM_NULL, MPI_COMM_NULL};
    MPI_Comm half = MPI_COMM_NULL;
    is(MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]), MPI_SUCCESS, "dup");
    const int side = me % 2;
    is(MPI_Comm_split(MPI_COMM_WORLD, side, me, &half), MPI_SUCCESS, "split");
    is(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - side, 3, &comms[1]), MPI_SUCCESS,
       "intercomm_create");
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_create_errhandler(count_error, &handler);
    for (MPI_Comm comm : comms) {
        MPI_Comm_set_name(comm, "freed");
        MPI_Comm_set_errhandler(comm, handler);
    }
    std::vector<MPI_Comm> many(20, half);
    for (MPI_Comm &one : many) {
        is(MPI_Comm_dup(MPI_COMM_WORLD, &one), MPI_SUCCESS, "dup");
    }
    lose_victim();
    free_pending(comms[0], 1, many);
    free_pending(comms[1], victim % 2 == side ? 0 : 1, {half});
    // Then it goes: no context id is left that a communicator has.
    int count = -1;
    is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "validate_all");
    for (int i = 16384; i < opal_pointer_array_get_size(&ompi_mpi_communicators); ++i) {
        while (opal_pointer_array_get_item(&ompi_mpi_communicators, i) != nullptr) {
            opal_progress(); // else the test's deadline ends it
        }
    }
    MPI_Errhandler_free(&handler);
}

int letters = 0;

int counting_isend(const void *buffer, std::size_t count, ompi_datatype_t *type, int to, int tag,
                   mca_pml_base_send_mode_t mode, ompi_communicator_t *comm,
                   ompi_request_t **request) noexcept
{
    letters += tag == ft::process::agreement_tag;
    return behind.pml_isend(buffer, count, type, to, tag, mode, comm, request);
}

/// How many letters it takes this process to make and free communicators, one after another.
int letters_for(MPI_Comm comm, int times)
{
    const int before = letters;
    for (int i = 0; i < times; ++i) {
        MPI_Comm fresh = MPI_COMM_NULL;
        is(MPI_Comm_dup(comm, &fresh), MPI_SUCCESS, "dup");
        is(MPI_Comm_free(&fresh), MPI_SUCCESS, "free");
    }
    return letters - before;
}

/// The two hundredth communicator takes no more agreements than the first, nor does its child; and
/// calls that overlap begin to look for ids in the same place, whoever knows how the one before
/// ended.
void many()
{
    behind = mca_pml;
    mca_pml.pml_isend = counting_isend;
    const int first = letters_for(MPI_COMM_WORLD, 10);
    letters_for(MPI_COMM_WORLD, 185);
    const int last = letters_for(MPI_COMM_WORLD, 10);
    that(last == first, "%d letters for the first ten, %d for the last", first, last);
    MPI_Comm child = MPI_COMM_NULL;
    is(MPI_Comm_dup(MPI_COMM_WORLD, &child), MPI_SUCCESS, "dup");
    const int below = letters_for(child, 10);
    that(below == first, "%d letters for the first ten, %d for a child's", first, below);
    is(MPI_Comm_free(&child), MPI_SUCCESS, "free");
    mca_pml.pml_isend = behind.pml_isend;
    for (int i = 0; i < 40; ++i) { // over the end of a window
        MPI_Comm comms[3] = {MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL};
        MPI_Request requests[2];
        for (int k = 0; k < 2; ++k) {
            is(MPI_Comm_idup(MPI_COMM_WORLD, &comms[k], &requests[k]), MPI_SUCCESS, "idup");
            for (int pass = 0; pass < (i * size + me) * 7 % 31; ++pass) {
                opal_progress(); // some know already, and others do not
            }
        }
        is(MPI_Comm_dup(MPI_COMM_WORLD, &comms[2]), MPI_SUCCESS, "dup");
        is(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS, "waitall");
        for (MPI_Comm &comm : comms) {
            same_everywhere(comm, "one of many");
            is(MPI_Comm_free(&comm), MPI_SUCCESS, "free");
        }
    }
}

/// Calls on several communicators at once find their ids apart from each other, in whatever order
/// each process comes to them.
void several()
{
    constexpr int count = 4;
    MPI_Comm comms[count];
    for (MPI_Comm &comm : comms) {
        is(MPI_Comm_dup(MPI_COMM_WORLD, &comm), MPI_SUCCESS, "dup");
    }
    for (int round = 0; round < 500; ++round) {
        MPI_Comm copies[count];
        MPI_Request requests[count];
        for (int i = 0; i < count; ++i) {
            is(MPI_Comm_idup(comms[i], &copies[i], &requests[i]), MPI_SUCCESS, "idup");
        }
        is(MPI_Waitall(count, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS, "waitall");
        for (MPI_Comm &copy : copies) {
            is(MPI_Comm_free(&copy), MPI_SUCCESS, "free");
        }
    }
    for (MPI_Comm &comm : comms) {
        is(MPI_Comm_free(&comm), MPI_SUCCESS, "free");
    }
}

/// The PML can tell so many contexts apart, and no more.
void exhausted()
{
    constexpr int ids = 100;
    mca_pml.pml_max_contextid = 16384 + ids - 1;
    letters_for(MPI_COMM_WORLD, ids);
    MPI_Comm fresh = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    is(MPI_Comm_dup(MPI_COMM_WORLD, &fresh), MPI_ERR_INTERN, "dup without ids");
    that(fresh == MPI_COMM_NULL, "it gave a communicator nevertheless");
    is(MPI_Comm_idup(MPI_COMM_WORLD, &fresh, &request), MPI_SUCCESS, "idup");
    is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_INTERN, "idup without ids");
    is(MPIX_Comm_shrink(MPI_COMM_WORLD, &fresh), MPI_ERR_INTERN, "shrink without ids");
    int count = -1;
    is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "validate_all");
    lose_victim();
    is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_ERR_INTERN, "validate_all without ids");
}

/// What rank 1 is told of deaths, as long as it is kept.
std::mutex keeping; ///< another thread may tell
bool keeps_deaths = false;
std::vector<ft::process::Death> kept_deaths;

void keep_deaths(bool keeps)
{
    std::vector<ft::process::Death> now;
    {
        const std::lock_guard lock(keeping);
        keeps_deaths = keeps;
        now.swap(kept_deaths);
    }
    for (const ft::process::Death &death : now) {
        ft::process::declare_dead(death);
    }
}

/// Rank 1 recognises a failure that it has not been told of, with a collective under way among
/// those who were the survivors before. That ends with an error, whenever it began.
void replaced()
{
    constexpr int second_victim = 3;
    lose_victim();
    int count = -1;
    is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "validate_all");
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
    keep_deaths(me == held_back);
    MPI_Request request = MPI_REQUEST_NULL;
    if (me != 0) { // so it does not end
        is(MPI_Ibarrier(MPI_COMM_WORLD, &request), MPI_SUCCESS, "ibarrier");
    }
    all_through({second_victim});
    if (me == second_victim) {
        die();
    }
    if (me != held_back) {
        hear_of(MPI_COMM_WORLD, {second_victim});
    }
    is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "validate_all");
    that(count == 2, "%d failures", count);
    if (me != 0) {
        is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_RANK_FAIL_STOP, "wait for ibarrier");
    }
    keep_deaths(false);
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier among those who are left");
}

/// What a Fortran program names a request by is a place in a table.
void handles()
{
    for (const bool waits : {true, false}) {
        int count = 0;
        MPI_Request request = MPI_REQUEST_NULL;
        is(MPI_Icomm_validate_all(MPI_COMM_WORLD, &count, &request), MPI_SUCCESS, "ivalidate_all");
        const MPI_Fint handle = MPI_Request_c2f(request);
        if (waits) {
            is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, "wait");
        } else {
            is(MPI_Request_free(&request), MPI_SUCCESS, "request_free");
            is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "validate_all");
        }
        that(opal_pointer_array_get_item(&ompi_request_f_to_c_table, handle) == nullptr,
             "handle %d is still a request", static_cast<int>(handle));
    }
}

} // namespace

/// In front of the library's own: rank 1 is told later.
bool ft::process::declare_dead(const Death &death) noexcept
{
    {
        const std::lock_guard lock(keeping);
        if (keeps_deaths) {
            kept_deaths.push_back(death);
            return true;
        }
    }
    static const auto own = reinterpret_cast<decltype(&declare_dead)>(
        dlsym(RTLD_NEXT, "_ZN2ft7process12declare_deadERKNS0_5DeathE"));
    return own(death);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const std::string what = argc > 1 ? argv[1] : "pairs";
    if (what == "pairs") {
        pairs();
    } else if (what == "order") {
        order();
    } else if (what == "verdicts") {
        verdicts();
    } else if (what == "freed") {
        freed();
    } else if (what == "many") {
        many();
    } else if (what == "several") {
        several();
    } else if (what == "exhausted") {
        exhausted();
    } else if (what == "replaced") {
        replaced();
    } else if (what == "handles") {
        handles();
    }
    return finish();
}

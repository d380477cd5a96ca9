// Whoever has returned from an agreement is asked about it by those who have lost the way by which
// they were to hear of it; however much it has done since.
//
// usage: asks freed      rank 0 has freed the communicator, and many others
//        asks under_way  rank 0 has begun many others
//        asks wrapped    the numbers of calls begin again at 0
//        asks gone       a communicator is gone when a letter about it comes
//        asks again      the same when another communicator has its name by then
//        asks late       a revocation comes between a collective and its communicator of survivors
//        asks numbers    nothing is kept of communicators that nobody can ask about
//
// Four ranks in a row: each hears from the one before (algorithm tree, fan_out 1). Rank 1 dies.
#include "ompi/mca/ompi_prelude.hpp"

#include "check.hpp"
#include "ompi/mpi_ft/service.hpp"
#include "opal/ft/consensus/message.hpp"

#include <cstring>

using namespace check;

namespace {

constexpr int middle = 1;
constexpr int token_tag = 2;
mca_pml_base_module_t behind;
std::vector<char> held; ///< the last letter that was not sent

bool is_decision(const char *letter, std::size_t count)
{
    constexpr std::size_t envelope = 16;
    const auto *bytes = reinterpret_cast<const std::byte *>(letter);
    const auto message = count <= envelope
                             ? std::nullopt
                             : ft::consensus::decode({bytes + envelope, count - envelope},
                                                     static_cast<ft::consensus::Rank>(size));
    return message && (message->kind != ft::consensus::Kind::exchange ||
                       message->stage == ft::consensus::Stage::commit);
}

template <class Which>
int without(Which which, const void *buffer, std::size_t count, ompi_datatype_t *type, int to,
            int tag, mca_pml_base_send_mode_t mode, ompi_communicator_t *comm,
            ompi_request_t **request)
{
    const char *letter = static_cast<const char *>(buffer);
    if (tag == ft::process::agreement_tag && which(letter, count, to)) {
        held.assign(letter, letter + count);
        *request = &ompi_request_empty;
        return OMPI_SUCCESS;
    }
    return behind.pml_isend(buffer, count, type, to, tag, mode, comm, request);
}

int without_decisions(const void *buffer, std::size_t count, ompi_datatype_t *type, int to, int tag,
                      mca_pml_base_send_mode_t mode, ompi_communicator_t *comm,
                      ompi_request_t **request) noexcept
{
    const auto below = [](const char *letter, std::size_t length, int rank) {
        return rank > middle && is_decision(letter, length);
    };
    return without(below, buffer, count, type, to, tag, mode, comm, request);
}

int without_letters(const void *buffer, std::size_t count, ompi_datatype_t *type, int to, int tag,
                    mca_pml_base_send_mode_t mode, ompi_communicator_t *comm,
                    ompi_request_t **request) noexcept
{
    const auto all = [](const char *, std::size_t, int) { return true; };
    return without(all, buffer, count, type, to, tag, mode, comm, request);
}

void put_in_front(mca_pml_base_module_isend_fn_t isend)
{
    behind = mca_pml;
    mca_pml.pml_isend = isend;
}

void send_token(int to)
{
    int token = 0;
    is(MPI_Send(&token, 1, MPI_INT, to, token_tag, MPI_COMM_WORLD), MPI_SUCCESS, "send");
}

void await_token(int from)
{
    int token = 0;
    is(MPI_Recv(&token, 1, MPI_INT, from, token_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
       MPI_SUCCESS, "receive");
}

/// Rank 1 does not hand on that all have agreed, and dies when rank 0 says so.
void silence_middle()
{
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
    if (me == middle) {
        put_in_front(without_decisions);
    }
}

void end_middle()
{
    if (me == 0) {
        send_token(middle);
    } else if (me == middle) {
        await_token(0);
        die();
    }
}

void free_many(MPI_Comm comm, int times)
{
    for (int i = 0; i < times; ++i) {
        MPI_Comm fresh = MPI_COMM_NULL;
        int count = 0;
        is(MPI_Comm_dup(comm, &fresh), MPI_SUCCESS, "dup");
        is(MPI_Comm_validate_all(fresh, &count), MPI_SUCCESS, "validate_all of one of many");
        is(MPI_Comm_free(&fresh), MPI_SUCCESS, "free");
    }
}

MPI_Comm upper_half()
{
    MPI_Comm half = MPI_COMM_NULL;
    is(MPI_Comm_split(MPI_COMM_WORLD, me <= middle ? 0 : MPI_UNDEFINED, me, &half), MPI_SUCCESS,
       "split");
    return half;
}

void freed()
{
    MPI_Comm comm = MPI_COMM_NULL;
    is(MPI_Comm_dup(MPI_COMM_WORLD, &comm), MPI_SUCCESS, "dup");
    MPI_Comm half = upper_half();
    silence_middle();
    int count = -1;
    is(MPI_Comm_validate_all(comm, &count), MPI_SUCCESS, "validate_all");
    that(count == 0, "%d failures", count);
    is(MPI_Comm_free(&comm), MPI_SUCCESS, "free");
    if (me <= middle) {
        free_many(half, 20);
        free_many(MPI_COMM_SELF, 20);
    }
    end_middle();
    for (int rank = middle + 1; me == 0 && rank < size; ++rank) {
        await_token(rank);
    }
    if (me != 0) {
        send_token(0);
    }
}

/// As long as it takes for a word to go through the row and back, several times.
void pass_through_row()
{
    for (int i = 0; i < 5; ++i) {
        for (const bool up : {true, false}) {
            const int from = up ? me + 1 : me - 1;
            const int to = up ? me - 1 : me + 1;
            if (from >= 0 && from < size) {
                await_token(from);
            }
            if (to >= 0 && to < size) {
                send_token(to);
            }
        }
    }
}

void under_way()
{
    constexpr int calls = 25;
    silence_middle();
    int flags[calls];
    int codes[calls];
    MPI_Request requests[calls];
    for (int i = 0; i < calls; ++i) {
        if (i == calls - 1) {
            pass_through_row(); // so the others have been decided, if it were not for rank 1
        }
        flags[i] = 1;
        is(MPIX_Comm_iagree(MPI_COMM_WORLD, &flags[i], &requests[i]), MPI_SUCCESS, "iagree");
    }
    end_middle();
    for (int i = 0; i < calls; ++i) {
        codes[i] = MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        codes[i] = codes[i] == MPI_SUCCESS ? MPI_SUCCESS : class_of(codes[i]);
        that(flags[i] == 1, "flag %d", flags[i]);
        that(codes[i] == MPI_SUCCESS || codes[i] == MPIX_ERR_PROC_FAILED, "class %d", codes[i]);
    }
    for (int rank = middle + 1; me == 0 && rank < size; ++rank) {
        int its[calls];
        is(MPI_Recv(its, calls, MPI_INT, rank, token_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
           MPI_SUCCESS, "receive");
        that(std::memcmp(its, codes, sizeof codes) == 0, "rank %d has other results", rank);
    }
    if (me != 0) {
        is(MPI_Send(codes, calls, MPI_INT, 0, token_tag, MPI_COMM_WORLD), MPI_SUCCESS, "send");
    }
}

/// Each rank is ahead of the one before, to which it sends letters of calls that are not made
/// there.
void wrapped()
{
    constexpr int calls = 40;
    MPI_Comm comm = MPI_COMM_NULL;
    is(MPI_Comm_dup(MPI_COMM_WORLD, &comm), MPI_SUCCESS, "dup");
    {
        const ft::validate::Lock lock;
        const std::uint64_t key = ft::validate::service().find(comm)->key();
        ft::validate::service().next_sequence(key) = UINT32_MAX - 7;
    }
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
    int flags[calls];
    MPI_Request requests[calls];
    if (me + 1 < size) {
        await_token(me + 1);
    }
    for (int i = 0; i < calls; ++i) {
        flags[i] = 1;
        is(MPIX_Comm_iagree(comm, &flags[i], &requests[i]), MPI_SUCCESS, "iagree");
    }
    if (me != 0) {
        send_token(me - 1);
    }
    is(MPI_Waitall(calls, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS, "waitall");
    int flag = 1;
    is(MPIX_Comm_agree(comm, &flag), MPI_SUCCESS, "agree");
}

/// Rank 0 revokes a communicator, which rank 1 hears when it has freed it.
void gone()
{
    MPI_Comm half = upper_half();
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
    if (me == 0) {
        put_in_front(without_letters);
        is(MPIX_Comm_revoke(half), MPI_SUCCESS, "revoke");
        mca_pml.pml_isend = behind.pml_isend;
        await_token(middle);
        is(behind.pml_send(held.data(), held.size(), &ompi_mpi_byte.dt, middle,
                           ft::process::agreement_tag, MCA_PML_BASE_SEND_STANDARD,
                           &ompi_mpi_comm_world.comm),
           MPI_SUCCESS, "send of a letter");
        send_token(middle);
        is(MPI_Comm_free(&half), MPI_SUCCESS, "free");
    } else if (me == middle) {
        is(MPI_Comm_free(&half), MPI_SUCCESS, "free");
        send_token(0);
        await_token(0);
        const ft::validate::Lock lock;
        that(ft::validate::service().early_letters() == 0, "the letter is kept for ever");
    }
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
}

/// The same when the next communicator has the same name: Open MPI gives its own ids again.
void again()
{
    MPI_Comm half = upper_half();
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
    std::uint64_t names[2] = {0, 0};
    for (const bool first : {true, false}) {
        MPI_Comm comm = MPI_COMM_NULL;
        int flag = 1;
        if (me > middle) {
            break;
        }
        is(ompi_comm_dup(half, &comm), MPI_SUCCESS, "Open MPI's dup");
        {
            const ft::validate::Lock lock;
            names[first ? 0 : 1] = ft::validate::service().find(comm)->key();
        }
        if (first) {
            is(MPIX_Comm_agree(comm, &flag), MPI_SUCCESS, "agree");
        }
        if (first && me == 0) {
            put_in_front(without_letters);
            is(MPIX_Comm_revoke(comm), MPI_SUCCESS, "revoke");
            mca_pml.pml_isend = behind.pml_isend;
        } else if (!first && me == 0) {
            await_token(middle); // it has the second one
            is(behind.pml_send(held.data(), held.size(), &ompi_mpi_byte.dt, middle,
                               ft::process::agreement_tag, MCA_PML_BASE_SEND_STANDARD,
                               &ompi_mpi_comm_world.comm),
               MPI_SUCCESS, "send of a letter");
            send_token(middle);
            await_token(middle);
            is(MPIX_Comm_revoke(comm), MPI_SUCCESS, "revoke");
        } else if (!first) {
            send_token(0);
            await_token(0);
            is(MPIX_Comm_is_revoked(comm, &flag), MPI_SUCCESS, "is_revoked");
            that(flag == 0, "the next one is revoked");
            send_token(0);
            while (flag == 0) {
                MPIX_Comm_is_revoked(comm, &flag);
            }
        }
        is(MPI_Comm_free(&comm), MPI_SUCCESS, "free");
    }
    that(names[0] == names[1], "they have different names, so nothing is shown");
    is(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "barrier");
}

/// A collective that has begun makes the survivors' communicator; in between a thread takes the
/// word.
void late()
{
    MPI_Comm comm = twin();
    all_through({middle});
    if (me == middle) {
        die();
    }
    int count = 0;
    is(MPI_Comm_validate_all(comm, &count), MPI_SUCCESS, "validate_all");
    that(count == 1, "%d failures", count);
    {
        const ft::validate::Lock lock;
        ft::validate::Record *record = ft::validate::service().find(comm);
        record->revoke();
        const ompi_communicator_t *inner = record->survivors();
        that(inner != nullptr && ft::process::is_revoked(inner->c_contextid),
             "what is made of a revoked communicator is not revoked");
    }
    is(MPI_Comm_free(&comm), MPI_SUCCESS, "free");
}

void numbers()
{
    const auto groups = [] {
        const ft::validate::Lock lock;
        return ft::validate::service().numbered_groups();
    };
    free_many(MPI_COMM_SELF, 1);
    const std::size_t before = groups();
    free_many(MPI_COMM_SELF, 50);
    that(groups() == before, "numbers are kept of %zu groups more", groups() - before);
}

} // namespace

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const std::string what = argc > 1 ? argv[1] : "freed";
    if (what == "freed") {
        freed();
    } else if (what == "under_way") {
        under_way();
    } else if (what == "wrapped") {
        wrapped();
    } else if (what == "gone") {
        gone();
    } else if (what == "again") {
        again();
    } else if (what == "late") {
        late();
    } else if (what == "numbers") {
        numbers();
    }
    return finish();
}

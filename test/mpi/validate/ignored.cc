// What a rank has sent that is recognised as failed reaches nobody any more, from whatever source a
// receive or a probe takes its message. Of one that is only acknowledged, or on a communicator that
// has not recognised it, it does.
//
// usage: ignored    with three ranks, of which rank 1 dies
#include "ompi/mca/ompi_prelude.hpp"

#include "check.hpp"
#include "opal/process/standing.hpp"

using namespace check;

namespace {

constexpr int receiver = 0;
constexpr int victim = 1;
constexpr int other = 2; ///< lives, and sends the same
constexpr int short_tag = 3;
constexpr int long_tag = 4;
constexpr int kept_tag = 5;
constexpr int long_message = 1 << 20;
/// Several times as much as may be under way unasked: see the test.
constexpr int rounds = 200;
constexpr int in_a_round = 8;
constexpr int some_bytes = 1000;

std::vector<char> text(int rank, int length)
{
    return std::vector<char>(static_cast<std::size_t>(length), static_cast<char>('a' + rank));
}

/// One of each kind, which may wait for its receive.
void send_both(MPI_Comm comm, std::vector<MPI_Request> &requests)
{
    static const std::vector<char> bytes = text(me, long_message);
    requests.resize(requests.size() + 2, MPI_REQUEST_NULL);
    MPI_Request *const last = &requests.back();
    MPI_Isend(bytes.data(), some_bytes, MPI_CHAR, receiver, short_tag, comm, last - 1);
    MPI_Isend(bytes.data(), long_message, MPI_CHAR, receiver, long_tag, comm, last);
}

/// Nothing is there, by whatever call.
void nothing_from_anyone(MPI_Comm comm, const char *where)
{
    for (const int tag : {short_tag, long_tag, kept_tag, static_cast<int>(MPI_ANY_TAG)}) {
        int flag = 0;
        MPI_Status status;
        is(MPI_Iprobe(MPI_ANY_SOURCE, tag, comm, &flag, &status), MPI_SUCCESS, where);
        that(flag == 0, "%s: iprobe found tag %d", where, tag);
        MPI_Message message = MPI_MESSAGE_NULL;
        is(MPI_Improbe(MPI_ANY_SOURCE, tag, comm, &flag, &message, &status), MPI_SUCCESS, where);
        that(flag == 0 && message == MPI_MESSAGE_NULL, "%s: improbe found tag %d", where, tag);
    }
}

void received(const MPI_Status &status, const std::vector<char> &bytes, int from, const char *where)
{
    that(status.MPI_SOURCE == from, "%s: source %d", where, status.MPI_SOURCE);
    that(bytes == text(from, static_cast<int>(bytes.size())), "%s: wrong bytes", where);
}

void receive_short(MPI_Comm comm, int source, int tag, int from, const char *where)
{
    std::vector<char> bytes(some_bytes);
    MPI_Status status{};
    is(MPI_Recv(bytes.data(), some_bytes, MPI_CHAR, source, tag, comm, &status), MPI_SUCCESS,
       where);
    received(status, bytes, from, where);
}

/// On a communicator that has recognised it.
void gone(MPI_Comm comm, const char *where)
{
    int flag = 0;
    MPI_Status status{};
    is(MPI_Iprobe(victim, short_tag, comm, &flag, &status), MPI_SUCCESS, where);
    that(flag == 1 && status.MPI_SOURCE == MPI_PROC_NULL, "%s: source %d", where,
         status.MPI_SOURCE);
    nothing_from_anyone(comm, where);
    send_word(other);
    receive_short(comm, MPI_ANY_SOURCE, short_tag, other, where);
    std::vector<char> bytes(long_message);
    is(MPI_Recv(bytes.data(), long_message, MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status),
       MPI_SUCCESS, where);
    received(status, bytes, other, where);
}

/// The other side of it.
void send_instead(MPI_Comm comm)
{
    std::vector<MPI_Request> requests;
    wait_for_word(receiver);
    send_both(comm, requests);
    is(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS, "waitall");
}

/// It goes on sending after it was recognised. \param late only the receiver recognises it there
void what_comes_later(MPI_Comm late, std::vector<MPI_Request> &never)
{
    if (me == receiver) {
        std::vector<char> some(some_bytes);
        std::vector<char> many(long_message);
        MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        MPI_Status statuses[2];
        MPI_Irecv(some.data(), some_bytes, MPI_CHAR, MPI_ANY_SOURCE, short_tag, late, &requests[0]);
        MPI_Irecv(many.data(), long_message, MPI_CHAR, MPI_ANY_SOURCE, long_tag, late,
                  &requests[1]);
        ft::process::set_standing(late->c_contextid, victim, ft::process::Standing::recognised);
        send_word(victim);
        for (int i = 0; i < rounds; ++i) {
            send_word(victim);
            wait_for_word(victim);
        }
        int which = MPI_UNDEFINED;
        int ended = 1;
        is(MPI_Testany(2, requests, &which, &ended, statuses), MPI_SUCCESS, "testany");
        that(ended == 0, "a posted receive took what came later");
        nothing_from_anyone(late, "what came later");
        send_word(other);
        is(MPI_Waitall(2, requests, statuses), MPI_SUCCESS, "waitall");
        received(statuses[0], some, other, "posted");
        received(statuses[1], many, other, "posted, long");
    } else if (me == victim) {
        const std::vector<char> bytes = text(me, some_bytes);
        wait_for_word(receiver); // or a posted receive takes it with every right
        send_both(late, never);
        for (int i = 0; i < rounds; ++i) {
            wait_for_word(receiver);
            for (int j = 0; j < in_a_round; ++j) {
                is(MPI_Send(bytes.data(), some_bytes, MPI_CHAR, receiver, short_tag, late),
                   MPI_SUCCESS, "send");
            }
            send_word(receiver);
        }
    } else {
        send_instead(late);
    }
}

} // namespace

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const MPI_Comm late = twin();
    const MPI_Comm cleared = twin();
    const MPI_Comm validated = twin();
    const MPI_Comm acknowledged = twin();
    const MPI_Comm untouched = twin();
    const std::vector<MPI_Comm> all{cleared, validated, acknowledged, untouched};
    std::vector<MPI_Request> never;
    what_comes_later(late, never);
    if (me == victim) {
        const std::vector<char> bytes = text(me, some_bytes);
        for (const MPI_Comm comm : all) {
            send_both(comm, never);
            MPI_Send(bytes.data(), some_bytes, MPI_CHAR, receiver, kept_tag, comm);
        }
        wait_for_word(receiver);
        die();
    }
    int count = -1;
    if (me == other) {
        send_instead(cleared);
        is(MPI_Comm_validate_all(validated, &count), MPI_SUCCESS, "validate_all");
        send_instead(validated);
        return finish();
    }
    for (const MPI_Comm comm : all) {
        for (const int tag : {short_tag, long_tag, kept_tag}) {
            is(MPI_Probe(MPI_ANY_SOURCE, tag, comm, MPI_STATUS_IGNORE), MPI_SUCCESS, "probe");
        }
    }
    MPI_Message kept = MPI_MESSAGE_NULL;
    is(MPI_Mprobe(victim, kept_tag, cleared, &kept, MPI_STATUS_IGNORE), MPI_SUCCESS, "mprobe");
    send_word(victim);
    hear_of(cleared, {victim});
    MPI_Rank_info info{victim, -1, -1};
    is(MPI_Comm_validate_clear(cleared, 1, &info), MPI_SUCCESS, "validate_clear");
    gone(cleared, "validate_clear");
    std::vector<char> bytes(some_bytes);
    MPI_Status status{};
    is(MPI_Mrecv(bytes.data(), some_bytes, MPI_CHAR, &kept, &status), MPI_SUCCESS, "mrecv");
    received(status, bytes, victim, "matched before it was recognised");
    is(MPI_Comm_validate_all(validated, &count), MPI_SUCCESS, "validate_all");
    gone(validated, "validate_all");
    is(MPIX_Comm_failure_ack(acknowledged), MPI_SUCCESS, "failure_ack");
    receive_short(acknowledged, MPI_ANY_SOURCE, short_tag, victim, "failure_ack, from any source");
    receive_short(acknowledged, victim, kept_tag, victim, "failure_ack");
    receive_short(untouched, victim, short_tag, victim, "another communicator");
    return finish();
}

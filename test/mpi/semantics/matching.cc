/* Which receive gets which message: order, tags, wildcards, probes, cancel, communicators. */
#include "test/mpi/semantics/cases.hpp"

#include <algorithm>
#include <array>

namespace {

using cases::check;
using cases::expect;
using cases::pattern;
using cases::world;

/* Two messages that match the same receives arrive in the order they were sent, whatever their
 * length. */
void no_overtaking()
{
    constexpr std::array<int, 8> sizes{9000000, 4, 70000, 0, 5000, 300000, 1, 65536};
    std::vector<std::vector<unsigned char>> out;
    std::vector<MPI_Request> requests(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        out.push_back(pattern(static_cast<std::size_t>(sizes[i]), i));
        MPI_Isend(out[i].data(), sizes[i], MPI_BYTE, world().right(), 1, MPI_COMM_WORLD,
                  &requests[i]);
    }
    std::vector<unsigned char> in(9000000);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        MPI_Status status;
        MPI_Recv(in.data(), static_cast<int>(in.size()), MPI_BYTE, world().left(),
                 i % 2 == 0 ? 1 : MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        check(cases::count_of(status) == sizes[i], "order", static_cast<long>(i));
        expect(std::span(in).first(static_cast<std::size_t>(sizes[i])), i, "wrong byte");
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
}

/* The earlier of two receives that match is served first, be it specific or not. */
void posting_order()
{
    std::array<int, 4> in{-1, -1, -1, -1};
    std::array<MPI_Request, 4> requests{};
    const int from = world().left();
    MPI_Irecv(&in[0], 1, MPI_INT, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&in[1], 1, MPI_INT, from, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Irecv(&in[2], 1, MPI_INT, from, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[2]);
    MPI_Irecv(&in[3], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[3]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 4; ++i) {
        MPI_Send(&i, 1, MPI_INT, world().right(), 2, MPI_COMM_WORLD);
    }
    MPI_Waitall(4, requests.data(), MPI_STATUSES_IGNORE);
    for (int i = 0; i < 4; ++i) {
        check(in[static_cast<std::size_t>(i)] == i, "order", in[static_cast<std::size_t>(i)]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

void tags_select()
{
    constexpr int number = 50;
    std::vector<int> values(number);
    std::vector<MPI_Request> requests(number);
    for (int i = 0; i < number; ++i) {
        const auto at = static_cast<std::size_t>(i);
        values[at] = i * 3;
        MPI_Isend(&values[at], 1, MPI_INT, world().right(), i, MPI_COMM_WORLD, &requests[at]);
    }
    for (int i = number; i-- > 0;) {
        int value = -1;
        MPI_Recv(&value, 1, MPI_INT, world().left(), i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(value == i * 3, "value", value);
    }
    MPI_Waitall(number, requests.data(), MPI_STATUSES_IGNORE);
}

/* Rank 0 takes from everybody in any order and gets each one's messages in theirs. */
void wildcards()
{
    constexpr int number = 300;
    if (world().rank != 0) {
        for (int i = 0; i < number; ++i) {
            std::array<int, 2> message{world().rank, i};
            MPI_Send(message.data(), 2, MPI_INT, 0, i % 5, MPI_COMM_WORLD);
        }
        return;
    }
    std::vector<int> next(static_cast<std::size_t>(world().size), 0);
    for (int i = 0; i < number * (world().size - 1); ++i) {
        std::array<int, 2> message{-1, -1};
        MPI_Status status;
        MPI_Recv(message.data(), 2, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        check(message[0] == status.MPI_SOURCE, "source", status.MPI_SOURCE);
        int &expected = next[static_cast<std::size_t>(status.MPI_SOURCE)];
        check(message[1] == expected && status.MPI_TAG == expected % 5, "order", message[1]);
        ++expected;
    }
}

void probes()
{
    for (const int size : {0, 77, 5000, 300000}) {
        auto out = pattern(static_cast<std::size_t>(size), 3);
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Isend(out.data(), size, MPI_BYTE, world().right(), 9, MPI_COMM_WORLD, &request);
        MPI_Status status;
        MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        check(status.MPI_SOURCE == world().left() && status.MPI_TAG == 9, "status", size);
        check(cases::count_of(status) == size, "count", cases::count_of(status));
        int there = 0;
        MPI_Iprobe(world().left(), 9, MPI_COMM_WORLD, &there, &status);
        check(there == 1 && cases::count_of(status) == size, "second look", there);
        MPI_Iprobe(world().left(), 10, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
        check(there == 0, "another tag", there);
        std::vector<unsigned char> in(out.size());
        MPI_Recv(in.data(), size, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        expect(in, 3, "wrong byte");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* A matched probe takes its message away from everybody else. */
void matched_probes()
{
    for (const int size : {0, 77, 5000, 300000}) {
        std::array<std::vector<unsigned char>, 2> out;
        std::array<MPI_Request, 2> requests{};
        for (std::size_t i = 0; i < 2; ++i) {
            out[i] = pattern(static_cast<std::size_t>(size), 10 + i);
            MPI_Isend(out[i].data(), size, MPI_BYTE, world().right(), 13, MPI_COMM_WORLD,
                      &requests[i]);
        }
        MPI_Message first = MPI_MESSAGE_NULL;
        MPI_Message second = MPI_MESSAGE_NULL;
        MPI_Status status;
        MPI_Mprobe(world().left(), 13, MPI_COMM_WORLD, &first, &status);
        check(cases::count_of(status) == size, "count", cases::count_of(status));
        int there = 0;
        while (there == 0) {
            MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, &second, &status);
        }
        std::vector<unsigned char> in(out[0].size());
        MPI_Mrecv(in.data(), size, MPI_BYTE, &second, &status);
        expect(in, 11, "wrong byte of the second");
        check(second == MPI_MESSAGE_NULL && status.MPI_TAG == 13, "status", status.MPI_TAG);
        MPI_Request receive = MPI_REQUEST_NULL;
        MPI_Imrecv(in.data(), size, MPI_BYTE, &first, &receive);
        MPI_Wait(&receive, &status);
        expect(in, 10, "wrong byte of the first");
        check(cases::count_of(status) == size, "count", cases::count_of(status));
        MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* A message that a probe has given is received although its communicator is freed meanwhile: Open
 * MPI knows the communicator by its Fortran handle until then, and no longer. */
void matched_then_freed()
{
    for (const int size : {0, 77, 5000, 300000}) {
        MPI_Comm comm = MPI_COMM_NULL;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        const auto out = pattern(static_cast<std::size_t>(size), 14);
        std::array<MPI_Request, 2> requests{};
        std::array<MPI_Message, 2> messages{};
        for (std::size_t i = 0; i < 2; ++i) {
            MPI_Isend(out.data(), size, MPI_BYTE, world().right(), 14, comm, &requests[i]);
            MPI_Mprobe(world().left(), 14, comm, &messages[i], MPI_STATUS_IGNORE);
        }
        const MPI_Fint handle = MPI_Comm_c2f(comm);
        MPI_Comm_free(&comm);
        MPI_Barrier(MPI_COMM_WORLD); // all have
        check(MPI_Comm_f2c(handle) != nullptr, "the communicator is gone", size);
        std::array<std::vector<unsigned char>, 2> in{out, out};
        std::fill(in[0].begin(), in[0].end(), 0);
        std::fill(in[1].begin(), in[1].end(), 0);
        MPI_Request receive = MPI_REQUEST_NULL;
        MPI_Imrecv(in[1].data(), size, MPI_BYTE, &messages[1], &receive);
        MPI_Status status;
        MPI_Mrecv(in[0].data(), size, MPI_BYTE, messages.data(), &status);
        check(cases::count_of(status) == size, "count", cases::count_of(status));
        MPI_Wait(&receive, &status);
        check(cases::count_of(status) == size, "count", cases::count_of(status));
        MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE);
        expect(in[0], 14, "wrong byte of the first");
        expect(in[1], 14, "wrong byte of the second");
        check(MPI_Comm_f2c(handle) == nullptr, "the communicator is there still", size);
    }
}

void cancelled_receives()
{
    for (const int source : {world().left(), static_cast<int>(MPI_ANY_SOURCE)}) {
        int value = -1;
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Irecv(&value, 1, MPI_INT, source, 17, MPI_COMM_WORLD, &request);
        MPI_Cancel(&request);
        MPI_Status status;
        MPI_Wait(&request, &status);
        int cancelled = 0;
        MPI_Test_cancelled(&status, &cancelled);
        check(cancelled != 0, "was not cancelled");
        MPI_Barrier(MPI_COMM_WORLD);
        // The message goes to the next receive, not to the one that was withdrawn.
        const int out = world().rank;
        MPI_Isend(&out, 1, MPI_INT, world().right(), 17, MPI_COMM_WORLD, &request);
        int in = -1;
        MPI_Recv(&in, 1, MPI_INT, world().left(), 17, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check(in == world().left() && value == -1, "went to the cancelled receive", value);
    }
}

void cancelled_too_late()
{
    int value = -1;
    const int out = 42;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(&value, 1, MPI_INT, world().left(), 18, MPI_COMM_WORLD, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(&out, 1, MPI_INT, world().right(), 18, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Cancel(&request);
    MPI_Status status;
    MPI_Wait(&request, &status);
    int cancelled = 0;
    MPI_Test_cancelled(&status, &cancelled);
    check(cancelled != 0 || value == 42, "neither cancelled nor received", value);
    if (cancelled != 0) {
        MPI_Recv(&value, 1, MPI_INT, world().left(), 18, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(value == 42, "value", value);
    }
}

/* MPI_Cancel of a send changes nothing: its wait returns, and says that it was not cancelled, and
 * the message arrives. So it is under ob1, too. */
void cancelled_sends()
{
    const auto not_cancelled = [](MPI_Request &request, const char *what, int size) {
        MPI_Status status;
        check(MPI_Wait(&request, &status) == MPI_SUCCESS, what, size);
        int cancelled = -1;
        MPI_Test_cancelled(&status, &cancelled);
        check(cancelled == 0, what, size);
    };
    for (const int size : {0, 100, 5000, 300000}) {
        const auto out = pattern(static_cast<std::size_t>(size), 19);
        std::vector<unsigned char> in(out.size());
        for (const auto isend : {MPI_Isend, MPI_Issend}) {
            MPI_Request request = MPI_REQUEST_NULL;
            isend(out.data(), size, MPI_BYTE, world().right(), 19, MPI_COMM_WORLD, &request);
            check(MPI_Cancel(&request) == MPI_SUCCESS, "cancel", size);
            MPI_Barrier(MPI_COMM_WORLD); // nobody has received yet
            std::fill(in.begin(), in.end(), 0);
            MPI_Recv(in.data(), size, MPI_BYTE, world().left(), 19, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            expect(in, 19, "wrong byte of a send that was cancelled");
            not_cancelled(request, "send", size);
        }
        MPI_Request again = MPI_REQUEST_NULL;
        MPI_Send_init(out.data(), size, MPI_BYTE, world().right(), 20, MPI_COMM_WORLD, &again);
        for (int turn = 0; turn < 2; ++turn) {
            MPI_Start(&again);
            MPI_Cancel(&again);
            std::fill(in.begin(), in.end(), 0);
            MPI_Recv(in.data(), size, MPI_BYTE, world().left(), 20, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            expect(in, 19, "wrong byte of a persistent send that was cancelled");
            not_cancelled(again, "persistent send", size);
        }
        MPI_Request_free(&again);
    }
}

/* Half of the ranks against the other half, both with the same ranks in their groups. */
void intercommunicators()
{
    const int half = world().rank % 2;
    MPI_Comm mine = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, half, world().rank, &mine);
    MPI_Comm between = MPI_COMM_NULL;
    MPI_Intercomm_create(mine, 0, MPI_COMM_WORLD, 1 - half, 23, &between);
    int others = 0;
    int me = 0;
    MPI_Comm_remote_size(between, &others);
    MPI_Comm_rank(between, &me);
    for (const int size : {0, 100, 200000}) {
        std::vector<MPI_Request> requests;
        std::vector<std::vector<unsigned char>> in(static_cast<std::size_t>(others));
        std::vector<std::vector<unsigned char>> out(in.size());
        for (int other = 0; other < others; ++other) {
            const auto at = static_cast<std::size_t>(other);
            in[at].resize(static_cast<std::size_t>(size));
            out[at] =
                pattern(in[at].size(), static_cast<std::uint64_t>(half * 100 + me * 10 + other));
            MPI_Irecv(in[at].data(), size, MPI_BYTE, other, 1, between, &requests.emplace_back());
            MPI_Isend(out[at].data(), size, MPI_BYTE, other, 1, between, &requests.emplace_back());
        }
        MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
        for (int other = 0; other < others; ++other) {
            expect(in[static_cast<std::size_t>(other)],
                   static_cast<std::uint64_t>((1 - half) * 100 + other * 10 + me), "wrong byte");
        }
    }
    MPI_Comm merged = MPI_COMM_NULL;
    MPI_Intercomm_merge(between, half, &merged);
    int sum = 0;
    MPI_Allreduce(&half, &sum, 1, MPI_INT, MPI_SUM, merged);
    check(sum == world().size / 2, "sum", sum);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&between);
    MPI_Comm_free(&mine);
}

/* Messages of one communicator never meet receives of another. */
void many_communicators()
{
    constexpr int number = 100;
    std::vector<MPI_Comm> comms(number);
    for (MPI_Comm &comm : comms) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    }
    std::vector<int> out(number);
    std::vector<int> in(number, -1);
    std::vector<MPI_Request> requests(2 * number);
    for (std::size_t i = number; i-- > 0;) {
        out[i] = static_cast<int>(i) * 1000 + world().rank;
        MPI_Isend(&out[i], 1, MPI_INT, world().right(), 1, comms[i], &requests[i]);
    }
    for (std::size_t i = 0; i < number; ++i) {
        MPI_Irecv(&in[i], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comms[i], &requests[number + i]);
    }
    MPI_Waitall(2 * number, requests.data(), MPI_STATUSES_IGNORE);
    for (std::size_t i = 0; i < number; ++i) {
        check(in[i] == static_cast<int>(i) * 1000 + world().left(), "value", in[i]);
    }
    for (MPI_Comm &comm : comms) {
        MPI_Comm_free(&comm);
    }
}

/* One rank sends on a communicator that the others are still making. */
void made_while_in_flight()
{
    for (int turn = 0; turn < 60; ++turn) {
        MPI_Comm comm = MPI_COMM_NULL;
        MPI_Comm_split(MPI_COMM_WORLD, 0, (world().rank + turn) % world().size, &comm);
        int me = 0;
        MPI_Comm_rank(comm, &me);
        const int to = (me + 1) % world().size;
        const int from = (me + world().size - 1) % world().size;
        std::array<int, 3> in{-1, -1, -1};
        for (int i = 0; i < 3; ++i) {
            const int value = turn * 10 + i;
            MPI_Request request = MPI_REQUEST_NULL;
            MPI_Isend(&value, 1, MPI_INT, to, i, comm, &request);
            MPI_Recv(&in[static_cast<std::size_t>(i)], 1, MPI_INT, from, i, comm,
                     MPI_STATUS_IGNORE);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            check(in[static_cast<std::size_t>(i)] == value, "value", turn);
        }
        MPI_Comm_free(&comm);
    }
}

void nobody()
{
    int value = 7;
    MPI_Status status;
    MPI_Sendrecv(&value, 1, MPI_INT, MPI_PROC_NULL, 1, &value, 1, MPI_INT, MPI_PROC_NULL, 1,
                 MPI_COMM_WORLD, &status);
    check(status.MPI_SOURCE == MPI_PROC_NULL && cases::count_of(status) == 0 && value == 7,
          "status", status.MPI_SOURCE);
}

void collectives()
{
    for (const int count : {1, 1000, 300000}) {
        const auto elements = static_cast<std::size_t>(count);
        std::vector<long> in(elements, world().rank + 1);
        std::vector<long> out(elements, -1);
        MPI_Allreduce(in.data(), out.data(), count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        const long sum = static_cast<long>(world().size) * (world().size + 1) / 2;
        for (const long value : out) {
            check(value == sum, "sum", value);
        }
        std::vector<long> all(elements * static_cast<std::size_t>(world().size));
        MPI_Allgather(in.data(), count, MPI_LONG, all.data(), count, MPI_LONG, MPI_COMM_WORLD);
        for (std::size_t i = 0; i < all.size(); ++i) {
            check(all[i] == static_cast<long>(i / elements) + 1, "gathered", all[i]);
        }
    }
}

constexpr std::array all{
    cases::Case{"messages do not overtake", no_overtaking},
    cases::Case{"receives are served in the order of posting", posting_order},
    cases::Case{"tags select", tags_select},
    cases::Case{"wildcards", wildcards},
    cases::Case{"probes", probes},
    cases::Case{"matched probes", matched_probes},
    cases::Case{"a matched message of a communicator that is freed", matched_then_freed},
    cases::Case{"cancelled receives", cancelled_receives},
    cases::Case{"a receive cancelled too late", cancelled_too_late},
    cases::Case{"cancelled sends arrive", cancelled_sends},
    cases::Case{"intercommunicators", intercommunicators},
    cases::Case{"a hundred communicators", many_communicators},
    cases::Case{"communicators made while messages fly", made_while_in_flight},
    cases::Case{"MPI_PROC_NULL", nobody},
    cases::Case{"collectives", collectives},
};

} // namespace

int main(int argc, char **argv)
{
    return cases::run(argc, argv, MPI_THREAD_SINGLE, all);
}

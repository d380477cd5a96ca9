/* Every way to send and to receive, at the sizes where an implementation changes its mind. */
#include "test/mpi/semantics/cases.hpp"

#include <ctime>

#include <array>

namespace {

using cases::check;
using cases::expect;
using cases::pattern;
using cases::world;

constexpr std::array<int, 17> sizes{0,    1,     8,     191,   192,   193,    3900,    4096,   4097,
                                    8192, 32768, 65535, 65536, 65537, 262144, 4194304, 9000001};

std::uint64_t seed(int sender, int size, int turn = 0)
{
    return static_cast<std::uint64_t>(sender) * 1000003 + static_cast<std::uint64_t>(size) * 17 +
           static_cast<std::uint64_t>(turn);
}

using SendFunction = int (*)(const void *, int, MPI_Datatype, int, int, MPI_Comm);
using IsendFunction = int (*)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
using InitFunction = IsendFunction;

/* The receive stands before the send begins, and every rank sends to its right. */
void blocking(SendFunction send)
{
    for (const int size : sizes) {
        auto out = pattern(static_cast<std::size_t>(size), seed(world().rank, size));
        std::vector<unsigned char> in(out.size() + 8, 0xee);
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Irecv(in.data(), size, MPI_BYTE, world().left(), size, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD); // a ready send needs it
        send(out.data(), size, MPI_BYTE, world().right(), size, MPI_COMM_WORLD);
        MPI_Status status;
        MPI_Wait(&request, &status);
        expect(std::span(in).first(out.size()), seed(world().left(), size), "wrong byte");
        check(in[out.size()] == 0xee, "wrote beyond the end", size);
        check(cases::count_of(status) == size, "count", cases::count_of(status));
        check(status.MPI_SOURCE == world().left() && status.MPI_TAG == size, "status", size);
    }
}

/* The message is there before its receive. */
void unexpected(IsendFunction isend)
{
    for (const int size : sizes) {
        auto out = pattern(static_cast<std::size_t>(size), seed(world().rank, size, 1));
        MPI_Request request = MPI_REQUEST_NULL;
        isend(out.data(), size, MPI_BYTE, world().right(), 7, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
        std::vector<unsigned char> in(out.size());
        MPI_Status status;
        MPI_Recv(in.data(), size, MPI_BYTE, world().left(), 7, MPI_COMM_WORLD, &status);
        expect(in, seed(world().left(), size, 1), "wrong byte");
        check(cases::count_of(status) == size, "count", cases::count_of(status));
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

void standard()
{
    blocking(MPI_Send);
}
void synchronous()
{
    blocking(MPI_Ssend);
}
void ready()
{
    blocking(MPI_Rsend);
}
void standard_unexpected()
{
    unexpected(MPI_Isend);
}
void synchronous_unexpected()
{
    unexpected(MPI_Issend);
}

struct MpiBuffer {
    explicit MpiBuffer(std::size_t size) : space(size)
    {
        MPI_Buffer_attach(space.data(), static_cast<int>(space.size()));
    }
    ~MpiBuffer() { detach(); }
    MpiBuffer(const MpiBuffer &) = delete;
    MpiBuffer &operator=(const MpiBuffer &) = delete;
    void detach()
    {
        if (!attached) {
            return;
        }
        attached = false;
        void *address = nullptr;
        int size = 0;
        MPI_Buffer_detach(&address, &size);
        check(address == space.data() && size == static_cast<int>(space.size()), "detach", size);
    }
    std::vector<unsigned char> space;
    bool attached = true;
};

void buffered()
{
    MpiBuffer buffer(32 << 20);
    blocking(MPI_Bsend);
    unexpected(MPI_Ibsend);
}

/* The user's bytes may change as soon as the call is back, and nobody receives for a while. */
void buffered_is_local()
{
    MpiBuffer buffer(16 << 20);
    constexpr int size = 3000000;
    constexpr int turns = 3;
    std::vector<unsigned char> out(size);
    for (int turn = 0; turn < turns; ++turn) {
        cases::fill(out, seed(world().rank, size, turn));
        MPI_Bsend(out.data(), size, MPI_BYTE, world().right(), turn, MPI_COMM_WORLD);
    }
    cases::fill(out, 99);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int turn = turns; turn-- > 0;) {
        std::vector<unsigned char> in(size);
        MPI_Recv(in.data(), size, MPI_BYTE, world().left(), turn, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        expect(in, seed(world().left(), size, turn), "wrong byte");
    }
}

void buffered_without_room()
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    std::vector<unsigned char> out(1 << 20);
    const int rc = MPI_Bsend(out.data(), static_cast<int>(out.size()), MPI_BYTE, world().right(), 3,
                             MPI_COMM_WORLD);
    int error_class = 0;
    MPI_Error_class(rc, &error_class);
    check(error_class == MPI_ERR_BUFFER, "class", error_class);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

long handled = 0;

void count_error(MPI_Comm * /*comm*/, int * /*code*/, ...)
{
    ++handled;
}

/* One of several that are started finds no room: the others are started, and it is for the wait to
 * tell. */
void started_without_room()
{
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_create_errhandler(count_error, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    std::vector<unsigned char> out(1 << 20);
    for (const bool all : {false, true}) {
        handled = 0;
        int in = -1;
        std::array<MPI_Request, 2> requests{};
        MPI_Bsend_init(out.data(), static_cast<int>(out.size()), MPI_BYTE, world().right(), 4,
                       MPI_COMM_WORLD, requests.data());
        MPI_Recv_init(&in, 1, MPI_INT, world().left(), 5, MPI_COMM_WORLD, &requests[1]);
        const int rc = all ? MPI_Startall(2, requests.data()) : MPI_Start(requests.data());
        check(rc == MPI_SUCCESS && handled == 0, "start", rc);
        if (all) {
            const int rank = world().rank;
            MPI_Send(&rank, 1, MPI_INT, world().right(), 5, MPI_COMM_WORLD);
            MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
            check(in == world().left() && handled == 0, "the receive", in);
        }
        int error_class = 0;
        MPI_Error_class(MPI_Wait(requests.data(), MPI_STATUS_IGNORE), &error_class);
        check(error_class == MPI_ERR_BUFFER, "class", error_class);
        check(handled == 1, "handler", handled);
        for (MPI_Request &request : requests) {
            if (request != MPI_REQUEST_NULL) {
                MPI_Request_free(&request);
            }
        }
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
}

/* Behind a clock that all processes of the machine share. */
double clock_seconds()
{
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/* MPI_Buffer_detach does not return before what is in the buffer has left it. The receiver takes it
 * only when the sender, which does nothing else any more, has answered so many other messages: one
 * that had not waited would have been back long before. */
void detach_waits()
{
    constexpr int size = 3000000;
    constexpr int turns = 20;
    constexpr int sender = 0;
    constexpr int receiver = 1;
    if (world().rank == sender) {
        const auto out = pattern(size, 8);
        std::vector<MPI_Request> answers(turns);
        std::array<char, turns> bytes{};
        for (std::size_t i = 0; i < turns; ++i) {
            MPI_Irecv(&bytes[i], 1, MPI_CHAR, receiver, 14, MPI_COMM_WORLD, &answers[i]);
        }
        double back = 0;
        {
            MpiBuffer buffer(size + MPI_BSEND_OVERHEAD);
            MPI_Bsend(out.data(), size, MPI_BYTE, receiver, 13, MPI_COMM_WORLD);
            buffer.detach();
            back = clock_seconds();
        }
        MPI_Waitall(turns, answers.data(), MPI_STATUSES_IGNORE);
        double asked = 0;
        MPI_Recv(&asked, 1, MPI_DOUBLE, receiver, 15, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(back >= asked, "was back so many us before", static_cast<long>((asked - back) * 1e6));
    } else if (world().rank == receiver) {
        MPI_Probe(sender, 13, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int turn = 0; turn < turns; ++turn) {
            MPI_Ssend("", 1, MPI_CHAR, sender, 14, MPI_COMM_WORLD);
        }
        const double asked = clock_seconds();
        std::vector<unsigned char> in(size);
        MPI_Recv(in.data(), size, MPI_BYTE, sender, 13, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        expect(in, 8, "wrong byte");
        MPI_Send(&asked, 1, MPI_DOUBLE, sender, 15, MPI_COMM_WORLD);
    }
}

/* A synchronous send does not end before its receive has begun. */
void synchronous_waits()
{
    for (const int size : {0, 100, 100000}) {
        auto out = pattern(static_cast<std::size_t>(size), 5);
        std::vector<unsigned char> in(out.size());
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Issend(out.data(), size, MPI_BYTE, world().right(), 11, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
        int done = 0;
        for (int i = 0; i < 200; ++i) {
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
            check(done == 0, "ended without a receive", size);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Recv(in.data(), size, MPI_BYTE, world().left(), 11, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect(in, 5, "wrong byte");
    }
}

void persistent_with(InitFunction init)
{
    for (const int size : {0, 100, 5000, 70000, 3000000}) {
        std::vector<unsigned char> out(static_cast<std::size_t>(size));
        std::vector<unsigned char> in(out.size());
        std::array<MPI_Request, 2> requests{};
        MPI_Recv_init(in.data(), size, MPI_BYTE, world().left(), 21, MPI_COMM_WORLD, &requests[0]);
        init(out.data(), size, MPI_BYTE, world().right(), 21, MPI_COMM_WORLD, &requests[1]);
        for (int turn = 0; turn < 6; ++turn) {
            cases::fill(out, seed(world().rank, size, turn));
            MPI_Start(requests.data());
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Start(&requests[1]);
            std::array<MPI_Status, 2> statuses{};
            MPI_Waitall(2, requests.data(), statuses.data());
            expect(in, seed(world().left(), size, turn), "wrong byte");
            check(cases::count_of(statuses[0]) == size, "count", size);
        }
        MPI_Request_free(requests.data());
        MPI_Request_free(&requests[1]);
    }
}

void persistent()
{
    persistent_with(MPI_Send_init);
    persistent_with(MPI_Ssend_init);
    persistent_with(MPI_Rsend_init);
}

void persistent_buffered()
{
    MpiBuffer buffer(32 << 20);
    persistent_with(MPI_Bsend_init);
}

/* A request that its user frees before it has ended still does its work. */
void freed_while_active()
{
    for (const int size : {100, 3000000}) {
        auto out = pattern(static_cast<std::size_t>(size), seed(world().rank, size));
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Isend(out.data(), size, MPI_BYTE, world().right(), 31, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
        check(request == MPI_REQUEST_NULL, "handle", size);
        std::vector<unsigned char> in(out.size());
        MPI_Recv(in.data(), size, MPI_BYTE, world().left(), 31, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        expect(in, seed(world().left(), size), "wrong byte");
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

void truncation()
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (const int size : {10, 5000, 200000, 9000001}) {
        for (const bool late : {false, true}) {
            auto out = pattern(static_cast<std::size_t>(size), seed(world().rank, size));
            const int room = size / 2 + 1;
            std::vector<unsigned char> in(static_cast<std::size_t>(room) + 64, 0xee);
            std::array<MPI_Request, 2> requests{};
            if (!late) {
                MPI_Irecv(in.data(), room, MPI_BYTE, world().left(), 41, MPI_COMM_WORLD,
                          requests.data());
                MPI_Barrier(MPI_COMM_WORLD);
            }
            MPI_Isend(out.data(), size, MPI_BYTE, world().right(), 41, MPI_COMM_WORLD,
                      &requests[1]);
            if (late) {
                MPI_Barrier(MPI_COMM_WORLD);
                MPI_Irecv(in.data(), room, MPI_BYTE, world().left(), 41, MPI_COMM_WORLD,
                          requests.data());
            }
            MPI_Status status;
            const int rc = MPI_Wait(requests.data(), &status);
            int error_class = 0;
            MPI_Error_class(rc, &error_class);
            check(error_class == MPI_ERR_TRUNCATE, "class", error_class);
            check(status.MPI_SOURCE == world().left() && status.MPI_TAG == 41, "status", size);
            int count = 0;
            MPI_Get_count(&status, MPI_BYTE, &count);
            check(count == size, "count", count); // as with pml/ob1: who tries again knows how much
            check(in[static_cast<std::size_t>(room)] == 0xee, "wrote beyond the end", size);
            check(MPI_Wait(&requests[1], MPI_STATUS_IGNORE) == MPI_SUCCESS, "sender", size);
        }
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* A message is shorter than its receive allows. */
void shorter_than_asked()
{
    for (const int size : sizes) {
        auto out = pattern(static_cast<std::size_t>(size), seed(world().rank, size));
        std::vector<unsigned char> in(out.size() + 1000, 0xee);
        MPI_Status status;
        MPI_Sendrecv(out.data(), size, MPI_BYTE, world().right(), 5, in.data(), size + 1000,
                     MPI_BYTE, world().left(), 5, MPI_COMM_WORLD, &status);
        check(cases::count_of(status) == size, "count", cases::count_of(status));
        expect(std::span(in).first(out.size()), seed(world().left(), size), "wrong byte");
        check(in[out.size()] == 0xee, "wrote beyond the end", size);
    }
}

/* To itself, in every mode. */
void to_itself()
{
    const int me = world().rank;
    for (const int size : sizes) {
        auto out = pattern(static_cast<std::size_t>(size), seed(me, size));
        for (const IsendFunction isend : {MPI_Isend, MPI_Issend, MPI_Irsend}) {
            for (const bool late : {false, true}) {
                if (late && isend == MPI_Irsend) {
                    continue;
                }
                std::vector<unsigned char> in(out.size());
                std::array<MPI_Request, 2> requests{};
                const auto post = [&] {
                    MPI_Irecv(in.data(), size, MPI_BYTE, late ? MPI_ANY_SOURCE : me, 51,
                              MPI_COMM_WORLD, requests.data());
                };
                if (!late) {
                    post();
                }
                isend(out.data(), size, MPI_BYTE, me, 51, MPI_COMM_WORLD, &requests[1]);
                if (late) {
                    post();
                }
                std::array<MPI_Status, 2> statuses{};
                MPI_Waitall(2, requests.data(), statuses.data());
                expect(in, seed(me, size), "wrong byte");
                check(statuses[0].MPI_SOURCE == me, "source", statuses[0].MPI_SOURCE);
            }
        }
    }
}

/* More small messages at once than any window holds, both ways. */
void many_in_flight()
{
    constexpr int number = 5000;
    std::vector<int> out(number);
    std::vector<int> in(number, -1);
    std::vector<MPI_Request> requests(2 * number);
    for (int i = 0; i < number; ++i) {
        const auto at = static_cast<std::size_t>(i);
        out[at] = world().rank * number + i;
        MPI_Isend(&out[at], 1, MPI_INT, world().right(), 61, MPI_COMM_WORLD, &requests[at]);
    }
    for (int i = 0; i < number; ++i) {
        const auto at = static_cast<std::size_t>(i);
        MPI_Irecv(&in[at], 1, MPI_INT, world().left(), 61, MPI_COMM_WORLD, &requests[number + at]);
    }
    MPI_Waitall(2 * number, requests.data(), MPI_STATUSES_IGNORE);
    for (int i = 0; i < number; ++i) {
        check(in[static_cast<std::size_t>(i)] == world().left() * number + i, "order", i);
    }
}

/* Many long messages at once share the window. */
void many_long_in_flight()
{
    constexpr int number = 24;
    constexpr int size = 1500000;
    std::vector<std::vector<unsigned char>> in(number);
    std::vector<std::vector<unsigned char>> out(number);
    std::vector<MPI_Request> requests(2 * number);
    for (int i = 0; i < number; ++i) {
        const auto at = static_cast<std::size_t>(i);
        out[at] = pattern(size, seed(world().rank, size, i));
        in[at].resize(size);
        MPI_Irecv(in[at].data(), size, MPI_BYTE, world().left(), i, MPI_COMM_WORLD, &requests[at]);
    }
    for (int i = number; i-- > 0;) {
        const auto at = static_cast<std::size_t>(i);
        MPI_Isend(out[at].data(), size, MPI_BYTE, world().right(), i, MPI_COMM_WORLD,
                  &requests[number + at]);
    }
    MPI_Waitall(2 * number, requests.data(), MPI_STATUSES_IGNORE);
    for (int i = 0; i < number; ++i) {
        expect(in[static_cast<std::size_t>(i)], seed(world().left(), size, i), "wrong byte");
    }
}

constexpr std::array all{
    cases::Case{"standard sends", standard},
    cases::Case{"synchronous sends", synchronous},
    cases::Case{"ready sends", ready},
    cases::Case{"buffered sends", buffered},
    cases::Case{"a buffered send ends without a receive", buffered_is_local},
    cases::Case{"a buffered send without room is MPI_ERR_BUFFER", buffered_without_room},
    cases::Case{"one that is started without room, with others", started_without_room},
    cases::Case{"standard sends, unexpected", standard_unexpected},
    cases::Case{"synchronous sends, unexpected", synchronous_unexpected},
    cases::Case{"the end of a buffer waits for what is in it", detach_waits},
    cases::Case{"a synchronous send waits for its receive", synchronous_waits},
    cases::Case{"persistent requests", persistent},
    cases::Case{"persistent buffered requests", persistent_buffered},
    cases::Case{"a request freed while active", freed_while_active},
    cases::Case{"truncation", truncation},
    cases::Case{"a message shorter than asked for", shorter_than_asked},
    cases::Case{"messages to itself", to_itself},
    cases::Case{"5000 small messages in flight", many_in_flight},
    cases::Case{"24 long messages in flight", many_long_in_flight},
};

} // namespace

int main(int argc, char **argv)
{
    return cases::run(argc, argv, MPI_THREAD_SINGLE, all);
}

/* MPI_THREAD_SERIALIZED: several threads of each rank send, receive, probe and cancel, one call at
 * a time. */
#include "test/mpi/semantics/cases.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <thread>

#include <pthread.h>

namespace {

using cases::check;
using cases::expect;
using cases::pattern;
using cases::world;

constexpr int threads = 4;

std::mutex turn;

/* One call of MPI. */
template <typename Call>
auto in_turn(Call call)
{
    const std::lock_guard guard(turn);
    return call();
}

template <typename Work>
void in_threads(const Work &work)
{
    std::vector<std::thread> all;
    for (int t = 0; t < threads; ++t) {
        all.emplace_back(work, t);
    }
    for (std::thread &thread : all) {
        thread.join();
    }
}

/* No call may wait for what another thread has still to do. */
void wait_for(MPI_Request &request)
{
    for (int done = 0; done == 0;) {
        in_turn([&] { MPI_Test(&request, &done, MPI_STATUS_IGNORE); });
    }
}

std::uint64_t seed_of(int rank, int t, int i)
{
    return static_cast<std::uint64_t>(rank * 1000 + t * 100 + i);
}

/* Each thread has its own tag and exchanges messages of many sizes with its like. */
void exchanges()
{
    in_threads([](int t) {
        for (int i = 0; i < 20; ++i) {
            for (const int size : {0, 8, 300, 5000, 80000, 700000}) {
                if (size > 100000 && i % 8 != 0) {
                    continue;
                }
                auto out = pattern(static_cast<std::size_t>(size), seed_of(world().rank, t, i));
                std::vector<unsigned char> in(out.size());
                std::array<MPI_Request, 2> requests{};
                in_turn([&] {
                    MPI_Irecv(in.data(), size, MPI_BYTE, world().left(), t, MPI_COMM_WORLD,
                              requests.data());
                });
                in_turn([&] {
                    MPI_Isend(out.data(), size, MPI_BYTE, world().right(), t, MPI_COMM_WORLD,
                              &requests[1]);
                });
                wait_for(requests[0]);
                wait_for(requests[1]);
                expect(in, seed_of(world().left(), t, i), "wrong byte");
            }
        }
    });
}

/* A persistent pair, started again by whichever thread has the next turn. */
void started_by_all()
{
    constexpr int number = 200;
    int out = 0;
    int in = 0;
    std::array<MPI_Request, 2> requests{};
    MPI_Send_init(&out, 1, MPI_INT, world().right(), 50, MPI_COMM_WORLD, requests.data());
    MPI_Recv_init(&in, 1, MPI_INT, world().left(), 50, MPI_COMM_WORLD, &requests[1]);
    int started = 0;
    int taken = 0;
    in_threads([&](int) {
        for (bool over = false; !over;) {
            in_turn([&] {
                int done = 1;
                if (started > taken) {
                    MPI_Testall(2, requests.data(), &done, MPI_STATUSES_IGNORE);
                    if (done != 0) {
                        check(in == taken, "value", in);
                        ++taken;
                    }
                }
                over = taken == number;
                if (done != 0 && !over) {
                    out = started++;
                    MPI_Startall(2, requests.data());
                }
            });
        }
    });
    for (MPI_Request &request : requests) {
        MPI_Request_free(&request);
    }
}

/* What one thread has found by its probe another may not take. */
void matched_probes()
{
    in_threads([](int t) {
        for (int i = 0; i < 50; ++i) {
            const int out = static_cast<int>(seed_of(world().rank, t, i));
            MPI_Request request = MPI_REQUEST_NULL;
            in_turn(
                [&] { MPI_Isend(&out, 1, MPI_INT, world().right(), t, MPI_COMM_WORLD, &request); });
            MPI_Message message = MPI_MESSAGE_NULL;
            for (int found = 0; found == 0;) {
                in_turn([&] {
                    MPI_Improbe(MPI_ANY_SOURCE, t, MPI_COMM_WORLD, &found, &message,
                                MPI_STATUS_IGNORE);
                });
            }
            int in = -1;
            in_turn([&] { MPI_Mrecv(&in, 1, MPI_INT, &message, MPI_STATUS_IGNORE); });
            check(in == static_cast<int>(seed_of(world().left(), t, i)), "value", in);
            wait_for(request);
        }
    });
}

/* A receive that nothing comes for is cancelled by another thread than the one that made it. */
void cancelled_elsewhere()
{
    std::array<MPI_Request, threads> requests{};
    std::array<int, threads> in{};
    in_threads([&](int t) {
        in_turn([&] {
            MPI_Irecv(&in[static_cast<std::size_t>(t)], 1, MPI_INT, world().left(), 60 + t,
                      MPI_COMM_WORLD, &requests[static_cast<std::size_t>(t)]);
        });
    });
    in_threads([&](int t) {
        in_turn([&] {
            MPI_Request &request = requests[static_cast<std::size_t>((t + 1) % threads)];
            MPI_Status status;
            MPI_Cancel(&request);
            MPI_Wait(&request, &status);
            int cancelled = 0;
            MPI_Test_cancelled(&status, &cancelled);
            check(cancelled != 0, "cancelled");
        });
    });
}

/* As fibers have, and threads of programs with very many. */
void short_stack()
{
    constexpr std::size_t stack_bytes = 32768;
    const auto work = [](void *) -> void * {
        std::vector<unsigned char> in(60000);
        const auto exchange = [&](int to, int from, int number, MPI_Datatype type,
                                  std::uint64_t seed) {
            const auto out = pattern(in.size(), seed);
            MPI_Sendrecv(out.data(), number, type, to, 70, in.data(), number, type, from, 70,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        };
        MPI_Datatype gaps = MPI_DATATYPE_NULL;
        MPI_Type_vector(7000, 1, 2, MPI_INT, &gaps);
        MPI_Type_commit(&gaps);
        for (const int bytes : {1, 300, 5000, 60000}) {
            exchange(world().rank, world().rank, bytes, MPI_BYTE, 1);
            exchange(world().right(), world().left(), bytes, MPI_BYTE, 1);
        }
        expect(in, 1, "wrong byte");
        exchange(world().rank, world().rank, 1, gaps, 2);
        exchange(world().right(), world().left(), 1, gaps, 2);
        check(in[8] == pattern(in.size(), 2)[8], "value", in[8]);
        MPI_Type_free(&gaps);
        return nullptr;
    };
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    check(pthread_attr_setstacksize(&attributes, stack_bytes) == 0, "stack");
    pthread_t thread{};
    check(pthread_create(&thread, &attributes, work, nullptr) == 0, "thread");
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
}

constexpr std::array all{
    cases::Case{"threads in turn, with tags of their own", exchanges},
    cases::Case{"a persistent pair that all threads start", started_by_all},
    cases::Case{"matched probes by threads in turn", matched_probes},
    cases::Case{"a receive that another thread cancels", cancelled_elsewhere},
    cases::Case{"messages to oneself and others from a short stack", short_stack},
};

} // namespace

int main(int argc, char **argv)
{
    return cases::run(argc, argv, MPI_THREAD_SERIALIZED, all);
}

/* MPI_THREAD_MULTIPLE: several threads of each rank send, receive, probe and cancel at once.
 *
 * usage: threads [PART]
 * With an argument each case makes that part of its turns: 10 is a tenth.
 */
#include "test/mpi/semantics/cases.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>

namespace {

using cases::check;
using cases::expect;
using cases::pattern;
using cases::world;

constexpr int threads = 4;
int part = 1;

void in_threads(const std::function<void(int)> &work)
{
    std::vector<std::thread> all;
    for (int t = 0; t < threads; ++t) {
        all.emplace_back(work, t);
    }
    for (std::thread &thread : all) {
        thread.join();
    }
}

/* Each thread has its own tag and exchanges messages of many sizes with its like. */
void own_tags()
{
    in_threads([](int t) {
        for (int turn = 0; turn < 40 / part; ++turn) {
            for (const int size : {0, 8, 300, 5000, 80000, 700000}) {
                if (size > 100000 && turn % 8 != 0) {
                    continue;
                }
                const auto mine = static_cast<std::uint64_t>(world().rank * 1000 + t * 100 + turn);
                const auto theirs =
                    static_cast<std::uint64_t>(world().left() * 1000 + t * 100 + turn);
                auto out = pattern(static_cast<std::size_t>(size), mine);
                std::vector<unsigned char> in(out.size());
                std::array<MPI_Request, 2> requests{};
                MPI_Irecv(in.data(), size, MPI_BYTE, world().left(), t, MPI_COMM_WORLD,
                          requests.data());
                MPI_Isend(out.data(), size, MPI_BYTE, world().right(), t, MPI_COMM_WORLD,
                          &requests[1]);
                MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE);
                expect(in, theirs, "wrong byte");
            }
        }
    });
}

/* All threads take from any source with any tag what all threads of all ranks send: nothing is
 * lost, nothing comes twice. */
void any_source_by_all()
{
    const int number = 500 / part;
    std::vector<std::atomic<int>> seen(static_cast<std::size_t>(world().size * threads * number));
    in_threads([&](int t) {
        for (int i = 0; i < number; ++i) {
            const int out = (world().rank * threads + t) * number + i;
            MPI_Request request = MPI_REQUEST_NULL;
            MPI_Isend(&out, 1, MPI_INT, world().right(), i % 7, MPI_COMM_WORLD, &request);
            int in = -1;
            MPI_Status status;
            MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            check(status.MPI_SOURCE == world().left() && status.MPI_TAG == in % number % 7,
                  "status", in);
            ++seen[static_cast<std::size_t>(in)];
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
    });
    for (int i = 0; i < threads * number; ++i) {
        const int times = seen[static_cast<std::size_t>(world().left() * threads * number + i)];
        check(times == 1, "times", times);
    }
}

/* A communicator for each thread, with collectives on it. */
void own_communicators()
{
    std::array<MPI_Comm, threads> comms{};
    for (MPI_Comm &comm : comms) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    }
    in_threads([&](int t) {
        MPI_Comm comm = comms[static_cast<std::size_t>(t)];
        for (int turn = 0; turn < 50 / part; ++turn) {
            std::vector<long> out(static_cast<std::size_t>(1 + turn * 100), world().rank + t);
            std::vector<long> in(out.size());
            MPI_Allreduce(out.data(), in.data(), static_cast<int>(in.size()), MPI_LONG, MPI_SUM,
                          comm);
            const long sum = static_cast<long>(world().size) * (world().size - 1) / 2 +
                             static_cast<long>(t) * world().size;
            check(in.front() == sum && in.back() == sum, "sum", in.front());
        }
    });
    for (MPI_Comm &comm : comms) {
        MPI_Comm_free(&comm);
    }
}

/* Communicators come and go in all threads at once; the first message in each one often comes
 * while another thread makes progress and this one has not made it known yet. */
void made_by_all()
{
    std::array<MPI_Comm, threads> parents{};
    for (MPI_Comm &comm : parents) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    }
    in_threads([&](int t) {
        for (int turn = 0; turn < 40 / part; ++turn) {
            MPI_Comm comm = MPI_COMM_NULL;
            MPI_Comm_dup(parents[static_cast<std::size_t>(t)], &comm);
            const int out = world().rank * 1000 + turn;
            int in = -1;
            MPI_Sendrecv(&out, 1, MPI_INT, world().right(), t, &in, 1, MPI_INT, world().left(), t,
                         comm, MPI_STATUS_IGNORE);
            check(in == world().left() * 1000 + turn, "value in a new communicator", in);
            MPI_Comm_free(&comm);
        }
    });
    for (MPI_Comm &comm : parents) {
        MPI_Comm_free(&comm);
    }
}

/* A performance variable of dr, of the whole process or bound to a communicator. */
struct Variable {
    const char *name;
    int its_class;
    bool of_comm;
};

/* Reads each of the variables once, if dr is there. \return how many there were */
int read_all(MPI_T_pvar_session session)
{
    constexpr std::array variables{
        Variable{"pml_dr_fragments_sent", MPI_T_PVAR_CLASS_COUNTER, false},
        Variable{"pml_dr_corrupt_headers", MPI_T_PVAR_CLASS_COUNTER, false},
        Variable{"pml_dr_path_srtt", MPI_T_PVAR_CLASS_LEVEL, true},
        Variable{"pml_dr_window_bytes_used", MPI_T_PVAR_CLASS_LEVEL, true},
    };
    int found = 0;
    for (const Variable &variable : variables) {
        int index = 0;
        int count = 0;
        MPI_Comm comm = MPI_COMM_WORLD;
        MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
        if (MPI_T_pvar_get_index(variable.name, variable.its_class, &index) != MPI_SUCCESS ||
            MPI_T_pvar_handle_alloc(session, index, variable.of_comm ? &comm : nullptr, &handle,
                                    &count) != MPI_SUCCESS) {
            continue;
        }
        std::vector<double> values(static_cast<std::size_t>(count)); // all are of eight bytes
        found += MPI_T_pvar_read(session, handle, values.data()) == MPI_SUCCESS ? 1 : 0;
        MPI_T_pvar_handle_free(session, &handle);
    }
    return found;
}

/* One thread reads what dr counts while the others make it count. */
void counted_amid_traffic()
{
    int provided = 0;
    MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided);
    std::atomic<int> talking{threads - 1};
    in_threads([&](int t) {
        if (t == 0) {
            MPI_T_pvar_session session = MPI_T_PVAR_SESSION_NULL;
            MPI_T_pvar_session_create(&session);
            int found = 0;
            do {
                found = read_all(session);
            } while (talking > 0);
            check(found == 4, "performance variables", found);
            MPI_T_pvar_session_free(&session);
            return;
        }
        for (int i = 0; i < 400 / part; ++i) {
            int in = -1;
            MPI_Sendrecv(&i, 1, MPI_INT, world().right(), t, &in, 1, MPI_INT, world().left(), t,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(in == i, "value", in);
        }
        --talking;
    });
    MPI_T_finalize(); // behind MPI_Finalize it crashes in Open MPI 4.1.4
}

/* Matched probes by all threads: who found a message gets that one and no other. */
void matched_probes()
{
    const int number = 200 / part;
    in_threads([number](int t) {
        std::vector<MPI_Request> requests(static_cast<std::size_t>(number));
        std::vector<std::vector<unsigned char>> out(requests.size());
        for (int i = 0; i < number; ++i) {
            const auto at = static_cast<std::size_t>(i);
            const int size = 1 + (t * number + i) * 37 % 9000;
            out[at] = pattern(static_cast<std::size_t>(size), static_cast<std::uint64_t>(size));
            MPI_Isend(out[at].data(), size, MPI_BYTE, world().right(), 3, MPI_COMM_WORLD,
                      &requests[at]);
        }
        for (int i = 0; i < number; ++i) {
            MPI_Message message = MPI_MESSAGE_NULL;
            MPI_Status status;
            MPI_Mprobe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &message, &status);
            const int size = cases::count_of(status);
            std::vector<unsigned char> in(static_cast<std::size_t>(size));
            MPI_Mrecv(in.data(), size, MPI_BYTE, &message, &status);
            check(cases::count_of(status) == size, "count", size);
            expect(in, static_cast<std::uint64_t>(size), "wrong byte");
        }
        MPI_Waitall(number, requests.data(), MPI_STATUSES_IGNORE);
    });
}

/* Receives are cancelled while their messages come: each message ends in exactly one place. */
void cancel_races()
{
    const int number = 300 / part;
    in_threads([number](int t) {
        for (int i = 0; i < number; ++i) {
            int first = -1;
            MPI_Request receive = MPI_REQUEST_NULL;
            MPI_Request send = MPI_REQUEST_NULL;
            MPI_Irecv(&first, 1, MPI_INT, world().left(), t, MPI_COMM_WORLD, &receive);
            MPI_Isend(&i, 1, MPI_INT, world().right(), t, MPI_COMM_WORLD, &send);
            MPI_Cancel(&receive);
            MPI_Status status;
            MPI_Wait(&receive, &status);
            int cancelled = 0;
            MPI_Test_cancelled(&status, &cancelled);
            if (cancelled != 0) {
                check(first == -1, "a cancelled receive was written to", first);
                MPI_Recv(&first, 1, MPI_INT, world().left(), t, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
            check(first == i, "value", first);
            MPI_Wait(&send, MPI_STATUS_IGNORE);
        }
    });
}

/* One thread waits in MPI while others keep the process's progress busy. */
void blocked_beside_busy()
{
    in_threads([](int t) {
        if (t == 0) {
            int token = world().rank;
            if (world().rank == 0) {
                MPI_Send(&token, 1, MPI_INT, world().right(), 900, MPI_COMM_WORLD);
                MPI_Recv(&token, 1, MPI_INT, world().left(), 900, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
                check(token == 0, "token", token);
            } else {
                MPI_Recv(&token, 1, MPI_INT, world().left(), 900, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
                MPI_Send(&token, 1, MPI_INT, world().right(), 900, MPI_COMM_WORLD);
            }
            return;
        }
        std::vector<unsigned char> out(200000);
        std::vector<unsigned char> in(200000);
        for (int i = 0; i < 30 / part; ++i) {
            MPI_Sendrecv(out.data(), 200000, MPI_BYTE, world().right(), t, in.data(), 200000,
                         MPI_BYTE, world().left(), t, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    });
}

/* Requests are let go of while their messages are on the way, and their memory goes to whichever
 * thread asks next: each message arrives whole, once, and nobody's request ends for another. */
void freed_on_their_way()
{
    static constexpr std::array sizes{8, 3000, 60000};
    in_threads([](int t) {
        for (int turn = 0; turn < 60 / part; ++turn) {
            const auto seed = [&](int rank, std::size_t i) {
                return static_cast<std::uint64_t>(rank * 100000 + t * 10000 + turn * 10) + i;
            };
            std::array<std::vector<unsigned char>, sizes.size()> out;
            std::array<std::vector<unsigned char>, sizes.size()> in;
            std::array<MPI_Request, sizes.size()> receives{};
            for (std::size_t i = 0; i < sizes.size(); ++i) {
                out[i] = pattern(static_cast<std::size_t>(sizes[i]), seed(world().rank, i));
                in[i].resize(out[i].size());
                MPI_Recv_init(in[i].data(), sizes[i], MPI_BYTE, world().left(), t, MPI_COMM_WORLD,
                              &receives[i]);
            }
            MPI_Startall(static_cast<int>(receives.size()), receives.data());
            for (std::size_t i = 0; i < sizes.size(); ++i) {
                MPI_Request send = MPI_REQUEST_NULL;
                if (turn % 2 == 0) {
                    MPI_Isend(out[i].data(), sizes[i], MPI_BYTE, world().right(), t, MPI_COMM_WORLD,
                              &send);
                } else {
                    MPI_Send_init(out[i].data(), sizes[i], MPI_BYTE, world().right(), t,
                                  MPI_COMM_WORLD, &send);
                    MPI_Start(&send);
                }
                MPI_Request_free(&send);
                check(send == MPI_REQUEST_NULL, "request", static_cast<long>(i));
            }
            MPI_Waitall(static_cast<int>(receives.size()), receives.data(), MPI_STATUSES_IGNORE);
            for (std::size_t i = 0; i < sizes.size(); ++i) {
                expect(in[i], seed(world().left(), i), "wrong byte");
                MPI_Request_free(&receives[i]);
            }
            // Only who has all of it tells that what it was sent from may go.
            int token = 0;
            MPI_Sendrecv(&token, 1, MPI_INT, world().left(), 100 + t, &token, 1, MPI_INT,
                         world().right(), 100 + t, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    });
}

constexpr std::array all{
    cases::Case{"threads with tags of their own", own_tags},
    cases::Case{"threads that receive from any source", any_source_by_all},
    cases::Case{"threads with communicators of their own", own_communicators},
    cases::Case{"communicators made and freed by all threads", made_by_all},
    cases::Case{"variables read amid traffic", counted_amid_traffic},
    cases::Case{"matched probes by all threads", matched_probes},
    cases::Case{"cancel while messages come", cancel_races},
    cases::Case{"a blocked thread beside busy ones", blocked_beside_busy},
    cases::Case{"requests freed while their messages are on the way", freed_on_their_way},
};

} // namespace

int main(int argc, char **argv)
{
    part = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1;
    return cases::run(argc, argv, MPI_THREAD_MULTIPLE, all);
}

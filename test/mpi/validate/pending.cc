// What ends together while somebody waits for all of it: nothing is called pending and freed.
//
// A second thread of rank 0 makes progress, so the first sleeps in MPI_Waitall, and rank 1 revokes
// the communicator of all that it waits for. Who wakes the sleeper is kept there until it has left
// MPI_Waitall: what is not complete by then is not complete for long.
#include "check.hpp"

#include <atomic>
#include <thread>

#include <dlfcn.h>
#include <pthread.h>

using namespace check;

namespace {

constexpr int turns = 4; // in the first one the other thread may be the one who sleeps
constexpr int receives = 100;
constexpr int sends = 20;
constexpr int long_message = 100000; // it has to be asked for, and is not
constexpr int tag = 3;
constexpr int last_tag = 4;
constexpr double deadline_seconds = 20;

pthread_t waiter; ///< whoever is to be in MPI_Waitall
std::atomic<bool> someone_sleeps{false};
std::atomic<pthread_cond_t *> bed{nullptr}; ///< of the waiter, while it sleeps
std::atomic<bool> armed{false};             ///< who wakes it is kept ...
std::atomic<int> over{0};                   ///< ... until one more of its turns is over
std::atomic<int> kept{0};
thread_local bool woke = false;
thread_local int of_waking = 0; ///< the turn in which it did

template <class Function>
Function *next_of(const char *name)
{
    void *found = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2"); // on x86-64 there is an older one, too
    return reinterpret_cast<Function *>(found != nullptr ? found : dlsym(RTLD_NEXT, name));
}

template <class Condition>
bool until(Condition condition)
{
    const double end = MPI_Wtime() + deadline_seconds;
    while (!condition() && MPI_Wtime() < end) {
    }
    return condition();
}

/// Tells rank 1 when both threads are in MPI: one of them progresses, the other sleeps.
void give_the_word(int turn)
{
    that(until([] { return someone_sleeps.load(); }), "turn %d: nobody sleeps", turn);
    send_word(1);
}

void wait_for_all(MPI_Comm comm, int turn)
{
    std::vector<MPI_Request> requests(receives + sends);
    std::vector<MPI_Status> statuses(requests.size());
    std::vector<int> in(receives);
    const std::vector<char> out(long_message);
    for (int i = 0; i < receives; ++i) {
        MPI_Irecv(&in[i], 1, MPI_INT, 1, tag, comm, &requests[i]);
    }
    for (int i = 0; i < sends; ++i) {
        MPI_Isend(out.data(), long_message, MPI_CHAR, 1, tag, comm, &requests[receives + i]);
    }
    someone_sleeps = turn == 0; // it may be the other one, before this
    armed = true;
    std::thread teller(give_the_word, turn);
    is(MPI_Waitall(receives + sends, requests.data(), statuses.data()), MPI_ERR_IN_STATUS,
       "waitall");
    armed = false;
    ++over;
    teller.join();
    int wrong = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        wrong +=
            (statuses[i].MPI_ERROR == MPI_ERR_PENDING) == (requests[i] == MPI_REQUEST_NULL) ? 1 : 0;
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    }
    that(wrong == 0, "turn %d: %d are pending and gone, or the contrary", turn, wrong);
}

void make_progress()
{
    int word = -1;
    is(MPI_Recv(&word, 1, MPI_INT, 1, last_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS,
       "the last word");
}

} // namespace

// These stand before the C library's, which Open MPI and pml/dr call.
extern "C" int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    static auto *const real =
        next_of<int(pthread_cond_t *, pthread_mutex_t *)>("pthread_cond_wait");
    if (armed && pthread_equal(pthread_self(), waiter) != 0) {
        bed = condition;
        someone_sleeps = true;
    }
    return real(condition, mutex);
}

extern "C" int pthread_cond_signal(pthread_cond_t *condition)
{
    static auto *const real = next_of<int(pthread_cond_t *)>("pthread_cond_signal");
    of_waking = over;
    woke = armed && condition == bed;
    return real(condition);
}

extern "C" int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    static auto *const real = next_of<int(pthread_mutex_t *)>("pthread_mutex_unlock");
    const int rc = real(mutex);
    if (woke) {
        woke = false;
        ++kept;
        until([turn = of_waking] { return over != turn; });
    }
    return rc;
}

int main(int argc, char **argv)
{
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    waiter = pthread_self();
    std::vector<MPI_Comm> comms(turns);
    for (MPI_Comm &comm : comms) {
        comm = twin();
    }
    if (me == 0) {
        std::thread other(make_progress);
        for (int turn = 0; turn < turns; ++turn) {
            wait_for_all(comms[turn], turn);
        }
        send_word(1);
        other.join();
        that(kept > 0, "nobody was kept");
    } else {
        for (MPI_Comm comm : comms) {
            wait_for_word(0);
            is(MPIX_Comm_revoke(comm), MPI_SUCCESS, "revoke");
        }
        wait_for_word(0);
        is(MPI_Send(&me, 1, MPI_INT, 0, last_tag, MPI_COMM_WORLD), MPI_SUCCESS, "the last word");
    }
    return finish();
}

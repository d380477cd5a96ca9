// Random kills before, during and after validation.
//
// usage: kills SEED [LEAST]
//
// Round by round one or two ranks are doomed: they die before they call MPI_Comm_validate_all, by a
// timer that strikes in the middle of it (SIGALRM, whatever the code is at), or after they have
// returned from it. Blocking and non-blocking calls take turns, and a collective follows. Each
// rank, the doomed one too, prints the set that it returned with, number by number: "call N rank R
// set S". All sets of one number must be equal (strict semantics: also those of ranks that died
// since), which the script checks. It ends when no more than LEAST ranks are left (2).
#include "check.hpp"

#include <chrono>
#include <random>

#include <sys/time.h>
#include <unistd.h>

using namespace check;

namespace {

enum class When { before, during, after };

struct Doom {
    int rank;
    When when;
    int delay_us;
};

/// The same at all ranks.
std::vector<Doom> next_dooms(std::mt19937 &dice, const std::set<int> &alive, int least)
{
    std::vector<int> candidates(alive.begin(), alive.end());
    std::vector<Doom> dooms;
    std::size_t count = 1 + dice() % 2;
    while (count-- > 0 && static_cast<int>(candidates.size()) > least) {
        const std::size_t which = dice() % candidates.size();
        const auto when = static_cast<When>(dice() % 3);
        dooms.push_back({candidates[which], when, static_cast<int>(1 + dice() % 400)});
        candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(which));
    }
    return dooms;
}

/// One write, so that what a rank says before it dies is whole.
void say(int number, const std::set<int> &set)
{
    char line[512];
    const int length = std::snprintf(line, sizeof line, "call %d rank %d set %s\n", number, me,
                                     text_of(set).c_str());
    if (write(STDOUT_FILENO, line, static_cast<std::size_t>(length)) != length) {
        ++failures;
    }
}

int calls = 0;

/// \return what this call returned with
std::set<int> validate()
{
    int count = -1;
    if (calls % 2 == 0) {
        is(MPI_Comm_validate_all(MPI_COMM_WORLD, &count), MPI_SUCCESS, "MPI_Comm_validate_all");
    } else {
        MPI_Request request = MPI_REQUEST_NULL;
        is(MPI_Icomm_validate_all(MPI_COMM_WORLD, &count, &request), MPI_SUCCESS,
           "MPI_Icomm_validate_all");
        is(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, "its wait");
    }
    // What is recognised; a failure that became known since is another call's.
    std::set<int> set;
    for (int rank = 0; rank < size; ++rank) {
        if (state(MPI_COMM_WORLD, rank) == MPI_RANK_NULL) {
            set.insert(rank);
        }
    }
    that(count == static_cast<int>(set.size()), "%d failures, the set is %s", count,
         text_of(set).c_str());
    say(calls++, set);
    return set;
}

void die_at(int delay_us)
{
    struct sigaction action = {};
    action.sa_handler = [](int) { raise(SIGKILL); };
    sigaction(SIGALRM, &action, nullptr);
    itimerval timer = {};
    timer.it_value.tv_usec = delay_us;
    setitimer(ITIMER_REAL, &timer, nullptr);
}

/// Calls until all the doomed are in the set; the same number of calls at all.
void round(const std::vector<Doom> &dooms, std::set<int> &alive)
{
    const Doom *mine = nullptr;
    for (const Doom &doom : dooms) {
        mine = doom.rank == me ? &doom : mine;
    }
    if (mine != nullptr && mine->when == When::before) {
        die();
    }
    if (mine != nullptr && mine->when == When::during) {
        die_at(mine->delay_us);
    }
    for (bool first = true;; first = false) {
        const std::set<int> set = validate();
        if (mine != nullptr && mine->when == When::after) {
            die();
        }
        bool all = true;
        for (const Doom &doom : dooms) {
            all = all && set.count(doom.rank) != 0;
        }
        if (all) {
            for (const int rank : set) {
                alive.erase(rank);
            }
            return;
        }
        that(first || mine == nullptr || mine->when == When::during, "the doomed goes on");
    }
}

} // namespace

int main(int argc, char **argv)
{
    start(&argc, &argv);
    std::mt19937 dice(static_cast<unsigned>(argc > 1 ? std::atoi(argv[1]) : 1));
    const int least = argc > 2 ? std::atoi(argv[2]) : 2;
    std::set<int> alive;
    for (int rank = 0; rank < size; ++rank) {
        alive.insert(rank);
    }
    // A quicker rank may have left it, and be dead, while others are still in it: the news travel
    // within microseconds.
    if (const int code = MPI_Barrier(MPI_COMM_WORLD); code != MPI_SUCCESS) {
        is(code, MPI_ERR_RANK_FAIL_STOP, "barrier");
    }
    while (static_cast<int>(alive.size()) > least) {
        round(next_dooms(dice, alive, least), alive);
        int one = 1;
        int sum = 0;
        const int code = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        // A quicker rank may be dead of the next round already.
        if (code != MPI_SUCCESS) {
            is(code, MPI_ERR_RANK_FAIL_STOP, "allreduce among the survivors");
        } else {
            that(sum == static_cast<int>(alive.size()), "the sum is %d instead of %zu", sum,
                 alive.size());
        }
    }
    return finish();
}

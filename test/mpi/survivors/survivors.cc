// Ranks that wait for other ranks' deaths, then compute a sum among those that are left.
//
// usage: survivors [--deaths N] [--seconds S] [--marks FIFO] [--die-before-init RANK] [--hold RANK]
//                  [--abort RANK] [--exit-code RANK:CODE] [--no-sum] [--wait-for RANK]
//                  [--collectives] [--pvars] [--busy S] [--nap] [--hang RANK] [--stand RANK:MS]
//                  [--hang-in-handler RANK] [--compute RANK:MS] [--talk-to RANK]
//
// Every rank computes until it knows of N deaths (0) or S seconds (30) have passed, which is an
// error. The lowest survivor gathers the sum of the survivors' squared ranks by point-to-point
// messages and sends it back; a wrong sum is an error. With --wait-for, all others first wait in
// MPI_Recv for a message that this rank never sends, and then send to it: both calls must return
// with the error class of a dead rank. So must a receive from any source of a communicator in which
// only that rank is left; one of MPI_COMM_WORLD must go on waiting, since others can still send.
// With --talk-to, the next rank alone waits in MPI_Recv for a message of this one, with the error
// handler that every program begins with, so that it never comes to the sum.
// With --collectives all reduce, broadcast and wait in barriers on MPI_COMM_WORLD meanwhile, until
// one of these fails; it must do so because of a dead rank. Then all finalize, but for the held
// rank, which computes on for ever. --hang: that rank deadlocks inside MPI (--hang-in-handler: in
// what a socket's handler calls, when the next rank has sent it a message). --stand: it stands
// still there on purpose, --compute: it computes; the others wait for it in a barrier. At the end
// each rank prints "survivor R knows V@E V@E ..." (who died, in which epoch) and "finalized R"; at
// the beginning, if so, that it shares PMIx's store.
#include <mpi.h>

#include "opal/process/deaths.hpp"
#include "test/mpi/survivors/mark.hpp"
#include "test/mpi/survivors/stand.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace {

using marks::mark;

struct Options {
    std::size_t deaths = 0;
    double seconds = 30;
    double busy = 0;
    const char *marks = nullptr;
    int die_before_init = -1;
    int hold = -1;
    int abort = -1;
    int coded = -1;
    int code = 0;
    bool sum = true;
    bool collectives = false;
    bool pvars = false;
    bool nap = false;
    int wait_for = -1;
    int talk_to = -1;
    int hang = -1;
    int hang_in_handler = -1;
    int stand = -1;
    int compute = -1;
    int stand_ms = 0;
    int compute_ms = 0;
};

void pair(const char *text, int &first, int &second)
{
    if (std::sscanf(text, "%d:%d", &first, &second) != 2) {
        std::exit(64);
    }
}

Options parse(int argc, char **argv)
{
    Options o;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        if (name == "--no-sum") {
            o.sum = false;
            continue;
        }
        if (name == "--collectives") {
            o.collectives = true;
            continue;
        }
        if (name == "--nap") {
            o.nap = true;
            continue;
        }
        if (name == "--pvars") {
            o.pvars = true;
            continue;
        }
        const char *value = i + 1 < argc ? argv[++i] : "";
        if (name == "--deaths") {
            o.deaths = static_cast<std::size_t>(std::atoi(value));
        } else if (name == "--seconds") {
            o.seconds = std::atof(value);
        } else if (name == "--busy") {
            o.busy = std::atof(value);
        } else if (name == "--marks") {
            o.marks = value;
        } else if (name == "--die-before-init") {
            o.die_before_init = std::atoi(value);
        } else if (name == "--hold") {
            o.hold = std::atoi(value);
        } else if (name == "--wait-for") {
            o.wait_for = std::atoi(value);
        } else if (name == "--abort") {
            o.abort = std::atoi(value);
        } else if (name == "--exit-code") {
            pair(value, o.coded, o.code);
        } else if (name == "--talk-to") {
            o.talk_to = std::atoi(value);
        } else if (name == "--hang") {
            o.hang = std::atoi(value);
        } else if (name == "--hang-in-handler") {
            o.hang_in_handler = std::atoi(value);
        } else if (name == "--stand") {
            pair(value, o.stand, o.stand_ms);
        } else if (name == "--compute") {
            pair(value, o.compute, o.compute_ms);
        } else {
            std::fprintf(stderr, "survivors: what is %s?\n", name.c_str());
            std::exit(64);
        }
    }
    return o;
}

bool lives(std::uint32_t jobid, int rank)
{
    return !ft::process::is_dead({jobid, static_cast<std::uint32_t>(rank)});
}

/// The job's number, out of the deaths that are known; 0 when there are none.
std::uint32_t job()
{
    return ft::process::death_count() == 0 ? 0 : ft::process::death(0).who.jobid;
}

bool right_sum(int me, int size)
{
    std::vector<int> alive;
    long long want = 0;
    for (int r = 0; r < size; ++r) {
        if (lives(job(), r)) {
            alive.push_back(r);
            want += static_cast<long long>(r) * r;
        }
    }
    const int root = alive.front();
    long long mine = static_cast<long long>(me) * me;
    long long sum = mine;
    if (me != root) {
        MPI_Send(&mine, 1, MPI_LONG_LONG, root, 1, MPI_COMM_WORLD);
        MPI_Recv(&sum, 1, MPI_LONG_LONG, root, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return sum == want;
    }
    for (const int r : alive) {
        long long part = 0;
        if (r != root) {
            MPI_Recv(&part, 1, MPI_LONG_LONG, r, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            sum += part;
        }
    }
    for (const int r : alive) {
        if (r != root) {
            MPI_Send(&sum, 1, MPI_LONG_LONG, r, 2, MPI_COMM_WORLD);
        }
    }
    return sum == want;
}

/// MPI_ERR_RANK_FAIL_STOP of mpi_ft.h, whose library this program does without.
constexpr int rank_fail_stop = 75;

int class_of(int rc)
{
    int error = MPI_SUCCESS;
    MPI_Error_class(rc, &error);
    return error;
}

/// Waits in several ways for `dead`, which never sends, and prints what comes of it.
void wait_for_the_dead(int dead, int me, MPI_Comm pair)
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int word = 0;
    int any = 0;
    MPI_Request anybody = MPI_REQUEST_NULL;
    MPI_Irecv(&any, 1, MPI_INT, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &anybody);
    const int received =
        class_of(MPI_Recv(&word, 1, MPI_INT, dead, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    const int sent = class_of(MPI_Send(&word, 1, MPI_INT, dead, 7, MPI_COMM_WORLD));
    std::printf("classes %d: %d %d\n", me, received, sent);
    if (pair != MPI_COMM_NULL) {
        MPI_Comm_set_errhandler(pair, MPI_ERRORS_RETURN);
        const int rc = MPI_Recv(&word, 1, MPI_INT, MPI_ANY_SOURCE, 7, pair, MPI_STATUS_IGNORE);
        std::printf("wildcard %d: %d\n", me, class_of(rc));
    }
    int done = 0;
    int rc = MPI_Test(&anybody, &done, MPI_STATUS_IGNORE);
    if (rc == MPI_SUCCESS && done == 0) {
        MPI_Send(&me, 1, MPI_INT, me, 8, MPI_COMM_WORLD);
        rc = MPI_Wait(&anybody, MPI_STATUS_IGNORE);
    }
    std::printf("anybody %d: %d early %d\n", me, class_of(rc), done);
    std::fflush(stdout);
}

/// One collective operation after the other until a rank is dead. False when one ended wrongly.
bool collect(int me, int size, const Options &o)
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    const auto all = static_cast<long long>(size) * (size - 1) / 2;
    constexpr int rounds_before_mark = 12;
    for (int round = 0; ft::process::death_count() == 0; ++round) {
        const long long mine = me;
        long long sum = all;
        int rc = MPI_SUCCESS;
        switch (round % 3) {
        case 0:
            rc = MPI_Allreduce(&mine, &sum, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
            break;
        case 1:
            rc = MPI_Barrier(MPI_COMM_WORLD);
            break;
        default:
            rc = MPI_Bcast(&sum, 1, MPI_LONG_LONG, round % size, MPI_COMM_WORLD);
        }
        if (rc != MPI_SUCCESS) {
            // Some of the stock algorithms say MPI_ERR_OTHER for whatever goes wrong inside.
            const int error = class_of(rc);
            return error == rank_fail_stop || error == MPI_ERR_OTHER;
        }
        if (sum != all) {
            return false;
        }
        if (round == rounds_before_mark && me == 0) {
            mark(o.marks, "collecting");
        }
    }
    return true;
}

/// Prints "pvars R: NAME=VALUE ...", all of errmgr/radixft.
void tell_pvars(int me)
{
    MPI_T_pvar_session session = MPI_T_PVAR_SESSION_NULL;
    MPI_T_pvar_session_create(&session);
    int count = 0;
    MPI_T_pvar_get_num(&count);
    std::string text;
    for (int i = 0; i < count; ++i) {
        char name[128] = "";
        int length = sizeof name;
        int none = 0;
        MPI_Datatype type = MPI_DATATYPE_NULL;
        int ignored = 0;
        if (MPI_T_pvar_get_info(i, name, &length, &ignored, &ignored, &type, nullptr, nullptr,
                                &none, &ignored, &ignored, &ignored, &ignored) != MPI_SUCCESS ||
            std::strncmp(name, "errmgr_radixft_", 15) != 0) {
            continue;
        }
        MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
        int values = 0;
        MPI_T_pvar_handle_alloc(session, i, nullptr, &handle, &values);
        text += std::string(" ") + (name + 15) + "=";
        if (type == MPI_DOUBLE) {
            double value = 0;
            MPI_T_pvar_read(session, handle, &value);
            text += std::to_string(value);
        } else {
            unsigned long long value = 0;
            MPI_T_pvar_read(session, handle, &value);
            text += std::to_string(value);
        }
    }
    MPI_T_pvar_session_free(&session);
    std::printf("pvars %d:%s\n", me, text.c_str());
    std::fflush(stdout);
}

/// Whether this process maps the memory, with locks in it, in which PMIx may keep what ranks read.
bool shares_store()
{
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (line.find("/pmix_dstor") != std::string::npos) {
            return true;
        }
    }
    return false;
}

} // namespace

int main(int argc, char **argv)
{
    const Options o = parse(argc, argv);
    const char *const early = std::getenv("OMPI_COMM_WORLD_RANK");
    if (early != nullptr && std::atoi(early) == o.die_before_init) {
        std::abort();
    }
    if (o.pvars) {
        int provided = 0;
        MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    }
    MPI_Init(&argc, &argv);
    int me = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (shares_store()) {
        std::printf("rank %d shares PMIx's store\n", me);
    }
    MPI_Comm pair = MPI_COMM_NULL;
    if (o.wait_for >= 0) {
        const bool in_pair = me == o.wait_for || me == (o.wait_for + 1) % size;
        MPI_Comm_split(MPI_COMM_WORLD, in_pair ? 0 : MPI_UNDEFINED, me, &pair);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    // Of every rank: who is still in the barrier would wait there for the dead, and for ever under
    // ob1.
    mark(o.marks, "ready " + std::to_string(me));
    if (me == o.abort) {
        MPI_Abort(MPI_COMM_WORLD, 42);
    }
    if (o.stand >= 0 || o.compute >= 0) {
        if (me == o.stand) {
            stand_in_mpi(o.stand_ms);
        } else if (me == o.compute) {
            compute(o.compute_ms);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (me == o.hang) {
        deadlock_in_mpi();
    }
    if (me == o.hang_in_handler) {
        deadlock_in_handler();
    } else if (o.hang_in_handler >= 0 && me == (o.hang_in_handler + 1) % size) {
        trip_handler(o.hang_in_handler);
    }
    const auto begin = std::chrono::steady_clock::now();
    const auto since = [&begin] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    if (o.wait_for >= 0 && me != o.wait_for) {
        wait_for_the_dead(o.wait_for, me, pair);
    }
    if (o.talk_to >= 0 && me == (o.talk_to + 1) % size) {
        int word = 0;
        MPI_Recv(&word, 1, MPI_INT, o.talk_to, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (o.collectives && !collect(me, size, o)) {
        std::printf("rank %d: a collective operation ended wrongly\n", me);
        std::fflush(stdout);
        return 7;
    }
    while (me == o.hold || (o.hold < 0 && ft::process::death_count() < o.deaths)) {
        if (o.nap) {
            const std::uint64_t seen = ft::process::news();
            if (ft::process::death_count() < o.deaths) {
                ::alarm(static_cast<unsigned>(o.seconds)); // which ends a rank that waits in vain
                ft::process::wait_for_news(seen);
                ::alarm(0);
            }
            continue;
        }
        int flag = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        if (since() > o.seconds) {
            std::printf("rank %d waited in vain: %zu deaths known\n", me,
                        ft::process::death_count());
            std::fflush(stdout);
            return 9;
        }
    }
    if (o.deaths > 0 && o.hold < 0) {
        mark(o.marks, "knows " + std::to_string(me));
    }
    while (since() < o.busy) {
    }
    if (o.hold >= 0) {
        mark(o.marks, "finalizing " + std::to_string(me));
    } else if (o.sum && !right_sum(me, size)) {
        std::printf("rank %d: wrong sum\n", me);
        std::fflush(stdout);
        return 8;
    }
    if (o.pvars) {
        // Behind MPI_Finalize, MPI_T_finalize crashes in Open MPI 4.1.4.
        tell_pvars(me);
        MPI_T_finalize();
    }
    MPI_Finalize();
    std::string text = "survivor " + std::to_string(me) + " knows";
    for (std::size_t i = 0; i < ft::process::death_count(); ++i) {
        const ft::process::Death d = ft::process::death(i);
        text += " " + std::to_string(d.who.vpid) + "@" + std::to_string(d.epoch);
    }
    mark(o.marks, "finalized " + std::to_string(me));
    std::printf("%s\nfinalized %d\n", text.c_str(), me);
    std::fflush(stdout);
    return me == o.coded ? o.code : 0;
}

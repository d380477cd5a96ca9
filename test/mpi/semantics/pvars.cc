/* The performance variables of pml/dr, read through MPI_T, while fragments are lost, spoilt and
 * doubled, by test/mpi/pvars.py: run with btl_fault_drop, btl_fault_corrupt and, several times as
 * much of it, btl_fault_duplicate. At the end each rank prints what they say.
 */
#include "test/mpi/semantics/cases.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <string>

namespace {

using cases::check;
using cases::world;

constexpr int paths_of_a_peer = 16;
MPI_T_pvar_session session = MPI_T_PVAR_SESSION_NULL;

struct Variable {
    MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
    int count = 0;
};
std::map<std::string, Variable> variables;

constexpr std::array sums{
    "fragments_sent",
    "fragments_acknowledged",
    "fragments_received",
    "retransmitted_timeout",
    "retransmitted_watchdog",
    "retransmitted_gap",
    "retransmitted_tail",
    "questions_sent",
    "retransmitted_nack",
    "retransmitted_failover",
    "retransmitted_spurious",
    "spurious_timeouts",
    "duplicates",
    "corrupt_headers",
    "corrupt_payloads",
    "failovers",
    "returns",
};
constexpr std::array path_figures{"path_failovers",
                                  "path_returns",
                                  "path_srtt",
                                  "path_rttvar",
                                  "path_bytes",
                                  "path_bandwidth",
                                  "path_congestion_window",
                                  "path_pace",
                                  "path_lost_bytes",
                                  "path_congestion_events"};
constexpr const char *window = "window_bytes_used";

unsigned long long sum(const char *name)
{
    unsigned long long value = 0;
    check(MPI_T_pvar_read(session, variables[name].handle, &value) == MPI_SUCCESS, name);
    return value;
}

void all_are_there()
{
    int count = 0;
    MPI_T_pvar_get_num(&count);
    for (int i = 0; i < count; ++i) {
        std::array<char, 128> name{};
        std::array<char, 512> help{};
        int name_length = name.size();
        int help_length = help.size();
        int verbosity = 0;
        int var_class = 0;
        int bind = 0;
        int readonly = 0;
        int continuous = 0;
        int atomic = 0;
        MPI_Datatype type = MPI_DATATYPE_NULL;
        MPI_T_enum values = MPI_T_ENUM_NULL;
        if (MPI_T_pvar_get_info(i, name.data(), &name_length, &verbosity, &var_class, &type,
                                &values, help.data(), &help_length, &bind, &readonly, &continuous,
                                &atomic) != MPI_SUCCESS) {
            continue; // of a component that was not chosen
        }
        const std::string full(name.data());
        const std::string prefix("pml_dr_");
        if (full.compare(0, prefix.size(), prefix) != 0) {
            continue;
        }
        Variable &variable = variables[full.substr(prefix.size())];
        MPI_Comm comm = MPI_COMM_WORLD;
        void *object = bind == MPI_T_BIND_MPI_COMM ? &comm : nullptr;
        check(MPI_T_pvar_handle_alloc(session, i, object, &variable.handle, &variable.count) ==
                  MPI_SUCCESS,
              "handle", i);
        check(readonly == 1 && continuous == 1 && help_length > 10, "attributes", i);
        if (world().rank == 0) {
            std::printf("# variable %s\n", full.c_str());
        }
    }
    for (const char *name : sums) {
        check(variables.contains(name) && variables[name].count == 1, name);
    }
    for (const char *name : path_figures) {
        check(variables.contains(name) && variables[name].count == world().size * paths_of_a_peer,
              name, variables[name].count);
    }
    check(variables.contains(window) && variables[window].count == world().size, window);
}

void traffic_counts()
{
    const auto sent_before = sum("fragments_sent");
    std::vector<unsigned char> out(3000);
    std::vector<unsigned char> in(out.size());
    for (int turn = 0; turn < 500; ++turn) {
        MPI_Sendrecv(out.data(), 3000, MPI_BYTE, world().right(), 0, in.data(), 3000, MPI_BYTE,
                     world().left(), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    // Many at once: what is lost among them is told of by those behind it. Of so short ones headers
    // break, of the others payloads.
    constexpr int number = 64;
    for (int turn = 0; turn < 16; ++turn) {
        const int size = turn % 2 == 0 ? 8 : 3000;
        std::vector<unsigned char> all(static_cast<std::size_t>(number) * out.size());
        std::array<MPI_Request, 2 * number> requests{};
        for (std::size_t i = 0; i < number; ++i) {
            MPI_Irecv(&all[i * out.size()], size, MPI_BYTE, world().left(), 1, MPI_COMM_WORLD,
                      &requests[i]);
        }
        for (std::size_t i = 0; i < number; ++i) {
            MPI_Isend(out.data(), size, MPI_BYTE, world().right(), 1, MPI_COMM_WORLD,
                      &requests[number + i]);
        }
        MPI_Waitall(2 * number, requests.data(), MPI_STATUSES_IGNORE);
    }
    // Of long ones hardly anything but payloads breaks.
    constexpr int long_bytes = 200000;
    std::vector<unsigned char> long_out(long_bytes);
    std::vector<unsigned char> long_in(long_bytes);
    for (int turn = 0; turn < 20; ++turn) {
        MPI_Sendrecv(long_out.data(), long_bytes, MPI_BYTE, world().right(), 2, long_in.data(),
                     long_bytes, MPI_BYTE, world().left(), 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    check(sum("fragments_sent") >= sent_before + 500, "fragments_sent");
    check(sum("fragments_sent") >= sum("fragments_acknowledged"), "more acknowledged than sent");
    check(sum("fragments_acknowledged") > 400, "fragments_acknowledged");
    check(sum("fragments_received") >= 500, "fragments_received");
}

void faults_count()
{
    const auto again = sum("retransmitted_timeout") + sum("retransmitted_gap") +
                       sum("retransmitted_tail") + sum("retransmitted_nack") +
                       sum("retransmitted_watchdog") + sum("retransmitted_failover");
    check(again > 0 && again < sum("fragments_sent"), "sent again", static_cast<long>(again));
    check(sum("retransmitted_spurious") <= again, "retransmitted_spurious");
    // What is hit is drawn: among all ranks and 500 turns there is some of each.
    const std::array<unsigned long long, 2> mine{sum("duplicates"), again};
    std::array<unsigned long long, 2> of_all{};
    MPI_Allreduce(mine.data(), of_all.data(), 2, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    // What is sent again comes twice at most: the rest of them is the fault's.
    check(of_all[0] > of_all[1], "duplicates", static_cast<long>(of_all[0]));
    if (world().rank == 0) {
        std::printf("# %llu duplicates, %llu sent again\n", of_all[0], of_all[1]);
    }
}

bool over_datagrams()
{
    const char *btls = std::getenv("OMPI_MCA_btl");
    return btls != nullptr && std::strstr(btls, "dgram") != nullptr;
}

constexpr int late_tag = 2;
constexpr double deadline_seconds = 20;

/* Sends to rank 1, which is stopped, until it has sent again and again, and lets it go on: what it
 * acknowledges then comes late. */
void send_to_stopped(int pid)
{
    const auto before = sum("retransmitted_timeout");
    const double end = MPI_Wtime() + deadline_seconds;
    int flag = 0;
    while (!cases::is_stopped(pid)) { // what tells it to may have been lost
        MPI_Iprobe(1, late_tag, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend("", 1, MPI_CHAR, 1, late_tag, MPI_COMM_WORLD, &request);
    while (sum("retransmitted_timeout") < before + 2 && MPI_Wtime() < end) {
        MPI_Iprobe(1, late_tag, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
    check(sum("retransmitted_timeout") >= before + 2, "nothing was sent again");
    kill(pid, SIGCONT);
    MPI_Recv(nullptr, 0, MPI_CHAR, 1, late_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* An acknowledgement that comes late: the timeout was in vain, and so was what was sent again. One
 * that was lost for good is another matter, so there are several turns if it takes them. */
void late_is_not_lost()
{
    if (world().rank > 1) {
        return;
    }
    const auto all_seen = [] {
        return sum("retransmitted_spurious") > 0 &&
               (sum("spurious_timeouts") > 0 || over_datagrams()); // they do not tell these apart
    };
    const int pid = getpid();
    char byte = 0;
    int other = 0;
    int more = 1;
    if (world().rank == 0) {
        MPI_Recv(&other, 1, MPI_INT, 1, late_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        const double end = MPI_Wtime() + deadline_seconds;
        while (more != 0) {
            send_to_stopped(other);
            more = all_seen() || MPI_Wtime() > end ? 0 : 1;
            // Whoever has it stops before it can answer, if that is to be: so nobody waits for it.
            MPI_Send(&more, 1, MPI_INT, 1, late_tag, MPI_COMM_WORLD);
        }
        check(all_seen(), "nothing was seen to be late");
        return;
    }
    MPI_Ssend(&pid, 1, MPI_INT, 0, late_tag, MPI_COMM_WORLD);
    while (more != 0) {
        raise(SIGSTOP);
        MPI_Recv(&byte, 1, MPI_CHAR, 0, late_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(nullptr, 0, MPI_CHAR, 0, late_tag, MPI_COMM_WORLD);
        MPI_Recv(&more, 1, MPI_INT, 0, late_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

void paths_are_measured()
{
    std::vector<double> srtt(static_cast<std::size_t>(variables["path_srtt"].count));
    std::vector<double> rttvar(srtt.size());
    std::vector<double> failovers(srtt.size());
    MPI_T_pvar_read(session, variables["path_srtt"].handle, srtt.data());
    MPI_T_pvar_read(session, variables["path_rttvar"].handle, rttvar.data());
    MPI_T_pvar_read(session, variables["path_failovers"].handle, failovers.data());
    const auto first = [](int rank) { return static_cast<std::size_t>(rank * paths_of_a_peer); };
    check(srtt[first(world().right())] > 0, "path_srtt");
    check(rttvar[first(world().right())] > 0, "path_rttvar");
    check(srtt[first(world().rank)] == 0, "path_srtt of this process itself");
    check(rttvar[first(world().rank)] == 0, "path_rttvar of this process itself");
    std::vector<double> bytes(srtt.size());
    std::vector<double> bandwidth(srtt.size());
    MPI_T_pvar_read(session, variables["path_bytes"].handle, bytes.data());
    MPI_T_pvar_read(session, variables["path_bandwidth"].handle, bandwidth.data());
    const double to_right = std::accumulate(
        bytes.begin() + static_cast<std::ptrdiff_t>(first(world().right())),
        bytes.begin() + static_cast<std::ptrdiff_t>(first(world().right() + 1)), 0.0);
    check(to_right >= 500.0 * 3000.0, "path_bytes");
    check(bandwidth[first(world().right())] > 0, "path_bandwidth");
    const double times = std::accumulate(failovers.begin(), failovers.end(), 0.0);
    check(times == static_cast<double>(sum("failovers")), "path_failovers do not add up");
}

std::vector<double> path_values(const char *name)
{
    std::vector<double> values(static_cast<std::size_t>(variables[name].count));
    check(MPI_T_pvar_read(session, variables[name].handle, values.data()) == MPI_SUCCESS, name);
    return values;
}

/* Of datagrams, which are lost: with drops, and where nothing else carries anything. Of TCP and
 * shared memory nothing is to be seen. */
void congestion_is_seen()
{
    const auto windows = path_values("path_congestion_window");
    const auto paces = path_values("path_pace");
    const auto lost = path_values("path_lost_bytes");
    const auto events = path_values("path_congestion_events");
    const auto srtt = path_values("path_srtt");
    if (!over_datagrams()) {
        for (const auto *values : {&windows, &paces, &lost, &events}) {
            check(std::count(values->begin(), values->end(), 0.0) ==
                      static_cast<std::ptrdiff_t>(values->size()),
                  "the transport limits itself");
        }
        return;
    }
    const auto right = static_cast<std::size_t>(world().right() * paths_of_a_peer);
    constexpr double least = 8 * 1024;
    constexpr double most = 2 * 1024 * 1024;
    check(windows[right] >= least && windows[right] <= most, "path_congestion_window",
          static_cast<long>(windows[right]));
    // All are of the newest acknowledgement: bytes per microsecond are MB/s. After a standstill the
    // pace is that of 64 times the newest round trip, none of which takes less than 5 us.
    const double slowest = 2 * windows[right] / srtt[right];
    const double fastest = 2 * windows[right] / std::min(srtt[right], 64 * 5.0);
    check(paces[right] > slowest * 0.99 && paces[right] < fastest * 1.01, "path_pace",
          static_cast<long>(paces[right]));
    check(events[right] >= 0, "path_congestion_events");
    const std::array<double, 2> mine{
        std::accumulate(lost.begin(), lost.end(), 0.0),
        static_cast<double>(sum("retransmitted_gap") + sum("retransmitted_timeout"))};
    std::array<double, 2> of_all{};
    MPI_Allreduce(mine.data(), of_all.data(), 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    check(of_all[0] > 0, "path_lost_bytes");
    if (world().rank == 0) {
        std::printf("# window %.0f, pace %.0f MB/s, %.0f bytes lost\n", windows[right],
                    paces[right], of_all[0]);
    }
}

/* Who makes progress sees its window empty itself. */
void window_empties()
{
    std::vector<unsigned long long> used(static_cast<std::size_t>(world().size));
    unsigned long long left = 1;
    while (left != 0) {
        int flag = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        MPI_T_pvar_read(session, variables[window].handle, used.data());
        left = std::accumulate(used.begin(), used.end(), 0ULL);
    }
}

/* One line for each rank, by which pvars.py holds them against pml_dr_stats. Of each path's figures
 * those that count, all paths together. */
void print_all()
{
    std::string line = "pvars[rank " + std::to_string(world().rank) + "]:";
    for (const char *name : sums) {
        line += std::string(" ") + name + "=" + std::to_string(sum(name));
    }
    for (const char *name : {"path_bytes", "path_failovers", "path_returns", "path_lost_bytes",
                             "path_congestion_events"}) {
        const auto values = path_values(name);
        const double all = std::accumulate(values.begin(), values.end(), 0.0);
        line += std::string(" ") + name + "=" + std::to_string(static_cast<long long>(all));
    }
    const auto srtt = path_values("path_srtt");
    const auto rttvar = path_values("path_rttvar");
    std::string trips = "trips[rank " + std::to_string(world().rank) + "]:";
    for (std::size_t i = 0; i < srtt.size(); ++i) {
        if (srtt[i] > 0) {
            std::array<char, 64> text{};
            std::snprintf(text.data(), text.size(), " %.1f/%.1f", srtt[i], rttvar[i]);
            trips += text.data();
        }
    }
    std::printf("%s\n%s\n", line.c_str(), trips.c_str());
    std::fflush(stdout);
}

/* Before MPI_Finalize: behind it MPI_T_finalize crashes in Open MPI 4.1.4, with every PML. */
void session_ends()
{
    check(MPI_T_pvar_session_free(&session) == MPI_SUCCESS, "session");
    check(MPI_T_finalize() == MPI_SUCCESS, "end of MPI_T");
}

constexpr std::array all{
    cases::Case{"every performance variable is there", all_are_there},
    cases::Case{"traffic counts", traffic_counts},
    cases::Case{"faults count", faults_count},
    cases::Case{"paths are measured", paths_are_measured},
    cases::Case{"congestion is seen", congestion_is_seen},
    cases::Case{"what is late is told from what is lost", late_is_not_lost},
    cases::Case{"the window empties itself", window_empties},
    cases::Case{"all of them are printed", print_all},
    cases::Case{"the session ends", session_ends},
};

} // namespace

int main(int argc, char **argv)
{
    int provided = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_session_create(&session);
    return cases::run(argc, argv, MPI_THREAD_SINGLE, all);
}

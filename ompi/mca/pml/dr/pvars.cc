#include "ompi/mca/pml/dr/pvars.hpp"

#include "ompi/mca/pml/dr/peers.hpp"
#include "ompi/mca/pml/dr/recv_fragment.hpp"

#include <mutex>

namespace ft::dr {

namespace {

using reliability::Congestion;
using reliability::Counters;
using reliability::Path;

/// A sum over all peers of this process.
struct Sum {
    const char *name;
    std::uint64_t Counters::*counter;
    const char *help;
};

constexpr Sum sums[] = {
    {"fragments_sent", &Counters::fragments_sent,
     "Fragments handed to BTLs, first and repeated; acknowledgements and probes not counted."},
    {"fragments_acknowledged", &Counters::fragments_acknowledged,
     "Fragments of ours that were acknowledged, each once."},
    {"fragments_received", &Counters::fragments_received, "Fragments accepted, each once."},
    {"retransmitted_timeout", &Counters::retransmitted_timeout,
     "Fragments sent again since no acknowledgement came in time."},
    {"retransmitted_watchdog", &Counters::retransmitted_watchdog,
     "Fragments sent again since a BTL did not let go of them."},
    {"retransmitted_gap", &Counters::retransmitted_gap,
     "Fragments sent again since later ones were acknowledged."},
    {"retransmitted_tail", &Counters::retransmitted_tail,
     "Fragments sent again since the peer, asked what had come, did not have them."},
    {"questions_sent", &Counters::questions_sent,
     "Acknowledgements that ask the peer what has come, since nothing told for a while."},
    {"retransmitted_nack", &Counters::retransmitted_nack,
     "Fragments sent again since their payload arrived broken."},
    {"retransmitted_failover", &Counters::retransmitted_failover,
     "Fragments sent again since their path went away."},
    {"retransmitted_spurious", &Counters::retransmitted_spurious,
     "Of those sent again, the ones that had arrived after all."},
    {"spurious_timeouts", &Counters::spurious_timeouts,
     "Timeouts of what was not lost but late, as far as acknowledgements tell; later ones wait "
     "longer for a while."},
    {"duplicates", &Counters::duplicates, "Fragments dropped since they had come before."},
    {"corrupt_headers", &Counters::corrupt_header,
     "Fragments dropped since the checksum of their header was wrong."},
    {"corrupt_payloads", &Counters::corrupt_payload,
     "Fragments dropped since the checksum of their payload was wrong."},
    {"failovers", &Counters::path_down, "Paths taken out, all peers together."},
    {"returns", &Counters::path_up, "Paths taken back, all peers together."},
};

/// A figure of each path to each process of a communicator.
struct PathFigure {
    const char *name;
    double (*read)(const Path &path);
    const char *help;
};

/// Of a path without a congestion window: 0.
template <auto Read>
double congestion(const Path &path)
{
    return path.congestion == nullptr ? 0 : static_cast<double>(((*path.congestion).*Read)());
}

constexpr PathFigure path_figures[] = {
    {"path_failovers", [](const Path &path) { return static_cast<double>(path.failovers); },
     "How often each path to each process was taken out."},
    {"path_returns", [](const Path &path) { return static_cast<double>(path.returns); },
     "How often each path to each process was taken back."},
    {"path_srtt", [](const Path &path) { return path.rtt.smoothed().seconds() * 1e6; },
     "Smoothed round-trip time of each path to each process, microseconds; 0: not measured yet."},
    {"path_rttvar", [](const Path &path) { return path.rtt.variance().seconds() * 1e6; },
     "Variance (RFC 6298) of the round-trip time of each path to each process, microseconds."},
    {"path_bytes", [](const Path &path) { return static_cast<double>(path.bytes_sent); },
     "Payload bytes handed to each path to each process, repetitions included."},
    {"path_bandwidth", [](const Path &path) { return path.bandwidth * 1e3; },
     "Bandwidth that each path to each process is believed to have, by which load is shared out, "
     "MB/s: measured while it was loaded, before that a guess."},
    {"path_congestion_window", congestion<&Congestion::window>,
     "Payload bytes that may be on their way at once over each path to each process; 0: its "
     "transport limits itself, as TCP and shared memory do."},
    {"path_pace", [](const Path &path) { return congestion<&Congestion::pace>(path) * 1e3; },
     "Rate at which fragments are let out to each path to each process, MB/s: two congestion "
     "windows a round trip; 0: not measured yet, or the transport limits itself."},
    {"path_lost_bytes", congestion<&Congestion::lost_bytes>,
     "Payload bytes that were taken for lost on each path with a congestion window to each "
     "process."},
    {"path_congestion_events", congestion<&Congestion::congestion_events>,
     "How often the congestion window of each path to each process shrank."},
};

constexpr auto continuous =
    static_cast<mca_base_pvar_flag_t>(MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS);

std::mutex reading; ///< before any of lock.hpp; also where the process says that it has no threads
bool may_read = false;

int read_sum(const mca_base_pvar_t *variable, void *value, void * /*object*/) noexcept
{
    const auto &sum = *static_cast<const Sum *>(variable->ctx);
    unsigned long long total = 0;
    const std::lock_guard guard(reading);
    if (may_read) {
        total = stray_counters().*sum.counter;
        peers().for_each([&](const PeerState &peer) {
            Guard held(peer.lock);
            total += peer.engine.counters().*sum.counter;
        });
    }
    *static_cast<unsigned long long *>(value) = total;
    return OMPI_SUCCESS;
}

int processes_of(void *comm) noexcept
{
    return static_cast<ompi_communicator_t *>(comm)->c_remote_group->grp_proc_count;
}

/// Calls visit(rank, peer) for every process of a communicator that was met.
template <class Visit>
void for_each_met(void *object, Visit visit) noexcept
{
    auto *comm = static_cast<ompi_communicator_t *>(object);
    const std::lock_guard guard(reading);
    const int count = may_read ? processes_of(comm) : 0;
    for (int rank = 0; rank < count; ++rank) {
        if (const PeerState *peer = Peers::met(comm, rank); peer != nullptr) {
            Guard held(peer->lock);
            visit(static_cast<std::size_t>(rank), *peer);
        }
    }
}

int read_paths(const mca_base_pvar_t *variable, void *value, void *comm) noexcept
{
    const auto &figure = *static_cast<const PathFigure *>(variable->ctx);
    auto *values = static_cast<double *>(value);
    std::fill_n(values, processes_of(comm) * static_cast<int>(reliability::max_paths), 0.0);
    for_each_met(comm, [&](std::size_t rank, const PeerState &peer) {
        const reliability::PathSet &paths = peer.engine.paths();
        for (reliability::PathId id = 0; id < paths.size(); ++id) {
            values[rank * reliability::max_paths + id] = figure.read(paths[id]);
        }
    });
    return OMPI_SUCCESS;
}

int read_windows(const mca_base_pvar_t * /*variable*/, void *value, void *comm) noexcept
{
    auto *values = static_cast<unsigned long long *>(value);
    std::fill_n(values, processes_of(comm), 0ULL);
    for_each_met(comm, [&](std::size_t rank, const PeerState &peer) {
        values[rank] = peer.engine.sender().window_bytes();
    });
    return OMPI_SUCCESS;
}

int count_paths(mca_base_pvar_t * /*variable*/, mca_base_pvar_event_t event, void *comm,
                int *count) noexcept
{
    if (event == MCA_BASE_PVAR_HANDLE_BIND) {
        *count = processes_of(comm) * static_cast<int>(reliability::max_paths);
    }
    return OMPI_SUCCESS;
}

int count_processes(mca_base_pvar_t * /*variable*/, mca_base_pvar_event_t event, void *comm,
                    int *count) noexcept
{
    if (event == MCA_BASE_PVAR_HANDLE_BIND) {
        *count = processes_of(comm);
    }
    return OMPI_SUCCESS;
}

} // namespace

void let_pvars_be_read(bool may) noexcept
{
    const std::lock_guard guard(reading);
    may_read = may;
}

int register_pvars(const mca_base_component_t &component) noexcept
{
    int rc = OMPI_SUCCESS;
    for (const Sum &sum : sums) {
        rc = std::min(rc, mca_base_component_pvar_register(
                              &component, sum.name, sum.help, OPAL_INFO_LVL_4,
                              MCA_BASE_PVAR_CLASS_COUNTER, MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG,
                              nullptr, MCA_BASE_VAR_BIND_NO_OBJECT, continuous, read_sum, nullptr,
                              nullptr, const_cast<Sum *>(&sum)));
    }
    for (const PathFigure &figure : path_figures) {
        rc = std::min(rc, mca_base_component_pvar_register(
                              &component, figure.name, figure.help, OPAL_INFO_LVL_4,
                              MCA_BASE_PVAR_CLASS_LEVEL, MCA_BASE_VAR_TYPE_DOUBLE, nullptr,
                              MCA_BASE_VAR_BIND_MPI_COMM, continuous, read_paths, nullptr,
                              count_paths, const_cast<PathFigure *>(&figure)));
    }
    return std::min(rc,
                    mca_base_component_pvar_register(
                        &component, "window_bytes_used",
                        "Payload bytes to each process that are sent and not yet acknowledged.",
                        OPAL_INFO_LVL_4, MCA_BASE_PVAR_CLASS_LEVEL,
                        MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, nullptr, MCA_BASE_VAR_BIND_MPI_COMM,
                        continuous, read_windows, nullptr, count_processes, nullptr));
}

} // namespace ft::dr

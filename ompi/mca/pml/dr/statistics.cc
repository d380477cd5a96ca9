#include "ompi/mca/pml/dr/statistics.hpp"

#include <cinttypes>

#include "ompi/mca/pml/dr/parameters.hpp"
#include "ompi/mca/pml/dr/peers.hpp"
#include "ompi/mca/pml/dr/recv_fragment.hpp"

namespace ft::dr {

namespace {

using reliability::Counters;

void print_line(const char *who, const Counters &c, const char *when = "") noexcept
{
    const std::uint64_t again = c.retransmitted_timeout + c.retransmitted_watchdog +
                                c.retransmitted_gap + c.retransmitted_tail + c.retransmitted_nack +
                                c.retransmitted_failover;
    std::fprintf(
        stderr,
        "pml/dr[%s]%s: sent=%" PRIu64 " acked=%" PRIu64 " retransmitted=%" PRIu64
        " (timeout=%" PRIu64 " watchdog=%" PRIu64 " gap=%" PRIu64 " tail=%" PRIu64 " nack=%" PRIu64
        " failover=%" PRIu64 " spurious=%" PRIu64 ") duplicates=%" PRIu64 " corrupt_header=%" PRIu64
        " corrupt_payload=%" PRIu64 " paths_down=%" PRIu64 " paths_up=%" PRIu64
        " acks_sent=%" PRIu64 " questions=%" PRIu64 " piggybacked=%" PRIu64 " checksummed=%" PRIu64
        " lost=%" PRIu64 " received=%" PRIu64 " malformed=%" PRIu64 " outside_window=%" PRIu64
        " early=%" PRIu64 " probes=%" PRIu64 " spurious_timeouts=%" PRIu64 " bytes_sent=%" PRIu64
        " bytes_received=%" PRIu64 "\n",
        who, when, c.fragments_sent, c.fragments_acknowledged, again, c.retransmitted_timeout,
        c.retransmitted_watchdog, c.retransmitted_gap, c.retransmitted_tail, c.retransmitted_nack,
        c.retransmitted_failover, c.retransmitted_spurious, c.duplicates, c.corrupt_header,
        c.corrupt_payload, c.path_down, c.path_up, c.acks_sent, c.questions_sent,
        c.acks_piggybacked, c.fragments_checksummed, c.declared_lost, c.fragments_received,
        c.malformed, c.outside_window, c.early, c.probes_sent, c.spurious_timeouts, c.bytes_sent,
        c.bytes_received);
}

void print_paths(const char *self, const PeerState &peer) noexcept
{
    for (const auto &path : peer.paths) {
        const reliability::Path &p = peer.engine.paths()[path->id];
        char congestion[160] = "";
        if (const reliability::Congestion *c = p.congestion.get(); c != nullptr) {
            std::snprintf(congestion, sizeof congestion,
                          " congestion=%s congestion_window=%" PRIu64
                          " pace_MBs=%.0f lost_bytes=%" PRIu64 " congestion_events=%" PRIu32,
                          to_string(c->control()), c->window(), c->pace() * 1e3, c->lost_bytes(),
                          c->congestion_events());
        }
        std::fprintf(stderr,
                     "pml/dr[%s -> %s %s]: state=%s sent=%" PRIu64 " bytes=%" PRIu64
                     " acked=%" PRIu64 " failovers=%" PRIu32 " returns=%" PRIu32
                     " rtt_us=%.1f rttvar_us=%.1f bandwidth_MBs=%.0f%s\n",
                     self, peer.printed_name(), path->name().c_str(),
                     reliability::to_string(p.state), p.fragments_sent, p.bytes_sent,
                     p.fragments_acked, p.failovers, p.returns, p.rtt.smoothed().seconds() * 1e6,
                     p.rtt.variance().seconds() * 1e6, p.bandwidth * 1e3, congestion);
    }
}

} // namespace

void print_statistics() noexcept
{
    const unsigned level = parameters().stats;
    if (level == 0) {
        return;
    }
    char self[32];
    std::snprintf(self, sizeof self, "rank %u", peers().self().rank);
    Counters sum = stray_counters();
    peers().for_each([&](PeerState &peer) {
        sum += peer.engine.counters();
        if (level >= 2) {
            char who[96];
            std::snprintf(who, sizeof who, "%s -> %s", self, peer.printed_name());
            print_line(who, peer.engine.counters());
            std::fprintf(stderr, "pml/dr[%s]: state_bytes=%zu\n", who, peer.bytes());
            print_paths(self, peer);
        }
    });
    print_line(self, sum);
}

void print_statistics_so_far() noexcept
{
    if (parameters().stats == 0) {
        return;
    }
    char self[32];
    std::snprintf(self, sizeof self, "rank %u", peers().self().rank);
    Counters sum = stray_counters();
    peers().for_each([&](PeerState &peer) {
        Guard guard(peer.lock);
        sum += peer.engine.counters();
    });
    print_line(self, sum, " so far");
}

} // namespace ft::dr

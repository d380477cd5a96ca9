#include "opal/ft/reliability/config.hpp"

namespace ft::reliability {

const char *Config::check() const noexcept
{
    const base::Duration zero{};
    if (fragment_bytes < 256 || fragment_bytes > (16U << 20)) {
        return "fragment_bytes";
    }
    if (window_bytes < fragment_bytes) {
        return "window_bytes";
    }
    // Half the window must still hold an ordered VFRAG beside a data one.
    if (window_vfrags < 2 || window_vfrags > max_window) {
        return "window_vfrags";
    }
    if (path_depth < 1) {
        return "path_depth";
    }
    if (rto_min <= zero) {
        return "rto_min";
    }
    if (rto_max < rto_min) {
        return "rto_max";
    }
    if (rto_initial < rto_min || rto_initial > rto_max) {
        return "rto_initial";
    }
    if (ack_delay < zero || ack_delay > rto_max) {
        return "ack_delay";
    }
    if (ack_every < 1 || ack_every > window_vfrags) {
        return "ack_every";
    }
    if (reorder_threshold < 1 || reorder_threshold > 255) {
        return "reorder_threshold";
    }
    if (path_retries < 1 || path_retries > 100) {
        return "path_retries";
    }
    if (probe_interval <= zero) {
        return "probe_interval";
    }
    if (probe_confirm < 1 || probe_confirm > 100) {
        return "probe_confirm";
    }
    if (hold_down < zero) {
        return "hold_down";
    }
    if (give_up <= rto_max) {
        return "give_up";
    }
    if (reorder_bytes < fragment_bytes) {
        return "reorder_bytes";
    }
    return nullptr;
}

Counters &Counters::operator+=(const Counters &other) noexcept
{
    fragments_sent += other.fragments_sent;
    fragments_acknowledged += other.fragments_acknowledged;
    acknowledged_late += other.acknowledged_late;
    fragments_checksummed += other.fragments_checksummed;
    bytes_sent += other.bytes_sent;
    bytes_acknowledged += other.bytes_acknowledged;
    declared_lost += other.declared_lost;
    retransmitted_timeout += other.retransmitted_timeout;
    retransmitted_watchdog += other.retransmitted_watchdog;
    retransmitted_gap += other.retransmitted_gap;
    retransmitted_tail += other.retransmitted_tail;
    retransmitted_nack += other.retransmitted_nack;
    retransmitted_failover += other.retransmitted_failover;
    retransmitted_spurious += other.retransmitted_spurious;
    spurious_timeouts += other.spurious_timeouts;
    acks_sent += other.acks_sent;
    questions_sent += other.questions_sent;
    acks_received += other.acks_received;
    acks_piggybacked += other.acks_piggybacked;
    fragments_received += other.fragments_received;
    bytes_received += other.bytes_received;
    duplicates += other.duplicates;
    corrupt_header += other.corrupt_header;
    corrupt_payload += other.corrupt_payload;
    malformed += other.malformed;
    outside_window += other.outside_window;
    early += other.early;
    path_suspect += other.path_suspect;
    path_down += other.path_down;
    path_up += other.path_up;
    probes_sent += other.probes_sent;
    probes_answered += other.probes_answered;
    vfrags_completed += other.vfrags_completed;
    vfrags_failed += other.vfrags_failed;
    return *this;
}

} // namespace ft::reliability

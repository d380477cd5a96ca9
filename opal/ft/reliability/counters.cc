#include "opal/ft/reliability/counters.hpp"

#include <new>

namespace ft::reliability {

FrequentCounters &FrequentCounters::operator+=(const FrequentCounters &other) noexcept
{
    fragments_sent += other.fragments_sent;
    fragments_acknowledged += other.fragments_acknowledged;
    fragments_checksummed += other.fragments_checksummed;
    bytes_sent += other.bytes_sent;
    bytes_acknowledged += other.bytes_acknowledged;
    acks_sent += other.acks_sent;
    acks_received += other.acks_received;
    acks_piggybacked += other.acks_piggybacked;
    fragments_received += other.fragments_received;
    bytes_received += other.bytes_received;
    vfrags_completed += other.vfrags_completed;
    return *this;
}

RareCounters &RareCounters::operator+=(const RareCounters &other) noexcept
{
    acknowledged_late += other.acknowledged_late;
    declared_lost += other.declared_lost;
    retransmitted_timeout += other.retransmitted_timeout;
    retransmitted_watchdog += other.retransmitted_watchdog;
    retransmitted_gap += other.retransmitted_gap;
    retransmitted_tail += other.retransmitted_tail;
    retransmitted_nack += other.retransmitted_nack;
    retransmitted_failover += other.retransmitted_failover;
    retransmitted_spurious += other.retransmitted_spurious;
    spurious_timeouts += other.spurious_timeouts;
    questions_sent += other.questions_sent;
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
    vfrags_failed += other.vfrags_failed;
    return *this;
}

Counters &Counters::operator+=(const Counters &other) noexcept
{
    FrequentCounters::operator+=(other);
    RareCounters::operator+=(other);
    return *this;
}

RareCounters &PeerCounters::rare() noexcept
{
    if (rare_ == nullptr) {
        rare_.reset(new (std::nothrow) RareCounters);
    }
    static thread_local RareCounters nowhere;
    return rare_ == nullptr ? nowhere : *rare_;
}

Counters PeerCounters::all() const noexcept
{
    Counters sum;
    sum.FrequentCounters::operator+=(*this);
    if (rare_ != nullptr) {
        sum.RareCounters::operator+=(*rare_);
    }
    return sum;
}

} // namespace ft::reliability

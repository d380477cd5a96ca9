#include "opal/ft/datagram/size_search.hpp"

#include <algorithm>

namespace ft::dgram {

namespace {

/// What links carry, less 28 bytes of IPv4 and UDP: loopback, jumbo frames, Ethernet, Ethernet
/// below a tunnel or two, IPv6's least, and IPv4's.
constexpr std::uint32_t usual[] = {65507, 16356, 8972, 4068, 1472, 1422, 1372, 1252, 996};
/// Rounds with an answer to the small probe alone. With a third of all packets lost, one wrong
/// verdict in a hundred; it costs some speed until the size is tried again.
constexpr std::uint32_t rounds_against = 4;
constexpr base::Duration answer_time = base::Duration::from_ms(50);
constexpr base::Duration raise_interval = base::Duration::from_s(30);

} // namespace

SizeSearch::SizeSearch(std::uint32_t announced, base::Duration interval) : interval_(interval)
{
    sizes_.push_back(std::max(announced, least_datagram));
    for (const std::uint32_t size : usual) {
        if (size < sizes_.front()) {
            sizes_.push_back(size);
        }
    }
    if (sizes_.back() > least_datagram) {
        sizes_.push_back(least_datagram);
    }
}

SizeSearch::Probes SizeSearch::on_time(base::Time now, std::uint32_t nonce)
{
    Probes probes;
    if (now < next_ || sizes_.size() == 1) {
        return probes;
    }
    if (tried_ != 0) {
        judge(now);
        tried_ = 0;
        if (against_ == 0) {
            next_ = now + interval_;
            return probes;
        }
    }
    const bool raise = index_ > 0 && now >= raise_at_;
    if (raise) {
        raise_at_ = now + raise_interval;
    }
    tried_ = sizes_[raise ? index_ - 1 : index_];
    nonce_ = nonce;
    large_answered_ = small_answered_ = false;
    probes.nonce = nonce_;
    probes.size[probes.count++] = tried_;
    if (!raise && tried_ != least_datagram) {
        probes.size[probes.count++] = least_datagram;
    }
    next_ = now + answer_time;
    return probes;
}

void SizeSearch::judge(base::Time now)
{
    if (large_answered_) {
        against_ = 0;
        if (tried_ > size()) {
            --index_; // it was a try of a larger one
            raise_at_ = now + raise_interval;
        }
        return;
    }
    if (tried_ > size()) {
        against_ = 0;
        return;
    }
    if (!small_answered_) {
        return; // the peer is away, or nothing passes: no matter of size
    }
    if (++against_ >= rounds_against && index_ + 1 < sizes_.size()) {
        ++index_;
        ++lowered_;
        raise_at_ = now + raise_interval;
        against_ = rounds_against - 1; // the next smaller one has one round to prove itself
    }
}

void SizeSearch::on_reply(std::uint32_t nonce, std::uint32_t bytes)
{
    if (nonce != nonce_ || tried_ == 0) {
        return;
    }
    if (bytes == tried_) {
        large_answered_ = true;
    } else if (bytes == least_datagram) {
        small_answered_ = true;
    }
}

} // namespace ft::dgram

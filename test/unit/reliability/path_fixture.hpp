/// \file
/// A set of paths in the hand of the test.
#pragma once
#include "opal/ft/reliability/path_set.hpp"
#include "test/unit/reliability/ends.hpp"

namespace ft::test {

struct Fixture {
    explicit Fixture(unsigned count, const Config &c = quick_config()) : config(c), set(config)
    {
        set.counters = &counters;
        for (unsigned i = 0; i < count; ++i) {
            PathInfo info;
            info.max_fragment_bytes = 1000U * (i + 1);
            info.latency = 10_us;
            (void)set.add(info);
        }
    }
    void take_down(PathId id, PathId other)
    {
        for (unsigned i = 0; i < config.path_retries; ++i) {
            set.on_alive(other, now += 1_us);
            time_out(id);
        }
    }
    /// Long enough after the one before to count.
    void time_out(PathId id) { set.on_timeout(id, now += config.rto_max); }
    /// It is under load from now on, until its bytes in flight are taken away.
    void load(PathId id, std::uint64_t bytes = 1 << 20)
    {
        set.use(id).in_flight = bytes;
        set.on_sent_bytes(id, now);
    }
    std::uint32_t probe(PathId id)
    {
        const std::uint32_t nonce = PathSet::nonce_at(now);
        set.on_probe_sent(id, nonce, now);
        return nonce;
    }
    void answer(PathId id, std::uint32_t nonce, Duration after)
    {
        set.on_probe_reply(id, nonce, now += after);
    }
    Config config;
    PeerCounters counters;
    PathSet set;
    Time now = Time::from_ns(1);
};

} // namespace ft::test

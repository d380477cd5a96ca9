// Runs that chance alone makes too seldom. Each kind is drawn from a generator of its own, so that
// the other runs stay what they were.
#include <algorithm>

#include "test/sim/reliability/draw.hpp"

namespace ft::sim {

using namespace ft::base::literals;
using base::Duration;
using base::Rng;
using base::Time;

namespace {

/// Some pairs have links over datagrams, of which the queues are bounded.
void draw_datagrams(Plan &plan)
{
    Rng rng(plan.seed ^ 0x6461746167726d73);
    for (PairPlan &pair : plan.pairs) {
        if (!rng.chance(0.25)) {
            continue;
        }
        for (LinkPlan &link : pair.links) {
            link.unreliable = rng.chance(0.8);
            if (link.unreliable) {
                link.queue_bytes = any_of(rng, std::array{0U, 10000U, 65536U});
            }
        }
    }
}

/// In some runs every round trip is longer than rto_max allows any timeout to be, and in some
/// nothing is wrong but that processes are away now and then.
void draw_late(Plan &plan)
{
    Rng rng(plan.seed ^ 0x6c617465);
    reliability::Config &c = plan.config;
    const auto dice = rng.below(40);
    if (dice == 0) {
        c.rto_max = between(rng, 2_ms, 4_ms);
        c.rto_initial = std::min(c.rto_initial, c.rto_max);
        c.ack_delay = std::min(c.ack_delay, c.rto_max);
        c.give_up = 20_s;
        for (PairPlan &pair : plan.pairs) {
            // Nobody is lost here: something would always be on its way to him, without an end.
            pair.declared_dead.fill(Time::never());
            for (LinkPlan &link : pair.links) {
                if (link.death != Death::none) {
                    link.death = Death::silent;
                    link.dead_for = std::min<Duration>(link.dead_for, 60_ms);
                }
                link.latency = c.rto_max * static_cast<std::int64_t>(rng.between(1, 2));
            }
        }
    } else if (dice <= 2) {
        plan.calm = true;
        c.path_retries = std::max(c.path_retries, 3U);
        for (PairPlan &pair : plan.pairs) {
            pair.declared_dead.fill(Time::never());
            for (LinkPlan &link : pair.links) {
                link.faults.fill(Faults{});
                link.transport.fill(Transport{});
                link.bandwidth = std::max(link.bandwidth, 1.0);
                link.death = Death::none;
                link.deaths = 0;
                link.dies_at = Time::never();
            }
        }
        for (ProcessPlan &process : plan.processes) {
            if (process.busy_from.is_never() && rng.chance(0.7)) {
                process.busy_from = Time{} + between(rng, 0_us, 30_ms);
                process.busy_for = any_of(rng, std::array{500_us, 2_ms, 50_ms, 5000_ms});
            }
        }
    }
}

/// In some runs every way is long (a round trip of 100 to 400 ms, more than the timer that is set
/// before anything was measured), and most of them lose all paths to somebody, for a while or for
/// good; in the others nothing is wrong but that.
void draw_far(Plan &plan)
{
    Rng rng(plan.seed ^ 0x666172);
    if (!rng.chance(0.02)) {
        return;
    }
    reliability::Config &c = plan.config;
    c.rto_initial = 50_ms;
    c.rto_min = 2_ms;
    c.rto_max = any_of(rng, std::array{1_s, 2_s});
    c.give_up = any_of(rng, std::array{3_s, 4_s, 20_s});
    c.window_bytes = std::max<std::uint64_t>(c.window_bytes, 64ULL * 1024);
    c.window_vfrags = std::max(c.window_vfrags, 32U);
    c.path_depth = std::max(c.path_depth, 16U);
    plan.calm = rng.chance(0.2);
    // Three timers from 50 ms on are 350 ms, and the longest round trip is 440: a path that has not
    // been measured would be taken out while another answers, as it should where nothing came back.
    c.path_retries = std::max(c.path_retries, plan.calm ? 4U : 3U);
    for (PairPlan &pair : plan.pairs) {
        pair.declared_dead.fill(Time::never());
        const Duration latency = between(rng, 50_ms, 200_ms);
        const Time at = Time{} + between(rng, 0_us, 3_s);
        const bool lost = !plan.calm && rng.chance(0.9);
        const bool for_good = rng.chance(0.6);
        for (LinkPlan &link : pair.links) {
            link.latency = latency + between(rng, 0_us, 20_ms);
            link.death = Death::none;
            link.deaths = 0;
            link.dies_at = Time::never();
            link.dead_for = Duration::max();
            for (Faults &faults : link.faults) {
                faults.slow_factor = 1;
            }
            if (plan.calm) {
                link.faults.fill(Faults{});
                link.transport.fill(Transport{});
                link.bandwidth = std::max(link.bandwidth, 1.0);
                link.queue_bytes = 0;
            }
            if (lost) {
                link.death = static_cast<Death>(rng.between(1, death_kinds - 1));
                link.deaths = 1;
                link.dies_at = at + between(rng, 0_us, 500_ms);
                if (!for_good) {
                    link.dead_for = any_of(rng, std::array{60_ms, 700_ms, 2_s});
                }
            }
        }
    }
    for (MessagePlan &message : plan.messages) {
        message.at += between(rng, 0_us, any_of(rng, std::array{1_ms, 4_s}));
    }
}

/// Nothing goes wrong on the link. Whether it sums payloads stays as it is.
void make_plain(LinkPlan &link, Duration latency, double bandwidth, std::uint32_t fragment_bytes)
{
    const bool checksum_payload = link.checksum_payload;
    link = LinkPlan{};
    link.latency = latency;
    link.bandwidth = bandwidth;
    link.max_fragment_bytes = fragment_bytes;
    link.checksum_payload = checksum_payload;
}

/// In some runs one path flaps, so that it would be held down for long, and the other dies once the
/// first is back: nothing waits for longer than a timer and a way take.
void draw_last_resort(Plan &plan)
{
    Rng rng(plan.seed ^ 0x7265736f7274);
    if (plan.processes.size() != 2 || plan.messages.empty() || !rng.chance(0.04)) {
        return;
    }
    reliability::Config &c = plan.config;
    c.window_bytes = 1024ULL * 1024;
    c.window_vfrags = 256;
    c.path_depth = 64;
    c.rto_initial = c.rto_min = 1_ms;
    c.ack_delay = 20_us;
    c.rto_max = 300_ms;
    c.give_up = 20_s;
    c.path_retries = 5;
    c.hold_down = any_of(rng, std::array{1_s, 10_s});
    c.reorder_bytes = std::uint64_t{256} * 1024;
    for (ProcessPlan &process : plan.processes) {
        process.busy_from = Time::never();
        process.unknown_arrival = 0;
    }
    plan.calm = false;
    const Duration latency = any_of(rng, std::array{1_us, 20_us, 100_us});
    PairPlan &pair = plan.pairs.front();
    pair.declared_dead.fill(Time::never());
    pair.links.resize(2);
    for (LinkPlan &link : pair.links) {
        make_plain(link, latency, 1, c.fragment_bytes);
        link.death = rng.chance(0.5) ? Death::silent : Death::silent_stuck;
    }
    LinkPlan &flaps = pair.links[rng.below(2)];
    LinkPlan &last = &flaps == pair.links.data() ? pair.links[1] : pair.links[0];
    flaps.dies_at = Time{} + between(rng, 1_ms, 3_ms);
    flaps.dead_for = any_of(rng, std::array{3_ms, 40_ms, 90_ms});
    flaps.deaths = static_cast<unsigned>(rng.between(1, 3));
    last.dies_at = flaps.dies_at + flaps.dead_for * (2 * flaps.deaths - 1) +
                   any_of(rng, std::array{10_us, 5_ms, 150_ms});
    last.dead_for = rng.chance(0.5) ? Duration::max() : Duration{1_s};
    last.deaths = 1;
    plan.heal_at = last.dies_at;
    plan.patience = (c.rto_min + c.ack_delay + latency * 6) * 6;
    plan.messages.clear();
    const bool both = rng.chance(0.5);
    const Duration until = last.dies_at - Time{} + 50_ms;
    for (Duration at{}; at < until; at = at + between(rng, 50_us, 1_ms)) {
        MessagePlan m;
        m.from = both ? static_cast<unsigned>(rng.below(2)) : 0;
        m.to = 1 - m.from;
        m.at = Time{} + at;
        m.ordered = rng.chance(0.5);
        m.fragment_bytes = c.fragment_bytes;
        m.length = m.ordered ? 16 : std::uint64_t{c.fragment_bytes} * rng.between(1, 4);
        m.upper_bytes = 16;
        plan.messages.push_back(m);
    }
}

/// In some runs each process sends the other VFRAGs of more fragments than the paths are given
/// before something is acknowledged, and what they say of the first of these is lost: both stand in
/// the middle of one.
void draw_bound(Plan &plan)
{
    Rng rng(plan.seed ^ 0x626f756e64);
    if (plan.processes.size() != 2 || !rng.chance(0.02)) {
        return;
    }
    reliability::Config &c = plan.config;
    c.fragment_bytes = 64 * 1024;
    c.window_bytes = 1024ULL * 1024;
    c.window_vfrags = std::max(c.window_vfrags, 32U);
    c.path_depth = 64;
    c.ack_every = std::max(c.ack_every, 8U);
    c.rto_max = 300_ms;
    c.give_up = 20_s;
    c.reorder_bytes = std::uint64_t{256} * 1024;
    for (ProcessPlan &process : plan.processes) {
        process.busy_from = Time::never();
    }
    plan.calm = false;
    plan.patience = Duration::max();
    PairPlan &pair = plan.pairs.front();
    pair.declared_dead.fill(Time::never());
    pair.links.resize(rng.between(2, 3));
    const Duration latency = any_of(rng, std::array{1_us, 20_us, 100_us});
    const double bandwidth = any_of(rng, std::array{0.0005, 0.001, 0.1, 1.0});
    // When the fragments that are given to a path at first have come, in the main.
    const auto first = Duration::from_ns(static_cast<std::int64_t>(131072 / bandwidth)) + 1_ms;
    const bool acks_only = rng.chance(0.5);
    plan.heal_at = Time{} + first + between(rng, 0_us, first);
    for (LinkPlan &link : pair.links) {
        make_plain(link, latency, bandwidth, c.fragment_bytes);
        if (acks_only) {
            for (Faults &faults : link.faults) {
                faults.what = What::acks;
                faults.drop = any_of(rng, std::array{0.3, 1.0, 1.0});
            }
        } else if (rng.chance(0.7)) {
            link.death = rng.chance(0.8) ? Death::silent : Death::silent_stuck;
            link.deaths = 1;
            link.dies_at = Time{} + between(rng, 0_us, first);
            link.dead_for = any_of(rng, std::array{60_ms, 700_ms});
        }
    }
    plan.messages.clear();
    const unsigned each = rng.chance(0.6) ? 1 : 2;
    for (unsigned i = 0; i < 2 * each; ++i) {
        MessagePlan m;
        m.from = i % 2;
        m.to = 1 - m.from;
        m.at = Time{} + between(rng, 0_us, 100_us);
        m.fragment_bytes = c.fragment_bytes;
        m.length = std::uint64_t{c.fragment_bytes} * rng.between(5, 13);
        m.upper_bytes = 16;
        plan.messages.push_back(m);
    }
}

/// In some runs short messages follow each other closely over a way that takes them at once, as
/// shared memory does, now and then with something else between.
void draw_chatter(Plan &plan)
{
    Rng rng(plan.seed ^ 0x63686174746572);
    if (plan.processes.size() != 2 || !rng.chance(0.04)) {
        return;
    }
    plan.patience = Duration::max(); // it may have counted on a path that is not there any more
    PairPlan &pair = plan.pairs.front();
    pair.links.resize(rng.chance(0.8) ? 1 : pair.links.size());
    for (LinkPlan &link : pair.links) {
        link.unreliable = false;
        link.transport.fill(Transport{});
        for (Transport &transport : link.transport) {
            transport.within_send = true;
        }
    }
    plan.messages.clear();
    const bool both = rng.chance(0.5);
    for (auto bursts = rng.between(2, 6); bursts != 0; --bursts) {
        const Time at = Time{} + between(rng, 0_us, 3_ms);
        const auto from = static_cast<unsigned>(rng.below(2));
        for (auto left = rng.between(4, 40); left != 0; --left) {
            MessagePlan m;
            m.from = both ? static_cast<unsigned>(rng.below(2)) : from;
            m.to = 1 - m.from;
            m.at = at;
            m.ordered = !rng.chance(0.05);
            m.fragment_bytes = std::min(256U, plan.config.fragment_bytes);
            m.length = rng.below(m.fragment_bytes);
            m.upper_bytes = 16;
            plan.messages.push_back(m);
        }
    }
}

/// In some runs one path loses nothing and keeps order, and its transport is believed: alone, or
/// beside others that are as bad as ever.
void draw_trusted(Plan &plan)
{
    Rng rng(plan.seed ^ 0x74727573746564);
    if (plan.processes.size() != 2 || !rng.chance(0.06)) {
        return;
    }
    plan.patience = Duration::max(); // it may have counted on a path that is not there any more
    plan.calm = false;
    for (ProcessPlan &process : plan.processes) {
        process.unknown_arrival = 0; // nobody would know that it need not be acknowledged
    }
    PairPlan &pair = plan.pairs.front();
    pair.declared_dead.fill(Time::never());
    pair.links.resize(rng.chance(0.4) ? 1 : std::min<std::size_t>(pair.links.size(), 3));
    LinkPlan &link = pair.links[rng.below(pair.links.size())];
    const std::array<Transport, 2> transport = link.transport;
    make_plain(link, any_of(rng, std::array{1_us, 10_us}), any_of(rng, std::array{0.1, 1.0, 10.0}),
               link.max_fragment_bytes);
    link.acknowledged = false;
    for (unsigned way = 0; way < 2; ++way) {
        link.transport[way].room = transport[way].room;
        link.transport[way].refuse = transport[way].refuse;
        link.transport[way].within_send = rng.chance(0.6);
        link.transport[way].complete = any_of(rng, std::array{0_ns, 0_ns, 1000_ns, 100000_ns});
    }
}

/// Some links are through memory: silence over them is taken for the peer's for a while, which it
/// is not where it loses something after all, or dies.
void draw_memory(Plan &plan)
{
    Rng rng(plan.seed ^ 0x6d656d6f7279);
    if (!rng.chance(0.2)) {
        return;
    }
    const bool all = rng.chance(0.3);
    for (PairPlan &pair : plan.pairs) {
        for (LinkPlan &link : pair.links) {
            const bool drawn =
                !link.unreliable && (all || link.death == Death::none) && rng.chance(0.5);
            // Nothing bounds what is given to memory but the window. It takes that faster than
            // rto_max, which a user must set longer than any round trip.
            const double whole = static_cast<double>(plan.config.window_bytes) / link.bandwidth;
            if (drawn && whole <= static_cast<double>(plan.config.rto_max.ns())) {
                link.in_memory = true;
                plan.patience = all ? Duration::max() : plan.patience;
            }
        }
    }
}

} // namespace

bool trusts(const Plan &plan)
{
    return std::any_of(plan.pairs.begin(), plan.pairs.end(), [](const PairPlan &pair) {
        return std::any_of(pair.links.begin(), pair.links.end(),
                           [](const LinkPlan &link) { return !link.acknowledged; });
    });
}

void draw_special(Plan &plan)
{
    draw_datagrams(plan);
    draw_late(plan);
    draw_far(plan);
    draw_last_resort(plan);
    draw_bound(plan);
    draw_chatter(plan);
    draw_trusted(plan);
    draw_memory(plan);
}

} // namespace ft::sim

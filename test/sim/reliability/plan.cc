#include "test/sim/reliability/plan.hpp"

#include <algorithm>

#include "opal/ft/base/rng.hpp"

namespace ft::sim {

using namespace ft::base::literals;
using base::Duration;
using base::Rng;
using base::Time;

namespace {

template <typename T, std::size_t N>
T any_of(Rng &rng, const std::array<T, N> &choices)
{
    return choices[rng.below(N)];
}

Duration between(Rng &rng, Duration low, Duration high)
{
    return Duration::from_ns(static_cast<std::int64_t>(
        rng.between(static_cast<std::uint64_t>(low.ns()), static_cast<std::uint64_t>(high.ns()))));
}

/// Each run has some of the faults, not a thin soup of all of them (swarm testing: Groce et al.,
/// ISSTA 2012).
struct Themes {
    bool loss, burst, nth, duplicate, corrupt, reorder, jitter, dark, slow, death, room, refuse,
        late_completion, busy, one_way, selective;

    explicit Themes(Rng &rng)
    {
        const double p = any_of(rng, std::array{0.0, 0.15, 0.3, 0.3, 0.5});
        for (bool *flag :
             {&loss, &burst, &nth, &duplicate, &corrupt, &reorder, &jitter, &dark, &slow, &death,
              &room, &refuse, &late_completion, &busy, &one_way, &selective}) {
            *flag = rng.chance(p);
        }
    }
};

void draw_config(Plan &plan, Rng &rng)
{
    reliability::Config &c = plan.config;
    c.fragment_bytes = any_of(rng, std::array{256U, 256U, 1000U, 4096U});
    c.window_bytes =
        any_of(rng, std::array<std::uint64_t, 4>{c.fragment_bytes, 3ULL * c.fragment_bytes + 1,
                                                 64ULL * 1024, 1024ULL * 1024});
    c.window_vfrags = any_of(rng, std::array{2U, 3U, 8U, 32U, 256U, 1024U});
    c.path_depth = any_of(rng, std::array{1U, 2U, 8U, 16U, 64U});
    c.rto_initial = between(rng, 1_ms, 50_ms);
    c.rto_min = between(rng, 100_us, std::min<Duration>(c.rto_initial, 2_ms));
    // Longer than any round trip of a healthy link here, as a user must set it.
    c.rto_max = between(rng, 60_ms, any_of(rng, std::array{60_ms, 300_ms, 2000_ms}));
    c.ack_delay = any_of(rng, std::array{0_us, 20_us, 500_us, 1000_us});
    c.ack_every =
        static_cast<std::uint32_t>(rng.between(1, std::min<std::uint64_t>(c.window_vfrags, 128)));
    c.reorder_threshold = static_cast<std::uint32_t>(rng.between(1, 5));
    c.path_retries = static_cast<std::uint32_t>(rng.between(1, 5));
    c.probe_interval = any_of(rng, std::array{1_ms, 10_ms, 100_ms, 500_ms});
    c.probe_confirm = static_cast<std::uint32_t>(rng.between(1, 4));
    c.hold_down = std::min<Duration>(any_of(rng, std::array{0_ms, 5_ms, 100_ms, 1000_ms}),
                                     c.probe_interval * 100);
    c.give_up = rng.chance(0.1) ? c.rto_max + between(rng, 10_ms, 1_s) : 20_s;
    c.reorder_bytes = rng.chance(0.2) ? c.fragment_bytes : std::uint64_t{256} * 1024;
}

Faults draw_faults(const Themes &on, Rng &rng)
{
    Faults f;
    if (on.selective) {
        f.what = static_cast<What>(rng.below(what_kinds));
    }
    const bool narrow = f.what != What::all;
    if (on.loss) {
        f.drop = narrow && rng.chance(0.3) ? 1.0 : any_of(rng, std::array{0.001, 0.01, 0.05, 0.3});
    }
    if (on.burst) {
        f.burst = 0.03;
        f.burst_length = static_cast<unsigned>(rng.between(2, 20));
    }
    if (on.nth) {
        f.drop_nth = static_cast<unsigned>(rng.between(2, 12));
    }
    if (on.duplicate) {
        f.duplicate = any_of(rng, std::array{0.01, 0.1, 0.5});
        f.duplicate_delay = any_of(rng, std::array{0_us, 100_us, 10_ms, 3000_ms});
    }
    if (on.corrupt) {
        f.corrupt = any_of(rng, std::array{0.01, 0.1, 0.3});
        f.hit = static_cast<Hit>(rng.below(hit_kinds));
    }
    if (on.reorder) {
        f.reorder = any_of(rng, std::array{0.05, 0.3});
        f.reorder_delay = any_of(rng, std::array{2_us, 50_us, 5_ms, 100_ms});
    }
    if (on.jitter) {
        f.jitter = any_of(rng, std::array{1_us, 100_us, 3_ms});
    }
    if (on.slow) {
        f.slow_from = Time{} + between(rng, 0_us, 5_ms);
        f.slow_factor = any_of(rng, std::array{2U, 10U, 100U});
    }
    if (on.dark) {
        f.dark_from = Time{} + between(rng, 0_us, 5_ms);
        f.dark_until = f.dark_from + any_of(rng, std::array{1_ms, 30_ms, 400_ms, 2000_ms});
    }
    return f;
}

Transport draw_transport(const Themes &on, Rng &rng)
{
    Transport t;
    t.complete = any_of(rng, std::array{0_ns, 0_ns, 1000_ns, 100000_ns});
    t.within_send = rng.chance(0.5);
    if (on.room) {
        t.room = static_cast<unsigned>(rng.between(1, 4));
    }
    if (on.refuse) {
        t.refuse = any_of(rng, std::array{0.02, 0.3});
    }
    if (on.late_completion) {
        t.complete_late = any_of(rng, std::array{0.02, 0.3});
    }
    return t;
}

LinkPlan draw_link(const Plan &plan, const Themes &on, Duration latency, Rng &rng)
{
    LinkPlan link;
    link.latency = latency * static_cast<std::int64_t>(rng.between(1, 3));
    link.bandwidth = any_of(rng, std::array{0.01, 0.1, 1.0, 10.0});
    link.fifo = rng.chance(0.7);
    link.max_fragment_bytes =
        rng.chance(0.15) ? plan.config.fragment_bytes / 2 : plan.config.fragment_bytes;
    for (unsigned way = 0; way < 2; ++way) {
        if (!(on.one_way && way == (plan.seed & 1))) {
            link.faults[way] = draw_faults(on, rng);
        }
        link.transport[way] = draw_transport(on, rng);
        link.pending[way] = static_cast<unsigned>(rng.below(3));
    }
    if (on.death && rng.chance(0.6)) {
        link.death = static_cast<Death>(rng.between(1, death_kinds - 1));
        link.dies_at = Time{} + between(rng, 0_us, any_of(rng, std::array{200_us, 5_ms}));
        link.deaths = rng.chance(0.3) ? static_cast<unsigned>(rng.between(2, 6)) : 1;
        if (link.deaths > 1 || rng.chance(0.6)) {
            link.dead_for = any_of(rng, std::array{200_us, 5_ms, 60_ms, 700_ms});
        }
    }
    return link;
}

std::uint32_t near_wrap(Rng &rng, std::uint32_t mask)
{
    switch (rng.below(3)) {
    case 0:
        return 0;
    case 1:
        return mask - static_cast<std::uint32_t>(rng.below(12));
    default:
        return static_cast<std::uint32_t>(rng.next()) & mask;
    }
}

PairPlan draw_pair(const Plan &plan, const Themes &on, unsigned a, unsigned b, Rng &rng)
{
    PairPlan pair;
    pair.process = {a, b};
    const auto dice = rng.below(20);
    const auto count = dice < 8    ? 1
                       : dice < 16 ? 2
                       : dice < 19 ? rng.between(3, 4)
                                   : rng.between(5, reliability::max_paths);
    const Duration latency = any_of(rng, std::array{1_us, 10_us, 100_us, 1000_us});
    for (std::uint64_t i = 0; i < count; ++i) {
        pair.links.push_back(draw_link(plan, on, latency, rng));
    }
    // Payloads go unprotected only where nothing spoils them.
    const bool clean = std::all_of(pair.links.begin(), pair.links.end(), [](const LinkPlan &link) {
        return link.faults[0].corrupt == 0 && link.faults[1].corrupt == 0;
    });
    for (LinkPlan &link : pair.links) {
        link.checksum_payload = !clean || rng.chance(0.8);
    }
    // One path, at least, is there in the end, but for the runs that are about losing the peer.
    if (!rng.chance(0.25)) {
        LinkPlan &spared = pair.links[rng.below(pair.links.size())];
        if (spared.dead_for == Duration::max()) {
            spared.dead_for = 60_ms;
        }
    }
    pair.mirrored = rng.chance(0.5);
    pair.first_sequence = near_wrap(rng, ~0U);
    pair.first_order = near_wrap(rng, ~0U);
    pair.first_tx = near_wrap(rng, 0xffffffU);
    if (rng.chance(0.01)) {
        pair.declared_dead[rng.below(2)] = Time{} + between(rng, 0_us, 5_ms);
    }
    return pair;
}

/// Some pairs have links over datagrams, of which the queues are bounded. From a generator of its
/// own, so that the other runs stay what they were.
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
/// nothing is wrong but that processes are away now and then. From a generator of their own, too.
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
/// good; in the others nothing is wrong but that. From a generator of their own, too.
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
    c.path_retries = std::max(c.path_retries, 3U);
    plan.calm = rng.chance(0.2);
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
/// first is back: nothing waits for longer than a timer and a way take. From a generator of its
/// own, too.
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
    plan.patience = Duration::max(); // it may have counted on a path that is not there any more
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
/// the middle of one. From a generator of its own, too.
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
/// shared memory does, now and then with something else between. From a generator of its own, too.
void draw_chatter(Plan &plan)
{
    Rng rng(plan.seed ^ 0x63686174746572);
    if (plan.processes.size() != 2 || !rng.chance(0.04)) {
        return;
    }
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

void draw_messages(Plan &plan, Rng &rng)
{
    const auto wanted = rng.chance(0.5) ? rng.between(1, 6) : rng.between(4, 40);
    const Duration span = any_of(rng, std::array{0_us, 100_us, 2_ms, 30_ms});
    const double ordered = any_of(rng, std::array{0.1, 0.5, 0.5, 1.0});
    const double replies = any_of(rng, std::array{0.0, 0.3});
    const bool one_way = rng.chance(0.4);
    const auto nodes = static_cast<unsigned>(plan.processes.size());
    unsigned fragments = 0;
    for (std::uint64_t i = 0; i < wanted && fragments < 300; ++i) {
        MessagePlan m;
        m.from = one_way ? 0 : static_cast<unsigned>(rng.below(nodes));
        m.to = static_cast<unsigned>((m.from + rng.between(1, nodes - 1)) % nodes);
        m.at = Time{} + between(rng, 0_us, span);
        m.ordered = rng.chance(ordered);
        const std::uint32_t s =
            std::min(any_of(rng, std::array{1U, 7U, 16U, 16U, 64U, 255U, 256U, 1000U, 4096U}),
                     plan.config.fragment_bytes);
        m.fragment_bytes = s;
        const std::uint64_t s64 = s;
        m.length = m.ordered
                       ? any_of(rng, std::array<std::uint64_t, 4>{0, s64 - 1, s64, rng.below(s64)})
                       : any_of(rng, std::array<std::uint64_t, 14>{
                                         0, 1, s64 - 1, s64, s64 + 1, 2 * s64, 5 * s64, 9 * s64 - 1,
                                         63 * s64, 64 * s64 - 1, 64 * s64, 64 * s64 + 1, 65 * s64,
                                         rng.below(20 * s64)});
        m.upper_bytes = static_cast<std::uint8_t>(rng.chance(0.8) ? 16 : rng.between(16, 64));
        if (i > 0 && rng.chance(replies)) {
            m.reply_to = static_cast<int>(rng.below(i));
            const MessagePlan &first = plan.messages[static_cast<std::size_t>(m.reply_to)];
            m.from = first.to;
            m.to = first.from;
        }
        fragments += 1 + static_cast<unsigned>(m.length / s);
        plan.messages.push_back(m);
    }
}

void apply(Plan &plan, Mutant mutant)
{
    reliability::Config &c = plan.config;
    switch (mutant) {
    case Mutant::none:
        break;
    case Mutant::retransmit:
        c.disable_retransmit = true;
        break;
    case Mutant::duplicate:
        c.disable_duplicate = true;
        break;
    case Mutant::failover:
        c.disable_failover = true;
        break;
    case Mutant::order:
        c.disable_order = true;
        break;
    case Mutant::checksum_payload:
        c.checksum_payload = false;
        for (PairPlan &pair : plan.pairs) {
            for (LinkPlan &link : pair.links) {
                link.checksum_payload = false;
            }
        }
        break;
    case Mutant::checksum_header:
        c.checksum_header = false;
        break;
    case Mutant::early_timer:
        c.disable_early_timer = true;
        break;
    }
}

} // namespace

Plan make_plan(std::uint64_t seed, Mutant mutant)
{
    Plan plan;
    plan.seed = seed;
    Rng rng(seed);
    const Themes on(rng);
    draw_config(plan, rng);
    const auto dice = rng.below(20);
    const unsigned nodes = dice < 17 ? 2 : dice < 19 ? 3 : 4;
    plan.heal_at = Time{} + any_of(rng, std::array{4_ms, 50_ms, 500_ms, 3000_ms});
    for (unsigned i = 0; i < nodes; ++i) {
        ProcessPlan p;
        // The 32-bit stamp of 64 ns wraps after 275 s: begin just before, at zero, or anywhere.
        const Duration wrap = Duration::from_ns(std::int64_t{1} << 38);
        p.clock = any_of(rng, std::array{0_ns, wrap - 1_ms, wrap - 100_ms, wrap * 1000 + 7_ns});
        if (on.busy) {
            p.busy_from = Time{} + between(rng, 0_us, 3_ms);
            p.busy_for = any_of(rng, std::array{2_ms, 50_ms, 1000_ms, 5000_ms});
        }
        p.time_first = rng.chance(0.5);
        p.flush = rng.chance(0.1) ? 0.5 : 0;
        p.unknown_arrival = rng.chance(0.9) ? 0 : any_of(rng, std::array{0.5, 1.0});
        plan.processes.push_back(p);
    }
    for (unsigned a = 0; a < nodes; ++a) {
        for (unsigned b = a + 1; b < nodes; ++b) {
            plan.pairs.push_back(draw_pair(plan, on, a, b, rng));
            if (plan.processes[a].unknown_arrival + plan.processes[b].unknown_arrival > 0) {
                // Who does not know by which path a fragment came sends every other answer into
                // a link that is dead for good: that is no way to live, only to survive.
                for (LinkPlan &link : plan.pairs.back().links) {
                    link.dead_for = std::min<Duration>(link.dead_for, 60_ms);
                }
            }
        }
    }
    // Headers go unprotected only where nothing spoils them.
    const bool clean = std::all_of(plan.pairs.begin(), plan.pairs.end(), [](const PairPlan &pair) {
        return std::all_of(pair.links.begin(), pair.links.end(), [](const LinkPlan &link) {
            return link.faults[0].corrupt == 0 && link.faults[1].corrupt == 0;
        });
    });
    if (clean && rng.chance(0.2)) {
        plan.config.checksum_header = false;
    }
    draw_messages(plan, rng);
    draw_datagrams(plan);
    draw_late(plan);
    draw_far(plan);
    draw_last_resort(plan);
    draw_bound(plan);
    draw_chatter(plan);
    apply(plan, mutant);
    return plan;
}

} // namespace ft::sim

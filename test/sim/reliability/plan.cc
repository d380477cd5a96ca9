#include "test/sim/reliability/plan.hpp"

#include <algorithm>

#include "test/sim/reliability/draw.hpp"

namespace ft::sim {

using namespace ft::base::literals;
using base::Duration;
using base::Rng;
using base::Time;

namespace {

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
    draw_special(plan);
    apply(plan, mutant);
    return plan;
}

} // namespace ft::sim

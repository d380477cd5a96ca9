// Time for stabilisation against the number of nodes: the engine in virtual time against the
// paper's models.
//
//   scale --check            TAP: the simulation meets the base model, grows with the logarithm, up
//   to 1,048,576 nodes scale --csv ARITY MOST   a table for figures: nodes, T_s of base model, of
//   the simulation, of the distance model, of the
//                            simulation on a torus, and when the view is installed everywhere;
//                            microseconds
//
// Varma et al. 2006, section 4: T_s = 2 L (H - 1) + O_cp H, and section 7.1: with the latency of a
// hop times the longest distance of a level for the levels' sum, distances as sums of coordinate
// differences in an 8 x 8 x 8 torus (by its prose).

#include "opal/ft/membership/stabilizer.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <queue>
#include <sys/resource.h>

namespace {

using namespace ft::membership;
using ft::base::Duration;
using ft::base::Time;

constexpr double latency_us = 4.6; // the paper's L on BlueGene/L
constexpr double compute_us = 2.0; // the paper's O_cp

/// Hops between two nodes of a torus of 8 x 8 x 8, mapped in order, larger numbers in further tori
/// side by side in x.
unsigned hops(NodeId a, NodeId b)
{
    const auto ring = [](unsigned x, unsigned y) {
        const unsigned d = x > y ? x - y : y - x;
        return std::min(d, 8 - d);
    };
    const unsigned midplane = a / 512 > b / 512 ? a / 512 - b / 512 : b / 512 - a / 512;
    return std::max(1U, ring(a % 8, b % 8) + ring(a / 8 % 8, b / 8 % 8) +
                            ring(a / 64 % 8, b / 64 % 8) + midplane);
}

struct Row {
    double simulated = 0; ///< T_s
    double installed = 0; ///< the last member has the view
    std::uint64_t messages = 0;
    bool complete = false;
};

/// The last of `n` nodes is dead and the root has proof: until the last vote, and until all have
/// the view.
Row simulate(Position n, unsigned arity, bool torus)
{
    Config config;
    config.arity = arity;
    config.heartbeat.interval = Duration::zero();
    // One change without loss: nothing needs asking again, however large the tree.
    config.repeat = config.repeat_max = config.give_up = config.commit_wait = Duration::from_s(100);
    const auto pool = std::make_shared<ViewPool>();
    const ViewPtr initial = View::initial(n, arity, TreeMode::rebuild);
    std::vector<std::unique_ptr<Stabilizer>> nodes;
    nodes.reserve(n);
    for (NodeId id = 0; id < n; ++id) {
        nodes.push_back(
            std::make_unique<Stabilizer>(config, pool, Identity{id, 0}, initial, Time()));
    }
    struct Arrival {
        Time at;
        std::uint64_t order;
        std::uint32_t slot;
        bool operator>(const Arrival &o) const { return at != o.at ? at > o.at : order > o.order; }
    };
    std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> queue;
    std::vector<Message> slots;
    std::vector<std::uint32_t> free;
    std::uint64_t order = 0;
    Row row;
    Position with_view = 0;
    Output out;
    const auto absorb = [&](Time now) {
        for (const Event &e : out.events) {
            if (e.kind == Event::Kind::stabilized) {
                row.simulated = static_cast<double>(now.ns()) / 1e3;
            } else if (e.kind == Event::Kind::installed) {
                ++with_view;
                row.installed = static_cast<double>(now.ns()) / 1e3;
            }
        }
        for (Message &m : out.messages) {
            ++row.messages;
            const double us = latency_us * (torus ? hops(m.from, m.to) : 1);
            // A level costs its computing once, on the way down, as in the model.
            const double computing =
                is_proposal(m.type) || m.type == Type::view_commit ? compute_us : 0;
            std::uint32_t slot = static_cast<std::uint32_t>(slots.size());
            if (free.empty()) {
                slots.emplace_back();
            } else {
                slot = free.back();
                free.pop_back();
            }
            slots[slot] = std::move(m);
            queue.push({now + Duration::from_ns(static_cast<std::int64_t>((us + computing) * 1e3)),
                        order++, slot});
        }
        out.clear();
    };
    nodes[0]->on_proof(Time(), n - 1, ProofKind::reaped, out);
    absorb(Time() + Duration::from_ns(static_cast<std::int64_t>(compute_us * 1e3)));
    while (!queue.empty()) {
        const Arrival a = queue.top();
        queue.pop();
        const Message m = std::move(slots[a.slot]);
        free.push_back(a.slot);
        if (m.to != n - 1) {
            nodes[m.to]->on_message(a.at, m, out);
            absorb(a.at);
        }
    }
    row.complete = with_view == n - 1;
    return row;
}

double base_model(Position survivors, unsigned arity)
{
    const unsigned h = RadixTree(arity).height(survivors);
    return 2 * latency_us * (h - 1) + compute_us * h;
}

double distance_model(Position survivors, unsigned arity)
{
    const RadixTree shape(arity);
    const unsigned h = shape.height(survivors);
    std::vector<unsigned> longest(h);
    for (Position p = 1; p < survivors; ++p) {
        unsigned &worst = longest[shape.depth(p)];
        worst = std::max(worst, hops(p, shape.parent(p)));
    }
    double sum = 0;
    for (const unsigned d : longest) {
        sum += d;
    }
    return 2 * latency_us * sum + compute_us * h;
}

int csv(unsigned arity, Position most)
{
    std::printf(
        "nodes,base_model_us,simulated_us,distance_model_us,simulated_torus_us,installed_us\n");
    for (Position n = 2; n <= most; n += std::max<Position>(1, n / 16)) {
        const Row flat = simulate(n + 1, arity, false);
        const Row torus = simulate(n + 1, arity, true);
        std::printf("%u,%.1f,%.1f,%.1f,%.1f,%.1f\n", n, base_model(n, arity), flat.simulated,
                    distance_model(n, arity), torus.simulated, flat.installed);
    }
    return 0;
}

int check()
{
    int failed = 0;
    int test = 0;
    const auto ok = [&](bool good, const char *what) {
        failed += !good;
        std::printf("%s %d - %s\n", good ? "ok" : "not ok", ++test, what);
    };
    std::printf("1..7\n");
    for (const unsigned arity : {2U, 4U, 8U}) {
        bool exact = true;
        bool bounded = true;
        for (const Position n : {1U, 2U, 3U, 5U, 6U, 21U, 22U, 64U, 512U, 1024U, 4096U, 32768U}) {
            const Row r = simulate(n + 1, arity, false);
            const double off = r.simulated - base_model(n, arity);
            exact &= r.complete && off > -0.1 && off < 0.1;
            const Row t = simulate(n + 1, arity, true);
            bounded &= t.complete && t.simulated <= distance_model(n, arity) + 0.1;
        }
        char what[80];
        std::snprintf(what, sizeof what, "arity %u: the simulation is the base model", arity);
        ok(exact, what);
        std::snprintf(what, sizeof what, "arity %u: on a torus it stays within the distance model",
                      arity);
        ok(bounded, what);
    }
    const Row big = simulate(1048576 + 1, 2, false);
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    std::printf("# 1048576 nodes: T_s %.1f us, installed everywhere %.1f us, %.2f messages a "
                "member, engine %zu bytes "
                "and %.0f bytes in all a member\n",
                big.simulated, big.installed, static_cast<double>(big.messages) / 1048576.0,
                sizeof(Stabilizer), static_cast<double>(used.ru_maxrss) * 1024 / 1048576.0);
    const double off = big.simulated - base_model(1048576, 2);
    ok(big.complete && off > -0.1 && off < 0.1,
       "1,048,576 nodes: all have the view, in the base model's time");
    return failed == 0 ? 0 : 1;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc == 2 && std::strcmp(argv[1], "--check") == 0) {
        return check();
    }
    if (argc == 4 && std::strcmp(argv[1], "--csv") == 0) {
        const auto arity = static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10));
        const auto most = static_cast<Position>(std::strtoul(argv[3], nullptr, 10));
        if (RadixTree::valid_arity(arity) && most >= 2 && most < max_nodes) {
            return csv(arity, most);
        }
    }
    std::fprintf(stderr, "usage: scale --check | scale --csv ARITY MOST_NODES\n");
    return 2;
}

// What the two ways to mend the tree cost as failures add up: formed anew over the sorted live ids
// (rebuild), or by the paper's four steps, in which the children of the dead go to its parent
// (Varma et al. 2006, section 3.4).
//
//   repair [NODES [LATENCY_US [HANDLING_US]]]      512, 4.6 (the paper's L on BlueGene/L), 1
//
// Prints a table, and TAP: that rebuilding keeps every member at `arity` children and its bound of
// messages, whatever failed. The engine runs in virtual time on a network without other faults;
// HANDLING_US is how long a node is busy with each message it sends or takes. Without that, many
// children would cost nothing.

#include "test/sim/membership/calm.hpp"

#include "opal/ft/base/rng.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using namespace sim;

constexpr double compute_us = 2; // the paper's O_cp

/// In which order the nodes fail.
enum class Order {
    random,   ///< any member, each as likely
    from_top, ///< always the first child of the root: what the repair likes least
    roots,    ///< always the root
};
constexpr const char *order_names[] = {"random", "near the root", "the root"};

/// Of the changes in one stretch of failures.
struct Stretch {
    double stabilized_us = 0; // mean T_s
    double longest_us = 0;
    double messages = 0; // mean, per survivor
    std::uint64_t most_sent = 0;
    std::size_t most_children = 0;
    unsigned height = 0;
    bool complete = true;
};

std::size_t most_children(const View &view)
{
    std::size_t most = 0;
    std::vector<NodeId> children;
    for (const NodeId id : view.members()) {
        view.children(id, children);
        most = std::max(most, children.size());
    }
    return most;
}

unsigned height(const View &view)
{
    unsigned highest = 0;
    for (const NodeId id : view.members()) {
        unsigned levels = 1;
        for (NodeId at = id; view.parent(at) != no_node; at = view.parent(at)) {
            ++levels;
        }
        highest = std::max(highest, levels);
    }
    return highest;
}

NodeId victim(const View &view, Order order, ft::base::Rng &rng)
{
    switch (order) {
    case Order::roots:
        return view.root();
    case Order::from_top: {
        std::vector<NodeId> children;
        view.children(view.root(), children);
        return children.front();
    }
    case Order::random:
        break;
    }
    return view.at(static_cast<Position>(rng.below(view.size())));
}

/// `failures` one after the other, each stabilised before the next.
Stretch strike(Calm &net, Position failures, Order order, ft::base::Rng &rng)
{
    Stretch s;
    for (Position i = 0; i < failures; ++i) {
        const Measured m = net.fail(victim(net.view(), order, rng));
        s.stabilized_us += m.stabilized_us / failures;
        s.longest_us = std::max(s.longest_us, m.stabilized_us);
        s.messages += static_cast<double>(m.messages) / net.live() / failures;
        s.most_sent = std::max(s.most_sent, m.most_sent);
        s.complete &= m.complete;
    }
    s.most_children = most_children(net.view());
    s.height = height(net.view());
    return s;
}

/// True when all changes came through and, rebuilt, within bounds.
bool table(Position nodes, unsigned arity, Order order, const Costs &costs)
{
    Calm rebuilt(nodes, arity, TreeMode::rebuild, costs);
    Calm repaired(nodes, arity, TreeMode::paper, costs);
    ft::base::Rng rng(nodes);
    ft::base::Rng same(nodes);
    bool good = true;
    std::printf("#\n# arity %u, dying: %s\n"
                "# failed  | rebuilt: T_s mean/worst us  messages  by one  children  levels "
                "| repaired: T_s mean/worst us  messages  by one  children  levels\n",
                arity, order_names[static_cast<unsigned>(order)]);
    Position failed = 0;
    for (Position upto = 1; upto <= nodes * 3 / 4; upto = upto < 4 ? upto + 3 : upto * 2) {
        const Stretch a = strike(rebuilt, upto - failed, order, rng);
        const Stretch b = strike(repaired, upto - failed, order, same);
        failed = upto;
        const auto print = [](const Stretch &s) {
            std::printf(" | %15.1f %8.1f %9.2f %7llu %9zu %7u", s.stabilized_us, s.longest_us,
                        s.messages, static_cast<unsigned long long>(s.most_sent), s.most_children,
                        s.height);
        };
        std::printf("# %7u", upto);
        print(a);
        print(b);
        std::printf("\n");
        // Beyond its proposals or commits a member sends its vote or the first commit, and the
        // answer to a commit.
        good &= a.complete && b.complete && a.most_children <= arity && a.most_sent <= arity + 3;
    }
    return good;
}

} // namespace

int main(int argc, char **argv)
{
    const double nodes = argc > 1 ? std::atof(argv[1]) : 512;
    const double latency_us = argc > 2 ? std::atof(argv[2]) : 4.6;
    const double handling_us = argc > 3 ? std::atof(argv[3]) : 1;
    if (argc > 4 || !(nodes >= 8 && nodes <= 65536) || !(latency_us > 0) || !(handling_us >= 0)) {
        std::fprintf(stderr, "usage: repair [NODES (8 to 65536) [LATENCY_US [HANDLING_US]]]\n");
        return 2;
    }
    const Costs costs{[latency_us](NodeId, NodeId) { return latency_us; }, compute_us, handling_us};
    std::printf("1..9\n# %.0f nodes, L %.1f us, O_cp %.1f us, %.1f us for each message sent or "
                "taken; messages are per survivor\n",
                nodes, latency_us, compute_us, handling_us);
    int test = 0;
    int failed = 0;
    for (const unsigned arity : {2U, 4U, 8U}) {
        for (const Order order : {Order::random, Order::from_top, Order::roots}) {
            const bool good = table(static_cast<Position>(nodes), arity, order, costs);
            failed += !good;
            std::printf("%s %d - arity %u, dying: %s: every change came through, rebuilt trees "
                        "kept their bounds\n",
                        good ? "ok" : "not ok", ++test, arity,
                        order_names[static_cast<unsigned>(order)]);
            std::fflush(stdout);
        }
    }
    return failed == 0 ? 0 : 1;
}

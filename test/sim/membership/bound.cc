// Nobody sends more than arity plus a constant of messages for a change, twice that when a voter
// objects: two attempts. Prints TAP.

#include "test/sim/membership/world.hpp"

#include <cstdio>

namespace {

using namespace sim;

/// What a member sends beyond its `arity` proposals or commits: its vote or the first commit, the
/// answer to a commit, a report, the answers to the reports of one death by its neighbours that
/// came too early to be spared.
constexpr std::uint64_t constant = 6;

struct Worst {
    std::uint64_t excess = 0; // above arity
    std::string where;
    unsigned changes = 0;
    bool wrong = false; // a run that did not do what it was to do
};

enum class Fault { death, silent_death, join, leave, unheard };

void measure(Position n, unsigned arity, NodeId victim, Fault change, Mutation mutation, Worst &w)
{
    Config c;
    c.arity = arity;
    c.mutation = mutation;
    World world(c, n, Weather{}, n * 1000 + victim);
    world.run_until(Time::zero() + Duration::from_ms(450));
    std::vector<std::uint64_t> before(n + 1);
    for (NodeId id = 0; id < n; ++id) {
        before[id] = world.messages_sent(id);
    }
    switch (change) {
    case Fault::death:
        world.kill(victim, Death::loud);
        break;
    case Fault::silent_death:
        world.kill(victim, Death::silent);
        break;
    case Fault::join:
        world.start(n);
        break;
    case Fault::leave:
        world.leave(victim);
        break;
    case Fault::unheard: // by the root, for good, while its children hear it and object
        world.cut(victim, 0);
        break;
    }
    do {
        world.run_until(world.now() + Duration::from_ms(10));
        // Who is not heard is evicted late, and all is at rest before.
    } while ((!world.settled() || (change == Fault::unheard && world.commit_count() != 2)) &&
             world.now() < Time::zero() + Duration::from_s(9));
    world.check_end(true);
    const bool left_nobody = n == 2 && change == Fault::silent_death && victim == 0;
    w.wrong |= !world.violations().empty() || (world.commit_count() != 2 && !left_nobody);
    ++w.changes;
    for (NodeId id = 0; id < n; ++id) {
        std::uint64_t sent = world.messages_sent(id) - before[id];
        std::uint64_t most = arity;
        if (change == Fault::unheard) {
            // Two attempts, and the leases hold the votes back so long that some are asked for
            // again.
            sent = world.engine(id).counters().for_changes -
                   world.engine(id).counters().for_changes_again;
            most = 2 * arity;
        }
        if (!left_nobody && sent > most && sent - most > w.excess) {
            w.excess = sent - most;
            w.where = "member " + std::to_string(id) + " of " + std::to_string(n) + " sent " +
                      std::to_string(sent) + " when " + std::to_string(victim) + " went";
        }
    }
}

Worst sweep(unsigned arity, Fault change, Mutation mutation)
{
    Worst w;
    for (const Position n : {2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100}) {
        const NodeId step = n > 40 ? 7 : 1;
        for (NodeId victim = 0; victim < n; victim += change == Fault::join ? n : step) {
            // Those whom others hear too: children of the root that have children.
            if (change == Fault::unheard &&
                (victim == 0 || arity * victim + 1 >= n || victim > arity)) {
                continue;
            }
            measure(n, arity, victim, change, mutation, w);
        }
    }
    return w;
}

} // namespace

int main()
{
    static const char *const what[] = {"death", "silent death", "join", "leave",
                                       "one whom the root does not hear"};
    int test = 0;
    int failed = 0;
    std::printf("1..16\n");
    for (const unsigned arity : {2U, 4U, 8U}) {
        for (unsigned k = 0; k < 5; ++k) {
            // A silent death is asked about by each neighbour and by the root, and the dead is told
            // so five times at most.
            const std::uint64_t bound = constant + (k == 1 ? 12 : 0);
            const Worst w = sweep(arity, static_cast<Fault>(k), Mutation::none);
            const bool good = !w.wrong && w.changes != 0 && w.excess <= bound;
            failed += !good;
            std::printf(
                "%s %d - %s, arity %u: at most %sarity + %llu (bound + %llu) in %u changes%s\n",
                good ? "ok" : "not ok", ++test, what[k], arity, k == 4 ? "2 " : "",
                static_cast<unsigned long long>(w.excess), static_cast<unsigned long long>(bound),
                w.changes, w.wrong ? ", some of them wrong" : "");
            std::printf("# %s\n", w.where.c_str());
        }
    }
    const Worst mutated = sweep(2, Fault::death, Mutation::chatter);
    const bool found = mutated.excess > constant;
    failed += !found;
    std::printf("%s %d - a chattering engine is found: arity + %llu\n", found ? "ok" : "not ok",
                ++test, static_cast<unsigned long long>(mutated.excess));
    return failed == 0 ? 0 : 1;
}

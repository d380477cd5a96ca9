#include "opal/ft/base/rng.hpp"
#include "opal/ft/membership/view.hpp"
#include "orte_glue/radixft/death_spread.hpp"
#include "test/unit/cmocka.hpp"

#include <deque>
#include <memory>

using namespace ft;
using namespace ft::radixft;

namespace {

RankDeath death(std::uint32_t vpid, NodeId host)
{
    return {{1, vpid}, host, Cause::signal, 137, 0, 1000 + vpid};
}

/// Daemons with a channel that may lose messages.
struct World {
    explicit World(std::uint32_t n, std::uint64_t seed = 1) : rng(seed)
    {
        for (NodeId id = 0; id < n; ++id) {
            daemons.push_back(std::make_unique<DeathSpread>(id));
            members.push_back(id);
        }
        install();
    }

    void install()
    {
        const auto view = membership::View::from_parts(++epoch, membership::MemberList(members), {},
                                                       {}, 2, membership::TreeMode::rebuild, {});
        for (const NodeId id : members) {
            std::vector<NodeId> children;
            view->children(id, children);
            daemons[id]->on_view(view->epoch(), view->root(), children);
        }
    }

    void kill(NodeId id)
    {
        std::erase(members, id);
        daemons[id].reset();
    }

    /// Delivers everything, each message lost with this chance; ticks until nothing is left to say.
    void settle(double loss, unsigned ticks = 40)
    {
        for (unsigned t = 0; t < ticks; ++t) {
            for (bool more = true; more;) {
                more = false;
                for (const NodeId id : members) {
                    for (const RankDeath &d : daemons[id]->take_news()) {
                        news[id].push_back(d);
                    }
                    for (const Outgoing &m : daemons[id]->take_outgoing()) {
                        more = true;
                        ++sent;
                        if (daemons[m.to] && rng.uniform() >= loss) {
                            daemons[m.to]->on_message(id, m.type, m.body);
                        }
                    }
                }
            }
            for (const NodeId id : members) {
                daemons[id]->tick();
            }
        }
    }

    bool all_know(std::size_t count)
    {
        const auto &first = daemons[members.front()]->known();
        bool same = first.size() == count;
        for (const NodeId id : members) {
            same = same && daemons[id]->known() == first && !daemons[id]->reports_pending();
        }
        return same;
    }

    base::Rng rng;
    Epoch epoch = 0;
    unsigned sent = 0;
    std::vector<NodeId> members;
    std::vector<std::unique_ptr<DeathSpread>> daemons;
    std::map<NodeId, std::vector<RankDeath>> news;
};

void one_death_costs_a_report_and_the_edges_of_the_tree(void **)
{
    World world(8);
    world.settle(0, 1);
    const unsigned asked = std::exchange(world.sent, 0);
    world.daemons[5]->report(death(3, 5));
    world.settle(0, 1);
    const bool know = world.all_know(1);
    const unsigned sent = world.sent;
    const bool everybody = world.daemons[0]->everybody_knows();
    const Epoch epoch = world.daemons[7]->known().begin()->second.epoch;
    world.daemons.clear();
    assert_true(know);
    assert_true(everybody);
    assert_int_equal(epoch, 1);
    assert_int_equal(sent, 1 + 2 * 7);
    assert_int_equal(asked, 2 * 7); // what a new root does once
}

void lost_messages_are_repeated(void **)
{
    bool good = true;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        World world(9, seed);
        for (std::uint32_t r = 0; r < 12; ++r) {
            world.daemons[r % 9]->report(death(r, r % 9));
        }
        world.settle(0.3);
        good = good && world.all_know(12);
        for (const auto &[id, heard] : world.news) {
            good = good && heard.size() == 12; // each once
        }
        if (!good) {
            fail_test("seed %llu", static_cast<unsigned long long>(seed));
        }
    }
    assert_true(good);
}

void nothing_that_a_survivor_knew_is_lost_with_the_root(void **)
{
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        bool good = true;
        {
            World world(7, seed);
            world.daemons[4]->report(death(40, 4));
            world.daemons[6]->report(death(60, 6));
            world.settle(0.6, 1); // only part of it gets through
            const NodeId lost = static_cast<NodeId>(world.rng.below(3));
            world.kill(0);
            if (lost != 0) {
                world.kill(lost);
            }
            world.install();
            world.settle(0.2);
            good = world.all_know(2);
        }
        if (!good) {
            fail_test("seed %llu", static_cast<unsigned long long>(seed));
        }
    }
}

/// The commit of a view takes another way than what its root says next.
void a_list_that_overtakes_its_view_is_kept(void **)
{
    DeathSpread root(0);
    DeathSpread leaf(1);
    const NodeId children[] = {1};
    root.on_view(4, 0, {});
    leaf.on_view(4, 0, {});
    root.on_view(5, 0, children);
    root.report(death(7, 9));
    bool taken = true;
    for (const Outgoing &m : root.take_outgoing()) {
        taken = taken && leaf.on_message(0, m.type, m.body);
    }
    const bool waits = leaf.known().empty();
    leaf.on_view(5, 0, {});
    const bool known = leaf.known() == root.known() && leaf.known().size() == 1;
    for (const Outgoing &m : leaf.take_outgoing()) {
        taken = taken && (m.type != Type::ranks_dead_ack || root.on_message(1, m.type, m.body));
    }
    const bool everybody = root.everybody_knows();
    // Of a view that was left out: never.
    root.on_view(6, 0, children);
    for (const Outgoing &m : root.take_outgoing()) {
        leaf.on_message(0, m.type, m.body);
    }
    leaf.on_view(7, 0, {});
    const bool quiet =
        leaf.take_outgoing().size() == 1; // its report to the root, no acknowledgement
    root = DeathSpread(0);
    leaf = DeathSpread(1);
    assert_true(taken);
    assert_true(waits);
    assert_true(known);
    assert_true(everybody);
    assert_true(quiet);
}

void malformed_messages_are_refused(void **)
{
    bool refused = true;
    {
        DeathSpread d(1);
        const NodeId children[] = {2};
        d.on_view(4, 0, children);
        for (unsigned length = 0; length < 80; ++length) {
            const Bytes body(length, std::byte{0xff});
            for (const Type type : {Type::rank_died, Type::ranks_dead, Type::ranks_dead_ack,
                                    Type::ranks_known_ask, Type::ranks_known}) {
                // A question of 12 bytes is one, for a view that has not come yet.
                const bool fine = type == Type::ranks_known_ask && length == 12;
                refused = refused && d.on_message(0, type, body) == fine;
            }
        }
        refused = refused && d.known().empty();
    }
    assert_true(refused);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(one_death_costs_a_report_and_the_edges_of_the_tree),
        cmocka_unit_test(lost_messages_are_repeated),
        cmocka_unit_test(nothing_that_a_survivor_knew_is_lost_with_the_root),
        cmocka_unit_test(a_list_that_overtakes_its_view_is_kept),
        cmocka_unit_test(malformed_messages_are_refused),
    };
    return cmocka_run_group_tests_name("spread", tests, nullptr, nullptr);
}

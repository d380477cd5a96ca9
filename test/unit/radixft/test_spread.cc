#include "opal/ft/base/rng.hpp"
#include "opal/ft/membership/view.hpp"
#include "orte_glue/radixft/death_spread.hpp"
#include "test/unit/cmocka.hpp"

#include <deque>
#include <memory>
#include <optional>

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

struct Sent {
    std::size_t messages = 0;
    std::size_t bytes = 0;
};

/// What each daemon sends while `world` comes to rest; of one type, or all.
std::map<NodeId, Sent> sent_by_each(World &world, std::optional<Type> only = {})
{
    std::map<NodeId, Sent> sent;
    for (bool more = true; more;) {
        more = false;
        for (const NodeId id : world.members) {
            world.daemons[id]->take_news();
            for (const Outgoing &m : world.daemons[id]->take_outgoing()) {
                more = true;
                if (!only || m.type == *only) {
                    ++sent[id].messages;
                    sent[id].bytes += m.body.size();
                }
                world.daemons[m.to]->on_message(id, m.type, m.body);
            }
        }
    }
    return sent;
}

/// A rack of hosts with many ranks each.
void many_dead_cost_a_view_no_more_messages_than_few(void **)
{
    constexpr std::uint32_t many = 1000;
    bool no_reports = true;
    bool few = true;
    bool small = true;
    bool again_few = true;
    bool all_know = false;
    bool new_root_few = true;
    bool new_root_knows = false;
    {
        World world(8); // two children each
        world.settle(0, 1);
        std::vector<RankDeath> deaths;
        for (std::uint32_t r = 0; r < many; ++r) {
            deaths.push_back(death(r, 7));
        }
        world.kill(7);
        world.install();
        world.daemons[0]->report(deaths);
        for (const auto &[id, sent] : sent_by_each(world)) {
            few = few && sent.messages <= 2 + 1; // the list to two children, an acknowledgement
        }
        all_know = world.all_know(many);
        // The next view.
        world.kill(6);
        world.install();
        no_reports = sent_by_each(world, Type::rank_died).empty();
        world.install();
        const auto sent = sent_by_each(world);
        for (const auto &[id, mine] : sent) {
            again_few = again_few && mine.messages <= 2 + 1;
        }
        for (const NodeId leaf : {3U, 4U, 5U}) {
            small = small && sent.contains(leaf) && sent.at(leaf).bytes < 100;
        }
        // A new root asks once, and is told once along each edge.
        world.kill(0);
        world.install();
        for (const auto &[id, mine] : sent_by_each(world)) {
            new_root_few = new_root_few && mine.messages <= 2 * 2 + 2;
        }
        new_root_knows = world.all_know(many) && world.daemons[1]->everybody_knows();
    }
    assert_true(few);
    assert_true(all_know);
    assert_true(no_reports);
    assert_true(again_few);
    assert_true(small);
    assert_true(new_root_few);
    assert_true(new_root_knows);
}

/// The root has a list that did not come to all, stays the root, and is asked by nobody.
void a_root_that_stays_tells_those_who_missed_it(void **)
{
    bool good = true;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        World world(8, seed);
        world.settle(0, 1);
        for (std::uint32_t r = 0; r < 6; ++r) {
            world.daemons[r]->report(death(r, r));
        }
        world.settle(0.7, 1);
        world.kill(1 + static_cast<NodeId>(world.rng.below(7)));
        world.install();
        world.settle(0.7, 1);
        // One that knows nothing takes the place of the dead one.
        for (NodeId id = 0; id < 8; ++id) {
            if (!world.daemons[id]) {
                world.daemons[id] = std::make_unique<DeathSpread>(id);
                world.members.insert(world.members.begin() + id, id);
                world.news.erase(id);
            }
        }
        world.install();
        world.settle(0.3);
        const auto &known = world.daemons[0]->known();
        good = good && world.all_know(known.size()) && known.size() >= 5;
        for (const auto &[id, heard] : world.news) {
            good = good && heard.size() == known.size(); // each once
        }
    }
    assert_true(good);
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
    const bool quiet = leaf.take_outgoing().empty(); // no acknowledgement
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
        cmocka_unit_test(many_dead_cost_a_view_no_more_messages_than_few),
        cmocka_unit_test(a_root_that_stays_tells_those_who_missed_it),
        cmocka_unit_test(a_list_that_overtakes_its_view_is_kept),
        cmocka_unit_test(malformed_messages_are_refused),
    };
    return cmocka_run_group_tests_name("spread", tests, nullptr, nullptr);
}

#include "opal/ft/base/rng.hpp"
#include "orte_glue/radixft/gather.hpp"
#include "test/unit/cmocka.hpp"

#include <map>
#include <memory>
#include <set>

using namespace ft;
using namespace ft::radixft;

namespace {

const Bytes fence{std::byte{1}};

struct World {
    explicit World(std::uint32_t n, std::uint64_t seed = 1) : rng(seed)
    {
        for (NodeId id = 0; id < n; ++id) {
            daemons.push_back(std::make_unique<Gather>(
                id, [this](NodeId who, const Bytes &) { return gone.contains(who); }));
            daemons.back()->on_root(0);
            all.push_back(id);
        }
    }

    void contribute(NodeId id)
    {
        daemons[id]->contribute(fence, all, {static_cast<std::byte>(id)});
    }

    /// Death, or all ranks of a live daemon dead.
    void lose(NodeId id, bool daemon)
    {
        gone.insert(id);
        if (daemon) {
            daemons[id].reset();
            for (auto &d : daemons) {
                NodeId root = 0;
                while (!daemons[root]) {
                    ++root;
                }
                if (d) {
                    d->on_root(root);
                }
            }
        }
        for (auto &d : daemons) {
            if (d) {
                d->recheck();
            }
        }
    }

    void settle(double loss, unsigned ticks = 2000)
    {
        for (unsigned t = 0; t < ticks; ++t) {
            for (bool more = true; more;) {
                more = false;
                for (NodeId id = 0; id < daemons.size(); ++id) {
                    if (!daemons[id]) {
                        continue;
                    }
                    for (const auto &d : daemons[id]->take_done()) {
                        done[id].push_back(d.data);
                    }
                    for (const Outgoing &m : daemons[id]->take_outgoing()) {
                        more = true;
                        if (daemons[m.to] && rng.uniform() >= loss) {
                            daemons[m.to]->on_message(id, m.type, m.body);
                        }
                    }
                }
            }
            for (auto &d : daemons) {
                if (d) {
                    d->tick();
                }
            }
        }
    }

    base::Rng rng;
    std::set<NodeId> gone;
    std::vector<NodeId> all;
    std::vector<std::unique_ptr<Gather>> daemons;
    std::map<NodeId, std::vector<Bytes>> done;
};

Bytes bytes(std::initializer_list<unsigned> values)
{
    Bytes b;
    for (const unsigned v : values) {
        b.push_back(static_cast<std::byte>(v));
    }
    return b;
}

void all_get_all_parts_once(void **)
{
    bool good = true;
    {
        World world(4);
        for (unsigned round = 0; round < 3; ++round) {
            for (const NodeId id : {2U, 0U, 3U}) {
                world.contribute(id);
            }
            world.settle(0, 1);
            good = good && world.done[0].size() == round;
            world.contribute(1);
            world.settle(0, 1);
            for (NodeId id = 0; id < 4; ++id) {
                good = good && world.done[id].size() == round + 1 &&
                       world.done[id].back() == bytes({0, 1, 2, 3});
            }
        }
    }
    assert_true(good);
}

void a_daemon_whose_ranks_are_dead_is_not_waited_for(void **)
{
    bool good = true;
    {
        World world(4);
        for (const NodeId id : {0U, 1U, 3U}) {
            world.contribute(id);
        }
        world.settle(0, 1);
        good = world.done[1].empty();
        world.lose(2, false);
        world.settle(0, 1);
        good = good && world.done[1].size() == 1 && world.done[1][0] == bytes({0, 1, 3}) &&
               world.done[2].empty();
    }
    assert_true(good);
}

void whatever_one_survivor_left_every_survivor_leaves(void **)
{
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        bool good = true;
        {
            World world(6, seed);
            for (NodeId id = 0; id < 6; ++id) {
                world.contribute(id);
            }
            world.settle(0.5, 1);
            world.lose(0, true);
            if (world.rng.uniform() < 0.5) {
                world.settle(0.5, 1);
                world.lose(1, true);
            }
            world.settle(0.2);
            for (NodeId id = 0; id < 6; ++id) {
                good = good && (!world.daemons[id] || world.done[id].size() == 1);
            }
        }
        if (!good) {
            fail_test("seed %llu", static_cast<unsigned long long>(seed));
        }
    }
}

void malformed_messages_are_refused(void **)
{
    bool refused = true;
    {
        World world(2);
        for (unsigned length = 0; length < 60; ++length) {
            const Bytes body(length, std::byte{0xff});
            refused = refused && !world.daemons[0]->on_message(1, Type::contribution, body) &&
                      !world.daemons[0]->on_message(1, Type::release, body);
        }
        refused = refused && world.daemons[0]->open() == 0;
    }
    assert_true(refused);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(all_get_all_parts_once),
        cmocka_unit_test(a_daemon_whose_ranks_are_dead_is_not_waited_for),
        cmocka_unit_test(whatever_one_survivor_left_every_survivor_leaves),
        cmocka_unit_test(malformed_messages_are_refused),
    };
    return cmocka_run_group_tests_name("gather", tests, nullptr, nullptr);
}

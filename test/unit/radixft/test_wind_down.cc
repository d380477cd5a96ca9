#include "orte_glue/radixft/wind_down.hpp"
#include "test/unit/cmocka.hpp"

#include <memory>

using namespace ft;
using namespace ft::radixft;

namespace {

/// Daemons without mpirun (which was 0), and a channel between them.
struct World {
    explicit World(NodeId n)
    {
        for (NodeId id = 0; id <= n; ++id) {
            daemons.push_back(id == 0 ? nullptr : std::make_unique<WindDown>(id));
        }
        install();
    }

    /// All that are left install the view of those that are left.
    void install()
    {
        std::vector<NodeId> members;
        for (NodeId id = 0; id < daemons.size(); ++id) {
            if (daemons[id]) {
                members.push_back(id);
            }
        }
        for (const NodeId id : members) {
            daemons[id]->on_view(members.front(), members);
        }
    }

    /// Delivers every message, or none of `lost`'s.
    void deliver(Type lost = Type::rank_died)
    {
        for (bool more = true; more;) {
            more = false;
            for (NodeId id = 0; id < daemons.size(); ++id) {
                if (!daemons[id]) {
                    continue;
                }
                for (const Outgoing &m : daemons[id]->take_outgoing()) {
                    ++sent;
                    if (m.type != lost && daemons[m.to]) {
                        daemons[m.to]->on_message(id, m.type, m.body);
                        more = true;
                    }
                }
            }
        }
    }

    unsigned leaving() const
    {
        unsigned count = 0;
        for (const auto &d : daemons) {
            count += d && d->leaving() ? 1 : 0;
        }
        return count;
    }

    std::vector<std::unique_ptr<WindDown>> daemons;
    unsigned sent = 0;
};

void all_leave_when_all_ranks_have_ended(void **)
{
    World world(4);
    for (const NodeId id : {2U, 1U, 4U}) {
        world.daemons[id]->report(RanksAre::over);
        world.deliver();
    }
    const unsigned early = world.leaving();
    world.daemons[3]->report(RanksAre::over);
    world.deliver();
    const unsigned late = world.leaving();
    const bool members_go = world.daemons[2]->may_leave() && world.daemons[4]->may_leave();
    const bool root_first = world.daemons[1]->may_leave();
    for (const NodeId id : {2U, 3U, 4U}) {
        world.daemons[1]->has_left(id);
    }
    const bool root_last = world.daemons[1]->may_leave();
    const unsigned sent = world.sent;
    world.daemons.clear();
    assert_int_equal(early, 0);
    assert_int_equal(late, 4);
    assert_true(members_go);
    assert_false(root_first);
    assert_true(root_last);
    assert_int_equal(sent, 2 * 3);
}

void one_can_end_it_for_all_and_says_why(void **)
{
    World world(3);
    world.daemons[2]->report(RanksAre::to_end, "rank 7 called MPI_Abort");
    world.deliver();
    const unsigned leaving = world.leaving();
    const bool why = world.daemons[1]->why() == "rank 7 called MPI_Abort";
    world.daemons.clear();
    assert_int_equal(leaving, 3);
    assert_true(why);
}

void what_is_lost_is_said_again(void **)
{
    World world(3);
    for (const NodeId id : {1U, 2U, 3U}) {
        world.daemons[id]->report(RanksAre::over);
    }
    world.deliver(Type::ranks_are);
    const unsigned before = world.leaving();
    for (auto &d : world.daemons) {
        if (d) {
            d->tick();
        }
    }
    world.deliver(Type::leave);
    const unsigned root_only = world.leaving();
    world.daemons[1]->tick();
    world.deliver();
    const unsigned all = world.leaving();
    world.daemons.clear();
    assert_int_equal(before, 0);
    assert_int_equal(root_only, 1);
    assert_int_equal(all, 3);
}

void a_new_root_hears_it_all_again(void **)
{
    World world(4);
    for (const NodeId id : {2U, 3U, 4U}) {
        world.daemons[id]->report(RanksAre::over);
    }
    world.deliver();
    world.daemons[1].reset(); // whose ranks were still running
    world.install();
    world.deliver();
    const unsigned leaving = world.leaving();
    world.daemons.clear();
    assert_int_equal(leaving, 3);
}

void the_root_does_not_wait_for_ever(void **)
{
    World world(2);
    for (const NodeId id : {1U, 2U}) {
        world.daemons[id]->report(RanksAre::over);
    }
    world.deliver();
    unsigned ticks = 0;
    while (!world.daemons[1]->may_leave() && ticks < 1000) {
        world.daemons[1]->tick();
        ++ticks;
    }
    world.daemons.clear();
    assert_in_range(ticks, 1, 100);
}

void malformed_messages_are_refused(void **)
{
    bool refused = true;
    bool leaving = false;
    {
        WindDown d(1);
        refused = !d.on_message(0, Type::leave, {}); // mpirun lives
        const NodeId members[] = {1, 2};
        d.on_view(1, members);
        for (const unsigned first : {0U, 3U, 255U}) {
            refused = refused && !d.on_message(2, Type::ranks_are, Bytes{std::byte(first)});
        }
        refused = refused && !d.on_message(2, Type::ranks_are, {});
        refused = refused && !d.on_message(2, Type::ranks_are, Bytes(1000, std::byte{1}));
        refused = refused && !d.on_message(9, Type::ranks_are, Bytes{std::byte{1}});
        refused = refused && !d.on_message(2, Type::leave, Bytes{std::byte{1}});
        leaving = d.leaving();
    }
    assert_true(refused);
    assert_false(leaving);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(all_leave_when_all_ranks_have_ended),
        cmocka_unit_test(one_can_end_it_for_all_and_says_why),
        cmocka_unit_test(what_is_lost_is_said_again),
        cmocka_unit_test(a_new_root_hears_it_all_again),
        cmocka_unit_test(the_root_does_not_wait_for_ever),
        cmocka_unit_test(malformed_messages_are_refused),
    };
    return cmocka_run_group_tests_name("wind_down", tests, nullptr, nullptr);
}

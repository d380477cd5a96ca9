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
            daemons.push_back(
                std::make_unique<Gather>(id, [this](NodeId who, const Bytes &, std::uint32_t) {
                    return gone.contains(who);
                }));
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

/// Whoever has released all and waits for nothing has nothing to say to a new root.
void a_new_root_is_told_of_what_is_open_alone(void **)
{
    constexpr unsigned many = 1000;
    std::size_t told = 0;
    std::size_t kept = 0;
    std::size_t kept_once_over = 0;
    std::size_t forgotten = 0;
    std::uint32_t counted = 0;
    bool open_is_told = false;
    bool late_is_nothing_new = false;
    {
        World world(3);
        const auto signature = [](unsigned i) {
            return Bytes{std::byte{2}, static_cast<std::byte>(i >> 8), static_cast<std::byte>(i)};
        };
        for (unsigned i = 0; i < many; ++i) {
            for (const NodeId id : {0U, 1U, 2U}) {
                world.daemons[id]->contribute(signature(i), world.all, Bytes(8));
            }
        }
        world.settle(0, 1);
        world.contribute(2);
        world.settle(0, 1);
        world.daemons[2]->on_root(1);
        const auto said = world.daemons[2]->take_outgoing();
        told = said.size();
        open_is_told = told == 1 && said[0].to == 1 && said[0].type == Type::contribution;
        // Nobody will use them again but one, of which it is not known yet.
        const auto over = [&](const Bytes &which) { return which != signature(7); };
        kept = world.daemons[2]->kept();
        world.daemons[2]->forget(over);
        kept_once_over = world.daemons[2]->kept();
        world.daemons[2]->forget(over);
        forgotten = world.daemons[2]->kept();
        counted = world.daemons[2]->completed(signature(3));
        // What was said again on the way is no new collective at one that has forgotten it.
        world.daemons[0]->forget(over);
        world.daemons[0]->forget(over);
        Gather again(1, [](NodeId, const Bytes &, std::uint32_t) { return false; });
        again.on_root(0);
        again.contribute(signature(3), world.all, Bytes(8));
        const std::size_t open = world.daemons[0]->open();
        for (const Outgoing &m : again.take_outgoing()) {
            world.daemons[0]->on_message(1, m.type, m.body);
        }
        late_is_nothing_new =
            world.daemons[0]->open() == open && world.daemons[0]->take_outgoing().empty();
    }
    assert_int_equal(told, 1);
    assert_true(open_is_told);
    assert_int_equal(kept, many);
    assert_int_equal(kept_once_over, many);
    assert_int_equal(forgotten, 1);
    assert_int_equal(counted, 1);
    assert_true(late_is_nothing_new);
}

/// Of a thousand daemons, with 10 MB from all together.
void the_root_does_not_build_the_whole_for_each(void **)
{
    constexpr NodeId many = 1000;
    constexpr std::size_t part = 10000;
    std::size_t bytes = 0;
    std::size_t again = 0;
    std::size_t later = 0;
    {
        const auto lives = [](NodeId, const Bytes &, std::uint32_t) { return false; };
        Gather root(0, lives);
        root.on_root(0);
        std::vector<NodeId> all;
        for (NodeId id = 0; id < many; ++id) {
            all.push_back(id);
        }
        std::vector<Outgoing> said;
        for (NodeId id = 1; id < many; ++id) {
            Gather daemon(id, lives);
            daemon.on_root(0);
            daemon.contribute(fence, all, Bytes(part));
            said.push_back(std::move(daemon.take_outgoing().front()));
            root.on_message(id, said.back().type, said.back().body);
        }
        root.contribute(fence, all, Bytes(part));
        const auto bytes_sent = [&root] {
            std::size_t sum = 0;
            for (const Outgoing &m : root.take_outgoing()) {
                sum += m.body.size();
            }
            return sum;
        };
        const auto all_say_it_again = [&] {
            for (NodeId id = 1; id < many; ++id) {
                root.on_message(id, said[id - 1].type, said[id - 1].body);
            }
        };
        bytes = bytes_sent();
        all_say_it_again(); // while it is on its way
        again = bytes_sent();
        for (unsigned tick = 0; tick < 100; ++tick) {
            root.tick();
        }
        all_say_it_again();
        later = bytes_sent();
    }
    assert_in_range(bytes, many * part, 5 * many * part);
    assert_int_equal(again, 0);
    assert_in_range(later, many * part, 5 * many * part);
}

/// Much data goes from one to the next, and who should have passed it on may die.
void what_is_passed_on_comes_to_all(void **)
{
    constexpr NodeId many = 60;
    bool good = true;
    bool few_each = true;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        World world(many, seed);
        const std::size_t part = seed == 1 ? 1 : 3000; // 60 x 180 kB are too much for one
        for (NodeId id = 0; id < many; ++id) {
            world.daemons[id]->contribute(fence, world.all, Bytes(part));
        }
        for (NodeId id = 1; id < many; ++id) {
            for (const Outgoing &m : world.daemons[id]->take_outgoing()) {
                world.daemons[0]->on_message(id, m.type, m.body);
            }
        }
        auto sent = world.daemons[0]->take_outgoing();
        few_each = few_each && sent.size() == (part == 1 ? many - 1 : 4);
        for (const Outgoing &m : sent) {
            if (world.rng.uniform() < 0.7) { // the others die with it
                world.daemons[m.to]->on_message(0, m.type, m.body);
            }
        }
        for (NodeId id = 1; id < many; ++id) {
            const auto passed = world.daemons[id]->take_outgoing();
            few_each = few_each && passed.size() <= 4;
            for (const Outgoing &m : passed) {
                if (world.rng.uniform() < 0.7) {
                    world.daemons[m.to]->on_message(id, m.type, m.body);
                }
            }
        }
        switch (seed % 3) {
        case 0:
            world.lose(sent[1].to, true);
            break;
        case 1:
            world.lose(0, true);
            break;
        default:
            break;
        }
        world.settle(0.1, 400);
        for (NodeId id = 0; id < many; ++id) {
            good = good && (!world.daemons[id] || (world.done[id].size() == 1 &&
                                                   world.done[id][0].size() == many * part));
        }
    }
    assert_true(few_each);
    assert_true(good);
}

/// Not by who waits, which may be long, but by the view without it.
void a_dead_daemon_that_was_to_pass_it_on_is_made_up_for(void **)
{
    constexpr NodeId many = 60;
    bool good = true;
    {
        World world(many);
        for (NodeId id = 0; id < many; ++id) {
            world.daemons[id]->contribute(fence, world.all, Bytes(3000));
        }
        for (NodeId id = 1; id < many; ++id) {
            for (const Outgoing &m : world.daemons[id]->take_outgoing()) {
                world.daemons[0]->on_message(id, m.type, m.body);
            }
        }
        for (const Outgoing &m : world.daemons[0]->take_outgoing()) {
            if (m.to != 1) {
                world.daemons[m.to]->on_message(0, m.type, m.body);
            }
        }
        world.settle(0, 1); // nobody has waited for so long that he would repeat his part
        good = world.done[2].empty();
        world.lose(1, true);
        world.settle(0, 1);
        for (NodeId id = 0; id < many; ++id) {
            good = good && (id == 1 || world.done[id].size() == 1);
        }
    }
    assert_true(good);
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
        cmocka_unit_test(a_new_root_is_told_of_what_is_open_alone),
        cmocka_unit_test(the_root_does_not_build_the_whole_for_each),
        cmocka_unit_test(what_is_passed_on_comes_to_all),
        cmocka_unit_test(a_dead_daemon_that_was_to_pass_it_on_is_made_up_for),
        cmocka_unit_test(malformed_messages_are_refused),
    };
    return cmocka_run_group_tests_name("gather", tests, nullptr, nullptr);
}

#include "orte_glue/radixft/introductions.hpp"
#include "test/unit/cmocka.hpp"

#include <map>
#include <numeric>
#include <optional>

using namespace ft::radixft;

namespace {

std::optional<Contacts> read(std::span<const std::byte> bytes)
{
    ft::base::WireReader in(bytes);
    Contacts contacts = decode_contacts(in);
    return in.complete() ? std::optional(std::move(contacts)) : std::nullopt;
}

std::string place(NodeId id)
{
    return "tcp://host" + std::to_string(id);
}

/// So many daemons, the first of them members and the others to join.
struct World {
    World(unsigned count_of_members, unsigned count_of_newcomers) : members(count_of_members)
    {
        std::iota(members.begin(), members.end(), 0);
        for (unsigned i = 0; i < count_of_newcomers; ++i) {
            newcomers.insert(count_of_members + i);
        }
    }

    void tick()
    {
        introductions.tick(newcomers, members,
                           {.contact = [this](NodeId id) { return id == absent ? "" : place(id); },
                            .tell =
                                [this](NodeId member, const Bytes &text) {
                                    ++messages;
                                    bytes += text.size();
                                    for (const auto &[id, uri] : read(text).value_or(Contacts())) {
                                        told[member][id] = uri;
                                    }
                                },
                            .invite =
                                [this](NodeId newcomer, const Bytes &text) {
                                    ++messages;
                                    bytes += text.size();
                                    ++invited[newcomer];
                                    knows[newcomer] = read(text).value_or(Contacts()).size();
                                }});
    }

    /// Whether all members were told of each newcomer, and each of those was invited so often, and
    /// told of all members.
    bool complete(unsigned invitations)
    {
        bool all = true;
        for (const NodeId newcomer : newcomers) {
            all = all && invited[newcomer] == invitations && knows[newcomer] == members.size();
            for (const NodeId member : members) {
                all = all && told[member][newcomer] == place(newcomer);
            }
        }
        return all;
    }

    std::vector<NodeId> members;
    std::set<NodeId> newcomers;
    NodeId absent = no_node;
    Introductions introductions;
    std::size_t messages = 0;
    std::size_t bytes = 0;
    std::map<NodeId, std::map<NodeId, std::string>> told;
    std::map<NodeId, unsigned> invited;
    std::map<NodeId, std::size_t> knows;
};

void a_few_have_their_turn_in_each_tick(void **)
{
    World world(5, 3);
    world.tick();
    const bool once = world.complete(1);
    world.tick();
    assert_true(once);
    assert_true(world.complete(2));
    assert_int_equal(world.messages, 2 * (5 + 3));
}

void many_cost_no_more_in_a_tick_and_all_have_their_turn(void **)
{
    World few(128, Introductions::most);
    few.tick();
    World world(128, 8 * Introductions::most);
    std::size_t most_messages = 0;
    std::size_t most_bytes = 0;
    const auto round = [&] {
        for (unsigned i = 0; i < 8; ++i) {
            world.messages = 0;
            world.bytes = 0;
            world.tick();
            most_messages = std::max(most_messages, world.messages);
            most_bytes = std::max(most_bytes, world.bytes);
        }
    };
    round();
    const bool once = world.complete(1);
    round();
    const bool twice = world.complete(2);
    assert_true(once);
    assert_true(twice);
    assert_int_equal(most_messages, 128 + Introductions::most);
    assert_true(most_bytes <= few.bytes + few.bytes / 8); // longer numbers
}

/// Two turns each within the time that they have, however many they are.
void very_many_are_not_late(void **)
{
    World world(1, 100 * Introductions::most);
    for (unsigned i = 0; i < 2 * Introductions::part; ++i) {
        world.tick();
    }
    assert_true(world.complete(2));
}

void a_tick_costs_in_proportion_to_the_members(void **)
{
    World small(128, 128);
    World large(512, 512);
    small.tick();
    large.tick();
    assert_true(large.messages <= 4 * small.messages);
    assert_true(large.bytes <= 5 * small.bytes); // longer numbers
}

void who_has_joined_takes_no_turn_from_the_others(void **)
{
    World world(4, 3 * Introductions::most);
    world.tick();
    // Those whose turn it was, and the next one.
    for (NodeId id = 4; id < 4 + Introductions::most + 1; ++id) {
        world.newcomers.erase(id);
    }
    world.tick();
    const NodeId first = 4 + Introductions::most + 1;
    const unsigned next = world.invited[first];
    world.newcomers = {first, 1000};
    world.tick();
    const unsigned again = world.invited[first];
    world.newcomers.clear();
    world.messages = 0;
    world.tick();
    assert_int_equal(next, 1);
    assert_int_equal(again, 2);
    assert_int_equal(world.invited[1000], 1);
    assert_int_equal(world.messages, 0);
}

void of_one_whose_place_is_not_known_the_members_are_not_told(void **)
{
    World world(4, 2);
    world.absent = 5;
    world.tick();
    const bool told = world.told[0].contains(4) && !world.told[0].contains(5);
    const unsigned invited = world.invited[5];
    world.newcomers = {5};
    world.messages = 0;
    world.tick();
    assert_true(told);
    assert_int_equal(invited, 1);
    assert_int_equal(world.messages, 1);
}

void contacts_are_read_as_they_were_written_or_not_at_all(void **)
{
    const Contacts contacts{{1, "here"}, {70000, ""}, {2, std::string(most_contact, 'x')}};
    Bytes bytes = encode_contacts(contacts);
    const bool same = read(bytes) == contacts;
    bool short_ones = false;
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        short_ones = short_ones || read(std::span(bytes).first(size)).has_value();
    }
    bytes.resize(bytes.size() + 1);
    const bool long_one = read(bytes).has_value();
    const bool too_long =
        read(encode_contacts({{1, std::string(most_contact + 1, 'x')}})).has_value();
    assert_true(same);
    assert_false(short_ones);
    assert_false(long_one);
    assert_false(too_long);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_few_have_their_turn_in_each_tick),
        cmocka_unit_test(many_cost_no_more_in_a_tick_and_all_have_their_turn),
        cmocka_unit_test(very_many_are_not_late),
        cmocka_unit_test(a_tick_costs_in_proportion_to_the_members),
        cmocka_unit_test(who_has_joined_takes_no_turn_from_the_others),
        cmocka_unit_test(of_one_whose_place_is_not_known_the_members_are_not_told),
        cmocka_unit_test(contacts_are_read_as_they_were_written_or_not_at_all),
    };
    return cmocka_run_group_tests_name("introductions", tests, nullptr, nullptr);
}

#include "opal/ft/membership/host_map.hpp"
#include "test/unit/cmocka.hpp"

using namespace ft::membership;

namespace {

HostMap four_hosts()
{
    HostMap map;
    for (NodeId id = 0; id < 4; ++id) {
        map.remember("n" + std::to_string(id), {id, 0});
    }
    return map;
}

ViewPtr four_less(NodeId gone)
{
    Change c;
    c.removed.push_back({gone, 0, Grade::proven, no_node});
    return View::initial(4, 2, TreeMode::rebuild)->apply(1, c);
}

void a_recovered_host_gets_its_old_id_in_a_new_life(void **)
{
    HostMap map = four_hosts();
    const ViewPtr view = four_less(2);
    const auto first = map.identity_for("n2", *view);
    const bool kept = map.remember("n2", *first);
    // It died again before any view had it: the next life is another one all the same.
    const auto second = map.identity_for("n2", *view);
    const bool alive = map.identity_for("n1", *view).has_value();
    assert_true(first && *first == (Identity{2, 1}));
    assert_true(kept);
    assert_true(second && *second == (Identity{2, 2}));
    assert_false(alive);
}

void views_tell_of_lives_that_nobody_handed_out_here(void **)
{
    HostMap map = four_hosts();
    Change joins;
    joins.joined.push_back({2, 7});
    joins.joined.push_back({5, 0});
    const ViewPtr back = four_less(2)->apply(2, joins);
    map.follow(*back);
    const bool member = map.identity_for("n2", *back).has_value();
    Change again;
    again.removed.push_back({2, 7, Grade::proven, no_node});
    const auto next = map.identity_for("n2", *back->apply(3, again));
    // 5 is used, though its host's name is not known here.
    const auto fresh = map.identity_for("new", *View::initial(4, 2, TreeMode::rebuild));
    assert_false(member);
    assert_true(next && *next == (Identity{2, 8}));
    assert_true(fresh && *fresh == (Identity{6, 0}));
}

void new_hosts_get_ids_that_were_never_used(void **)
{
    HostMap map = four_hosts();
    const ViewPtr view = four_less(3);
    const auto fresh = map.identity_for("n9", *view);
    const bool kept = map.remember("n9", *fresh);
    const auto next = map.identity_for("n10", *view);
    const bool named = map.host_of(4) == "n9" && map.id_of("n9") == 4;
    assert_true(fresh && *fresh == (Identity{4, 0}));
    assert_true(kept && named);
    assert_true(next && *next == (Identity{5, 0}));
}

void what_contradicts_is_refused(void **)
{
    HostMap map = four_hosts();
    const bool two_ids = map.remember("n1", {9, 0});
    const bool two_hosts = map.remember("other", {1, 1});
    const bool absurd = map.remember("far", {max_nodes, 0});
    const bool nameless = map.remember("", {8, 0});
    const bool older = map.remember("n1", {1, 0});
    const bool unknown = map.host_of(77).empty() && map.id_of("far") == no_node;
    const bool nobody = map.identity_for("", *four_less(1)).has_value();
    assert_false(two_ids || two_hosts || absurd || nameless);
    assert_true(older && unknown);
    assert_false(nobody);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_recovered_host_gets_its_old_id_in_a_new_life),
        cmocka_unit_test(views_tell_of_lives_that_nobody_handed_out_here),
        cmocka_unit_test(new_hosts_get_ids_that_were_never_used),
        cmocka_unit_test(what_contradicts_is_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

#include "orte_glue/radixft/contact_book.hpp"
#include "test/unit/cmocka.hpp"

#include <utility>

using namespace ft::radixft;

namespace {

struct World {
    ContactBook book{[this](NodeId id) {
                         ++asked;
                         return id == absent ? std::string() : "tcp://host" + std::to_string(id);
                     },
                     [this](NodeId) { return lasts; }};

    void tick()
    {
        book.look_up_some(
            200, [](std::size_t i) { return static_cast<NodeId>(i); }, 64);
    }
    bool all_right()
    {
        bool right = true;
        for (NodeId id = 0; id < 200; ++id) {
            right = right && (id == absent || book.get(id) == "tcp://host" + std::to_string(id));
        }
        return right;
    }

    NodeId absent = no_node;
    bool lasts = true;
    unsigned asked = 0;
};

void all_are_known_after_some_ticks(void **)
{
    World world;
    world.tick();
    const unsigned at_once = world.asked;
    for (unsigned i = 0; i < 10; ++i) {
        world.tick();
    }
    const unsigned asked = std::exchange(world.asked, 0);
    const bool right = world.all_right();
    assert_int_equal(at_once, 64);
    assert_int_equal(asked, 200);
    assert_true(right);
    assert_int_equal(world.asked, 0);
}

void one_that_the_store_does_not_have_is_not_asked_for_all_the_time(void **)
{
    World world;
    world.absent = 70;
    for (unsigned i = 0; i < 10; ++i) {
        world.tick();
    }
    const unsigned asked = std::exchange(world.asked, 0);
    world.book.begin_anew();
    world.tick();
    assert_int_equal(asked, 200);
    assert_int_equal(world.asked, 1);
}

void what_may_change_is_looked_up_each_time(void **)
{
    World world;
    world.lasts = false;
    world.book.get(3);
    world.book.get(3);
    assert_int_equal(world.asked, 2);
    world.lasts = true;
    world.book.get(3);
    world.book.get(3);
    assert_int_equal(world.asked, 3);
    world.book.forget(3);
    world.book.get(3);
    assert_int_equal(world.asked, 4);
    world.book.remember(3, "elsewhere");
    assert_string_equal(world.book.get(3).c_str(), "elsewhere");
    assert_int_equal(world.asked, 4);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(all_are_known_after_some_ticks),
        cmocka_unit_test(one_that_the_store_does_not_have_is_not_asked_for_all_the_time),
        cmocka_unit_test(what_may_change_is_looked_up_each_time),
    };
    return cmocka_run_group_tests_name("contact book", tests, nullptr, nullptr);
}

// Which paths are looked at in a pass, when many of them lead to who has ended.
#include "ompi/mca/pml/dr/watched.hpp"
#include "test/unit/cmocka.hpp"

#include <array>

namespace {

struct Path {
    bool gone = false;
    unsigned looks = 0;
    unsigned in_each = 0; ///< of these, where every path in use has one in each pass
};
using Watched = ft::dr::Watched<Path>;
constexpr std::size_t few = Watched::at_a_time;

bool look(Path &path, bool in_each) noexcept
{
    ++path.looks;
    path.in_each += in_each ? 1 : 0;
    return path.gone;
}

template <std::size_t Number>
struct Paths {
    std::array<Path, Number> all;
    Watched watched;

    Paths()
    {
        for (Path &path : all) {
            watched.add(path);
        }
    }
    /// \return all looks of one pass
    unsigned pass() noexcept
    {
        for (Path &path : all) {
            path.looks = path.in_each = 0;
        }
        watched.pass(look);
        unsigned sum = 0;
        for (const Path &path : all) {
            sum += path.looks;
        }
        return sum;
    }
};

void few_are_looked_at_in_each_pass(void **)
{
    Paths<few> paths;
    for (int i = 0; i < 3; ++i) {
        paths.pass();
        for (const Path &path : paths.all) {
            assert_int_equal(path.looks, 1);
            assert_int_equal(path.in_each, 1);
        }
    }
}

void many_take_turns(void **)
{
    Paths<few + 10> paths;
    std::array<unsigned, few + 10> looks{};
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(paths.pass(), few);
        for (std::size_t n = 0; n < looks.size(); ++n) {
            looks[n] += paths.all[n].looks;
            assert_int_equal(paths.all[n].in_each, 0);
        }
    }
    for (const unsigned times : looks) {
        assert_true(times >= 1 && times <= 2);
    }
}

/// One child after the other parts and ends: whoever lives is looked at in each pass all the same.
void those_who_have_ended_take_no_turns(void **)
{
    Paths<10 * few> paths;
    for (std::size_t n = 1; n < paths.all.size(); ++n) {
        paths.all[n].gone = n % 100 != 0;
    }
    for (int i = 0; i < 20; ++i) {
        paths.pass();
    }
    assert_int_equal(paths.watched.used(), 7);
    for (int i = 0; i < 20; ++i) {
        assert_int_equal(paths.pass(), 7 + 1);
        for (std::size_t n = 0; n < paths.all.size(); n += 100) {
            assert_int_equal(paths.all[n].looks, 1);
            assert_int_equal(paths.all[n].in_each, 1);
        }
    }
}

/// Also in the pass in which others are put aside, from whatever place.
void none_is_left_out_when_others_go(void **)
{
    for (unsigned who = 1; who < 1U << 6; ++who) {
        Paths<6> paths;
        paths.pass();
        for (std::size_t n = 0; n < 6; ++n) {
            paths.all[n].gone = (who >> n & 1U) != 0;
        }
        paths.pass();
        for (const Path &path : paths.all) {
            assert_true(path.looks >= 1 && path.in_each == 1);
        }
        assert_int_equal(paths.watched.used(), 6 - __builtin_popcount(who));
    }
}

/// A connection that its peer makes, though it has parted.
void who_comes_back_is_found(void **)
{
    Paths<200> paths;
    for (Path &path : paths.all) {
        path.gone = true;
    }
    for (int i = 0; i < 5; ++i) {
        paths.pass();
    }
    assert_int_equal(paths.watched.used(), 0);
    for (const std::size_t n : {0, 77, 199}) {
        paths.all[n].gone = false;
    }
    for (std::size_t i = 0; i < paths.all.size(); ++i) {
        paths.pass();
    }
    assert_int_equal(paths.watched.used(), 3);
    paths.pass();
    assert_int_equal(paths.all[77].in_each, 1);
}

void who_is_met_again_is_looked_at_at_once(void **)
{
    Paths<few> paths;
    for (Path &path : paths.all) {
        path.gone = true;
    }
    paths.pass();
    for (Path &path : paths.all) {
        path.gone = false;
        paths.watched.take_back(path);
        paths.watched.take_back(path); // it is there
        paths.pass();
        assert_int_equal(path.in_each, 1);
    }
    assert_int_equal(paths.watched.used(), few);
}

void those_removed_are_not_looked_at(void **)
{
    Paths<8> paths;
    for (std::size_t n = 0; n < 4; ++n) {
        paths.all[n].gone = true;
    }
    paths.pass();
    const Path stranger;
    paths.watched.remove(stranger);
    paths.watched.take_back(stranger);
    for (const std::size_t n : {1, 3, 4, 7, 7}) {
        paths.watched.remove(paths.all[n]);
    }
    assert_int_equal(paths.watched.used(), 2);
    std::array<unsigned, 8> looks{};
    for (int i = 0; i < 2; ++i) {
        paths.pass();
        for (std::size_t n = 0; n < looks.size(); ++n) {
            looks[n] += paths.all[n].looks;
        }
    }
    const std::array<unsigned, 8> wanted{1, 0, 1, 0, 0, 2, 2, 0};
    assert_true(looks == wanted);
    for (Path &path : paths.all) {
        paths.watched.remove(path);
    }
    assert_int_equal(paths.pass(), 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(few_are_looked_at_in_each_pass),
        cmocka_unit_test(many_take_turns),
        cmocka_unit_test(those_who_have_ended_take_no_turns),
        cmocka_unit_test(none_is_left_out_when_others_go),
        cmocka_unit_test(who_comes_back_is_found),
        cmocka_unit_test(who_is_met_again_is_looked_at_at_once),
        cmocka_unit_test(those_removed_are_not_looked_at),
    };
    return cmocka_run_group_tests_name("watched", tests, nullptr, nullptr);
}

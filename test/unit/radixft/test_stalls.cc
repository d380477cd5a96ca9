#include "orte_glue/radixft/sent.hpp"
#include "orte_glue/radixft/stalls.hpp"
#include "test/unit/cmocka.hpp"

#include <array>
#include <string>
#include <vector>

using namespace ft::radixft;
using ft::base::Duration;
using ft::base::Time;

namespace {

constexpr Duration step = Duration::from_ms(50);

/// At how many of `count` looks, one `step` apart, the connection to daemon 3 has stood still.
template <typename At>
std::vector<int> stalled(Stalls &stalls, int count, At progress)
{
    std::vector<int> found;
    Time now = Time::from_ns(1'000'000'000);
    for (int i = 0; i < count; ++i, now = now + step) {
        if (stalls.look(now, 3, progress(i))) {
            found.push_back(i);
        }
    }
    return found;
}

void nothing_waits(void **)
{
    Stalls stalls;
    assert_true(stalled(stalls, 100, [](int) { return Progress{false, 7}; }).empty());
}

void something_waits_but_gets_through(void **)
{
    Stalls stalls;
    const auto found = stalled(stalls, 100, [](int i) {
        return Progress{true, static_cast<std::uint64_t>(i / 2)}; // 50 ms at most
    });
    assert_true(found.empty());
}

void the_same_waits_for_longer(void **)
{
    Stalls stalls;
    // 100 ms after the first look, then after 200 ms, 400, 800, and each second.
    const std::vector<int> expected{2, 6, 14, 30, 50, 70};
    const auto found = stalled(stalls, 80, [](int) { return Progress{true, 7}; });
    assert_true(found == expected);
    Time now = Time::from_ns(9'000'000'000);
    assert_int_equal(stalls.look(now, 3, {true, 8}), 0);
    assert_int_equal(stalls.look(now = now + Stalls::patience, 3, {true, 8}), 1);
    assert_int_equal(stalls.look(now + Stalls::patience * 2, 3, {true, 8}), 2);
}

void what_got_through_ends_it(void **)
{
    Stalls stalls;
    const auto found = stalled(stalls, 12, [](int i) { return Progress{true, i < 5 ? 7U : 8U}; });
    const std::vector<int> expected{2, 7, 11};
    assert_true(found == expected);
}

void a_pause_in_which_nothing_waits_ends_it(void **)
{
    Stalls stalls;
    const auto found = stalled(stalls, 6, [](int i) { return Progress{i % 2 == 0, 7}; });
    assert_true(found.empty());
}

void each_daemon_has_its_own(void **)
{
    Stalls stalls;
    Time now = Time::from_ns(1'000'000'000);
    stalls.look(now, 3, {true, 7});
    now = now + Stalls::patience;
    const bool other = stalls.look(now, 4, {true, 7});
    const bool same = stalls.look(now, 3, {true, 7});
    stalls.forget(4);
    now = now + Stalls::patience;
    const bool forgotten = stalls.look(now, 4, {true, 7});
    assert_false(other);
    assert_true(same);
    assert_false(forgotten);
}

void goes_on_where_it_is_answered(void **)
{
    constexpr auto a = Knock::accepted;
    constexpr auto r = Knock::refused;
    constexpr auto s = Knock::silent;
    const auto choice = [](std::array<Knock, 3> answers, std::size_t used) {
        return better_address(answers, used);
    };
    assert_true(choice({s, s, a}, 0) == 2);
    assert_true(choice({a, s, s}, 1) == 0);
    assert_true(choice({s, a, a}, 0) == 1);
    // The one in use answers, in whatever way.
    assert_false(choice({a, a, a}, 0).has_value());
    assert_false(choice({r, a, a}, 0).has_value());
    // No other one accepts.
    assert_false(choice({s, s, s}, 0).has_value());
    assert_false(choice({s, r, r}, 0).has_value());
    // It is none of these.
    assert_false(choice({s, a, a}, 3).has_value());
}

void what_is_sent_again_in_vain_is_broken(void **)
{
    const Progress waits{.waits = true, .mark = 7};
    const Progress resends{.waits = true, .mark = 7, .resends = true};
    const Progress greeting{.waits = true, .mark = 7, .greeting = true};
    assert_false(is_broken(9, waits)); // the other daemon is busy
    assert_false(is_broken(1, resends));
    assert_true(is_broken(2, resends));
    assert_false(is_broken(2, greeting));
    assert_true(is_broken(3, greeting));
}

void a_broken_one_is_opened_where_it_was(void **)
{
    constexpr auto a = Knock::accepted;
    constexpr auto r = Knock::refused;
    constexpr auto s = Knock::silent;
    const auto choice = [](std::array<Knock, 2> answers, std::size_t used) {
        return better_address(answers, used, true);
    };
    assert_true(choice({a, a}, 1) == 1);
    assert_true(choice({a, s}, 0) == 0);
    assert_true(choice({a, s}, 1) == 0);
    assert_false(choice({s, s}, 0).has_value());
    assert_false(choice({r, a}, 0).has_value());
}

using Letters = Sent<std::string>;

void what_has_not_arrived_is_given_again(void **)
{
    Letters sent;
    sent.add(10, "a");
    sent.add(5, std::nullopt);
    sent.add(10, "b");
    sent.add(10, "c");
    assert_int_equal(sent.end(), 35);
    // All of a and a part of b: a message that is cut in two is given again as a whole.
    const auto missing = sent.take_after(20);
    assert_true((missing == std::vector<std::string>{"b", "c"}));
    assert_true(sent.take_after(0).empty());
}

void what_has_arrived_is_not(void **)
{
    Letters sent;
    sent.add(10, "a");
    sent.add(10, "b");
    assert_true(sent.take_after(20).empty());
}

void what_is_acknowledged_is_not_kept(void **)
{
    Letters sent;
    for (int i = 0; i < 10; ++i) {
        sent.add(10, "x");
    }
    sent.on_their_way(31);
    const std::size_t some = sent.kept();
    sent.on_their_way(1000); // more than there is
    const std::size_t as_before = sent.kept();
    sent.on_their_way(0);
    const std::size_t none = sent.kept();
    assert_int_equal(none, 0);
    assert_int_equal(some, 4);
    assert_int_equal(as_before, 4);
}

void what_nobody_told_of_is_counted(void **)
{
    Letters sent;
    sent.add(10, "a");
    sent.add(10, "b");
    sent.ends_at(107); // 87 bytes before a
    sent.add(10, "c");
    const auto missing = sent.take_after(97); // a as a whole
    assert_int_equal(sent.end(), 117);
    assert_true((missing == std::vector<std::string>{"b", "c"}));
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(nothing_waits),
        cmocka_unit_test(something_waits_but_gets_through),
        cmocka_unit_test(the_same_waits_for_longer),
        cmocka_unit_test(what_got_through_ends_it),
        cmocka_unit_test(a_pause_in_which_nothing_waits_ends_it),
        cmocka_unit_test(each_daemon_has_its_own),
        cmocka_unit_test(goes_on_where_it_is_answered),
        cmocka_unit_test(what_is_sent_again_in_vain_is_broken),
        cmocka_unit_test(a_broken_one_is_opened_where_it_was),
        cmocka_unit_test(what_has_not_arrived_is_given_again),
        cmocka_unit_test(what_has_arrived_is_not),
        cmocka_unit_test(what_is_acknowledged_is_not_kept),
        cmocka_unit_test(what_nobody_told_of_is_counted),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

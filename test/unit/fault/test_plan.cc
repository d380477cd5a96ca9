#include "opal/mca/btl/fault/plan.hpp"
#include "test/unit/cmocka.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <vector>

using namespace ft::fault;
using namespace ft::base::literals;
using ft::base::Duration;
using ft::base::Time;

namespace {

constexpr std::uint64_t many = 200'000;

Settings with(double drop, double duplicate, double corrupt, double reorder, double delay)
{
    Settings settings;
    settings.drop = drop;
    settings.duplicate = duplicate;
    settings.corrupt = corrupt;
    settings.reorder = reorder;
    settings.delay = delay;
    settings.delay_time = 10_us;
    return settings;
}

bool same(const Decision &a, const Decision &b)
{
    return a.drop == b.drop && a.duplicate == b.duplicate && a.corrupt == b.corrupt &&
           a.delay == b.delay && a.overtaken_by == b.overtaken_by && a.damage == b.damage;
}

/// How many of the first 1000 decisions two plans have in common.
int agreement(const Plan &a, const Plan &b)
{
    int count = 0;
    for (std::uint64_t i = 0; i < 1000; ++i) {
        count += same(a.decide(i), b.decide(i)) ? 1 : 0;
    }
    return count;
}

void the_same_seed_decides_the_same(void **)
{
    bool in_any_order = true;
    {
        const Settings settings = with(0.1, 0.1, 0.1, 0.1, 0.1);
        const Plan forwards(settings, 3, "tcp:1", Direction::send);
        const Plan backwards(settings, 3, "tcp:1", Direction::send);
        std::vector<Decision> decisions;
        for (std::uint64_t i = 0; i < 1000; ++i) {
            decisions.push_back(forwards.decide(i));
        }
        for (std::uint64_t i = 1000; i-- > 0;) {
            in_any_order = in_any_order && same(decisions[i], backwards.decide(i));
        }
    }
    assert_true(in_any_order);
}

void everything_else_decides_otherwise(void **)
{
    std::array<int, 4> common{};
    {
        const Settings settings = with(0.1, 0.1, 0.1, 0.1, 0.1);
        Settings other = settings;
        other.seed = settings.seed + 1;
        const Plan plan(settings, 3, "tcp:1", Direction::send);
        common = {agreement(plan, Plan(other, 3, "tcp:1", Direction::send)),
                  agreement(plan, Plan(settings, 2, "tcp:1", Direction::send)),
                  agreement(plan, Plan(settings, 3, "tcp:0", Direction::send)),
                  agreement(plan, Plan(settings, 3, "tcp:1", Direction::receive))};
    }
    for (const int each : common) {
        assert_int_equal(each, 0); // not even the place of the damage
    }
}

/// Within six standard deviations of what was asked for.
bool plausible(std::uint64_t hits, double chance)
{
    const double expected = chance * static_cast<double>(many);
    return std::abs(static_cast<double>(hits) - expected) <=
           6 * std::sqrt(expected * (1 - chance)) + 0.5;
}

void percentages_hold(void **)
{
    for (const double chance : {0.0, 0.0001, 0.01, 0.5, 1.0}) {
        std::array<std::uint64_t, 5> hits{};
        for (std::size_t fault = 0; fault < hits.size(); ++fault) {
            std::array<double, 5> c{};
            c[fault] = chance;
            const Plan plan(with(c[0], c[1], c[2], c[3], c[4]), 0, "vader:0", Direction::send);
            for (std::uint64_t i = 0; i < many; ++i) {
                const Decision d = plan.decide(i);
                const std::array all{d.drop, d.duplicate, d.corrupt, d.overtaken_by > 0, d.delay};
                hits[fault] += all[fault] ? 1 : 0;
            }
        }
        for (const std::uint64_t each : hits) {
            assert_true(plausible(each, chance));
        }
    }
}

void switching_one_fault_on_leaves_the_others(void **)
{
    bool undisturbed = true;
    {
        const Plan alone(with(0, 0, 0.05, 0, 0), 0, "tcp:0", Direction::receive);
        const Plan together(with(0, 0.5, 0.05, 0.5, 0.5), 0, "tcp:0", Direction::receive);
        for (std::uint64_t i = 0; i < 10'000; ++i) {
            undisturbed = undisturbed && alone.decide(i).corrupt == together.decide(i).corrupt &&
                          alone.decide(i).damage == together.decide(i).damage;
        }
    }
    assert_true(undisturbed);
}

void a_dropped_fragment_suffers_nothing_else(void **)
{
    bool alone = true;
    bool overtaken_in_range = true;
    {
        const Plan plan(with(0.5, 1, 1, 1, 0.5), 0, "tcp:0", Direction::send);
        for (std::uint64_t i = 0; i < 10'000; ++i) {
            const Decision d = plan.decide(i);
            alone = alone &&
                    (!d.drop || (!d.duplicate && !d.corrupt && !d.delay && d.overtaken_by == 0));
            overtaken_in_range = overtaken_in_range && d.overtaken_by <= Plan::most_overtaking &&
                                 (d.drop || d.delay || d.overtaken_by >= 1);
        }
    }
    assert_true(alone);
    assert_true(overtaken_in_range);
}

int flipped(std::uint64_t damage, std::size_t size, std::size_t &first_byte, std::size_t &last_byte)
{
    std::vector<std::byte> bytes(size, std::byte{0});
    if (!corrupt_bits(damage, bytes)) {
        return 0;
    }
    int bits = 0;
    first_byte = size;
    for (std::size_t i = 0; i < size; ++i) {
        const int here = std::popcount(std::to_integer<unsigned>(bytes[i]));
        if (here > 0 && first_byte == size) {
            first_byte = i;
        }
        last_byte = here > 0 ? i : last_byte;
        bits += here;
    }
    return bits;
}

void corruption_is_never_without_effect(void **)
{
    std::array<std::uint64_t, 4> quarter{};
    std::uint64_t single = 0;
    std::uint64_t burst = 0;
    bool short_enough = true;
    for (std::uint64_t i = 0; i < 20'000; ++i) {
        std::size_t first = 0;
        std::size_t last = 0;
        const int bits = flipped(i * 0x9e3779b97f4a7c15U, 400, first, last);
        assert_true(bits >= 1);
        short_enough = short_enough && last - first <= 4;
        ++(bits == 1 ? single : burst);
        ++quarter[first / 100];
    }
    assert_true(short_enough);
    assert_true(single > 9'000 && burst > 9'000);
    for (const std::uint64_t each : quarter) {
        assert_true(each > 4'500 && each < 5'500); // anywhere, header and payload alike
    }
    std::size_t first = 0;
    std::size_t last = 0;
    assert_int_equal(flipped(1, 0, first, last), 0);
    for (std::uint64_t i = 0; i < 1000; ++i) {
        assert_true(flipped(i, 1, first, last) >= 1);
    }
}

void a_path_dies_at_the_nth_fragment_exactly(void **)
{
    for (const std::uint64_t n : {1, 2, 17, 1000}) {
        std::uint64_t passed = 0;
        PathLife life(n, Duration::zero());
        const Time t = Time::zero();
        while (!life.strikes(Direction::send, t)) {
            ++passed;
        }
        assert_true(passed == n);
        assert_true(life.strikes(Direction::receive, t)); // both directions at once
        assert_true(life.strikes(Direction::send, t + 3600_s));
        assert_true(life.deaths() == 1);
    }
}

void directions_are_counted_apart(void **)
{
    PathLife life(10, Duration::zero());
    for (int i = 0; i < 10; ++i) {
        assert_false(life.strikes(Direction::send, Time::zero()));
        assert_false(life.strikes(Direction::receive, Time::zero()));
    }
    assert_true(life.strikes(Direction::receive, Time::zero()));
    assert_true(life.dead(Time::zero()));
}

void what_was_taken_back_is_not_counted(void **)
{
    PathLife life(2, Duration::zero());
    assert_false(life.strikes(Direction::send, Time::zero()));
    assert_false(life.strikes(Direction::send, Time::zero()));
    life.take_back(Direction::send);
    assert_false(life.strikes(Direction::send, Time::zero()));
    assert_true(life.strikes(Direction::send, Time::zero()));
}

void a_path_revives_and_dies_again(void **)
{
    PathLife life(5, 20_ms);
    Time t = Time::zero();
    for (std::uint64_t death = 1; death <= 3; ++death) {
        for (int i = 0; i < 5; ++i) {
            assert_false(life.strikes(Direction::send, t));
        }
        assert_true(life.strikes(Direction::send, t));
        assert_true(life.strikes(Direction::send, t + 19_ms));
        assert_true(life.deaths() == death);
        t += 20_ms;
        assert_false(life.dead(t));
    }
}

void an_immortal_path_never_dies(void **)
{
    PathLife life(0, Duration::zero());
    for (int i = 0; i < 1000; ++i) {
        assert_false(life.strikes(Direction::send, Time::never()));
    }
    assert_false(life.mortal());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_decides_the_same),
        cmocka_unit_test(everything_else_decides_otherwise),
        cmocka_unit_test(percentages_hold),
        cmocka_unit_test(switching_one_fault_on_leaves_the_others),
        cmocka_unit_test(a_dropped_fragment_suffers_nothing_else),
        cmocka_unit_test(corruption_is_never_without_effect),
        cmocka_unit_test(a_path_dies_at_the_nth_fragment_exactly),
        cmocka_unit_test(directions_are_counted_apart),
        cmocka_unit_test(what_was_taken_back_is_not_counted),
        cmocka_unit_test(a_path_revives_and_dies_again),
        cmocka_unit_test(an_immortal_path_never_dies),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

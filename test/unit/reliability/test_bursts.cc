// Programs seldom send without an end: they send some messages, wait until they are taken, and go
// on. Both rails have to carry their part of that, whatever was believed of them before.
#include "test/unit/cmocka.hpp"
#include "test/unit/reliability/rails.hpp"

using namespace ft::test;

namespace {

struct Shape {
    const char *name;
    Sizes sizes;
};
constexpr std::uint32_t kib = 1024;
constexpr Shape shapes[] = {
    {"16 messages of 128 KiB", {128 * kib, 1, 64 << 20, 2 << 20}},
    {"16 fragments of 128 KiB", {128 * kib, 16, 64 << 20, 2 << 20}},
    {"64 messages of 64 KiB", {64 * kib, 1, 64 << 20, 4 << 20}},
    {"8 fragments of 512 KiB", {512 * kib, 8, 64 << 20, 4 << 20}},
    {"8 messages of 512 KiB", {512 * kib, 1, 64 << 20, 4 << 20}},
    {"no end", {512 * kib, 4, 16 << 20, 0}},
};
constexpr double gigabit = 0.12; ///< bytes per ns
constexpr double guess = 1.25;   ///< what Open MPI's tcp says of a link
constexpr unsigned count = std::size(shapes);
using Part = std::array<double, count>;

/// With the limits that pml/dr has.
Load load_of(const Shape &shape)
{
    Config c;
    c.fragment_bytes = 512 * kib;
    c.window_bytes = shape.sizes.window;
    return Load(shape.sizes, c, guess);
}

/// How much of what both rails could carry, for so long.
double part_of_both(Load &load, Duration time)
{
    return load.rate_for(time) / (load.link[0].rate + load.link[1].rate);
}

void all_at_least(const Part &part, double least)
{
    for (unsigned i = 0; i < count; ++i) {
        if (part.at(i) < least) {
            fail_test("%s: %.2f of what both rails carry", shapes[i].name, part.at(i));
        }
    }
}

void equal_rails_share(void **)
{
    Part part{};
    for (unsigned i = 0; i < count; ++i) {
        Load load = load_of(shapes[i]);
        load.set_rates(gigabit, gigabit);
        load.run_until(load.t.now + 500_ms);
        part.at(i) = part_of_both(load, 500_ms);
    }
    all_at_least(part, 0.85);
}

/// One rail carries all for some seconds, and is measured; the other comes back, and is not.
void a_rail_that_comes_back_carries_its_half_again(void **)
{
    Part cut{};
    Part healed{};
    for (unsigned i = 0; i < count; ++i) {
        Load load = load_of(shapes[i]);
        load.set_rates(gigabit, gigabit);
        load.run_until(load.t.now + 1_s);
        load.set_rates(gigabit, 0);
        load.run_until(load.t.now + 500_ms);
        cut.at(i) = part_of_both(load, 2_s);
        load.set_rates(gigabit, gigabit);
        load.run_until(load.t.now + 2_s); // the hold-down is one of them
        healed.at(i) = part_of_both(load, 1_s);
    }
    all_at_least(cut, 0.9);
    all_at_least(healed, 0.9);
}

void load_follows_the_rails(void **)
{
    Part unlike{};
    Part swapped{};
    Part from_the_start{};
    for (unsigned i = 0; i < count; ++i) {
        Load load = load_of(shapes[i]);
        load.set_rates(gigabit, gigabit);
        load.run_until(load.t.now + 1_s);
        load.set_rates(gigabit, gigabit / 4);
        load.run_until(load.t.now + 1_s);
        unlike.at(i) = part_of_both(load, 1_s);
        load.set_rates(gigabit / 4, gigabit);
        load.run_until(load.t.now + 1_s);
        swapped.at(i) = part_of_both(load, 1_s);
        Load other = load_of(shapes[i]);
        other.set_rates(gigabit / 4, gigabit);
        other.run_until(other.t.now + 2_s);
        from_the_start.at(i) = part_of_both(other, 1_s);
    }
    // Eight fragments cannot be divided by five.
    all_at_least(unlike, 0.75);
    all_at_least(swapped, 0.75);
    all_at_least(from_the_start, 0.75);
}

/// A rail that carries a hundredth is worse than none for who waits for all: it is left alone, but
/// for a look now and then, until it is as it was.
void a_very_slow_rail_is_left_alone_and_found_again(void **)
{
    Part slow;
    Part found;
    slow.fill(1);
    found.fill(1);
    for (unsigned i : {0U, 3U, 5U}) {
        Load load = load_of(shapes[i]);
        load.set_rates(gigabit, gigabit);
        load.run_until(load.t.now + 1_s);
        load.set_rates(gigabit, gigabit / 100);
        load.run_until(load.t.now + 4_s);
        slow.at(i) = part_of_both(load, 8_s);
        load.set_rates(gigabit, gigabit);
        load.run_until(load.t.now + 10_s);
        found.at(i) = part_of_both(load, 1_s);
    }
    all_at_least(slow, 0.6);
    all_at_least(found, 0.9);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(equal_rails_share),
        cmocka_unit_test(a_rail_that_comes_back_carries_its_half_again),
        cmocka_unit_test(load_follows_the_rails),
        cmocka_unit_test(a_very_slow_rail_is_left_alone_and_found_again),
    };
    return cmocka_run_group_tests_name("bursts", tests, nullptr, nullptr);
}

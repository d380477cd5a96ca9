// Programs seldom send without an end: they send some messages, wait until they are taken, and go
// on. Both rails have to carry their part of that, whatever was believed of them before.
#include "test/unit/cmocka.hpp"
#include "test/unit/reliability/rails.hpp"

using namespace ft::test;

namespace {

struct Shape {
    const char *name;
    Sizes sizes;
    double beside_a_very_slow_one = 0.6; ///< what is left at least
};
constexpr std::uint32_t kib = 1024;
constexpr Shape shapes[] = {
    {"16 messages of 128 KiB", {128 * kib, 1, 64 << 20, 2 << 20}},
    {"16 fragments of 128 KiB", {128 * kib, 16, 64 << 20, 2 << 20}},
    // With a queue that grows from nothing in each burst timers of the fast rail expire, and what
    // is sent again goes over the other one.
    {"64 messages of 64 KiB", {64 * kib, 1, 64 << 20, 4 << 20}, 0.1},
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

/// How much of what both rails carry is used, for `time`, once they had these rates for `settled`.
double part_of(Load &load, double first, double second, Duration settled, Duration time)
{
    load.set_rates(first, second);
    load.run_until(load.t.now + settled);
    return load.rate_for(time) / (first + second);
}

/// Tells them all. \return the first that is below its bound, or nullptr
const char *below(const char *what, const Part &part, const Part &least)
{
    const char *first = nullptr;
    for (unsigned i = 0; i < count; ++i) {
        print_message("# %s: %s: %.2f of what both rails carry\n", what, shapes[i].name,
                      part.at(i));
        first = first == nullptr && part.at(i) < least.at(i) ? shapes[i].name : first;
    }
    return first;
}

const char *below(const char *what, const Part &part, double least)
{
    Part all{};
    all.fill(least);
    return below(what, part, all);
}

void equal_rails_share(void **)
{
    Part part{};
    for (unsigned i = 0; i < count; ++i) {
        Load load = load_of(shapes[i]);
        part.at(i) = part_of(load, gigabit, gigabit, 500_ms, 500_ms);
    }
    assert_null(below("alike", part, 0.85));
}

/// One rail carries all for some seconds, and is measured; the other comes back, and is not.
void a_rail_that_comes_back_carries_its_half_again(void **)
{
    Part cut{};
    Part healed{};
    for (unsigned i = 0; i < count; ++i) {
        Load load = load_of(shapes[i]);
        (void)part_of(load, gigabit, gigabit, 500_ms, 500_ms);
        cut.at(i) = part_of(load, gigabit, 0, 500_ms, 2_s);
        healed.at(i) = part_of(load, gigabit, gigabit, 2_s, 1_s); // the hold-down is one second
    }
    assert_null(below("one is cut", cut, 0.9));
    assert_null(below("it is back", healed, 0.9));
}

void load_follows_the_rails(void **)
{
    Part unlike{};
    Part swapped{};
    Part from_the_start{};
    for (unsigned i = 0; i < count; ++i) {
        Load load = load_of(shapes[i]);
        (void)part_of(load, gigabit, gigabit, 500_ms, 500_ms);
        unlike.at(i) = part_of(load, gigabit, gigabit / 4, 1_s, 1_s);
        swapped.at(i) = part_of(load, gigabit / 4, gigabit, 1_s, 1_s);
        Load other = load_of(shapes[i]);
        from_the_start.at(i) = part_of(other, gigabit / 4, gigabit, 2_s, 1_s);
    }
    // Eight fragments cannot be divided by five.
    assert_null(below("a quarter", unlike, 0.75));
    assert_null(below("changed places", swapped, 0.75));
    assert_null(below("unlike from the start", from_the_start, 0.75));
}

/// A rail that carries a hundredth is worse than none for who waits for all: it is left alone, but
/// for a look now and then, until it is as it was.
void a_very_slow_rail_is_left_alone_and_found_again(void **)
{
    Part slow{};
    Part least{};
    Part found{};
    for (unsigned i = 0; i < count; ++i) {
        Load load = load_of(shapes[i]);
        (void)part_of(load, gigabit, gigabit, 500_ms, 500_ms);
        slow.at(i) = part_of(load, gigabit, gigabit / 100, 4_s, 8_s);
        least.at(i) = shapes[i].beside_a_very_slow_one;
        found.at(i) = part_of(load, gigabit, gigabit, 10_s, 1_s);
    }
    assert_null(below("a hundredth", slow, least));
    assert_null(below("found again", found, 0.9));
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

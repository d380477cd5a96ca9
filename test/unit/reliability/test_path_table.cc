// What a path that was never used costs, and that it makes no other difference.
#include "opal/ft/base/rng.hpp"
#include "test/unit/cmocka.hpp"
#include "test/unit/reliability/path_fixture.hpp"

using namespace ft::test;

namespace {

PathInfo like(unsigned fragment)
{
    PathInfo info;
    info.max_fragment_bytes = fragment;
    info.latency = 10_us;
    return info;
}

/// Peers whose unused paths are alike share them; one that is used is its peer's own, and whatever
/// becomes of it, the others' is as it was.
void unused_paths_are_shared(void **)
{
    const Config config = quick_config();
    const Config other_config = quick_config();
    PathTable one(config);
    PathTable other(config);
    PathTable elsewhere(other_config);
    for (PathTable *table : {&one, &other, &elsewhere}) {
        table->add(like(1000));
        table->add(like(1000));
        table->add(like(2000));
    }
    assert_ptr_not_equal(&one[0], &other[0]); // the first is always its own
    assert_ptr_equal(&one[1], &other[1]);
    assert_ptr_not_equal(&one[1], &one[2]);
    assert_ptr_not_equal(&one[1], &elsewhere[1]);
    const std::size_t before = one.allocated_bytes();

    one.use(1).blocked = true;
    assert_true(one.used(1));
    assert_true(one[1].blocked);
    assert_ptr_equal(&one[1], &one.use(1));
    assert_int_equal(one[1].info.max_fragment_bytes, 1000);
    assert_false(other.used(1));
    assert_false(other[1].blocked);
    assert_true(one.allocated_bytes() > before);
    assert_int_equal(other.allocated_bytes(), before);
    other.use(1).in_flight = 7;
    assert_int_equal(one[1].in_flight, 0);
}

/// The shared one goes when the last peer that has it has gone, or has used its own.
void the_shared_one_goes_with_the_last(void **)
{
    const Config config = quick_config();
    auto one = std::make_unique<PathTable>(config);
    auto other = std::make_unique<PathTable>(config);
    for (PathTable *table : {one.get(), other.get()}) {
        table->add(like(1000));
        table->add(like(1000));
    }
    one.reset();
    assert_int_equal((*other)[1].info.max_fragment_bytes, 1000);
    other->use(1).blocked = true;
    PathTable third(config);
    third.add(like(1000));
    third.add(like(1000));
    assert_false(third[1].blocked);
}

/// A congestion window is nobody else's, either.
void each_has_its_own_window(void **)
{
    const Config config = quick_config();
    PathInfo info = like(1000);
    info.unreliable = true;
    PathTable one(config);
    PathTable other(config);
    for (PathTable *table : {&one, &other}) {
        table->add(info);
        table->add(info);
    }
    assert_ptr_equal(one[1].congestion.get(), other[1].congestion.get());
    const std::uint64_t before = other[1].congestion->window();
    one.use(1).congestion->on_acked(100'000, 100'000, 0, 1, Time::from_ns(1));
    assert_true(one[1].congestion->window() > before);
    assert_int_equal(other[1].congestion->window(), before);
    (void)other.use(1);
    assert_ptr_not_equal(one[1].congestion.get(), other[1].congestion.get());
    assert_int_equal(other[1].congestion->window(), before);
}

/// The same is done to both; in one of them all paths were used from the start.
struct Twins {
    explicit Twins(std::uint64_t seed) : rng(seed)
    {
        for (Fixture *f : {&lazy, &eager}) {
            PathInfo info = like(4000);
            info.unreliable = true;
            (void)f->set.add(info);
            info.latency = 5_us;
            (void)f->set.add(info);
        }
        for (PathId id = 0; id < paths; ++id) {
            (void)eager.set.use(id);
        }
    }
    template <class What>
    void both(What what)
    {
        what(lazy);
        what(eager);
    }
    void do_something()
    {
        const auto id = static_cast<PathId>(rng.below(paths));
        const auto bytes = std::uint64_t{1000} << rng.below(9);
        const auto later = Duration::from_us(static_cast<std::int64_t>(1U << rng.below(20)));
        both([=](Fixture &f) { f.now += later; });
        switch (rng.below(12)) {
        case 0:
        case 1:
        case 2: // what is chosen is sent
            both([=](Fixture &f) {
                const PathId chosen = f.set.pick(bytes, no_path);
                if (chosen != no_path) {
                    const bool fills = f.set.fills(chosen, bytes);
                    Path &path = f.set.use(chosen);
                    path.in_flight += bytes;
                    ++path.held;
                    f.set.on_sent_bytes(chosen, f.now);
                    if (fills) {
                        f.set.note_filled(chosen, f.now);
                    }
                    f.set.release(chosen, f.now);
                }
            });
            break;
        case 3:
        case 4:
        case 5: // something is acknowledged
            both([=](Fixture &f) {
                if (const std::uint64_t all = f.set[id].in_flight; all != 0) {
                    f.set.use(id).rtt.sample(20_us + later / 64);
                    f.set.on_alive(id, f.now);
                    f.set.take_off(id, all / 2 + 1);
                    f.set.on_acked_bytes(id, all / 2 + 1, f.now);
                }
            });
            break;
        case 6:
            both([=](Fixture &f) { f.set.on_timeout(id, f.now, f.now - later); });
            break;
        case 7: // seldom its end
            if (rng.below(4) == 0) {
                both([=](Fixture &f) { f.set.on_error(id, f.now); });
            }
            break;
        case 8:
            both([=](Fixture &f) { f.set.revive(id, f.now); });
            break;
        case 9: // what wants to be asked is asked, and answers
            both([=](Fixture &f) {
                if (const PathId asked = f.set.probe_wanted(); asked != no_path) {
                    f.answer(asked, f.probe(asked), 10_us);
                }
            });
            break;
        case 10:
            both([=](Fixture &f) {
                f.set.use(id).blocked = true;
                f.set.keep_pace(f.now);
            });
            break;
        default:
            both([=](Fixture &f) {
                f.set.unblock();
                f.set.on_time(f.now);
            });
            break;
        }
    }
    void compare()
    {
        for (const std::uint64_t bytes : {100, 4000, 100'000}) {
            assert_int_equal(lazy.set.pick(bytes, no_path), eager.set.pick(bytes, no_path));
            assert_int_equal(lazy.set.pick(bytes, 0, true), eager.set.pick(bytes, 0, true));
        }
        assert_int_equal(lazy.set.pick_control(1, 1), eager.set.pick_control(1, 1));
        assert_int_equal(lazy.set.next_deadline().ns(), eager.set.next_deadline().ns());
        assert_int_equal(lazy.set.fragment_limit(9000), eager.set.fragment_limit(9000));
        assert_int_equal(lazy.set.all_gone(), eager.set.all_gone());
        assert_int_equal(lazy.set.none_in_doubt(), eager.set.none_in_doubt());
        assert_int_equal(lazy.set.calm(), eager.set.calm());
        for (PathId id = 0; id < paths; ++id) {
            const Path &x = lazy.set[id];
            const Path &y = eager.set[id];
            assert_int_equal(lazy.set.other_up(id), eager.set.other_up(id));
            assert_int_equal(lazy.set.other_ready(id), eager.set.other_ready(id));
            assert_int_equal(lazy.set.rto(id).ns(), eager.set.rto(id).ns());
            assert_int_equal(lazy.set.watchdog(id).ns(), eager.set.watchdog(id).ns());
            assert_int_equal(x.state, y.state);
            assert_int_equal(x.in_flight, y.in_flight);
            assert_int_equal(x.trust, y.trust);
            assert_int_equal(x.measured, y.measured);
            assert_true(x.bandwidth == y.bandwidth);
            assert_int_equal(x.rate_at.ns(), y.rate_at.ns());
            assert_int_equal(x.failovers, y.failovers);
            assert_int_equal(x.returns, y.returns);
        }
    }
    static constexpr PathId paths = 5;
    Fixture lazy{paths - 2};
    Fixture eager{paths - 2};
    ft::base::Rng rng;
};

void they_decide_as_if_they_had_been_used(void **)
{
    unsigned used = 0; // of those that could be unused
    constexpr unsigned tries = 300;
    for (unsigned seed = 0; seed < tries; ++seed) {
        Twins twins(seed);
        for (unsigned i = 0; i < seed; ++i) {
            twins.do_something();
            twins.compare();
        }
        used += twins.lazy.set.allocated_bytes() < twins.eager.set.allocated_bytes() ? 0 : 1;
    }
    assert_in_range(used, 1, tries - 1); // it was looked at with and without unused ones
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(unused_paths_are_shared),
        cmocka_unit_test(the_shared_one_goes_with_the_last),
        cmocka_unit_test(each_has_its_own_window),
        cmocka_unit_test(they_decide_as_if_they_had_been_used),
    };
    return cmocka_run_group_tests_name("path_table", tests, nullptr, nullptr);
}

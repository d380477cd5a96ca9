// Fragments that follow each other, sent by one choice: what goes out, and all that comes of it, is
// as if each had been chosen by itself.
#include <cstring>

#include "opal/ft/base/rng.hpp"
#include "test/unit/cmocka.hpp"
#include "test/unit/reliability/ends.hpp"

using namespace ft::test;

namespace {

Config small_config()
{
    Config config = quick_config();
    config.window_bytes = 4 * 1024 * 1024;
    return config;
}

/// Two ends over paths that lose what is too much for them.
struct Pair {
    Pair(bool runs, unsigned paths) : config(small_config()), a(config, 0), b(config, 1)
    {
        a.in_runs = b.in_runs = runs;
        for (unsigned i = 0; i < paths; ++i) {
            PathInfo info;
            info.max_fragment_bytes = 1024;
            info.unreliable = true;
            (void)a.peer.add_path(info, Time{});
            (void)b.peer.add_path(info, Time{});
        }
    }
    Config config;
    End a;
    End b;
};

/// What the wire carries, with its losses, is the same for both. \return what arrives
std::vector<Frame> through(const std::vector<Frame> &frames, const std::vector<bool> &lost)
{
    std::vector<Frame> arrived;
    for (std::size_t i = 0; i < frames.size(); ++i) {
        if (!lost[i]) {
            arrived.push_back(frames[i]);
        }
    }
    return arrived;
}

void require_same(const std::vector<Frame> &one, const std::vector<Frame> &other)
{
    assert_int_equal(one.size(), other.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
        assert_true(one[i].bytes == other[i].bytes);
        assert_true(one[i].path == other[i].path);
    }
}

void require_same(const End &one, const End &other)
{
    const Counters x_counted = one.peer.counters();
    const Counters y_counted = other.peer.counters();
    assert_memory_equal(&x_counted, &y_counted, sizeof(Counters)); // fields of 64 bits alone
    for (PathId id = 0; id < one.peer.paths().size(); ++id) {
        const Path &x = one.peer.paths()[id];
        const Path &y = other.peer.paths()[id];
        assert_int_equal(x.in_flight, y.in_flight);
        assert_int_equal(x.next_tx, y.next_tx);
        assert_int_equal(x.congestion->window(), y.congestion->window());
        assert_true(x.congestion->resumes() == y.congestion->resumes());
    }
    assert_true(one.peer.next_deadline() == other.peer.next_deadline());
}

/// \return the longest run
unsigned compare(std::uint64_t seed, double loss, unsigned paths, bool both_talk)
{
    Pair single(false, paths);
    Pair runs(true, paths);
    ft::base::Rng rng(seed);
    Time now = Time{} + 1_ms;
    std::uint64_t unsent = 3 * 1024 * 1024 + rng.below(5000);
    for (unsigned step = 0; step < 3000; ++step) {
        const std::uint64_t length = std::min<std::uint64_t>(unsent, 1 + rng.below(64 * 1000));
        if (length != 0 && single.a.peer.has_room(length, false)) {
            unsent -= length;
            (void)single.a.submit(false, length, 1000, now);
            (void)runs.a.submit(false, length, 1000, now);
        }
        if (both_talk && rng.chance(0.3)) {
            (void)single.b.submit(true, 8, 8, now);
            (void)runs.b.submit(true, 8, 8, now);
        }
        const auto exchange = [&](End &from, End &to, End &from_runs, End &to_runs) {
            const auto frames = from.pump(now);
            const auto same = from_runs.pump(now);
            require_same(frames, same);
            require_same(from, from_runs);
            std::vector<bool> lost(frames.size());
            for (std::size_t i = 0; i < lost.size(); ++i) {
                lost[i] = rng.chance(loss);
            }
            now += Duration::from_ns(static_cast<std::int64_t>(2000 + rng.below(40000)));
            to.take_all(through(frames, lost), now);
            to_runs.take_all(through(same, lost), now);
            require_same(to, to_runs);
        };
        exchange(single.a, single.b, runs.a, runs.b);
        exchange(single.b, single.a, runs.b, runs.a);
    }
    assert_true(single.a.peer.drained());
    assert_int_equal(runs.a.done.size(), single.a.done.size());
    assert_int_equal(runs.a.peer.paths()[0].in_flight, 0);
    return runs.a.longest_run;
}

void a_run_is_as_many_single_ones(void ** /*state*/)
{
    unsigned longest = 0;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        longest = std::max(longest, compare(seed, 0, 1, false));
        longest = std::max(longest, compare(seed, 0.01, 1, seed % 2 == 0));
        longest = std::max(longest, compare(seed, 0.2, 1, true));
    }
    assert_in_range(longest, 16, max_fragments);
}

void with_several_paths_each_is_chosen_by_itself(void ** /*state*/)
{
    assert_int_equal(compare(5, 0.01, 2, true), 1);
}

/// The short way of single fragments, over such a path: they fill its window as others do, and who
/// has to ask for an acknowledgement goes the long way.
void the_short_way_keeps_to_the_window(void ** /*state*/)
{
    Pair pair(false, 1);
    Time now = Time{} + 1_ms;
    constexpr std::uint64_t bytes = 1000;
    const std::uint64_t window = pair.a.peer.paths()[0].congestion->window();
    std::vector<Frame> frames;
    for (;;) {
        const std::vector<Frame> one = pair.a.express(bytes, now);
        if (one.empty()) {
            break;
        }
        frames.push_back(one.front());
        assert_int_equal(pair.a.peer.paths()[0].in_flight, frames.size() * bytes);
    }
    assert_int_equal(frames.size(), (window / 4 - 1) / bytes);
    (void)pair.a.submit(true, bytes, bytes, now);
    const std::vector<Frame> asking = pair.a.pump(now);
    assert_int_equal(asking.size(), 1);
    FragHeader header;
    assert_true(parse_header(asking.front().bytes, true, header) == ParseStatus::ok);
    assert_true(header.has(flag_ack_wanted));
    // Acknowledged, they leave the window, and the path's rounds know of them.
    now += 50_us;
    pair.b.take_all(frames, now);
    pair.b.take_all(asking, now);
    now += 50_us;
    pair.a.take_all(pair.b.pump(now), now);
    assert_true(pair.a.peer.drained());
    assert_int_equal(pair.a.peer.paths()[0].in_flight, 0);
    assert_int_equal(pair.a.pump(now).size(), 0);
    assert_int_equal(pair.a.done.size(), frames.size() + 1);
    assert_int_equal(pair.a.express(bytes, now).size(), 1);
}

/// a has a message of b's that acknowledges one of its own, and has not noted that yet.
struct PutOff : Pair {
    static constexpr std::uint64_t bytes = 8;
    PutOff() : Pair(false, 1)
    {
        a.take_all(b.express(bytes, now), now); // the first of all goes the long way
        b.take_all(a.express(bytes, now), now);
        now += 20_us; // later than an acknowledgement is left out
        const std::vector<Frame> answer = b.express(bytes, now);
        now += 20_us;
        a.take_all(answer, now);
    }
    [[nodiscard]] const Path &path() const { return a.peer.paths()[0]; }
    Time now = Time{} + 1_ms;
};

/// Who waits for a message has it first.
void what_a_short_message_acknowledges_is_noted_later(void ** /*state*/)
{
    PutOff one;
    assert_int_equal(one.a.delivered.size(), 2);
    assert_int_equal(one.path().in_flight, PutOff::bytes);
    assert_false(one.a.peer.drained());
    assert_true(one.a.peer.calm());
    assert_true(one.a.peer.next_deadline() == one.now + 1_us);
    assert_true(one.a.peer.answer_deadline() == one.now + 1_us);
    // The answer to it does not wait for that.
    assert_int_equal(one.a.express(PutOff::bytes, one.now).size(), 1);
    one.now += 1_us;
    (void)one.a.pump(one.now);
    assert_int_equal(one.path().in_flight, PutOff::bytes);
    assert_int_equal(one.a.done.size(), 1);
    assert_true(one.path().rtt.smoothed() >= 19_us);
    assert_true(one.path().rtt.smoothed() <= 21_us);
}

/// Who computed in the meantime measures no longer round trip, and takes nothing for lost.
void it_is_noted_as_of_when_it_came(void ** /*state*/)
{
    PutOff one;
    const Time expires = one.a.boxes.front().vfrag.ack_deadline();
    assert_true(expires > one.now + 100_us);
    const std::vector<Frame> frames = one.a.pump(expires);
    assert_int_equal(one.a.done.size(), 1);
    assert_int_equal(one.a.peer.counters().declared_lost, 0);
    for (const Frame &frame : frames) {
        assert_true(frame.what == Transmit::What::ack); // what a owes for the answer
    }
    assert_true(one.path().rtt.smoothed() <= 21_us);
}

/// Whatever happens next finds it noted.
void whatever_else_happens_notes_it_first(void ** /*state*/)
{
    PutOff dead;
    dead.a.peer.declare_dead();
    (void)dead.a.pump(dead.now);
    assert_int_equal(dead.a.done.size(), 1);
    assert_int_equal(dead.a.failed.size(), 0);

    PutOff broken;
    broken.a.peer.path_replaced(0, broken.now);
    (void)broken.a.pump(broken.now);
    assert_int_equal(broken.a.done.size(), 1);
    assert_int_equal(broken.a.peer.counters().declared_lost, 0);

    PutOff more;
    (void)more.a.submit(true, PutOff::bytes, PutOff::bytes, more.now);
    assert_int_equal(more.path().in_flight, 0);

    // What waits to be sent may wait for it: that one is noted at once.
    PutOff waits;
    const auto there = waits.a.express(PutOff::bytes, waits.now);
    assert_int_equal(there.size(), 1);
    waits.b.take_all(there, waits.now);
    waits.now += 20_us;
    const auto back = waits.b.express(PutOff::bytes, waits.now);
    (void)waits.a.submit(true, PutOff::bytes, PutOff::bytes, waits.now);
    assert_int_equal(waits.path().in_flight, PutOff::bytes);
    waits.a.take_all(back, waits.now);
    assert_int_equal(waits.path().in_flight, 0);

    // So are those of a path that is as quick as memory.
    Two quick;
    quick.b.take_all(quick.a.express(PutOff::bytes, quick.now), quick.now);
    quick.now += 20_us;
    quick.a.take_all(quick.b.express(PutOff::bytes, quick.now), quick.now);
    assert_true(quick.a.peer.drained());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_run_is_as_many_single_ones),
        cmocka_unit_test(with_several_paths_each_is_chosen_by_itself),
        cmocka_unit_test(the_short_way_keeps_to_the_window),
        cmocka_unit_test(what_a_short_message_acknowledges_is_noted_later),
        cmocka_unit_test(it_is_noted_as_of_when_it_came),
        cmocka_unit_test(whatever_else_happens_notes_it_first),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

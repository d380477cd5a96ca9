// What is bounded: the memory of peers that have nothing to do, and how long paths are given
// nothing. Paths that are given no more until something is acknowledged, in the middle of a VFRAG:
// nobody may wait for the rest of it for ever, whatever is lost meanwhile.
#include "opal/ft/reliability/peer.hpp"
#include "test/unit/cmocka.hpp"
#include "test/unit/reliability/ends.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

using namespace ft::test;

namespace {

std::size_t allocated = 0; ///< by operator new, in all

constexpr std::uint32_t piece = 64 * 1024;
constexpr unsigned pieces = 5;

/// Two ends, each with a VFRAG of five fragments for the other, over two paths that take two each.
struct Half {
    explicit Half(bool measured) : t(0, config())
    {
        for (End *end : {&t.a, &t.b}) {
            for (int i = 0; i < 2; ++i) {
                PathInfo info;
                info.bandwidth = 0.001; // bytes per ns: 100 ms of it are less than two fragments
                info.max_fragment_bytes = piece;
                info.keeps_order = true;
                (void)end->peer.add_path(info, t.now);
            }
        }
        for (int i = 0; measured && i < 32; ++i) { // so that latencies are known
            (void)t.a.submit(true, 10, piece, t.now);
            (void)t.b.submit(true, 10, piece, t.now);
            t.settle(4);
        }
        t.a.done.clear();
        t.b.done.clear();
        (void)t.a.submit(false, std::uint64_t{pieces} * piece, piece, t.now);
        (void)t.b.submit(false, std::uint64_t{pieces} * piece, piece, t.now);
        from_a = t.a.pump(t.now);
        from_b = t.b.pump(t.now);
    }
    static Config config()
    {
        Config c = quick_config();
        c.fragment_bytes = piece;
        return c;
    }
    /// Each end takes what the other has sent, and what it says to that is lost, until neither says
    /// anything more before one of its own timers runs out, or for so long. \return how many
    /// fragments were lost
    unsigned lose_answers(Duration length = config().ack_delay)
    {
        t.now += 10_us;
        t.b.take_all(from_a, t.now);
        t.a.take_all(from_b, t.now);
        unsigned lost = 0;
        for (const Time end = t.now + length; t.now <= end; t.now += 10_us) {
            lost += static_cast<unsigned>(t.a.pump(t.now).size() + t.b.pump(t.now).size());
        }
        return lost;
    }
    /// Nothing is lost from now on. \return whether both are done in this time
    bool ends_within(Duration longest)
    {
        const Time until = t.now + longest;
        while (true) {
            const auto there = t.a.pump(t.now);
            const auto back = t.b.pump(t.now);
            if (!t.a.done.empty() && !t.b.done.empty()) {
                return t.a.failed.empty() && t.b.failed.empty();
            }
            if (there.empty() && back.empty()) {
                const Time next = std::min(t.a.peer.next_deadline(), t.b.peer.next_deadline());
                if (next > until) {
                    return false;
                }
                t.now = std::max(t.now + 1_us, next);
                continue;
            }
            t.now += 10_us;
            t.b.take_all(there, t.now);
            t.a.take_all(back, t.now);
        }
    }

    Two t;
    std::vector<Frame> from_a;
    std::vector<Frame> from_b;
};

unsigned fragments_of(const std::vector<Frame> &frames)
{
    return static_cast<unsigned>(std::count_if(frames.begin(), frames.end(), [](const Frame &f) {
        return f.what == Transmit::What::fragment;
    }));
}

// What each end said of the first four fragments was lost with a rail. Neither owes anything, and
// what comes tells of no half of a VFRAG.
void lost_acknowledgements_of_half_a_vfrag_hold_nobody_up(void **)
{
    for (const bool measured : {false, true}) {
        unsigned first = 0;
        unsigned lost = 0;
        bool owed = true;
        bool timed = false;
        bool done = false;
        {
            Half h(measured);
            first = fragments_of(h.from_a);
            lost = h.lose_answers();
            owed = h.t.a.peer.receiver().ack_owed() || h.t.b.peer.receiver().ack_owed();
            timed = !h.t.a.boxes.back().vfrag.ack_deadline().is_never();
            done = h.ends_within(1_s); // give_up is 2 s
        }
        assert_int_equal(first, pieces - 1);
        assert_true(lost >= 2);
        assert_false(owed);
        assert_true(timed);
        assert_true(done);
    }
}

// The first four fragments were lost themselves, or those over one of the paths were.
void lost_fragments_of_half_a_vfrag_hold_nobody_up(void **)
{
    for (const bool measured : {false, true}) {
        for (const PathId spared : {PathId{0}, PathId{1}, no_path}) {
            unsigned lost = 0;
            bool done = false;
            {
                Half h(measured);
                for (auto *frames : {&h.from_a, &h.from_b}) {
                    lost += static_cast<unsigned>(std::erase_if(
                        *frames, [&](const Frame &frame) { return frame.path != spared; }));
                }
                (void)h.lose_answers();
                done = h.ends_within(1_s);
            }
            assert_int_equal(lost, spared == no_path ? 2 * (pieces - 1) : pieces - 1);
            assert_true(done);
        }
    }
}

// What fills a path asks, so that the rest goes as soon as something has come.
void the_fragment_that_fills_a_path_asks(void **)
{
    std::vector<unsigned> asking;
    std::vector<Frame> answers;
    unsigned rest = 0;
    {
        Half h(false);
        for (const Frame &frame : h.from_a) {
            FragHeader header;
            (void)parse_header(frame.bytes, true, header);
            if (header.has(flag_ack_wanted)) {
                asking.push_back(frame.index);
            }
        }
        h.t.now += 10_us;
        h.t.b.take_all({h.from_a.begin(), h.from_a.begin() + 2}, h.t.now); // of each path the first
        const bool early = !h.t.b.pump(h.t.now).empty();
        (void)h.t.b.take(h.from_a[2], h.t.now);
        answers = early ? answers : h.t.b.pump(h.t.now);
        h.t.a.take_all(answers, h.t.now);
        rest = fragments_of(h.t.a.pump(h.t.now));
    }
    assert_int_equal(asking.size(), 2);
    assert_int_equal(asking[0], 2);
    assert_int_equal(asking[1], 3);
    assert_int_equal(answers.size(), 1);
    assert_int_equal(rest, 1);
}

// Where all that may go has gone, the newest fragment is a tail like any other.
void a_loss_at_the_bound_is_found_by_a_question(void **)
{
    std::uint64_t questions = 0;
    std::uint64_t by_timer = 1;
    bool done = false;
    {
        Half h(true);
        (void)h.lose_answers(0_us);
        done = h.ends_within(1_s);
        questions = h.t.a.peer.counters().questions_sent;
        by_timer = h.t.a.peer.counters().retransmitted_timeout;
    }
    assert_true(done);
    assert_int_equal(questions, 1);
    assert_int_equal(by_timer, 0);
}

/// How much a path that was never measured is given, once it has carried all it may have so often,
/// in so long each time.
std::uint64_t given_after(unsigned times, Duration each)
{
    Config config;
    PeerCounters counters;
    PathSet set(config);
    set.counters = &counters;
    for (int i = 0; i < 2; ++i) {
        PathInfo info;
        info.bandwidth = 1;
        info.max_fragment_bytes = piece;
        (void)set.add(info);
    }
    const auto fill = [&] {
        std::uint64_t given = 0;
        for (bool full = false; !full; given += piece) {
            full = set.fills(0, piece);
            set.use(0).in_flight += piece;
        }
        return given;
    };
    Time now = Time::zero() + 1_s;
    for (; times != 0; --times) {
        const std::uint64_t given = fill();
        set.note_filled(0, now);
        now += each;
        for (std::uint64_t left = given; left != 0; left -= piece) {
            set.use(0).in_flight -= piece;
            set.on_acked_bytes(0, piece, now);
        }
    }
    return fill();
}

// A program that waits between its messages gives nothing to measure a path by; it must not be held
// back for ever by what is meant for a slow path.
void a_path_that_is_fast_is_given_more_before_it_is_measured(void **)
{
    assert_int_equal(given_after(0, 1_ms), 2 * piece);
    assert_int_equal(given_after(1, 1_ms), 4 * piece);
    assert_int_equal(given_after(4, 1_ms), 32 * piece);
    assert_int_equal(given_after(4, 60_ms), 2 * piece);
}

/// All that is made for one is counted where it is allocated. The rest of what a peer costs, and
/// that nothing is made before it is met, is looked at in real jobs (test/mpi/test_dr_errors.py).
void a_hundred_thousand_idle_peers_cost_little(void **)
{
    constexpr std::size_t peers = 100'000;
    constexpr std::size_t most = 1056; // bytes for each; 2 KiB with what the adapter adds
    constexpr unsigned paths = 5;
    const Config config = quick_config();
    std::vector<std::unique_ptr<Peer>> all;
    all.reserve(peers);
    std::size_t told = 0;
    const std::size_t before = allocated;
    for (std::size_t i = 0; i < peers; ++i) {
        all.push_back(std::make_unique<Peer>(config, Name{1, 0}));
        all.back()->expect_paths(paths);
        for (unsigned n = 0; n < paths; ++n) {
            PathInfo info;
            info.max_fragment_bytes = 1000 * (n / 2 + 1); // some are alike
            (void)all.back()->add_path(info, Time::zero());
        }
        told += sizeof(Peer) + all.back()->allocated_bytes();
    }
    const std::size_t grown = allocated - before;
    const bool quiet = std::ranges::all_of(
        all, [](const auto &peer) { return peer->quiet() && peer->next_deadline().is_never(); });
    all.clear();
    assert_true(quiet); // nobody has to look at them
    assert_true(grown <= peers * most);
    assert_in_range(told, grown - grown / 50, grown + grown / 50);
}

} // namespace

void *operator new(std::size_t bytes)
{
    allocated += bytes;
    if (void *memory = std::malloc(bytes); memory != nullptr) {
        return memory;
    }
    throw std::bad_alloc();
}
void *operator new(std::size_t bytes, const std::nothrow_t & /*tag*/) noexcept
{
    allocated += bytes;
    return std::malloc(bytes);
}
void operator delete(void *memory) noexcept
{
    std::free(memory);
}
void operator delete(void *memory, std::size_t) noexcept
{
    std::free(memory);
}

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_hundred_thousand_idle_peers_cost_little),
        cmocka_unit_test(lost_acknowledgements_of_half_a_vfrag_hold_nobody_up),
        cmocka_unit_test(lost_fragments_of_half_a_vfrag_hold_nobody_up),
        cmocka_unit_test(the_fragment_that_fills_a_path_asks),
        cmocka_unit_test(a_loss_at_the_bound_is_found_by_a_question),
        cmocka_unit_test(a_path_that_is_fast_is_given_more_before_it_is_measured),
    };
    return cmocka_run_group_tests_name("bound", tests, nullptr, nullptr);
}

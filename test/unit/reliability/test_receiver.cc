#include "opal/ft/reliability/receiver.hpp"
#include "test/unit/cmocka.hpp"
#include "test/unit/reliability/ends.hpp"

#include <algorithm>

using namespace ft::test;

namespace {

FragHeader ordered(std::uint32_t sequence, std::uint32_t order, std::uint32_t tx)
{
    FragHeader h;
    h.sequence = sequence;
    h.order = order;
    h.tx = tx;
    h.payload_bytes = 10;
    return h;
}

FragHeader data(std::uint32_t sequence, unsigned index, unsigned count, std::uint32_t tx)
{
    FragHeader h = ordered(sequence, 0, tx);
    h.kind = Kind::data;
    h.index = static_cast<std::uint8_t>(index);
    h.count = static_cast<std::uint8_t>(count);
    return h;
}

struct Fixture {
    explicit Fixture(const Config &c = quick_config()) : config(c), receiver(config, counters) {}
    Verdict take(const FragHeader &h)
    {
        receiver.on_arrival(h, 0, now);
        const Verdict verdict = receiver.classify(h);
        if (verdict == Verdict::fresh) {
            receiver.accept(h, now);
        } else if (verdict == Verdict::early) {
            receiver.hold(h, std::vector<std::byte>(header_bytes + h.payload_bytes), now);
        }
        return verdict;
    }
    AckBody body() const
    {
        AckBody made;
        receiver.fill(made);
        return made;
    }
    Config config;
    PeerCounters counters;
    Receiver receiver;
    Time now = Time::from_ns(5);
};

void each_fragment_is_fresh_once(void **)
{
    std::array<Verdict, 4> verdicts{};
    std::uint64_t duplicates = 0;
    std::uint32_t spurious = 0;
    bool due = false;
    {
        Fixture f;
        verdicts[0] = f.take(data(0, 0, 2, 0));
        verdicts[1] = f.take(data(0, 0, 2, 0));
        verdicts[2] = f.take(data(0, 1, 2, 1));
        f.receiver.acknowledged(true);
        FragHeader late = data(0, 1, 2, 2);
        late.flags = flag_retransmission;
        verdicts[3] = f.take(late); // the whole VFRAG is history
        duplicates = f.counters.all().duplicates;
        spurious = f.body().spurious;
        due = f.receiver.ack_due();
    }
    assert_int_equal(verdicts[0], Verdict::fresh);
    assert_int_equal(verdicts[1], Verdict::duplicate);
    assert_int_equal(verdicts[2], Verdict::fresh);
    assert_int_equal(verdicts[3], Verdict::duplicate);
    assert_int_equal(duplicates, 2);
    assert_int_equal(spurious, 1);
    assert_true(due); // acknowledged again at once
}

// The historic dr acknowledged these.
void a_broken_payload_is_asked_for_and_not_acknowledged(void **)
{
    AckBody first;
    AckBody second;
    AckBody third;
    bool due = false;
    std::uint32_t before = 1;
    std::uint32_t after = 0;
    Verdict again{};
    std::uint64_t received = 1;
    {
        Fixture f;
        const FragHeader h = data(0, 0, 1, 0);
        f.receiver.on_arrival(h, 0, f.now);
        (void)f.receiver.classify(h);
        f.receiver.reject_payload(h);
        due = f.receiver.ack_due();
        before = f.receiver.cumulative();
        first = f.body();
        received = f.counters.fragments_received;
        f.receiver.acknowledged(true);
        second = f.body(); // a NACK is said once
        again = f.take(data(0, 0, 1, 1));
        third = f.body();
        after = f.receiver.cumulative();
    }
    assert_true(due);
    assert_int_equal(before, 0);
    assert_int_equal(received, 0);
    assert_int_equal(first.words, 0);
    assert_int_equal(first.partials, 1);
    assert_int_equal(first.partial[0].received, 0);
    assert_int_equal(first.partial[0].broken, 1);
    assert_int_equal(second.partial[0].broken, 0);
    assert_int_equal(again, Verdict::fresh);
    assert_int_equal(after, 1);
    assert_int_equal(third.partials, 0);
}

void early_fragments_wait_for_their_turn(void **)
{
    std::array<Verdict, 4> verdicts{};
    unsigned ready = 0;
    std::size_t held = 0;
    std::size_t left = 1;
    bool too_soon = true;
    {
        Fixture f;
        std::vector<std::byte> fragment;
        verdicts[0] = f.take(ordered(2, 2, 2));
        verdicts[1] = f.take(ordered(1, 1, 1));
        verdicts[2] = f.take(ordered(1, 1, 3));
        held = f.receiver.held_bytes();
        too_soon = f.receiver.next_ready(fragment);
        verdicts[3] = f.take(ordered(0, 0, 4));
        while (f.receiver.next_ready(fragment)) {
            ++ready;
        }
        left = f.receiver.held_bytes();
    }
    assert_int_equal(verdicts[0], Verdict::early);
    assert_int_equal(verdicts[1], Verdict::early);
    assert_int_equal(verdicts[2], Verdict::duplicate);
    assert_int_equal(verdicts[3], Verdict::fresh);
    assert_int_equal(held, 2 * (header_bytes + 10));
    assert_false(too_soon);
    assert_int_equal(ready, 2);
    assert_int_equal(left, 0);
}

void what_is_kept_is_bounded(void **)
{
    std::size_t most = 0;
    unsigned refused = 0;
    std::size_t bound = 0;
    {
        Config c = quick_config();
        c.reorder_bytes = 1024;
        Fixture f(c);
        bound = c.reorder_bytes;
        for (std::uint32_t i = 1; i < 100; ++i) {
            refused += f.take(ordered(i, i, i)) == Verdict::refused ? 1 : 0;
            most = std::max(most, f.receiver.held_bytes());
        }
    }
    assert_true(most <= bound);
    assert_true(refused > 0);
}

void nonsense_is_refused(void **)
{
    std::array<Verdict, 6> verdicts{};
    std::uint64_t outside = 0;
    std::uint64_t malformed = 0;
    {
        Fixture f;
        verdicts[0] = f.take(data(max_window, 0, 1, 0));     // beyond the window
        verdicts[1] = f.take(data(max_window - 1, 0, 1, 1)); // its last place
        verdicts[2] = f.take(data(5, 0, 4, 2));
        verdicts[3] = f.take(data(5, 1, 3, 3)); // contradicts itself
        (void)f.take(ordered(0, 0, 4));
        verdicts[4] = f.take(ordered(1, 0, 5));              // an old place in the order
        verdicts[5] = f.take(ordered(2, max_window + 1, 6)); // one that no window allows
        outside = f.counters.all().outside_window;
        malformed = f.counters.all().malformed;
    }
    assert_int_equal(verdicts[0], Verdict::refused);
    assert_int_equal(verdicts[1], Verdict::fresh);
    assert_int_equal(verdicts[2], Verdict::fresh);
    assert_int_equal(verdicts[3], Verdict::refused);
    assert_int_equal(verdicts[4], Verdict::refused);
    assert_int_equal(verdicts[5], Verdict::refused);
    assert_int_equal(outside, 1);
    assert_int_equal(malformed, 3);
}

void numbers_wrap(void **)
{
    unsigned fresh = 0;
    unsigned early = 0;
    unsigned ready = 0;
    std::uint32_t cumulative = 1;
    Verdict old{};
    bool gap = true;
    {
        Fixture f;
        f.receiver.start_at(0xfffffffe, 0xffffffff);
        std::vector<std::byte> fragment;
        const auto count = [&](Verdict v) {
            fresh += v == Verdict::fresh ? 1 : 0;
            early += v == Verdict::early ? 1 : 0;
        };
        count(f.take(ordered(0xffffffff, 0, 0xfffffe))); // second in the order
        f.receiver.acknowledged(true);
        count(f.take(ordered(0xfffffffe, 0xffffffff, 0xffffff)));
        while (f.receiver.next_ready(fragment)) {
            ++ready;
        }
        f.receiver.acknowledged(true);
        count(f.take(data(0, 0, 1, 0))); // tx wraps: no gap
        gap = f.receiver.ack_due();
        count(f.take(data(1, 0, 1, 1)));
        cumulative = f.receiver.cumulative();
        old = f.take(ordered(0xffffffff, 0, 2));
    }
    assert_int_equal(fresh, 3);
    assert_int_equal(early, 1);
    assert_int_equal(ready, 1);
    assert_false(gap);
    assert_int_equal(cumulative, 2);
    assert_int_equal(old, Verdict::duplicate);
}

void acks_wait_for_company_but_not_long(void **)
{
    bool at_first = true;
    bool before = true;
    bool after = false;
    bool many = false;
    std::int64_t deadline = 0;
    {
        Fixture f;
        (void)f.take(ordered(0, 0, 0));
        at_first = f.receiver.ack_due();
        deadline = (f.receiver.next_deadline() - f.now).ns();
        f.receiver.on_time(f.now + f.config.ack_delay - 1_ns);
        before = f.receiver.ack_due();
        f.receiver.on_time(f.now + f.config.ack_delay);
        after = f.receiver.ack_due();
        f.receiver.acknowledged(true);
        std::uint32_t i = 1;
        for (; i < f.config.ack_every; ++i) {
            (void)f.take(ordered(i, i, i));
        }
        const bool almost = f.receiver.ack_due();
        (void)f.take(ordered(i, i, i));
        many = !almost && f.receiver.ack_due();
    }
    assert_false(at_first);
    assert_int_equal(deadline, 100'000);
    assert_false(before);
    assert_true(after);
    assert_true(many);
}

/// A request of the sender's waits for it; an answer within some microseconds takes it along.
void data_in_one_fragment_is_acknowledged_soon(void **)
{
    std::int64_t one = 0;
    std::int64_t large = 0;
    std::int64_t part = 0;
    {
        Fixture f;
        (void)f.take(data(0, 0, 1, 0));
        one = (f.receiver.next_deadline() - f.now).ns();
        f.receiver.acknowledged(true);
        FragHeader h = data(1, 0, 1, 1);
        h.payload_bytes = 400'000;
        (void)f.take(h);
        large = (f.receiver.next_deadline() - f.now).ns();
        f.receiver.acknowledged(true);
        (void)f.take(data(2, 0, 2, 2)); // what is not whole completes nothing
        part = (f.receiver.next_deadline() - f.now).ns();
    }
    assert_in_range(one, 5'000, 5'010);
    assert_in_range(large, 55'000, 55'010);
    assert_int_equal(part, 100'000);
}

void a_gap_in_tx_is_told_at_once_and_again(void **)
{
    bool at_gap = false;
    bool next = true;
    bool proof = false;
    {
        Fixture f;
        (void)f.take(data(0, 0, 64, 0));
        f.receiver.acknowledged(true);
        (void)f.take(data(0, 2, 64, 2)); // 1 is missing
        at_gap = f.receiver.ack_due();
        f.receiver.acknowledged(true);
        (void)f.take(data(0, 3, 64, 3));
        next = f.receiver.ack_due();
        (void)f.take(data(0, 4, 64, 4));
        (void)f.take(data(0, 5, 64, 5)); // reorder_threshold after the gap
        proof = f.receiver.ack_due();
    }
    assert_true(at_gap);
    assert_false(next);
    assert_true(proof);
}

void a_ride_does_until_there_is_more_to_say(void **)
{
    bool plain = true;
    bool selective = false;
    {
        Fixture f;
        (void)f.take(data(0, 0, 1, 0));
        f.receiver.acknowledged(false); // the cumulative number rode on a fragment
        plain = f.receiver.ack_owed();
        (void)f.take(data(2, 0, 1, 1)); // 1 is missing
        f.receiver.acknowledged(false);
        selective = f.receiver.ack_owed();
    }
    assert_false(plain);
    assert_true(selective);
}

void more_incomplete_vfrags_than_an_ack_describes_are_cut_off(void **)
{
    AckBody body;
    {
        Fixture f;
        for (std::uint32_t i = 0; i < 40; ++i) {
            (void)f.take(data(i, 0, 2, i));
        }
        (void)f.take(data(200, 0, 1, 40));
        body = f.body();
    }
    assert_int_equal(body.partials, AckBody::max_partials);
    assert_int_equal(body.partial[15].offset, 15);
    assert_int_equal(body.words, 4);
    assert_true(body.whole[3] == std::uint64_t{1} << (200 - 192));
}

void only_the_very_next_goes_the_short_way(void **)
{
    std::array<bool, 7> next{};
    std::uint32_t cumulative = 0;
    bool owed = false;
    Verdict after = Verdict::refused;
    Verdict again = Verdict::refused;
    {
        Fixture f;
        next[0] = f.receiver.is_next(ordered(0, 0, 0)); // nothing came over its path yet
        f.take(ordered(0, 0, 0));
        next[1] = f.receiver.is_next(ordered(1, 1, 2)); // one is missing on its path
        next[2] = f.receiver.is_next(ordered(2, 1, 1)); // another VFRAG is before it
        next[3] = f.receiver.is_next(ordered(1, 2, 1)); // out of turn
        next[4] = f.receiver.is_next(ordered(1, 1, 1));
        f.receiver.acknowledged(true);
        f.receiver.accept_next(ordered(1, 1, 1), 0, f.now);
        cumulative = f.receiver.cumulative();
        owed = f.receiver.ack_owed();
        again = f.take(ordered(1, 1, 1));
        after = f.take(ordered(2, 2, 2));
        f.take(ordered(4, 4, 4));
        next[5] = f.receiver.is_next(ordered(3, 3, 3)); // a later one waits for it
        f.take(ordered(3, 3, 5));
        std::vector<std::byte> ready;
        while (f.receiver.next_ready(ready)) {
        }
        next[6] = f.receiver.is_next(ordered(5, 5, 6)); // that gap is to be told of still
    }
    constexpr std::array<bool, 7> expected{false, false, false, false, true, false, false};
    assert_true(next == expected);
    assert_int_equal(cumulative, 2);
    assert_true(owed);
    assert_int_equal(again, Verdict::duplicate);
    assert_int_equal(after, Verdict::fresh);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(each_fragment_is_fresh_once),
        cmocka_unit_test(a_broken_payload_is_asked_for_and_not_acknowledged),
        cmocka_unit_test(early_fragments_wait_for_their_turn),
        cmocka_unit_test(what_is_kept_is_bounded),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(numbers_wrap),
        cmocka_unit_test(acks_wait_for_company_but_not_long),
        cmocka_unit_test(data_in_one_fragment_is_acknowledged_soon),
        cmocka_unit_test(a_gap_in_tx_is_told_at_once_and_again),
        cmocka_unit_test(a_ride_does_until_there_is_more_to_say),
        cmocka_unit_test(only_the_very_next_goes_the_short_way),
        cmocka_unit_test(more_incomplete_vfrags_than_an_ack_describes_are_cut_off),
    };
    return cmocka_run_group_tests_name("receiver", tests, nullptr, nullptr);
}

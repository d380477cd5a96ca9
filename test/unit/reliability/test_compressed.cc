// The compressed form: what is left out of it is foretold right, or it is not taken at all.
#include "test/unit/reliability/ends.hpp"

#include "test/unit/cmocka.hpp"

using namespace ft::test;

namespace {

constexpr std::uint32_t job = 0x01020304;
constexpr std::uint64_t word = 0x8877665544332211ULL;

/// A receiver that has seen VFRAG 100, waits for `next`, and what follows `ahead` of that.
struct Sample {
    Foretold foretold;
    FragHeader header;
};

Sample sample(std::uint32_t first, std::uint32_t next, std::uint32_t ahead, std::size_t bytes)
{
    Sample s;
    s.foretold.context = {first, first - 7, (first + 900) & tx_mask, 3, true};
    s.foretold.next = next;
    const std::uint32_t since = next + ahead - first;
    s.header.flags = flag_payload_checksummed;
    s.header.source = {job, 0xfedc};
    s.header.sequence = first + since;
    s.header.order = first - 7 + since;
    s.header.tx = (first + 900 + since) & tx_mask;
    s.header.path = 3;
    s.header.payload_bytes = static_cast<std::uint32_t>(bytes);
    return s;
}

std::vector<std::byte> fragment(const FragHeader &h)
{
    std::vector<std::byte> b(compressed_bytes + h.payload_bytes);
    for (std::size_t i = compressed_bytes; i < b.size(); ++i) {
        b[i] = static_cast<std::byte>(i * 37);
    }
    write_compressed(h, word, b);
    return b;
}

ParseStatus parse(std::span<const std::byte> b, const Foretold &foretold, FragHeader &h)
{
    std::uint64_t upper = 0;
    const ParseStatus status = parse_compressed(b, foretold, job, h, upper);
    return status == ParseStatus::ok && upper != word ? ParseStatus::malformed : status;
}

void what_is_left_out_is_foretold(void **)
{
    for (const std::uint32_t first : {100U, 0U, 0xffffffffU, 0xffffffd0U, 0xfffffcU}) {
        for (const std::uint32_t since : {1U, 40U, 70U}) {
            for (std::uint32_t ahead = 0 - 64U; ahead != 64; ++ahead) {
                const std::size_t bytes = ahead % 4 == 0 ? 8 : (ahead & 0xff);
                const Sample s = sample(first, first + since, ahead, bytes);
                std::vector<std::byte> b = fragment(s.header);
                assert_true(is_compressed(b));
                assert_false(is_brief(b));
                assert_int_equal(compressed_rank(b), 0xfedc);
                b.resize(b.size() + 5); // padded by the BTL
                FragHeader h;
                assert_int_equal(parse(b, s.foretold, h), ParseStatus::ok);
                assert_int_equal(h.kind, Kind::ordered);
                assert_int_equal(h.form, Form::compressed);
                assert_int_equal(h.flags, flag_payload_checksummed | flag_header_checksummed);
                assert_true(h.source == s.header.source);
                assert_int_equal(h.sequence, s.header.sequence);
                assert_int_equal(h.order, s.header.order);
                assert_int_equal(h.tx, s.header.tx);
                assert_int_equal(h.path, 3);
                assert_int_equal(h.count, 1);
                assert_int_equal(h.upper_bytes, 8);
                assert_int_equal(h.payload_bytes, bytes);
            }
        }
    }
}

void what_is_foretold_wrong_is_not_taken(void **)
{
    const Sample s = sample(100, 110, 0, 8);
    const std::vector<std::byte> b = fragment(s.header);
    FragHeader h;
    for (std::uint32_t off = 0 - 2000U; off != 2000; ++off) {
        if (off == 0) {
            continue;
        }
        Foretold wrong = s.foretold;
        wrong.context.order += off;
        assert_int_equal(parse(b, wrong, h), ParseStatus::bad_checksum);
        wrong = s.foretold;
        wrong.context.tx = (wrong.context.tx + off) & tx_mask;
        assert_int_equal(parse(b, wrong, h), ParseStatus::bad_checksum);
        // As when data went over other paths, and the brief one behind it was lost.
        wrong.context.order += off;
        assert_int_equal(parse(b, wrong, h), ParseStatus::bad_checksum);
        wrong = s.foretold;
        wrong.context.sequence += off;
        assert_int_equal(parse(b, wrong, h), ParseStatus::bad_checksum);
        wrong = s.foretold;
        wrong.context.path = static_cast<std::uint8_t>(off % max_paths);
        if (wrong.context.path != 3) {
            assert_int_equal(parse(b, wrong, h), ParseStatus::bad_checksum);
        }
        // Further from the one that is waited for than the last bits of the number tell.
        wrong = s.foretold;
        wrong.next += off;
        if (off + 63 > 127) { // -64 to 64, by one, are near
            assert_int_equal(parse(b, wrong, h), ParseStatus::bad_checksum);
        }
    }
    Foretold none = s.foretold;
    none.context.valid = false;
    assert_int_equal(parse(b, none, h), ParseStatus::bad_checksum);
}

void every_flipped_bit_is_caught(void **)
{
    for (const std::size_t bytes : {0U, 8U, 13U, 200U}) {
        const Sample s = sample(100, 110, 5, bytes);
        const std::vector<std::byte> good = fragment(s.header);
        FragHeader h;
        for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
            if (bit == 7) { // the mark is another matter
                continue;
            }
            std::vector<std::byte> b = good;
            b[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
            const ParseStatus status = parse(b, s.foretold, h);
            assert_true(status == ParseStatus::bad_checksum || status == ParseStatus::truncated);
        }
        for (std::size_t length = 1; length < good.size(); ++length) {
            assert_int_equal(parse(std::span(good).first(length), s.foretold, h),
                             ParseStatus::truncated);
        }
    }
    assert_false(is_compressed({}));
}

void the_header_is_summed_also_where_payloads_are_not(void **)
{
    Sample s = sample(100, 110, 0, 8);
    s.header.flags = 0;
    std::vector<std::byte> b = fragment(s.header);
    b.back() ^= std::byte{1};
    FragHeader h;
    assert_int_equal(parse(b, s.foretold, h), ParseStatus::ok);
    assert_int_equal(h.flags, flag_header_checksummed);
    b[9] ^= std::byte{1};
    assert_int_equal(parse(b, s.foretold, h), ParseStatus::bad_checksum);
}

/// The form that the next one of a's has, which arrives.
Form next_form(Two &t, std::uint64_t length = 8)
{
    const auto frames = t.a.express(length, t.now, Form::compressed);
    t.b.take_all(frames, t.now);
    return frames.empty() ? Form::full : frames.front().form;
}

void nothing_is_compressed_that_cannot_be_foretold(void **)
{
    std::vector<Form> forms;
    std::size_t delivered = 0;
    unsigned broken = 0;
    for (const bool wraps : {false, true}) {
        Two t;
        if (wraps) {
            t.a.peer.start_at(0xfffffffe, 0xfffffffd, 0xfffffe);
            t.b.peer.start_at(0xfffffffe, 0xfffffffd, 0xfffffe);
        }
        const auto note = [&] { forms.push_back(next_form(t)); };
        note(); // nothing is known yet: brief
        note();
        note();
        t.now += 17_us;
        note(); // too long ago: brief
        note();
        (void)t.a.submit(false, 64, 64, t.now); // has a number, and no place in the order
        t.b.take_all(t.a.pump(t.now), t.now);
        note(); // brief
        note();
        t.a.take_all(t.b.express(8, t.now, Form::compressed), t.now);
        (void)t.a.pump(t.now);
        note(); // what is owed may wait for another
        t.now += 13_us;
        note(); // takes it along: brief
        note();
        delivered += t.b.delivered.size();
        broken += t.b.broken;
    }
    const Form b = Form::brief;
    const Form c = Form::compressed;
    std::vector<Form> expected{b, c, c, b, c, b, c, c, b, c};
    expected.resize(20);
    std::copy_n(expected.begin(), 10, expected.begin() + 10);
    const bool right = forms == expected;
    forms = {};
    expected = {};
    assert_true(right);
    assert_int_equal(delivered, 2 * 11);
    assert_int_equal(broken, 0);
}

// The context is of one path, and what goes over another changes what is foretold of the first.
void another_path_is_another_context(void **)
{
    unsigned wrong = 0;
    unsigned compressed = 0;
    unsigned changes = 0;
    std::size_t delivered = 0;
    unsigned broken = 9;
    {
        Two t(2);
        PathId context = no_path;
        for (unsigned i = 0; i < 12; ++i) {
            if (i == 6) {
                t.a.peer.path_error(0, t.now);
                t.settle();
                PathEvent event;
                while (t.a.peer.next_event(event)) {
                }
            }
            const auto frames = t.a.express(8, t.now, Form::compressed);
            for (const Frame &f : frames) {
                if (f.form == Form::compressed) {
                    ++compressed;
                    wrong += f.path == context ? 0 : 1;
                } else {
                    changes += f.path == context ? 0 : 1;
                    context = f.path;
                }
            }
            t.b.take_all(frames, t.now);
        }
        delivered = t.b.delivered.size();
        broken = t.b.broken;
    }
    assert_int_equal(wrong, 0);
    assert_true(changes >= 2);
    assert_true(compressed >= 4);
    assert_int_equal(delivered, 12);
    assert_int_equal(broken, 0);
}

// Of 2^31 numbers, those of long messages among them, no brief fragment may come; the next one may
// not be the next of all, and is no late one.
void a_context_may_be_very_old(void **)
{
    for (const std::uint32_t later : {0x7ffffff0U, 0x80000010U, 0xc0000000U, 0xfffffff0U}) {
        Two t;
        assert_int_equal(next_form(t), Form::brief);
        t.settle();
        const std::uint32_t tx = t.a.peer.paths()[0].next_tx;
        t.a.peer.start_at(later, 1, tx);
        t.b.peer.start_at(later, 1, tx);
        (void)t.a.submit(false, 64, 64, t.now);
        const auto late = t.a.pump(t.now);
        assert_int_equal(next_form(t), Form::brief);
        t.b.take_all(late, t.now);
        assert_int_equal(next_form(t), Form::compressed);
        assert_int_equal(t.b.broken, 0);
        assert_true(t.b.delivered == (std::vector<std::uint32_t>{0, later + 1, later, later + 2}));
    }
}

struct Outcome {
    bool in_order = false;
    bool whole = false;
    unsigned broken = 0;
    std::uint64_t early = 0;
    std::uint64_t by_timer = 0;
    Form after = Form::full;
};

/// A brief one and five compressed ones, of which one is lost.
Outcome with_loss_of(std::size_t lost)
{
    Outcome o;
    Two t;
    t.settle();
    for (std::size_t i = 0; i < 6; ++i) {
        const auto frames = t.a.express(8, t.now, Form::compressed);
        if (i != lost) {
            t.b.take_all(frames, t.now);
        }
    }
    o.broken = t.b.broken;
    o.early = t.b.peer.counters().early;
    for (int i = 0; i < 40 && t.a.done.size() < 6; ++i) {
        t.settle();
        t.now += 3_ms;
    }
    PathEvent event;
    while (t.a.peer.next_event(event)) { // a timer has made its path suspect
    }
    o.after = next_form(t);
    o.by_timer = t.a.peer.counters().retransmitted_timeout;
    o.in_order = t.b.delivered == std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6};
    o.whole = t.a.done.size() == 6;
    return o;
}

void a_lost_one_is_noticed_by_the_next(void **)
{
    const Outcome o = with_loss_of(2);
    assert_true(o.in_order);
    assert_true(o.whole);
    assert_int_equal(o.broken, 0);
    assert_int_equal(o.early, 3);
    assert_int_equal(o.by_timer, 0);
    assert_int_equal(o.after, Form::brief);
}

void without_its_context_nothing_is_taken_and_all_comes_again(void **)
{
    const Outcome o = with_loss_of(0);
    assert_true(o.in_order);
    assert_true(o.whole);
    assert_int_equal(o.broken, 5);
    assert_int_equal(o.early, 0);
    assert_int_equal(o.after, Form::brief);
}

void what_comes_twice_or_late_is_known_again(void **)
{
    std::vector<std::uint32_t> delivered;
    std::uint64_t duplicates = 0;
    unsigned broken = 9;
    {
        Two t;
        std::vector<Frame> all;
        for (unsigned i = 0; i < 8; ++i) {
            t.now += i == 4 ? 20_us : 0_us; // the fifth is brief, too
            const auto frames = t.a.express(8, t.now, Form::compressed);
            all.insert(all.end(), frames.begin(), frames.end());
        }
        for (const std::size_t i : {0U, 4U, 2U, 1U, 2U, 0U, 3U, 6U, 5U, 7U, 7U}) {
            (void)t.b.take(all[i], t.now);
        }
        delivered = t.b.delivered;
        duplicates = t.b.peer.counters().duplicates;
        broken = t.b.broken;
    }
    const bool in_order = delivered == std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7};
    delivered = {};
    assert_true(in_order);
    assert_int_equal(duplicates, 3);
    assert_int_equal(broken, 0);
}

// Echoed is the newest timestamp that came: round trips are measured by it all the same.
void round_trips_are_measured_still(void **)
{
    std::int64_t round_trip = 0;
    {
        Two t;
        for (unsigned i = 0; i < 40; ++i) {
            const auto there = t.a.express(8, t.now, Form::compressed);
            t.now += 1_us;
            t.b.take_all(there, t.now);
            const auto back = t.b.express(8, t.now, Form::compressed);
            t.now += 1_us;
            t.a.take_all(back, t.now);
            (void)t.a.pump(t.now);
            (void)t.b.pump(t.now);
        }
        round_trip =
            t.a.peer.paths()[0].rtt.has_sample() ? t.a.peer.paths()[0].rtt.smoothed().ns() : 0;
    }
    assert_in_range(round_trip, 1500, 3500);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_out_is_foretold),
        cmocka_unit_test(what_is_foretold_wrong_is_not_taken),
        cmocka_unit_test(every_flipped_bit_is_caught),
        cmocka_unit_test(the_header_is_summed_also_where_payloads_are_not),
        cmocka_unit_test(nothing_is_compressed_that_cannot_be_foretold),
        cmocka_unit_test(another_path_is_another_context),
        cmocka_unit_test(a_context_may_be_very_old),
        cmocka_unit_test(a_lost_one_is_noticed_by_the_next),
        cmocka_unit_test(without_its_context_nothing_is_taken_and_all_comes_again),
        cmocka_unit_test(what_comes_twice_or_late_is_known_again),
        cmocka_unit_test(round_trips_are_measured_still),
    };
    return cmocka_run_group_tests_name("compressed", tests, nullptr, nullptr);
}

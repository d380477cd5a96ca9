// Which accusations say that a link between two that live is bad.

#include "test/unit/cmocka.hpp"
#include "test/unit/membership/passing_time.hpp"

#include <memory>

using namespace ft::membership;
using ft::base::Duration;
using ft::base::Time;

namespace {

constexpr Duration memory = Duration::from_s(10);
const Time start = Time::zero() + Duration::from_s(1);

void three_in_succession_are_enough(void **)
{
    Refutations r;
    assert_false(r.counts(start, memory, 1, 3, 0, 7));
    assert_false(r.counts(start, memory, 1, 3, 7, 9));
    assert_true(r.counts(start, memory, 1, 3, 9, 12));
    assert_false(r.counts(start, memory, 1, 3, 12, 13)); // from the beginning
}

void one_that_was_made_before_the_answer_counts_once(void **)
{
    Refutations r;
    for (std::uint64_t answer = 7; answer < 20; ++answer) {
        assert_false(r.counts(start, memory, 1, 3, 0, answer));
    }
    // The answers that told nothing new are as good as the first.
    assert_false(r.counts(start, memory, 1, 3, 7, 20));
    assert_false(r.counts(start, memory, 1, 3, 19, 21));
    assert_true(r.counts(start, memory, 1, 3, 20, 22));
}

void those_from_long_ago_are_forgotten(void **)
{
    Refutations r;
    Time now = start;
    std::uint64_t answer = 1;
    for (int day = 0; day < 10; ++day) {
        assert_false(r.counts(now, memory, 1, 3, answer, answer + 1));
        ++answer;
        now = now + memory + Duration::from_ms(1);
    }
    assert_false(r.counts(now, memory, 1, 3, answer, answer + 1));
    now = now + memory;
    assert_false(r.counts(now, memory, 1, 3, answer + 1, answer + 2));
    now = now + memory;
    assert_true(r.counts(now, memory, 1, 3, answer + 2, answer + 3));
}

void each_pair_and_direction_counts_for_itself(void **)
{
    Refutations r;
    for (std::uint64_t answer = 1; answer < 3; ++answer) {
        assert_false(r.counts(start, memory, 1, 3, answer - 1, answer));
        assert_false(r.counts(start, memory, 3, 1, answer - 1, answer));
        assert_false(r.counts(start, memory, 1, 2, answer - 1, answer));
    }
    assert_true(r.counts(start, memory, 1, 3, 2, 3));
    r.clear();
    assert_false(r.counts(start, memory, 3, 1, 2, 3));
}

/// The lowest of four, which hears all: node 3 accuses node 1 of silence, as often as a test says.
struct Root {
    Config config;
    std::shared_ptr<ViewPool> pool = std::make_shared<ViewPool>();
    Time now = start;
    Stabilizer engine{config, pool, Identity{0, 0},
                      View::initial(4, config.arity, TreeMode::rebuild), now};
    std::uint64_t sequence = 0;
    std::uint64_t alive = 0; ///< the last answer to node 3, which it need not have
    unsigned answers = 0;
    bool evicts = false;
    bool hears = true;

    void pass_for(Duration how_long)
    {
        pass(engine, now, how_long, [this](const Output &out) { note(out); });
    }
    void note(const Output &out)
    {
        for (const Message &m : out.messages) {
            if (!hears) {
                continue;
            }
            if (m.proposal) {
                evicts = true;
            } else if (m.type == Type::how_are_you || m.type == Type::heartbeat) {
                say(answer_to(m), m.to);
            } else if (m.type == Type::failure_det_ack && m.status == Status::alive) {
                assert_int_equal(m.to, 3);
                alive = m.sequence;
                ++answers;
            }
        }
    }

    void say(Message m, NodeId from)
    {
        m.from = from;
        m.to = 0;
        m.sequence = ++sequence;
        Output out;
        engine.on_message(now, m, out);
        note(out);
    }

    /// Node 3 accuses node 1, and has had the answer `heard` before.
    void accuse(std::uint64_t heard)
    {
        Message m;
        m.type = Type::node_failure;
        m.accused.push_back({1, 0, Grade::suspected, no_node});
        m.beat = heard;
        say(m, 3);
        pass_for(Duration::from_ms(1));
    }
};

void what_the_network_has_kept_evicts_nobody(void **)
{
    Root root;
    for (int i = 0; i < 20; ++i) {
        root.accuse(0);
    }
    assert_int_equal(root.answers, 20);
    assert_false(root.evicts);
}

void a_link_that_stays_bad_does(void **)
{
    Root root;
    for (int i = 0; i < 3; ++i) {
        assert_false(root.evicts);
        root.accuse(root.alive);
    }
    assert_true(root.evicts);
}

/// Its own connections come back first; those between the others do soon.
void who_was_cut_off_itself_counts_nothing_yet(void **)
{
    Root root;
    root.hears = false;
    root.pass_for(Duration::from_s(3));
    root.hears = true;
    root.pass_for(Duration::from_ms(500)); // asked again, they answer
    assert_true(root.engine.state() == State::member && !root.evicts);
    for (int i = 0; i < 10; ++i) {
        root.accuse(root.alive);
    }
    assert_int_equal(root.answers, 10);
    assert_false(root.evicts);
    root.pass_for(Duration::from_s(10));
    for (int i = 0; i < 3; ++i) {
        assert_false(root.evicts);
        root.accuse(root.alive);
    }
    assert_true(root.evicts);
}

/// The accuser's side: its report tells which answer it has had.
void a_report_tells_the_last_answer(void **)
{
    Config config;
    const auto pool = std::make_shared<ViewPool>();
    Time now = start;
    Stabilizer engine{config, pool, Identity{3, 0},
                      View::initial(4, config.arity, TreeMode::rebuild), now};
    std::vector<std::uint64_t> told;
    std::uint64_t sequence = 40;
    const auto note = [&](const Output &out) {
        for (const Message &m : out.messages) {
            if (m.type == Type::node_failure) {
                told.push_back(m.beat);
            }
        }
    };
    for (int i = 0; i < 3; ++i) {
        const std::size_t before = told.size();
        while (told.size() == before) { // its parent, node 1, is silent
            pass(engine, now, Duration::from_ms(10), note);
            assert_true(now < start + Duration::from_s(200));
        }
        Message m;
        m.type = Type::failure_det_ack;
        m.status = Status::alive;
        m.hint = 1;
        m.from = 0;
        m.to = 3;
        m.sequence = ++sequence;
        Output out;
        engine.on_message(now, m, out);
        note(out);
    }
    assert_true(told.size() >= 3);
    assert_int_equal(told.front(), 0);
    assert_int_equal(told.back(), 42);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(three_in_succession_are_enough),
        cmocka_unit_test(one_that_was_made_before_the_answer_counts_once),
        cmocka_unit_test(those_from_long_ago_are_forgotten),
        cmocka_unit_test(each_pair_and_direction_counts_for_itself),
        cmocka_unit_test(what_the_network_has_kept_evicts_nobody),
        cmocka_unit_test(a_link_that_stays_bad_does),
        cmocka_unit_test(who_was_cut_off_itself_counts_nothing_yet),
        cmocka_unit_test(a_report_tells_the_last_answer),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

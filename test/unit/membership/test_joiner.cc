#include "test/unit/cmocka.hpp"
#include "test/unit/membership/passing_time.hpp"

#include <memory>
#include <vector>

using namespace ft::membership;
using ft::base::Duration;
using ft::base::Time;

namespace {

constexpr NodeId newcomer = 3;

/// A newcomer that was told of node 0 alone at its start, and the time in which it lives.
struct Joiner {
    Config config;
    std::shared_ptr<ViewPool> pool = std::make_shared<ViewPool>();
    Time now = Time::zero() + Duration::from_s(1);
    Stabilizer engine{config, pool, Identity{newcomer, 0}, std::vector<NodeId>{0}, now};
    std::uint64_t sequence = 0;

    void answer(Message m)
    {
        m.type = Type::join_det_ack;
        m.from = 0;
        m.to = newcomer;
        m.sequence = ++sequence;
        Output out;
        engine.on_message(now, m, out);
        note(out);
    }

    /// Lets time pass, in which nobody answers.
    void wait(Duration how_long)
    {
        pass(engine, now, how_long, [this](const Output &out) { note(out); });
    }

    void note(const Output &out)
    {
        for (const Message &m : out.messages) {
            if (m.type == Type::new_node) {
                asked.push_back(m.to);
            }
        }
    }

    /// Whom it has asked to be taken in, in order.
    std::vector<NodeId> asked;
};

/// The first that it asks other than node 0.
NodeId first_other(const std::vector<NodeId> &asked)
{
    for (const NodeId id : asked) {
        if (id != 0) {
            return id;
        }
    }
    return no_node;
}

/// The root gives it the view, in which there are members that it was not told of, and dies.
void asks_the_members_of_the_view_it_was_given(void **)
{
    std::vector<NodeId> before;
    std::vector<NodeId> after;
    {
        Joiner j;
        j.wait(Duration::from_ms(1));
        before = j.asked;
        Change change;
        change.removed = {{1, 0, Grade::proven, 0}};
        Message pending;
        pending.status = Status::pending;
        pending.epoch = 1;
        pending.view =
            j.pool->apply(View::initial(3, j.config.arity, TreeMode::rebuild), 1, change);
        j.answer(std::move(pending));
        j.asked.clear();
        j.wait(Duration::from_s(10));
        after = j.asked;
    }
    assert_int_equal(before.size(), 1);
    assert_int_equal(before.front(), 0);
    assert_int_equal(first_other(after), 2);
    for (const NodeId id : after) {
        assert_true(id == 0 || id == 2); // neither itself nor who is no member
    }
}

/// Who is no root names the root, which it was not told of: it asks that one again later, too.
void remembers_the_root_it_was_sent_to(void **)
{
    std::vector<NodeId> first;
    std::vector<NodeId> later;
    {
        Joiner j;
        j.wait(Duration::from_ms(1));
        Message elsewhere;
        elsewhere.status = Status::not_root;
        elsewhere.hint = 2;
        j.asked.clear();
        j.answer(std::move(elsewhere));
        first = j.asked;
        // It gives up on both in turn.
        while (later.empty() || later.back() != 0) {
            j.asked.clear();
            j.wait(Duration::from_ms(100));
            later.insert(later.end(), j.asked.begin(), j.asked.end());
            if (j.now > Time::zero() + Duration::from_s(60)) {
                break;
            }
        }
        j.asked.clear();
        j.wait(Duration::from_s(10));
        later = j.asked;
    }
    assert_int_equal(first.size(), 1);
    assert_int_equal(first.front(), 2);
    assert_int_equal(first_other(later), 2);
}

/// One of three whom newcomers ask: the root or, with another id, not.
struct Root {
    explicit Root(NodeId id = 0) : self(id) {}

    NodeId self;
    Config config;
    std::shared_ptr<ViewPool> pool = std::make_shared<ViewPool>();
    Time now = Time::zero() + Duration::from_s(1);
    Stabilizer engine{config, pool, Identity{self, 0},
                      View::initial(3, config.arity, TreeMode::rebuild), now};
    std::uint64_t sequence = 0;

    /// What it answers to this newcomer, and whom it proposes to take in then.
    Status asked(std::uint32_t incarnation)
    {
        Message m;
        m.type = incarnation == 0 ? Type::new_node : Type::node_alive;
        m.from = newcomer;
        m.from_incarnation = incarnation;
        m.to = self;
        m.sequence = ++sequence;
        Output out;
        engine.on_message(now, m, out);
        return note(out);
    }

    void turn_away(std::uint32_t incarnation)
    {
        Output out;
        engine.turn_away(now, {newcomer, incarnation}, out);
        note(out);
    }

    /// What is asked again comes out, too.
    void wait(Duration how_long)
    {
        pass(engine, now, how_long, [this](const Output &out) { note(out); });
    }

    Status note(const Output &out)
    {
        Status answer = Status::none;
        for (const Message &m : out.messages) {
            if (m.type == Type::join_det_ack) {
                answer = m.status;
            } else if (m.proposal) {
                proposed.push_back(m.proposal->change.joined);
                removed.push_back(m.proposal->change.removed);
            }
        }
        return answer;
    }

    std::vector<std::vector<Identity>> proposed;
    std::vector<std::vector<Removed>> removed;
};

/// Who is turned away is in no proposal any more, and denied; in its next life it is taken in.
void turns_away_one_life_of_a_newcomer(void **)
{
    Status first = Status::none;
    Status again = Status::none;
    Status next = Status::none;
    std::size_t before = 0;
    std::size_t between = 0;
    std::vector<std::vector<Identity>> after;
    {
        Root root;
        first = root.asked(1);
        root.wait(Duration::from_ms(50));
        before = root.proposed.size();
        root.turn_away(1);
        root.proposed.clear();
        again = root.asked(1);
        // Not so long that it takes the silent members for dead.
        root.wait(Duration::from_ms(200));
        between = root.proposed.size();
        next = root.asked(2);
        root.wait(Duration::from_ms(50));
        after = root.proposed;
    }
    assert_int_equal(first, Status::pending);
    assert_true(before > 0);
    assert_int_equal(again, Status::denied);
    assert_int_equal(between, 0);
    assert_int_equal(next, Status::pending);
    assert_false(after.empty());
    for (const std::vector<Identity> &joined : after) {
        assert_true(joined == std::vector<Identity>({{newcomer, 2}}));
    }
}

/// One that is turned away before it has asked is denied, in its earlier lives too.
void turns_away_who_has_not_asked(void **)
{
    Status earlier = Status::none;
    Status same = Status::none;
    std::size_t proposed = 0;
    {
        Root root;
        root.turn_away(1);
        earlier = root.asked(0);
        same = root.asked(1);
        root.wait(Duration::from_ms(50));
        proposed = root.proposed.size();
    }
    assert_int_equal(earlier, Status::denied);
    assert_int_equal(same, Status::denied);
    assert_int_equal(proposed, 0);
}

/// Who is not the lowest takes nobody in, and proposes no view but without those below it: so whom
/// the root turns away is in no view with the root.
void only_the_root_takes_in(void **)
{
    Status before = Status::none;
    Status after = Status::none;
    std::size_t proposed_before = 0;
    std::vector<std::vector<Removed>> removed;
    {
        Root successor(1);
        before = successor.asked(1);
        successor.wait(Duration::from_ms(50));
        proposed_before = successor.proposed.size();
        Output out;
        successor.engine.on_proof(successor.now, 0, ProofKind::refused, out);
        successor.note(out);
        after = successor.asked(1);
        successor.wait(Duration::from_ms(50));
        removed = successor.removed;
    }
    assert_int_equal(before, Status::not_root);
    assert_int_equal(proposed_before, 0);
    assert_int_equal(after, Status::pending);
    assert_false(removed.empty());
    for (const std::vector<Removed> &gone : removed) {
        assert_int_equal(gone.size(), 1);
        assert_int_equal(gone.front().id, 0);
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(asks_the_members_of_the_view_it_was_given),
        cmocka_unit_test(remembers_the_root_it_was_sent_to),
        cmocka_unit_test(turns_away_one_life_of_a_newcomer),
        cmocka_unit_test(turns_away_who_has_not_asked),
        cmocka_unit_test(only_the_root_takes_in),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

#include "opal/ft/membership/stabilizer.hpp"
#include "test/unit/cmocka.hpp"

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
        const Time end = now + how_long;
        while (engine.next_deadline() <= end) {
            now = std::max(now, engine.next_deadline());
            Output out;
            engine.on_time(now, out);
            note(out);
        }
        now = end;
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

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(asks_the_members_of_the_view_it_was_given),
        cmocka_unit_test(remembers_the_root_it_was_sent_to),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

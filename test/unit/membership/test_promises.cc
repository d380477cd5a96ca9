// What a voter promises, by the echo of heartbeats, the one that it votes out.

#include "test/unit/cmocka.hpp"
#include "test/unit/membership/passing_time.hpp"

#include <memory>

using namespace ft::membership;
using ft::base::Duration;
using ft::base::Time;

namespace {

/// One of three hears the root; another one does not, and has it take part in a view without it.
struct Voter {
    Config config = slow_to_ask();
    std::shared_ptr<ViewPool> pool = std::make_shared<ViewPool>();
    ViewPtr view = View::initial(3, config.arity, config.mode);
    Time now = Time::zero() + Duration::from_s(1);
    Stabilizer engine{config, pool, Identity{2, 0}, view, now};
    std::uint64_t sequence = 0;
    std::uint64_t beat = 0;
    std::uint64_t promised = 0; ///< the last of the root's beats that was echoed
    Epoch voted = 0;
    bool coordinator_answers = true;

    static Config slow_to_ask()
    {
        Config c;
        c.commit_wait = Duration::from_s(2);
        return c;
    }

    void wait(Duration how_long)
    {
        for (const Time end = now + how_long; now < end;) {
            Message m;
            m.type = Type::heartbeat;
            m.beat = ++beat;
            say(m, 0);
            pass(engine, now, Duration::from_ms(100), [this](const Output &out) { note(out); });
        }
    }

    void note(const Output &out)
    {
        for (const Message &m : out.messages) {
            if (m.type == Type::heartbeat && m.to == 0) {
                promised = std::max(promised, m.echo);
            } else if (m.type == Type::failure_ack) {
                voted = m.number;
            } else if (m.type == Type::how_are_you && coordinator_answers) {
                say(answer_to(m), m.to); // and is about nothing
            }
        }
    }

    void say(Message m, NodeId from)
    {
        m.from = from;
        m.to = 2;
        m.sequence = ++sequence;
        Output out;
        engine.on_message(now, m, out);
        note(out);
    }

    /// Coordinator 1 leaves out 0, and then 0 leaves out 1.
    void propose(NodeId coordinator = 1)
    {
        auto proposal = std::make_shared<Proposal>();
        proposal->number = 2 - coordinator;
        proposal->coordinator = coordinator;
        proposal->base_digest = view->digest();
        proposal->change.removed = {{1 - coordinator, 0, Grade::suspected, no_node}};
        proposal->target_digest = pool->apply(view, proposal->number, proposal->change)->digest();
        Message m;
        m.type = coordinator == 1 ? Type::root_dead : Type::failed_node;
        m.number = proposal->number;
        m.coordinator = coordinator;
        m.proposal = std::move(proposal);
        say(m, coordinator);
    }
};

void who_votes_without_one_promises_it_nothing_meanwhile(void **)
{
    Voter v;
    v.coordinator_answers = false;
    v.wait(Duration::from_s(1));
    assert_true(v.promised + 1 >= v.beat);
    v.propose();
    const std::uint64_t before = v.promised;
    v.wait(v.config.heartbeat.fence + Duration::from_ms(100));
    assert_int_equal(v.voted, 1);
    v.wait(Duration::from_s(1));
    assert_true(v.promised == before);
}

void and_again_when_its_vote_is_worth_nothing_any_more(void **)
{
    Voter v;
    v.wait(Duration::from_s(1));
    v.propose();
    v.wait(v.config.heartbeat.fence + Duration::from_ms(100));
    assert_int_equal(v.voted, 1);
    Message older; // an answer from before the attempt, come late
    older.type = Type::i_am_well;
    v.say(older, 1);
    const std::uint64_t before = v.promised;
    v.wait(Duration::from_ms(200));
    assert_true(v.promised == before);
    v.wait(v.config.commit_wait + Duration::from_s(1)); // it asks the coordinator
    assert_true(v.promised + 1 >= v.beat);
}

/// Another one's attempt has taken the place of the one that it voted for, and is given up, too.
void and_when_nothing_is_left_of_the_attempt(void **)
{
    Voter v;
    v.wait(Duration::from_s(1));
    v.propose();
    v.wait(v.config.heartbeat.fence + Duration::from_ms(100));
    assert_int_equal(v.voted, 1);
    v.propose(0);
    v.wait(v.config.commit_wait + Duration::from_s(1));
    assert_true(v.promised + 1 >= v.beat);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(who_votes_without_one_promises_it_nothing_meanwhile),
        cmocka_unit_test(and_again_when_its_vote_is_worth_nothing_any_more),
        cmocka_unit_test(and_when_nothing_is_left_of_the_attempt),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

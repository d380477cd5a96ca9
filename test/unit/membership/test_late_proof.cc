// Proofs and witnesses of a death that come when something has already been made of what was known.

#include "test/unit/cmocka.hpp"
#include "test/unit/membership/passing_time.hpp"

#include <array>
#include <deque>
#include <memory>
#include <set>

using namespace ft::membership;
using ft::base::Duration;
using ft::base::Time;

namespace {

constexpr Duration fence = Duration::from_s(20);

/// Nodes 1 and 2 of three, both of which node 0, the root, has promised to hear; and their time.
/// Messages take none.
struct Survivors {
    Config config = patient();
    std::shared_ptr<ViewPool> pool = std::make_shared<ViewPool>();
    Time now = Time::zero() + Duration::from_s(1);
    std::array<std::unique_ptr<Stabilizer>, 2> engines;
    std::deque<Message> under_way;
    std::uint64_t sequence = 0;
    bool root_answers = true;

    static Config patient()
    {
        Config c;
        c.heartbeat.fence = fence;
        c.heartbeat.suspicion.floor = fence * 5 / 4;
        c.heartbeat.suspicion.ceiling = fence * 5 / 4;
        return c;
    }

    Survivors()
    {
        const ViewPtr view = View::initial(3, config.arity, config.mode);
        for (const NodeId id : {1U, 2U}) {
            engine(id) = std::make_unique<Stabilizer>(config, pool, Identity{id, 0}, view, now);
        }
        wait(Duration::from_s(1));
    }

    std::unique_ptr<Stabilizer> &engine(NodeId id) { return engines[id - 1]; }

    void wait(Duration how_long)
    {
        const Time end = now + how_long;
        while (now < end) {
            const Time next = std::min(engine(1)->next_deadline(), engine(2)->next_deadline());
            now = std::min(std::max(now, next), end);
            for (const NodeId id : {1U, 2U}) {
                Output out;
                engine(id)->on_time(now, out);
                deliver(out);
            }
        }
    }

    void deliver(const Output &out)
    {
        under_way.insert(under_way.end(), out.messages.begin(), out.messages.end());
        while (!under_way.empty()) {
            Message m = under_way.front();
            under_way.pop_front();
            if (m.to == 0) {
                if (!root_answers || (m.type != Type::heartbeat && m.type != Type::how_are_you)) {
                    continue;
                }
                Message answer = answer_to(m);
                answer.from = 0;
                answer.to = m.from;
                answer.sequence = ++sequence;
                m = answer;
            }
            Output more;
            engine(m.to)->on_message(now, m, more);
            under_way.insert(under_way.end(), more.messages.begin(), more.messages.end());
        }
    }

    /// The root's connections break, it answers no question, and whoever knocks at its port in that
    /// moment is let in.
    void lose_the_root()
    {
        root_answers = false;
        for (const NodeId id : {1U, 2U}) {
            Output out;
            engine(id)->on_suspicion(now, 0, out);
            deliver(out);
        }
        wait(Duration::from_s(1));
    }

    void prove(NodeId to)
    {
        Output out;
        engine(to)->on_proof(now, 0, ProofKind::refused, out);
        deliver(out);
        wait(Duration::from_ms(100));
    }

    bool have_gone_on()
    {
        return engine(1)->view()->size() == 2 &&
               engine(1)->view()->epoch() == engine(2)->view()->epoch();
    }
};

/// What the others are spared by a proof: both have promised the root not to vote without it.
void without_one_the_promises_are_kept(void **)
{
    Survivors s;
    s.lose_the_root();
    s.wait(fence - Duration::from_s(2));
    assert_int_equal(s.engine(1)->view()->size(), 3);
    assert_int_equal(s.engine(2)->view()->size(), 3);
    s.wait(Duration::from_s(2));
    assert_true(s.have_gone_on());
}

void one_at_the_coordinator_ends_the_wait(void **)
{
    Survivors s;
    s.lose_the_root();
    assert_int_equal(s.engine(2)->view()->size(), 3);
    s.prove(1);
    assert_true(s.have_gone_on());
}

void one_at_a_voter_ends_the_wait(void **)
{
    Survivors s;
    s.lose_the_root();
    s.prove(2);
    assert_true(s.have_gone_on());
}

/// The root of some nodes; which of the others run is what the test says.
struct Root {
    Config config;
    std::shared_ptr<ViewPool> pool = std::make_shared<ViewPool>();
    Time now = Time::zero() + Duration::from_s(1);
    std::set<NodeId> running;
    std::unique_ptr<Stabilizer> engine;
    std::uint64_t sequence = 0;
    std::set<NodeId> invited; ///< who is to join, by what was proposed

    explicit Root(NodeId nodes, Duration exile_hold = Duration::from_s(3600))
    {
        config.exile_hold = exile_hold;
        engine = std::make_unique<Stabilizer>(config, pool, Identity{0, 0},
                                              View::initial(nodes, config.arity, config.mode), now);
        for (NodeId id = 1; id < nodes; ++id) {
            running.insert(id);
        }
        wait(Duration::from_s(2));
    }

    void wait(Duration how_long)
    {
        pass(*engine, now, how_long, [this](const Output &out) { note(out); });
    }

    void note(const Output &out)
    {
        for (const Message &m : out.messages) {
            if (m.proposal) {
                for (const Identity &j : m.proposal->change.joined) {
                    invited.insert(j.id);
                }
            }
            if (!running.contains(m.to)) {
                continue;
            }
            Message answer = answer_to(m);
            if (is_proposal(m.type)) {
                answer.type = vote_for(m.type);
            } else if (m.type == Type::view_commit) {
                answer.type = Type::commit_ack;
            } else if (m.type != Type::heartbeat && m.type != Type::how_are_you) {
                continue;
            }
            answer.number = m.number;
            answer.coordinator = m.coordinator;
            say(answer, m.to);
        }
    }

    void say(Message m, NodeId from)
    {
        m.from = from;
        m.to = 0;
        m.sequence = ++sequence;
        Output out;
        engine->on_message(now, m, out);
        note(out);
    }

    void prove(NodeId dead)
    {
        Output out;
        engine->on_proof(now, dead, ProofKind::refused, out);
        note(out);
    }
};

void one_of_an_exile_lets_newcomers_in(void **)
{
    Root root(3);
    root.running.erase(2);
    root.wait(Duration::from_s(3));
    assert_int_equal(root.engine->view()->size(), 2);
    Message asks;
    asks.type = Type::new_node;
    root.say(asks, 3);
    root.wait(Duration::from_ms(100));
    assert_true(root.invited.empty()); // the exile may live
    root.prove(2);
    root.wait(Duration::from_ms(100));
    assert_true(root.invited == std::set<NodeId>{3});
}

/// Views that follow say nothing of it.
void an_exile_is_waited_for_from_its_own_eviction_on(void **)
{
    Root root(4, Duration::from_s(10));
    root.running.erase(2);
    root.wait(Duration::from_s(3));
    assert_int_equal(root.engine->view()->size(), 3);
    root.wait(Duration::from_s(5));
    root.prove(1);
    root.running.erase(1);
    root.wait(Duration::from_s(1));
    assert_int_equal(root.engine->view()->size(), 2);
    Message asks;
    asks.type = Type::new_node;
    root.say(asks, 4);
    root.wait(Duration::from_ms(100));
    assert_true(root.invited.empty());
    root.wait(Duration::from_s(2));
    root.say(asks, 4);
    root.wait(Duration::from_ms(100));
    assert_true(root.invited == std::set<NodeId>{4});
}

/// The first witness falls silent before its word was of use.
void a_witness_that_lives_takes_the_place_of_one_that_does_not(void **)
{
    Root root(5);
    Message report;
    report.type = Type::node_failure;
    report.accused = {{1, 0, Grade::proven, 3}};
    root.running = {2};
    root.say(report, 3);
    root.prove(1);
    root.wait(Duration::from_s(5));
    assert_true(root.engine->state() == State::member);
    assert_int_equal(root.engine->view()->size(), 2);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(without_one_the_promises_are_kept),
        cmocka_unit_test(one_at_the_coordinator_ends_the_wait),
        cmocka_unit_test(one_at_a_voter_ends_the_wait),
        cmocka_unit_test(one_of_an_exile_lets_newcomers_in),
        cmocka_unit_test(an_exile_is_waited_for_from_its_own_eviction_on),
        cmocka_unit_test(a_witness_that_lives_takes_the_place_of_one_that_does_not),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

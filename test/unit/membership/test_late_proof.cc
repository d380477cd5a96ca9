// A death that is proven only when the survivors already vote on a suspicion.

#include "test/unit/cmocka.hpp"
#include "test/unit/membership/passing_time.hpp"

#include <array>
#include <deque>
#include <memory>

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

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(without_one_the_promises_are_kept),
        cmocka_unit_test(one_at_the_coordinator_ends_the_wait),
        cmocka_unit_test(one_at_a_voter_ends_the_wait),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

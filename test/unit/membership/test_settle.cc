// Who had no quorum and has one again: how long it waits for those that are still silent.

#include "test/unit/cmocka.hpp"
#include "test/unit/membership/passing_time.hpp"

#include <memory>

using namespace ft::membership;
using ft::base::Duration;
using ft::base::Time;

namespace {

/// The lowest of four, which has heard nobody for so long that it waits; then node 1, which makes
/// it a quorum, answers again.
struct Coordinator {
    Config config;
    std::shared_ptr<ViewPool> pool = std::make_shared<ViewPool>();
    Time now = Time::zero() + Duration::from_s(1);
    Stabilizer engine{config, pool, Identity{0, 0},
                      View::initial(4, config.arity, TreeMode::rebuild), now};
    std::uint64_t sequence = 0;
    bool heard = false;            ///< node 1 answers
    Time proposed = Time::never(); ///< first, since then

    Coordinator()
    {
        wait(Duration::from_ms(2500));
        heard = engine.state() == State::suspended;
        proposed = Time::never();
        wait(Duration::from_ms(500));
    }

    void wait(Duration how_long)
    {
        pass(engine, now, how_long, [this](const Output &out) { note(out); });
    }

    void note(const Output &out)
    {
        for (const Message &m : out.messages) {
            if (m.proposal) {
                proposed = std::min(proposed, now);
            }
            if (heard && m.to == 1 && (m.type == Type::how_are_you || m.type == Type::heartbeat)) {
                say(answer_to(m), 1);
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
};

void waits_for_the_silent_and_then_goes_on(void **)
{
    Coordinator c;
    assert_true(c.heard);
    assert_true(c.engine.state() == State::suspended);
    assert_true(c.proposed.is_never());
    c.wait(Duration::from_s(3));
    assert_false(c.proposed.is_never());
}

/// It answers a report from before, and says nothing of the quorum that there is now.
void a_late_answer_does_not_keep_it_waiting(void **)
{
    Coordinator undisturbed;
    undisturbed.wait(Duration::from_s(3));
    Coordinator c;
    Message late;
    late.type = Type::failure_det_ack;
    late.status = Status::no_quorum;
    c.wait(Duration::from_s(1));
    assert_true(c.proposed.is_never());
    c.say(late, 1);
    c.wait(Duration::from_s(2));
    assert_false(c.proposed.is_never());
    assert_true(c.proposed == undisturbed.proposed);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(waits_for_the_silent_and_then_goes_on),
        cmocka_unit_test(a_late_answer_does_not_keep_it_waiting),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

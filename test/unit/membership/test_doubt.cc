// Who is left alone with proofs of all other deaths: whether it goes on.

#include "test/unit/cmocka.hpp"
#include "test/unit/membership/passing_time.hpp"

#include <memory>
#include <vector>

using namespace ft::membership;
using ft::base::Duration;
using ft::base::Time;

namespace {

constexpr NodeId self = 3;
constexpr NodeId parent = 1; // its only neighbour: no other death is clean
constexpr Position nodes = 5;

/// One of five, and the time in which it lives; the others are what the test says of them.
struct Member {
    Config config = patient();
    std::shared_ptr<ViewPool> pool = std::make_shared<ViewPool>();
    Time now = Time::zero() + Duration::from_s(1);
    Stabilizer engine{config, pool, Identity{self, 0},
                      View::initial(nodes, config.arity, config.mode), now};
    bool parent_answers = true;
    Status parent_says = Status::none;
    std::uint64_t sequence = 0;
    std::vector<Event> events;

    /// It waits for longer than any test for the network to heal.
    static Config patient()
    {
        Config c;
        c.minority_wait = Duration::from_s(3600);
        c.exile_hold = Duration::from_s(3600);
        return c;
    }

    void wait(Duration how_long)
    {
        pass(engine, now, how_long, [this](const Output &out) { note(out); });
    }

    void note(const Output &out)
    {
        events.insert(events.end(), out.events.begin(), out.events.end());
        for (const Message &m : out.messages) {
            if (m.type == Type::heartbeat && parent_answers) {
                Message answer;
                answer.type = Type::heartbeat;
                answer.from = parent;
                answer.to = self;
                answer.sequence = ++sequence;
                answer.beat = m.beat;
                answer.echo = m.beat;
                answer.status = parent_says;
                Output none;
                engine.on_message(now, answer, none);
            }
        }
    }

    /// All connections break, and the hosts refuse new ones.
    void all_others_die()
    {
        parent_answers = false;
        Output out;
        for (NodeId id = 0; id < nodes; ++id) {
            if (id != self) {
                engine.on_suspicion(now, id, out);
                engine.on_suspicion(now, id, out);
            }
        }
        for (NodeId id = 0; id < nodes; ++id) {
            if (id != self) {
                engine.on_proof(now, id, ProofKind::refused, out);
            }
        }
        note(out);
        wait(Duration::from_ms(50));
    }

    bool alone() const { return engine.state() == State::member && engine.view()->size() == 1; }
    bool ended_in_doubt() const
    {
        return engine.state() == State::ended && events.back().kind == Event::Kind::ended &&
               events.back().grade == Grade::doubtful;
    }
};

void who_hears_them_until_they_die_goes_on(void **)
{
    Member member;
    member.wait(Duration::from_ms(2000));
    member.all_others_die();
    assert_true(member.alone());
}

void who_was_cut_off_before_ends(void **)
{
    Member member;
    member.wait(Duration::from_ms(2000));
    member.parent_answers = false;
    member.wait(Duration::from_ms(3000));
    assert_true(member.engine.state() != State::ended); // the network may heal
    member.all_others_die();
    assert_true(member.ended_in_doubt());
}

void who_is_told_that_the_ways_are_cut_ends(void **)
{
    Member member;
    member.wait(Duration::from_ms(2000));
    member.parent_says = Status::in_doubt;
    member.wait(Duration::from_ms(200));
    member.all_others_die();
    assert_true(member.ended_in_doubt());
}

void a_doubt_that_was_settled_is_none(void **)
{
    Member member;
    member.wait(Duration::from_ms(2000));
    member.parent_says = Status::in_doubt;
    member.wait(Duration::from_ms(200));
    member.parent_says = Status::none;
    member.wait(Duration::from_ms(200));
    member.all_others_die();
    assert_true(member.alone());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(who_hears_them_until_they_die_goes_on),
        cmocka_unit_test(who_was_cut_off_before_ends),
        cmocka_unit_test(who_is_told_that_the_ways_are_cut_ends),
        cmocka_unit_test(a_doubt_that_was_settled_is_none),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

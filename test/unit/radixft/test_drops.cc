// Whatever a daemon does not use is counted, by its reason, and changes nothing.
#include "orte_glue/radixft/death_board.hpp"
#include "orte_glue/radixft/drops.hpp"
#include "test/unit/cmocka.hpp"

#include <memory>

using namespace ft::membership;
using ft::base::Duration;
using ft::base::Time;
using ft::radixft::Drops;
using Why = Drops::Why;

namespace {

/// Daemon 1 of four, of which 3 has died: its view has epoch 1.
struct Victim {
    static constexpr NodeId self = 1;
    Config config;
    std::shared_ptr<ViewPool> pool = std::make_shared<ViewPool>();
    Time now = Time::zero() + Duration::from_s(1);
    std::uint64_t sequence = 100;
    Stabilizer engine;

    Victim() : engine(config, pool, Identity{self, 0}, view(), now) {}

    ViewPtr view()
    {
        Change change;
        change.removed = {{3, 0, Grade::proven, 0}};
        return pool->apply(View::initial(4, config.arity, TreeMode::rebuild), 1, change);
    }

    Message message(Type type) const
    {
        Message m;
        m.type = type;
        m.from = 0;
        m.to = self;
        m.sequence = sequence;
        m.epoch = 1;
        return m;
    }

    /// \return what was counted for it
    Drops take(const Message &m)
    {
        Output out;
        engine.on_message(now, m, out);
        events += out.events.size();
        ++sequence;
        return Drops().with(engine.counters());
    }

    std::size_t events = 0;
};

/// That reason was counted once, and no other.
bool only(const Drops &drops, Why why)
{
    return drops.of(why) == 1 && drops.total() == 1;
}

void an_old_epoch_is_counted(void **)
{
    bool attempt = false;
    bool life = false;
    bool quiet = false;
    bool same = false;
    {
        // A proposal for a view that has been in force for long.
        Victim v;
        Message old = v.message(Type::failed_node);
        auto p = std::make_shared<Proposal>();
        p->number = old.number = 0;
        p->coordinator = 0;
        old.proposal = p;
        attempt = only(v.take(old), Why::stale);
        quiet = v.engine.quiet() && v.events == 0;
        same = v.engine.epoch() == 1;
    }
    {
        // What was meant for an earlier life.
        Victim v;
        Message old = v.message(Type::view_commit);
        old.to_incarnation = 7;
        life = only(v.take(old), Why::stale) && v.events == 0;
    }
    assert_true(attempt);
    assert_true(quiet);
    assert_true(same);
    assert_true(life);
}

void a_repetition_is_counted(void **)
{
    bool first = false;
    bool again = false;
    {
        Victim v;
        const Message m = v.message(Type::how_are_you);
        first = v.take(m).total() == 0;
        again = only(v.take(m), Why::duplicate);
    }
    assert_true(first);
    assert_true(again);
}

void who_is_no_member_is_counted(void **)
{
    bool counted = false;
    bool nothing = false;
    {
        Victim v;
        Message m = v.message(Type::failure_ack);
        m.from = 3;
        counted = only(v.take(m), Why::foreign);
        nothing = v.events == 0 && v.engine.epoch() == 1;
    }
    assert_true(counted);
    assert_true(nothing);
}

void what_is_meant_for_another_is_counted(void **)
{
    bool counted = false;
    {
        Victim v;
        Message m = v.message(Type::evicted);
        m.to = 2;
        m.number = 1000;
        counted = only(v.take(m), Why::unexpected) && v.engine.state() == State::member;
    }
    assert_true(counted);
}

void the_text_names_what_there_is(void **)
{
    std::string none;
    std::string some;
    std::uint64_t strange = 0;
    {
        Drops d;
        none = d.text();
        d.count(Why::forged);
        d.count(Why::forged);
        d.count(Why::malformed);
        d.count(Why::stale);
        some = d.text();
        strange = d.strange();
    }
    const bool right = some == "1 malformed, 2 forged, 1 of an old epoch, attempt or life";
    some.clear();
    some.shrink_to_fit();
    assert_true(none.empty());
    assert_true(right);
    assert_int_equal(strange, 3);
}

void ranks_see_the_counts(void **)
{
    constexpr std::uint32_t family = 0x4d20;
    bool there = false;
    std::uint64_t dropped = 0;
    std::uint64_t strange = 0;
    std::uint64_t without = 1;
    {
        ft::radixft::DeathBoard board;
        ft::radixft::DeathReader reader;
        without = reader.dropped() + reader.strange();
        there = board.make(family, 1) && reader.open(board.place().c_str(), family);
        Drops d;
        d.count(Why::stale);
        d.count(Why::malformed);
        board.post(d);
        dropped = reader.dropped();
        strange = reader.strange();
    }
    assert_int_equal(without, 0);
    assert_true(there);
    assert_int_equal(dropped, 2);
    assert_int_equal(strange, 1);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(an_old_epoch_is_counted),
        cmocka_unit_test(a_repetition_is_counted),
        cmocka_unit_test(who_is_no_member_is_counted),
        cmocka_unit_test(what_is_meant_for_another_is_counted),
        cmocka_unit_test(the_text_names_what_there_is),
        cmocka_unit_test(ranks_see_the_counts),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

#include "orte_glue/radixft/meetings.hpp"
#include "test/unit/cmocka.hpp"
#include "test/unit/radixft/meeting_world.hpp"

#include <algorithm>

using namespace ft::radixft;

namespace {

using What = Meetings::Action::What;
using Actions = std::vector<Meetings::Action>;

constexpr Rank acceptor{1, 0};
constexpr Rank other_acceptor{1, 1};
constexpr Rank connector{2, 0};
const std::string port = "1.0:77";

/// Values as the two roots publish and look them up, in the order in which mpirun gets them.
struct Meeting : Meetings {
    void names(Rank owner, const char *side)
    {
        on_names(owner, port + side, {{owner.jobid, 0}, {owner.jobid, 1}}, "names");
    }
    bool number(Rank owner, const char *key) { return on_number(owner, port + key); }
    /// By the other side than that of the key.
    std::optional<Answer> lookup(const std::string &key)
    {
        const bool of_acceptor = key == ":accept" || key.find(":recv:") != key.npos;
        return on_lookup(of_acceptor ? connector.jobid : acceptor.jobid, port + key);
    }
    void die(Rank who)
    {
        dead.push_back(who);
        on_deaths([this](Rank r) { return std::find(dead.begin(), dead.end(), r) != dead.end(); });
    }
    void meet()
    {
        names(acceptor, ":accept");
        lookup(":connect");
        names(connector, ":connect");
        lookup(":accept");
    }
    /// One number of each side, both read.
    void exchange(const std::string &step)
    {
        assert_true(number(acceptor, (":" + step + ":recv:0").c_str()));
        assert_false(lookup(":" + step + ":send:0").has_value());
        assert_true(number(connector, (":" + step + ":send:0").c_str()));
        assert_false(lookup(":" + step + ":recv:0").has_value());
    }
    std::vector<Rank> dead;
};

Meetings::Action act(What what, const std::string &key, Rank owner = {},
                     const std::string &text = "")
{
    return {what, port + key, owner, text};
}

void nobody_dies(void **)
{
    Meeting m;
    for (int i = 0; i < 2; ++i) {
        m.meet();
        m.exchange("nextcid");
        m.exchange("activate");
    }
    m.die(other_acceptor); // afterwards
    assert_true(m.take_actions().empty());
    assert_int_equal(m.size(), 0);
}

void one_that_waits_for_a_connection_is_told(void **)
{
    Meeting m;
    m.names(acceptor, ":accept");
    m.lookup(":connect");
    m.die(other_acceptor);
    assert_true(m.take_actions() == (Actions{act(What::take_back, ":accept", acceptor),
                                             act(What::refuse, ":connect")}));
    m.names(acceptor, ":accept"); // of those who are left: on_deaths() is not asked about them
    assert_false(m.lookup(":connect").has_value());
    assert_true(m.take_actions().empty());
}

void one_that_dies_before_it_asks_is_told_when_it_does(void **)
{
    Meeting m;
    m.names(acceptor, ":accept");
    m.die(other_acceptor);
    assert_true(m.take_actions() == (Actions{act(What::take_back, ":accept", acceptor)}));
    assert_true(m.lookup(":connect") == Meetings::Answer::refusal);
    assert_true(m.take_actions().empty());
}

/// Both ask for the other's numbers, and neither's is passed on any more.
void both_sides_get_their_numbers(void **)
{
    Meeting m;
    m.meet();
    assert_true(m.number(connector, ":nextcid:send:0"));
    m.lookup(":nextcid:recv:0");
    m.die(acceptor);
    assert_true(m.take_actions() == (Actions{act(What::take_back, ":nextcid:send:0", connector),
                                             act(What::number, ":nextcid:recv:0")}));
    for (const char *const step : {":nextcid", ":activate"}) {
        const std::string word(step);
        assert_false(m.number(acceptor, (word + ":recv:1").c_str()));
        assert_false(m.number(connector, (word + ":send:1").c_str()));
        assert_true(m.lookup(word + ":recv:1") == Meetings::Answer::number);
        assert_true(m.lookup(word + ":send:1") == Meetings::Answer::number);
    }
    assert_true(m.take_actions().empty());
    assert_int_equal(m.size(), 0);
}

/// The broken side reads what was there, and is on its way to ask for more when the other is
/// through and comes again.
void a_broken_side_may_be_behind_the_other(void **)
{
    Meeting m;
    m.meet();
    assert_true(m.number(acceptor, ":nextcid:recv:0"));
    m.lookup(":nextcid:send:0");
    m.die({2, 1});
    for (const char *const key : {":nextcid:send:1", ":activate:send:0"}) {
        assert_true(m.lookup(key) == Meetings::Answer::number);
    }
    m.take_actions();
    m.names(acceptor, ":accept");
    m.lookup(":connect");
    assert_true(m.lookup(":nextcid:recv:1") == Meetings::Answer::number);
    assert_true(m.lookup(":nextcid:recv:2") == Meetings::Answer::number);
    m.on_names(connector, port + ":connect", {connector}, "names"); // who is left
    assert_false(m.lookup(":accept").has_value());
    m.exchange("nextcid");
    m.exchange("activate");
    assert_true(m.take_actions().empty());
    assert_int_equal(m.size(), 0);
}

/// The root of one side has read the other's names, and dies before that has read its own.
void one_that_has_read_nothing_has_met_nobody(void **)
{
    Meeting m;
    m.names(connector, ":connect");
    m.names(acceptor, ":accept");
    assert_false(m.lookup(":connect").has_value());
    m.die(acceptor);
    assert_true(m.take_actions() == (Actions{act(What::take_back, ":accept", acceptor),
                                             act(What::restore, ":connect", connector, "names")}));
    assert_false(m.lookup(":accept").has_value());
    m.on_names(other_acceptor, port + ":accept", {other_acceptor}, "names");
    assert_false(m.lookup(":connect").has_value());
    m.on_number(other_acceptor, port + ":activate:recv:0");
    m.lookup(":activate:send:0");
    m.number(connector, ":activate:send:0");
    m.lookup(":activate:recv:0");
    assert_true(m.take_actions().empty());
    assert_int_equal(m.size(), 0);
}

/// Those who are left come again before mpirun hears of the death.
void who_comes_again_has_left(void **)
{
    Meeting m;
    m.meet();
    m.lookup(":nextcid:send:0");
    m.on_names({2, 1}, port + ":connect", {{2, 1}}, "names");
    assert_true(m.take_actions() == (Actions{act(What::number, ":nextcid:send:0")}));
}

/// A server that opens a port for each client must not grow with their number.
void what_is_over_is_forgotten(void **)
{
    Meeting m;
    m.meet();
    m.exchange("nextcid");
    assert_int_equal(m.size(), 1);
    assert_true(m.number(acceptor, ":activate:recv:0"));
    m.lookup(":activate:send:0");
    assert_true(m.number(connector, ":activate:send:0"));
    assert_int_equal(m.size(), 1); // the acceptor's last number is still to be read
    m.lookup(":activate:recv:0");
    assert_int_equal(m.size(), 0);
}

void a_side_that_was_refused_is_forgotten(void **)
{
    Meeting m;
    m.names(acceptor, ":accept");
    m.die(other_acceptor);
    assert_int_equal(m.size(), 1); // it has not asked yet, and is to be refused then
    m.lookup(":connect");
    assert_int_equal(m.size(), 0);
    m.dead.clear();
    m.names(acceptor, ":accept"); // this one asks first
    m.lookup(":connect");
    m.die(acceptor);
    assert_int_equal(m.size(), 0);
}

/// What nobody ended: the job of both is gone.
void a_meeting_of_jobs_that_are_gone_is_forgotten(void **)
{
    Meeting m;
    m.meet();
    m.die(acceptor);
    m.on_gone([](Rank who) { return who.jobid != connector.jobid; });
    assert_int_equal(m.size(), 1);
    m.on_gone([](Rank) { return true; });
    assert_int_equal(m.size(), 0);
}

/// Ranks of both sides die anywhere, and messages come in any order that can be.
void whatever_happens_all_end(void **)
{
    for (int deaths = 0; deaths <= 4; ++deaths) {
        for (std::uint64_t seed = 0; seed < 3000; ++seed) {
            meeting_world::World world(seed, deaths);
            const std::string wrong = world.run();
            if (!wrong.empty()) {
                print_message("%d deaths, seed %d: %s\n%s", deaths, static_cast<int>(seed),
                              wrong.c_str(), world.story.c_str());
            }
            assert_true(wrong.empty());
        }
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(nobody_dies),
        cmocka_unit_test(one_that_waits_for_a_connection_is_told),
        cmocka_unit_test(one_that_dies_before_it_asks_is_told_when_it_does),
        cmocka_unit_test(both_sides_get_their_numbers),
        cmocka_unit_test(a_broken_side_may_be_behind_the_other),
        cmocka_unit_test(one_that_has_read_nothing_has_met_nobody),
        cmocka_unit_test(who_comes_again_has_left),
        cmocka_unit_test(what_is_over_is_forgotten),
        cmocka_unit_test(a_side_that_was_refused_is_forgotten),
        cmocka_unit_test(a_meeting_of_jobs_that_are_gone_is_forgotten),
        cmocka_unit_test(whatever_happens_all_end),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

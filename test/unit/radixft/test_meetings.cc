#include "orte_glue/radixft/meetings.hpp"
#include "test/unit/cmocka.hpp"

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
        on_names(owner, port + side, {{owner.jobid, 0}, {owner.jobid, 1}});
    }
    bool number(Rank owner, const char *key) { return on_number(owner, port + key); }
    void lookup(const char *key) { on_lookup(port + key); }
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
        lookup((":" + step + ":send:0").c_str());
        assert_true(number(connector, (":" + step + ":send:0").c_str()));
        lookup((":" + step + ":recv:0").c_str());
    }
    std::vector<Rank> dead;
};

Meetings::Action act(What what, const std::string &key, Rank owner = {})
{
    return {what, port + key, owner};
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
    m.lookup(":connect");
    assert_true(m.take_actions().empty());
}

void one_that_dies_before_it_asks_is_told_when_it_does(void **)
{
    Meeting m;
    m.names(acceptor, ":accept");
    m.die(other_acceptor);
    assert_true(m.take_actions() == (Actions{act(What::take_back, ":accept", acceptor)}));
    m.lookup(":connect");
    assert_true(m.take_actions() == (Actions{act(What::refuse, ":connect")}));
}

void the_other_side_gets_its_numbers(void **)
{
    Meeting m;
    m.meet();
    assert_true(m.number(connector, ":nextcid:send:0"));
    m.lookup(":nextcid:recv:0");
    m.die(acceptor);
    assert_true(m.take_actions() == (Actions{act(What::number, ":nextcid:recv:0")}));
    assert_false(m.number(acceptor, ":nextcid:recv:0")); // too late
    assert_true(m.number(connector, ":activate:send:0"));
    m.lookup(":activate:recv:0");
    assert_true(m.take_actions() == (Actions{act(What::number, ":activate:recv:0"),
                                             act(What::take_back, ":activate:send:0", connector),
                                             act(What::take_back, ":nextcid:send:0", connector)}));
}

/// Those who are left of one side connect again while the other has its last number still to ask
/// for.
void a_side_that_begins_anew_leaves_no_one_behind(void **)
{
    Meeting m;
    m.meet();
    m.exchange("nextcid");
    m.die(connector);
    assert_true(m.number(acceptor, ":activate:recv:0"));
    m.take_actions();
    m.on_names({2, 1}, port + ":connect", {{2, 1}});
    m.lookup(":accept");
    m.lookup(":activate:send:0");
    assert_true(m.take_actions() == (Actions{act(What::number, ":activate:send:0"),
                                             act(What::take_back, ":activate:recv:0", acceptor)}));
    m.names(acceptor, ":accept");
    m.lookup(":connect");
    assert_true(m.take_actions().empty());
}

/// The runtime forgets what a process has published when it dies.
void a_number_that_nobody_read_dies_with_the_root(void **)
{
    Meeting m;
    m.meet();
    m.exchange("nextcid");
    assert_true(m.number(connector, ":activate:send:0"));
    m.die(connector);
    m.take_actions();
    assert_true(m.number(acceptor, ":activate:recv:0"));
    m.lookup(":activate:send:0");
    assert_true(m.take_actions() == (Actions{act(What::number, ":activate:send:0"),
                                             act(What::take_back, ":activate:recv:0", acceptor)}));
}

void what_was_told_before_is_not_told_again(void **)
{
    Meeting m;
    m.meet();
    m.exchange("nextcid");
    assert_true(m.number(acceptor, ":activate:recv:0"));
    m.die(other_acceptor); // its side has told all
    assert_true(m.number(connector, ":activate:send:0"));
    m.lookup(":activate:recv:0");
    assert_true(m.take_actions().empty());
}

void the_port_serves_again(void **)
{
    Meeting m;
    m.meet();
    m.die(acceptor);
    m.lookup(":activate:recv:0");
    m.take_actions();
    m.dead.clear();
    m.meet();
    m.exchange("nextcid");
    m.exchange("activate");
    assert_true(m.take_actions().empty());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(nobody_dies),
        cmocka_unit_test(one_that_waits_for_a_connection_is_told),
        cmocka_unit_test(one_that_dies_before_it_asks_is_told_when_it_does),
        cmocka_unit_test(the_other_side_gets_its_numbers),
        cmocka_unit_test(a_side_that_begins_anew_leaves_no_one_behind),
        cmocka_unit_test(a_number_that_nobody_read_dies_with_the_root),
        cmocka_unit_test(what_was_told_before_is_not_told_again),
        cmocka_unit_test(the_port_serves_again),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

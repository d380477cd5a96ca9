// What one process does with single inputs; whole exchanges are in the golden scripts.
#include "../cmocka.hpp"
#include "opal/ft/consensus/agreement.hpp"

#include <algorithm>

namespace {

using namespace ft::consensus;

constexpr InstanceId id{1, 1};

Agreement make(Rank self, Rank size, Algorithm algorithm = Algorithm::paper,
               Semantics semantics = Semantics::strict)
{
    Settings settings;
    settings.algorithm = algorithm;
    settings.semantics = semantics;
    return {self, id, settings, TreeShape::binomial(size)};
}

Message ballot(const Number &number, Range below, const RankSet &suspects = {})
{
    Message m(Kind::ballot, number);
    m.instance = id;
    m.below = below;
    m.suspects = suspects;
    return m;
}

int count(const Actions &actions, Action::Kind kind)
{
    return static_cast<int>(std::count_if(actions.begin(), actions.end(),
                                          [kind](const Action &a) { return a.kind == kind; }));
}

int count(const Actions &actions, Kind kind)
{
    return static_cast<int>(std::count_if(actions.begin(), actions.end(), [kind](const Action &a) {
        return a.kind == Action::Kind::send && a.message.kind == kind;
    }));
}

void alone_in_the_group_returns_at_once(void **)
{
    int returns = 0;
    for (const Algorithm algorithm : {Algorithm::paper, Algorithm::fast, Algorithm::tree}) {
        Agreement engine = make(0, 1, algorithm);
        Actions out;
        engine.start({}, out);
        returns += out.size() == 1 ? count(out, Action::Kind::decide) : 0;
    }
    assert_int_equal(returns, 3);
}

void the_last_survivor_returns_at_once(void **)
{
    bool good = true;
    for (const Algorithm algorithm : {Algorithm::paper, Algorithm::fast, Algorithm::tree}) {
        Agreement engine = make(3, 5, algorithm);
        Actions out;
        Contribution brought;
        brought.suspects = {0, 1, 2, 4};
        engine.start(brought, out);
        good =
            good && engine.decision() != nullptr && engine.decision()->failed == brought.suspects;
    }
    assert_true(good);
}

void a_lower_number_is_refused_with_the_higher_one(void **)
{
    int refusals = 0;
    bool names_it = false;
    {
        Agreement engine = make(2, 4);
        Actions out;
        engine.start({}, out);
        engine.on_message(1, ballot({2, 1, 1}, {3, 4}, {0}), out);
        out.clear();
        engine.on_message(3, ballot({1, 3, 1}, {3, 3}), out);
        refusals = count(out, Kind::refuse);
        names_it = !out.empty() && out[0].message.seen == Number{2, 1, 1};
    }
    assert_int_equal(refusals, 1);
    assert_true(names_it);
}

void a_duplicate_ballot_does_nothing(void **)
{
    std::size_t actions = 1;
    {
        Agreement engine = make(2, 4);
        Actions out;
        engine.start({}, out);
        engine.on_message(0, ballot({1, 0, 1}, {3, 4}), out);
        out.clear();
        engine.on_message(0, ballot({1, 0, 1}, {3, 4}), out);
        actions = out.size();
    }
    assert_int_equal(actions, 0);
}

void whoever_is_in_the_ballot_stops_and_says_so(void **)
{
    int stops = 0;
    int words = 0;
    int later = 0;
    {
        Agreement engine = make(2, 4);
        Actions out;
        engine.start({}, out);
        engine.on_message(0, ballot({1, 0, 1}, {3, 4}, {2}), out);
        stops = count(out, Action::Kind::stop);
        words = count(out, Kind::stopped);
        out.clear();
        engine.on_message(1, ballot({1, 1, 1}, {3, 4}), out);
        later = count(out, Kind::stopped);
    }
    assert_int_equal(stops, 1);
    assert_int_equal(words, 1);
    assert_int_equal(later, 1);
}

void a_stop_before_the_call_is_obeyed(void **)
{
    bool stopped = false;
    std::size_t actions = 1;
    {
        Agreement engine = make(1, 3);
        Actions out;
        Message stop(Kind::stop);
        stop.instance = id;
        engine.on_message(2, stop, out);
        stopped = engine.stopped();
        out.clear();
        engine.start({}, out);
        actions = out.size();
    }
    assert_true(stopped);
    assert_int_equal(actions, 0);
}

void of_two_that_suspect_each_other_the_higher_gives_way(void **)
{
    bool lower = true;
    bool higher = false;
    {
        Message stop(Kind::stop);
        stop.instance = id;
        Agreement one = make(0, 3);
        Agreement two = make(1, 3);
        Actions out;
        one.start({}, out);
        two.start({}, out);
        one.on_suspect(1, Certainty::unconfirmed, out);
        two.on_suspect(0, Certainty::unconfirmed, out);
        one.on_message(1, stop, out);
        two.on_message(0, stop, out);
        lower = one.stopped();
        higher = two.stopped();
    }
    assert_false(lower);
    assert_true(higher);
}

void a_suspect_that_speaks_is_told(void **)
{
    int told = 0;
    std::size_t all = 0;
    {
        Agreement engine = make(2, 4);
        Actions out;
        engine.start({}, out);
        engine.on_suspect(0, Certainty::unconfirmed, out);
        out.clear();
        engine.on_message(0, ballot({1, 0, 1}, {3, 4}), out);
        told = count(out, Kind::stop);
        all = out.size();
    }
    assert_int_equal(told, 1);
    assert_int_equal(all, 1);
}

void who_has_decided_answers_every_question_with_it(void **)
{
    int answers = 0;
    {
        Agreement engine = make(2, 3, Algorithm::paper, Semantics::loose);
        Actions out;
        engine.start({}, out);
        Message decide(Kind::decide, {1, 0, 1});
        decide.instance = id;
        decide.accepted = Accepted{{1, 0, 1}, {}};
        engine.on_message(0, decide, out);
        out.clear();
        Message report(Kind::report);
        report.instance = id;
        engine.on_message(1, report, out);
        engine.on_message(1, ballot({1, 1, 1}, {3, 3}), out);
        answers = count(out, Kind::decide);
    }
    assert_int_equal(answers, 2);
}

void same_input_gives_same_output(void **)
{
    bool same = true;
    {
        Actions one;
        Actions two;
        for (Actions *out : {&one, &two}) {
            Agreement engine = make(0, 9, Algorithm::fast);
            Contribution brought;
            brought.flags = 5;
            engine.start(brought, *out);
            engine.on_suspect(4, Certainty::confirmed, *out);
            engine.on_suspect(7, Certainty::unconfirmed, *out);
        }
        same = one.size() == two.size();
        for (std::size_t i = 0; same && i < one.size(); ++i) {
            same = one[i].kind == two[i].kind && one[i].to == two[i].to &&
                   one[i].message == two[i].message;
        }
    }
    assert_true(same);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(alone_in_the_group_returns_at_once),
        cmocka_unit_test(the_last_survivor_returns_at_once),
        cmocka_unit_test(a_lower_number_is_refused_with_the_higher_one),
        cmocka_unit_test(a_duplicate_ballot_does_nothing),
        cmocka_unit_test(whoever_is_in_the_ballot_stops_and_says_so),
        cmocka_unit_test(a_stop_before_the_call_is_obeyed),
        cmocka_unit_test(of_two_that_suspect_each_other_the_higher_gives_way),
        cmocka_unit_test(a_suspect_that_speaks_is_told),
        cmocka_unit_test(who_has_decided_answers_every_question_with_it),
        cmocka_unit_test(same_input_gives_same_output),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

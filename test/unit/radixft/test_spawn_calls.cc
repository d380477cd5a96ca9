#include "orte_glue/radixft/spawn_calls.hpp"
#include "test/unit/cmocka.hpp"

using namespace ft::radixft;

namespace {

constexpr std::uint32_t job = 7;

void one_entry_for_a_job(void **)
{
    SpawnCalls calls;
    assert_null(calls.find(job));
    calls.of(job, "port").called = true;
    assert_true(calls.of(job, "port").called);
    assert_true(calls.find(job)->port == "port");
    assert_int_equal(calls.size(), 1);
}

/// While one of the sides still has something to say, what was said is needed.
void what_was_said_goes_when_both_have_said_all(void **)
{
    SpawnCalls calls;
    SpawnCalls::Call &call = calls.of(job, "port");
    call.callers = {{1, 0}};
    call.asked = call.told = "a number";
    call.through = true;
    SpawnCalls::settle(call);
    const bool kept = !call.callers.empty() && !call.asked.empty();
    call.let_in = true;
    SpawnCalls::settle(call);
    const bool gone = call.callers.empty() && call.asked.empty() && call.told.empty();
    assert_true(kept);
    assert_true(gone);
    assert_true(call.through); // or its death would be taken for one in MPI_Init
}

void jobs_that_are_gone_are_forgotten(void **)
{
    SpawnCalls calls;
    for (std::uint32_t id = 1; id <= 1000; ++id) {
        calls.keep([id](std::uint32_t other) { return other + 1 >= id; });
        calls.of(id, "port" + std::to_string(id));
    }
    assert_int_equal(calls.size(), 2);
    assert_null(calls.find(1));
}

/// Its ranks are dead, and those who called it are still to be answered.
void a_refused_one_stays_until_its_callers_are_through(void **)
{
    SpawnCalls calls;
    calls.of(job, "1.0:7").refused = true;
    const auto gone = [](std::uint32_t) { return false; };
    calls.keep(gone);
    assert_int_equal(calls.size(), 1);
    assert_null(calls.at("1.0:70:activate:recv:0"));
    assert_null(calls.at("1.0"));
    assert_ptr_equal(calls.at("1.0:7"), calls.find(job));
    assert_non_null(calls.at("1.0:7:activate:recv:0"));
    calls.at("1.0:7:activate:recv:0")->let_in = true;
    calls.keep(gone);
    assert_int_equal(calls.size(), 0);
}

void the_dead_of_a_job(void **)
{
    std::map<Rank, RankDeath> dead;
    for (const Rank who : {Rank{1, 3}, Rank{1, 5}, Rank{3, 0}}) {
        dead[who] = {.who = who};
    }
    const auto finds = [&dead](Rank who, Rank found) {
        const RankDeath *const death = find_death(dead, who);
        return death != nullptr && death->who == found;
    };
    const bool right = finds({1, 5}, {1, 5}) && finds({1, every_rank}, {1, 3}) &&
                       finds({3, every_rank}, {3, 0}) && find_death(dead, {1, 4}) == nullptr &&
                       find_death(dead, {2, every_rank}) == nullptr &&
                       find_death(dead, {4, every_rank}) == nullptr;
    dead.clear();
    assert_true(right);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(one_entry_for_a_job),
        cmocka_unit_test(what_was_said_goes_when_both_have_said_all),
        cmocka_unit_test(jobs_that_are_gone_are_forgotten),
        cmocka_unit_test(a_refused_one_stays_until_its_callers_are_through),
        cmocka_unit_test(the_dead_of_a_job),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

// Every invariant must be able to fail: the swarm is run on engines with one deliberate mistake
// each and must find it, and find the invariant that the mistake breaks.
#include "invariants.hpp"
#include "plans.hpp"
#include "tap.hpp"

#include <cstdint>
#include <string_view>

namespace {

using namespace sim;

struct Case {
    Mutation mutation;
    const char *name;
    const char *breaks;
};

constexpr Case cases[] = {
    {Mutation::return_at_commit, "returning before ALL_COMMIT", "agreement"},
    {Mutation::forget_accepted, "forgetting what an old root committed", "agreement"},
    {Mutation::accept_any_ballot, "accepting a ballot that lacks known failures", "validity"},
    {Mutation::accuse_the_living, "putting a live rank into the set", "validity"},
    {Mutation::drop_reports, "orphans that ask nobody", "termination"},
    {Mutation::skip_fence, "not waiting until the wronged have stopped", "fence"},
    {Mutation::ask_nobody, "beginning anew without asking who has returned", "termination"},
    {Mutation::ignore_flags, "not taking the AND of the flags", "flags"},
};

constexpr std::uint64_t seeds = 20000;

/// The first seed at which the swarm finds `breaks` broken; 0 if none does.
std::uint64_t first_found(Mutation mutation, std::string_view breaks)
{
    Swarm swarm;
    swarm.mutation = mutation;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        Plan plan = plan_of(seed, swarm);
        plan.event_limit = 20000;
        const std::string broken = check(plan, World(plan).run());
        if (broken.substr(0, broken.find(':')) == breaks) {
            return seed;
        }
    }
    return 0;
}

} // namespace

int main()
{
    Tap tap;
    for (const Case &c : cases) {
        const std::uint64_t seed = first_found(c.mutation, c.breaks);
        tap.result(seed != 0, std::string(c.name) + " breaks " + c.breaks + ", found at seed " +
                                  std::to_string(seed));
    }
    return tap.done();
}

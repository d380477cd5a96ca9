// Every checker of an invariant can fail: with the engine broken in the way that it is there to
// find, it does. Prints TAP.

#include "test/sim/membership/scenario.hpp"

#include <cstdio>
#include <cstring>

namespace {

struct Case {
    sim::Mutation mutation;
    const char *what;
    const char *finds; // how the violation begins
    bool forger_has_key = false;
    sim::Axis axis = sim::Axis::none;
};

constexpr Case cases[] = {
    {sim::Mutation::no_quorum, "without a quorum", "two primary views"},
    {sim::Mutation::no_ambiguous, "with votes forgotten", "two primary views"},
    {sim::Mutation::no_fence, "with every proven death out of the base", "two primary views"},
    {sim::Mutation::reuse_epoch, "with numbers used again", "two primary views"},
    {sim::Mutation::no_dedup, "without duplicate suppression", "no duplication"},
    {sim::Mutation::deliver_any_view, "with the gate open", "same view delivery"},
    {sim::Mutation::no_self_check, "with views without oneself", "self inclusion"},
    {sim::Mutation::keep_evicted, "with evictions ignored", "not settled"},
    {sim::Mutation::no_repeat, "without repetition", "not settled"},
    {sim::Mutation::believe_nothing, "with silent deaths not believed", "not settled"},
    {sim::Mutation::trust_clock, "with the clock trusted", "accuracy"},
    {sim::Mutation::no_probe, "with accusations not probed", "accuracy"},
    {sim::Mutation::no_objection, "with no objections", "accuracy"},
    {sim::Mutation::no_doubt, "with proofs taken without a doubt", "two primary views"},
    {sim::Mutation::untold_doubt, "with doubts kept to oneself", "two primary views"},
    {sim::Mutation::no_giving_way, "with coordinators that outbid each other", "no view"},
    {sim::Mutation::promise_always, "with promises that votes do not keep", "two primary views"},
    {sim::Mutation::old_accusations, "with accusations from before the network healed", "accuracy",
     false, sim::Axis::kept},
    {sim::Mutation::none, "with a forger who has the key", "delivery integrity: taken", true},
    {sim::Mutation::none, "with messages of ranks that nobody sent",
     "delivery integrity: delivered", true},
};

} // namespace

int main()
{
    constexpr std::uint64_t most = 14000;
    int failed = 0;
    int test = 0;
    std::printf("1..%zu\n", std::size(cases));
    for (const Case &c : cases) {
        std::uint64_t seed = 1;
        std::string found;
        for (; seed <= most && found.empty(); ++seed) {
            for (const std::string &v :
                 sim::run_scenario(seed, c.mutation, false, c.forger_has_key, c.axis).violations) {
                if (v.rfind(c.finds, 0) == 0) {
                    found = v;
                    break;
                }
            }
        }
        // The same seed with the engine whole is clean, so it is the mutation that is found.
        const bool clean = sim::run_scenario(seed - 1, sim::Mutation::none, false, false, c.axis)
                               .violations.empty();
        const bool good = !found.empty() && clean;
        failed += !good;
        std::printf("%s %d - %s: seed %llu: %s\n", good ? "ok" : "not ok", ++test, c.what,
                    static_cast<unsigned long long>(seed - 1),
                    found.empty() ? "nothing found" : found.substr(0, 100).c_str());
    }
    return failed == 0 ? 0 : 1;
}

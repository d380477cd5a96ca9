#include "orte_glue/radixft/session.hpp"
#include "test/unit/cmocka.hpp"

#include <sstream>

using namespace ft;
using namespace ft::radixft;

namespace {

/// The log of daemon 0 of three, of which daemon 2 dies.
std::string log_of_a_death()
{
    std::ostringstream log;
    membership::Config config;
    const auto at = [](int ms) { return base::Time::from_ns(ms * 1000000LL); };
    Session root(0);
    Session other(1);
    other.log_to(nullptr);
    // A rank dies before the job has begun, and before it is known where the log goes.
    root.report(at(0), {{1, 7}, 0, Cause::signal, 137, 0, 5, 0});
    root.log_to(&log);
    root.begin(at(1), config, 3);
    other.begin(at(1), config, 3);
    other.report(at(5), {{1, 4}, 1, Cause::exited, 3, 0, 6, 0});
    root.turn_away(at(9), {3, 1});
    root.proof(at(10), 2, membership::ProofKind::refused);
    for (int ms = 10; ms < 600; ++ms) {
        for (const membership::Message &m : root.take().messages) {
            if (m.to == 1) {
                other.message(at(ms), m);
            }
        }
        for (const membership::Message &m : other.take().messages) {
            if (m.to == 0) {
                root.message(at(ms), m);
            }
        }
        for (const Outgoing &m : root.take_outgoing()) {
            if (m.to == 1) {
                other.spread(at(ms), 0, m.type, m.body);
            }
        }
        for (const Outgoing &m : other.take_outgoing()) {
            if (m.to == 0) {
                root.spread(at(ms), 1, m.type, m.body);
            }
        }
        if (ms % 100 == 0) {
            root.tick(at(ms));
            other.tick(at(ms));
        }
        if (root.engine().next_deadline() <= at(ms)) {
            root.time(at(ms));
        }
        if (other.engine().next_deadline() <= at(ms)) {
            other.time(at(ms));
        }
    }
    const bool all_known = root.deaths().known().size() == 2 && other.deaths().known().size() == 2;
    return root.engine().view()->size() == 2 && all_known ? log.str() : std::string();
}

void a_log_gives_itself_again(void **)
{
    bool good = false;
    std::size_t calls = 0;
    {
        std::istringstream log(log_of_a_death());
        const Replay result = replay(log);
        good = result.difference.empty() && result.messages > 0 && result.events > 0;
        calls = result.calls;
        if (!result.difference.empty()) {
            print_error("%s\n", result.difference.c_str());
        }
    }
    assert_true(good);
    assert_in_range(calls, 5, 10000);
}

void a_changed_log_is_noticed(void **)
{
    unsigned noticed = 0;
    unsigned tried = 0;
    {
        const std::string whole = log_of_a_death();
        std::istringstream lines(whole);
        std::string line;
        std::vector<std::string> all;
        while (std::getline(lines, line)) {
            all.push_back(line);
        }
        for (std::size_t drop = 0; drop + 1 < all.size(); ++drop) {
            if (!all[drop].starts_with("> ")) {
                continue;
            }
            std::string text;
            for (std::size_t i = 0; i < all.size(); ++i) {
                text += i == drop ? "" : all[i] + "\n";
            }
            std::istringstream log(text);
            ++tried;
            noticed += replay(log).difference.empty() ? 0 : 1;
        }
    }
    assert_true(tried > 3);
    assert_int_equal(noticed, tried);
}

void nonsense_is_no_log(void **)
{
    bool good = true;
    {
        for (const char *text : {"", "log", "log 9\n5 start 3 2", "log 1\n5 message zz\n",
                                 "log 1\n5 time\n", "log 1\n5 report 1 2 3 9 0 0 0 0\n", "x y z"}) {
            std::istringstream log{std::string(text)};
            good = good && !replay(log).difference.empty();
        }
    }
    assert_true(good);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_log_gives_itself_again),
        cmocka_unit_test(a_changed_log_is_noticed),
        cmocka_unit_test(nonsense_is_no_log),
    };
    return cmocka_run_group_tests_name("session", tests, nullptr, nullptr);
}

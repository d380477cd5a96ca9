#include "opal/mca/btl/fault/later.hpp"
#include "test/unit/cmocka.hpp"

#include <array>
#include <string>

using namespace ft::fault;
using namespace ft::base::literals;
using ft::base::Time;

namespace {

const int here = 0;
const int there = 0;

/// Writes its letter to `log` when it is done, the capital to `log` when it is abandoned.
Later letter(std::string &log, char name, const void *endpoint = &here,
             Direction direction = Direction::send)
{
    Later later;
    later.direction = direction;
    later.endpoint = endpoint;
    later.act = [&log, name] {
        log += name;
        return true;
    };
    later.abandon = [&log, name] { log += static_cast<char>(name - 'a' + 'A'); };
    return later;
}

void run(LaterQueue &queue, Time now)
{
    while (auto later = queue.pop_due(now)) {
        later->act();
    }
}

void things_are_done_in_the_order_of_their_time(void **)
{
    bool good = false;
    {
        std::string log;
        LaterQueue queue;
        queue.at(Time::zero() + 3_us, letter(log, 'c'));
        queue.at(Time::zero() + 1_us, letter(log, 'a'));
        queue.at(Time::zero() + 1_us, letter(log, 'b'));
        run(queue, Time::zero());
        good = log.empty() && queue.size() == 3;
        run(queue, Time::zero() + 1_us);
        good = good && log == "ab";
        run(queue, Time::zero() + 5_us);
        good = good && log == "abc" && queue.empty();
    }
    assert_true(good);
}

void a_fragment_waits_until_it_is_overtaken(void **)
{
    std::array<bool, 4> good{};
    {
        std::string log;
        LaterQueue queue;
        const Time far = Time::zero() + 1_s;
        queue.after_overtaken(2, far, letter(log, 'a'));
        queue.overtaken(Direction::send, &here);
        run(queue, Time::zero());
        good[0] = log.empty();
        queue.overtaken(Direction::receive, &here); // another direction
        queue.overtaken(Direction::send, &there);   // another peer
        run(queue, Time::zero());
        good[1] = log.empty();
        queue.overtaken(Direction::send, &here);
        run(queue, Time::zero());
        good[2] = log == "a";
        queue.after_overtaken(2, far, letter(log, 'b'));
        run(queue, far); // nothing came after it
        good[3] = log == "ab" && queue.empty();
    }
    for (const bool each : good) {
        assert_true(each);
    }
}

void what_concerns_a_gone_endpoint_is_abandoned(void **)
{
    bool good = false;
    {
        std::string log;
        LaterQueue queue;
        queue.at(Time::zero(), letter(log, 'a', &here));
        queue.at(Time::zero(), letter(log, 'b', &there));
        queue.after_overtaken(1, Time::never(), letter(log, 'c', &here));
        queue.after_overtaken(1, Time::never(), letter(log, 'd', &there));
        queue.abandon(&here);
        good = log == "AC" && queue.size() == 2;
        queue.abandon(nullptr);
        good = good && log == "ACBD" && queue.empty();
    }
    assert_true(good);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(things_are_done_in_the_order_of_their_time),
        cmocka_unit_test(a_fragment_waits_until_it_is_overtaken),
        cmocka_unit_test(what_concerns_a_gone_endpoint_is_abandoned),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

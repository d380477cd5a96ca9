// Threads in a process that is not ours: they take no signals, and whoever starts one keeps its
// own.
#include "opal/process/quiet_thread.hpp"

#include "test/unit/cmocka.hpp"

#include <cerrno>
#include <new>

namespace {

using ft::process::start_quiet_thread;

/// How many of the usual signals the calling thread has blocked.
int blocked()
{
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, nullptr, &now);
    int count = 0;
    for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD}) {
        count += sigismember(&now, number);
    }
    return count;
}

void the_thread_takes_no_signals(void ** /*state*/)
{
    int inside = -1;
    std::thread thread;
    const bool failed = static_cast<bool>(start_quiet_thread(thread, [&] { inside = blocked(); }));
    if (thread.joinable()) {
        thread.join();
    }
    assert_false(failed);
    assert_int_equal(inside, 6);
    assert_int_equal(blocked(), 0);
}

/// What a thread is to run, for which there is no memory.
struct TooLarge {
    TooLarge() = default;
    TooLarge(const TooLarge & /*unused*/) { throw std::bad_alloc(); }
    void operator()() const {}
};

void who_gets_no_thread_keeps_its_signals(void ** /*state*/)
{
    const TooLarge body;
    std::thread thread;
    const int failure = start_quiet_thread(thread, body).value();
    const bool started = thread.joinable();
    if (started) {
        thread.join();
    }
    assert_false(started);
    assert_int_equal(failure, ENOMEM);
    assert_int_equal(blocked(), 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(who_gets_no_thread_keeps_its_signals),
        cmocka_unit_test(the_thread_takes_no_signals),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

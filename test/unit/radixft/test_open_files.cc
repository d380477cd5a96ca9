#include "orte_glue/radixft/open_files.hpp"
#include "test/unit/cmocka.hpp"

#include <cerrno>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ft::radixft;

namespace {

constexpr rlim_t low = 64;
constexpr int high_file = 200;

rlimit limit()
{
    rlimit now{};
    getrlimit(RLIMIT_NOFILE, &now);
    return now;
}

/// What a child says of its limit and of a file that it could not have opened under that.
int in_child()
{
    const pid_t child = fork();
    if (child == 0) {
        const bool low_again = limit().rlim_cur == low;
        const bool closed_at_exec = (fcntl(high_file, F_GETFD) & FD_CLOEXEC) != 0;
        const bool opens = open("/dev/null", O_RDONLY) >= 0;
        _exit((low_again ? 1 : 0) + (closed_at_exec ? 2 : 0) + (opens ? 4 : 0));
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void the_daemon_has_more_and_its_children_as_before(void **)
{
    rlimit few = limit();
    few.rlim_cur = low;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    raise_open_files();
    raise_open_files(); // again, for nothing
    assert_true(most_open_files() > high_file);
    assert_int_equal(fcntl(0, F_DUPFD, high_file), high_file);
    while (fcntl(0, F_DUPFD, 0) < static_cast<int>(low)) {
    } // as where a daemon has more than its children may
#ifdef SYS_close_range
    const bool can = syscall(SYS_close_range, ~0U, ~0U, 1U << 2U) == 0;
#else
    const bool can = false;
#endif
    assert_int_equal(in_child(), can ? 7 : 4);
    assert_true(most_open_files() > high_file);
    assert_int_equal(fcntl(high_file, F_GETFD) & FD_CLOEXEC, 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_daemon_has_more_and_its_children_as_before),
    };
    return cmocka_run_group_tests_name("open files", tests, nullptr, nullptr);
}

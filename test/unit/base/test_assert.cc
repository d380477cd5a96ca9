#include "opal/ft/base/assert.hpp"
#include "test/unit/cmocka.hpp"

#include <array>
#include <cstring>

#include <sys/wait.h>
#include <unistd.h>

namespace {

/// How a child ended that checked `condition`, and what it wrote to standard error.
struct Ending {
    int status = 0;
    std::array<char, 512> text{};
};

Ending child_asserts(bool condition)
{
    Ending ending;
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) {
        return ending;
    }
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        FT_ASSERT(condition);
        _exit(7);
    }
    close(ends[1]);
    std::size_t length = 0;
    for (ssize_t got = 1; got > 0 && length + 1 < ending.text.size();) {
        got = read(ends[0], ending.text.data() + length, ending.text.size() - 1 - length);
        length += got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    close(ends[0]);
    waitpid(child, &ending.status, 0);
    return ending;
}

void a_false_condition_aborts_and_says_where(void **)
{
    const Ending ending = child_asserts(false);
    assert_true(WIFSIGNALED(ending.status));
    assert_int_equal(WTERMSIG(ending.status), SIGABRT);
    assert_non_null(std::strstr(ending.text.data(), "test_assert.cc:"));
    assert_non_null(std::strstr(ending.text.data(), "`condition' failed"));
    assert_non_null(std::strstr(ending.text.data(), "child_asserts"));
}

void a_true_condition_does_nothing(void **)
{
    const Ending ending = child_asserts(true);
    assert_true(WIFEXITED(ending.status));
    assert_int_equal(WEXITSTATUS(ending.status), 7);
    assert_string_equal(ending.text.data(), "");
}

void the_slow_one_is_evaluated_in_debug_builds_only(void **)
{
    int evaluated = 0;
    FT_ASSERT_SLOW(++evaluated > 0);
#ifdef FT_DEBUG
    assert_int_equal(evaluated, 1);
#else
    assert_int_equal(evaluated, 0);
#endif
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_false_condition_aborts_and_says_where),
        cmocka_unit_test(a_true_condition_does_nothing),
        cmocka_unit_test(the_slow_one_is_evaluated_in_debug_builds_only),
    };
    return cmocka_run_group_tests_name("assert", tests, nullptr, nullptr);
}

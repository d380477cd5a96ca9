#include "opal/mca/btl/base/network_stack.hpp"
#include "test/unit/cmocka.hpp"

#include <cerrno>

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

using ft::btl::NetworkStack;

namespace {

void an_unknown_one_is_the_same_as_none(void **)
{
    assert_false(NetworkStack().same(NetworkStack()));
    assert_false(NetworkStack().same(NetworkStack::own()));
    assert_false(NetworkStack::own().same(NetworkStack()));
}

/// What own() says in a child that first calls `move`.
template <typename F>
NetworkStack of_child(F &&move)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_int_not_equal(child, -1);
    if (child == 0) {
        if (!move()) {
            _exit(errno);
        }
        const NetworkStack own = NetworkStack::own();
        _exit(write(ends[1], own.name().data(), NetworkStack::bytes) == NetworkStack::bytes ? 0
                                                                                            : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == EPERM || WEXITSTATUS(status) == ENOSPC) {
        _skip(__FILE__, __LINE__); // no namespaces for this user
    }
    assert_int_equal(WEXITSTATUS(status), 0); // else its errno
    std::array<std::byte, NetworkStack::bytes> name{};
    assert_int_equal(read(ends[0], name.data(), name.size()), name.size());
    close(ends[0]);
    close(ends[1]);
    return NetworkStack(name);
}

void processes_that_share_it_say_the_same(void **)
{
    assert_true(NetworkStack::own().same(NetworkStack::own()));
    assert_true(of_child([] { return true; }).same(NetworkStack::own()));
}

void a_network_namespace_has_its_own(void **)
{
    const auto leave = [] {
        return unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    };
    const NetworkStack one = of_child(leave);
    assert_true(one.same(one)); // it is known
    assert_false(one.same(NetworkStack::own()));
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_one_is_the_same_as_none),
        cmocka_unit_test(processes_that_share_it_say_the_same),
        cmocka_unit_test(a_network_namespace_has_its_own),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

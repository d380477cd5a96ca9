#include "ompi/mca/pml/dr/broken_pipe.hpp"

#include <csignal>

namespace ft::dr {

namespace {

/// Having a handler is all that is wanted: the write then fails with EPIPE.
void go_on(int /*signal*/) noexcept {}

bool is(const struct sigaction &action, void (*handler)(int)) noexcept
{
    return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == handler;
}

void replace(void (*old_handler)(int), void (*new_handler)(int)) noexcept
{
    struct sigaction present = {};
    if (sigaction(SIGPIPE, nullptr, &present) != 0 || !is(present, old_handler)) {
        return;
    }
    struct sigaction wanted = {};
    wanted.sa_handler = new_handler;
    wanted.sa_flags = SA_RESTART;
    sigemptyset(&wanted.sa_mask);
    sigaction(SIGPIPE, &wanted, nullptr);
}

} // namespace

void survive_broken_pipes() noexcept
{
    replace(SIG_DFL, go_on);
}

void die_of_broken_pipes_again() noexcept
{
    replace(go_on, SIG_DFL);
}

} // namespace ft::dr

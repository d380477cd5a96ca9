#include "orte_glue/radixft/open_files.hpp"

#include <algorithm>
#include <atomic>

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ft::radixft {

namespace {

/// More than any job needs. Some programs look at each file that they may have.
constexpr rlim_t enough = rlim_t{1} << 18;
/// Up to here the runtime closes what a rank is not to inherit when it cannot ask which there are.
constexpr rlim_t closed_by_runtime = 1024;
/// CLOSE_RANGE_CLOEXEC, which older headers do not have.
constexpr unsigned at_exec = 1U << 2U;

rlimit before{};
std::atomic<bool> raised = false;
/// A file below the old limit for a child to open one in its place, as the runtime's do with
/// /dev/null before they run something.
int reserve = -1;

/// In a child, of which only what may be called in a signal handler works. With more files open
/// than the old limit it could not open another one, so the runtime could not list and close them:
/// they are closed by the kernel, or the child keeps the limit.
void give_back() noexcept
{
#ifdef SYS_close_range
    if (raised && syscall(SYS_close_range,
                          static_cast<unsigned>(std::min(before.rlim_cur, closed_by_runtime)), ~0U,
                          at_exec) == 0) {
        setrlimit(RLIMIT_NOFILE, &before);
        close(reserve);
    }
#endif
}

} // namespace

void raise_open_files() noexcept
{
    rlimit now{};
    if (raised || getrlimit(RLIMIT_NOFILE, &now) != 0) {
        return;
    }
    const rlim_t wanted = std::min(now.rlim_max, enough);
    if (now.rlim_cur >= wanted) {
        return;
    }
    reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (reserve < 0) {
        return;
    }
    before = now;
    now.rlim_cur = wanted;
    if (pthread_atfork(nullptr, nullptr, give_back) == 0 && setrlimit(RLIMIT_NOFILE, &now) == 0) {
        raised = true;
    }
}

std::uint64_t most_open_files() noexcept
{
    rlimit now{};
    return getrlimit(RLIMIT_NOFILE, &now) == 0 ? now.rlim_cur : 0;
}

} // namespace ft::radixft

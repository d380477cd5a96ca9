#include "opal/ft/base/assert.hpp"

#include <cstdio>
#include <cstdlib>

namespace ft::base {

void assert_failed(const char *expression, const char *file, int line,
                   const char *function) noexcept
{
    std::fprintf(stderr, "%s:%d: %s: assertion `%s' failed\n", file, line, function, expression);
    std::fflush(stderr);
    std::abort();
}

} // namespace ft::base

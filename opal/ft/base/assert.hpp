/// Assertions guard this project's own invariants, never input from a user or from the wire.
///
/// `FT_ASSERT` is checked in every build: use it where the check costs next to nothing.
/// `FT_ASSERT_SLOW` is checked in debug and sanitizer builds (configure --enable-debug,
/// --enable-sanitizer) and costs nothing elsewhere, though its expression must still compile: use
/// it for whole-structure walks. A failed assertion prints where and what, then aborts: going on
/// with a broken invariant would corrupt a user's data.
#pragma once

namespace ft::base {

/// Prints "file:line: function: assertion `expression' failed" to standard error and aborts.
[[noreturn]] void assert_failed(const char *expression, const char *file, int line,
                                const char *function) noexcept;

} // namespace ft::base

#define FT_ASSERT(condition)                                                                       \
    (__builtin_expect(static_cast<bool>(condition), 1)                                             \
         ? static_cast<void>(0)                                                                    \
         : ::ft::base::assert_failed(#condition, __FILE__, __LINE__, __func__))

#ifdef FT_DEBUG
#define FT_ASSERT_SLOW(condition) FT_ASSERT(condition)
#else
#define FT_ASSERT_SLOW(condition) static_cast<void>(sizeof((condition) ? 1 : 0))
#endif

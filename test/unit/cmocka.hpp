/// cmocka with the headers that it wants to see before its own.
///
/// A failed assertion leaves the test by longjmp, which runs no destructor: compute first, then
/// assert when no object that owns memory is alive.
#pragma once

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

// The header of 1.1.5 lacks this.
extern "C" {
#include <cmocka.h>
}

// Macros with names that are members of our own classes.
#undef skip
#undef fail
#undef fail_msg

/// Fails the test, with a message in the manner of printf.
#define fail_test(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

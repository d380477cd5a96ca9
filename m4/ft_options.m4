dnl Options of configure that concern the compiler.

dnl FT_ARG_FUZZ: --enable-fuzz. Must come before AC_PROG_CXX, because libFuzzer comes with clang alone.
AC_DEFUN([FT_ARG_FUZZ], [
    AC_ARG_ENABLE([fuzz],
        [AS_HELP_STRING([--enable-fuzz],
            [build the fuzz targets with clang's libFuzzer; engines only, no component])],
        [ft_fuzz=$enableval], [ft_fuzz=no])
    AS_IF([test "x$ft_fuzz" = xyes], [
        test -n "$CC" || CC=clang
        test -n "$CXX" || CXX=clang++
    ])
    AM_CONDITIONAL([FT_FUZZ], [test "x$ft_fuzz" = xyes])
])

dnl FT_CXX20: the flag that makes the compiler speak C++20, and the warnings this project keeps clean.
AC_DEFUN([FT_CXX20], [
    FT_CXXFLAGS="-std=c++20 -Wall -Wextra -Wshadow -Wconversion -Wnon-virtual-dtor"
    FT_CFLAGS="-std=gnu11 -Wall -Wextra -Wshadow"
    AC_MSG_CHECKING([whether $CXX compiles C++20])
    ft_save_CXXFLAGS=$CXXFLAGS
    CXXFLAGS="$CXXFLAGS -std=c++20"
    AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
        #include <bit>
        #include <compare>
        #include <concepts>
        #include <cstdint>
        #include <span>
        template <std::unsigned_integral T> int ones(T v) { return std::popcount(v); }
        struct Time { std::int64_t ns; auto operator<=>(const Time &) const = default; };
        struct Table { int a; int b; };
        int main() {
            Table t{.a = 1, .b = 2};
            std::span<const int> s(&t.a, 1);
            return ones(7U) + (Time{1} < Time{2}) + s[0];
        }
    ]])], [AC_MSG_RESULT([yes])], [
        AC_MSG_RESULT([no])
        AC_MSG_ERROR([$CXX does not compile C++20: install g++ 12 or newer (Debian package g++), or set CXX to a compiler that does])
    ])
    CXXFLAGS=$ft_save_CXXFLAGS
    dnl opal_free_list's 16-byte compare and swap is an undefined symbol without it.
    AS_CASE([$host_cpu], [x86_64], [
        FT_CXXFLAGS="$FT_CXXFLAGS -mcx16"
        FT_CFLAGS="$FT_CFLAGS -mcx16"
    ])
    AC_SUBST([FT_CXXFLAGS])
    AC_SUBST([FT_CFLAGS])
])

dnl FT_ARG_SANITIZER: --enable-sanitizer=LIST. Sanitized builds also check the expensive assertions.
AC_DEFUN([FT_ARG_SANITIZER], [
    AC_ARG_ENABLE([sanitizer],
        [AS_HELP_STRING([--enable-sanitizer=LIST],
            [instrument everything; LIST is a comma separated choice of address, undefined, thread])],
        [ft_sanitizer=$enableval], [ft_sanitizer=no])
    AC_ARG_ENABLE([debug],
        [AS_HELP_STRING([--enable-debug], [check the expensive assertions too])],
        [ft_debug=$enableval], [ft_debug=no])
    AS_IF([test "x$ft_sanitizer" = xyes], [ft_sanitizer=address,undefined])
    dnl libFuzzer without a sanitizer sees crashes only.
    AS_IF([test "x$ft_fuzz" = xyes && test "x$ft_sanitizer" = xno], [ft_sanitizer=address,undefined])
    FT_SANITIZER_FLAGS=
    AS_IF([test "x$ft_sanitizer" != xno], [
        for ft_one in `echo "$ft_sanitizer" | tr ',' ' '`; do
            AS_CASE([$ft_one],
                [address|undefined|thread], [],
                [AC_MSG_ERROR([--enable-sanitizer knows address, undefined and thread, not "$ft_one"])])
        done
        AS_CASE([$ft_sanitizer], [*address*thread*|*thread*address*],
            [AC_MSG_ERROR([the address and thread sanitizers exclude each other: make two builds])])
        FT_SANITIZER_FLAGS="-fsanitize=$ft_sanitizer -fno-omit-frame-pointer -g"
        AS_CASE([,$ft_sanitizer,], [*,undefined,*],
            [FT_SANITIZER_FLAGS="$FT_SANITIZER_FLAGS -fno-sanitize-recover=undefined"])
        dnl The checks that a sanitizer weaves in make g++ 12 see uninitialised values where there are none (gcc's manual says
        dnl so of -Wmaybe-uninitialized); the plain build still holds that warning, and the sanitizer sees the real ones.
        AS_IF([test "x$GXX" = xyes], [FT_SANITIZER_FLAGS="$FT_SANITIZER_FLAGS -Wno-maybe-uninitialized"])
        dnl Open MPI's headers have fences, which the thread sanitizer does not follow, and g++ says so.
        AS_IF([test "x$GXX" = xyes], [AS_CASE([,$ft_sanitizer,], [*,thread,*],
            [FT_SANITIZER_FLAGS="$FT_SANITIZER_FLAGS -Wno-tsan"])])
        ft_debug=yes
    ])
    AS_IF([test "x$ft_fuzz" = xyes], [
        FT_SANITIZER_FLAGS="$FT_SANITIZER_FLAGS -fsanitize=fuzzer-no-link"
        ft_debug=yes
    ])
    AS_IF([test -n "$FT_SANITIZER_FLAGS"], [
        AC_MSG_CHECKING([whether $CXX links with $FT_SANITIZER_FLAGS])
        ft_save_CXXFLAGS=$CXXFLAGS
        CXXFLAGS="$CXXFLAGS $FT_SANITIZER_FLAGS"
        AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])], [
            AC_MSG_RESULT([no])
            AC_MSG_ERROR([$CXX cannot link with $FT_SANITIZER_FLAGS: install the run-time library of the sanitizer (Debian packages libgcc-12-dev, libclang-rt-dev) or drop the option])
        ])
        CXXFLAGS=$ft_save_CXXFLAGS
    ])
    dnl libtool links a shared library of C++ with -nostdlib, and g++ then leaves the run-time library of
    dnl the sanitizer out, too.
    FT_SANITIZER_LIBS=
    AS_IF([test "x$GXX" = xyes && test "x$ft_fuzz" != xyes], [
        AS_CASE([,$ft_sanitizer,], [*,address,*], [FT_SANITIZER_LIBS="$FT_SANITIZER_LIBS -lasan"])
        AS_CASE([,$ft_sanitizer,], [*,thread,*], [FT_SANITIZER_LIBS="$FT_SANITIZER_LIBS -ltsan"])
        AS_CASE([,$ft_sanitizer,], [*,undefined,*], [FT_SANITIZER_LIBS="$FT_SANITIZER_LIBS -lubsan"])
    ])
    AC_SUBST([FT_SANITIZER_LIBS])
    FT_DEBUG_CPPFLAGS=
    AS_IF([test "x$ft_debug" = xyes], [FT_DEBUG_CPPFLAGS=-DFT_DEBUG=1])
    AM_CONDITIONAL([FT_SANITIZER], [test "x$ft_sanitizer" != xno])
    AC_SUBST([FT_SANITIZER_FLAGS])
    AC_SUBST([FT_DEBUG_CPPFLAGS])
])

dnl FT_ARG_COVERAGE: --enable-coverage, for contrib/coverage and for the corpora of the fuzz targets.
AC_DEFUN([FT_ARG_COVERAGE], [
    AC_ARG_ENABLE([coverage],
        [AS_HELP_STRING([--enable-coverage], [count executed lines (gcov); engines only, no component])],
        [ft_coverage=$enableval], [ft_coverage=no])
    FT_COVERAGE_FLAGS=
    AS_IF([test "x$ft_coverage" = xyes], [FT_COVERAGE_FLAGS="--coverage -O0 -fprofile-update=atomic"])
    AC_SUBST([FT_COVERAGE_FLAGS])
    dnl A component is loaded into programs that know nothing of the fuzzer's or gcov's run-time library.
    AM_CONDITIONAL([FT_COMPONENTS], [test "x$ft_fuzz" != xyes && test "x$ft_coverage" != xyes])
])

dnl FT_ARG_LTO: what stands between a message and the network is optimised as one piece, engine and component together: a message
dnl passes some forty small functions of ten files. Plain product builds by g++ only.
AC_DEFUN([FT_ARG_LTO], [
    AC_ARG_ENABLE([lto],
        [AS_HELP_STRING([--disable-lto], [do not optimise pml/dr across its files])],
        [ft_lto=$enableval], [ft_lto=yes])
    AS_IF([test "x$GXX" != xyes || test "x$ft_sanitizer" != xno || test "x$ft_coverage" = xyes || test "x$ft_fuzz" = xyes],
        [ft_lto=no])
    dnl Inlining as at -O3; the order of options does not let a makefile ask for that against the user's -O2.
    FT_LTO_FLAGS="-flto=auto --param=max-inline-insns-auto=30 --param=inline-min-speedup=15"
    AS_IF([test "x$ft_lto" = xyes], [
        AC_MSG_CHECKING([whether $CXX links with $FT_LTO_FLAGS])
        ft_save_CXXFLAGS=$CXXFLAGS
        CXXFLAGS="$CXXFLAGS $FT_LTO_FLAGS"
        AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])], [AC_MSG_RESULT([no]); ft_lto=no])
        CXXFLAGS=$ft_save_CXXFLAGS
    ])
    AC_SUBST([FT_LTO_FLAGS])
    AM_CONDITIONAL([FT_LTO], [test "x$ft_lto" = xyes])
])

dnl FT_ARG_WERROR: a warning stops a developer's build, never a user's.
AC_DEFUN([FT_ARG_WERROR], [
    AC_ARG_ENABLE([werror],
        [AS_HELP_STRING([--enable-werror], [treat warnings as errors @<:@default: in a git tree@:>@])],
        [ft_werror=$enableval],
        [AS_IF([test -e "$srcdir/.git"], [ft_werror=yes], [ft_werror=no])])
    dnl The compiler that only fuzzes warns about other things than the one that builds the product.
    AS_IF([test "x$ft_werror" = xyes && test "x$ft_fuzz" != xyes], [
        FT_CXXFLAGS="$FT_CXXFLAGS -Werror"
        FT_CFLAGS="$FT_CFLAGS -Werror"
    ])
])

dnl FT_VERSION_NUMBERS: the parts of the version, as Open MPI's component structs want them.
AC_DEFUN([FT_VERSION_NUMBERS], [
    ft_major=`echo "$PACKAGE_VERSION" | cut -d. -f1`
    ft_minor=`echo "$PACKAGE_VERSION" | cut -d. -f2`
    ft_release=`echo "$PACKAGE_VERSION" | cut -d. -f3`
    AC_SUBST([FT_VERSION_CPPFLAGS],
        ["-DFT_VERSION_MAJOR=$ft_major -DFT_VERSION_MINOR=$ft_minor -DFT_VERSION_RELEASE=$ft_release"])
])

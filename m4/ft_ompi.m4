dnl Finds Open MPI by asking its own tools, and the libraries beside it.

dnl FT_OMPI_ASK(VARIABLE, KEY): the value after KEY in the answer of ompi_info.
AC_DEFUN([FT_OMPI_ASK], [
    $1=`sed -n -e 's|^$2:||p' conftest.ompi | head -n 1 | tr -d '"'`
])

dnl FT_CHECK_OMPI: --with-ompi=DIR. Sets the compile and link flags for each layer of Open MPI.
AC_DEFUN([FT_CHECK_OMPI], [
    AC_ARG_WITH([ompi],
        [AS_HELP_STRING([--with-ompi=DIR],
            [the Open MPI to build for: DIR/bin holds ompi_info and mpicc @<:@default: found in PATH@:>@])],
        [], [with_ompi=yes])
    AS_CASE([$with_ompi],
        [no], [AC_MSG_ERROR([ompi-ft is nothing without Open MPI: drop --without-ompi])],
        [yes], [ft_ompi_path=$PATH],
        [AS_IF([test ! -d "$with_ompi/bin"],
            [AC_MSG_ERROR([--with-ompi=$with_ompi: there is no folder $with_ompi/bin; give the folder that Open MPI was installed to])])
         ft_ompi_path=$with_ompi/bin])

    AC_PATH_PROGS([ft_ompi_info], [ompi_info], [], [$ft_ompi_path])
    AS_IF([test -z "$ft_ompi_info"],
        [AC_MSG_ERROR([Open MPI was not found (no ompi_info in $ft_ompi_path): install the Debian packages openmpi-bin and libopenmpi-dev, or give --with-ompi=DIR])])
    AC_PATH_PROGS([MPICC], [mpicc.openmpi mpicc], [], [$ft_ompi_path])
    AC_PATH_PROGS([MPICXX], [mpicxx.openmpi mpicxx], [], [$ft_ompi_path])
    AC_PATH_PROGS([MPIRUN], [mpirun.openmpi mpirun], [], [$ft_ompi_path])
    AS_IF([test -z "$MPICC" || test -z "$MPICXX" || test -z "$MPIRUN"],
        [AC_MSG_ERROR([mpicc, mpicxx or mpirun is missing beside $ft_ompi_info: install the Debian packages openmpi-bin and libopenmpi-dev, or give --with-ompi=DIR])])

    dnl What a developer has exported for a test must not decide where components are installed.
    ft_ompi_rc=0
    env -u OMPI_MCA_mca_base_component_path -u OMPI_MCA_mca_component_path \
        "$ft_ompi_info" --all --parsable > conftest.ompi 2> conftest.err || ft_ompi_rc=$?
    ft_first_line=`head -n 1 conftest.err`
    AS_IF([test $ft_ompi_rc -ne 0],
        [AC_MSG_ERROR([$ft_ompi_info --all --parsable failed ($ft_first_line): mend that Open MPI or give another with --with-ompi=DIR])])

    AC_MSG_CHECKING([for the version of Open MPI])
    FT_OMPI_ASK([ft_ompi_version], [ompi:version:full])
    AC_MSG_RESULT([$ft_ompi_version])
    AS_CASE([$ft_ompi_version],
        [4.1.4], [],
        [4.1.*], [AC_MSG_WARN([ompi-ft is tested with Open MPI 4.1.4 only; $ft_ompi_version has the same interfaces but was never tried])],
        [AC_MSG_ERROR([Open MPI ${ft_ompi_version:-of unknown version} is not supported, 4.1.x is: install Debian 12's openmpi-bin and libopenmpi-dev, or give a 4.1.x with --with-ompi=DIR])])

    FT_OMPI_ASK([ft_ompi_incdir], [path:incdir])
    FT_OMPI_ASK([ft_ompi_libdir], [path:libdir])
    FT_OMPI_ASK([ft_ompi_componentdir], [path:pkglibdir])
    FT_OMPI_ASK([ft_ompi_component_path], [mca:mca:base:param:mca_component_path:value])

    AC_MSG_CHECKING([for the internal headers of Open MPI])
    for ft_header in opal/mca/btl/btl.h orte/mca/errmgr/errmgr.h ompi/mca/pml/pml.h ompi/mca/bml/bml.h; do
        AS_IF([test ! -r "$ft_ompi_incdir/openmpi/$ft_header"], [
            AC_MSG_RESULT([no $ft_header])
            AC_MSG_ERROR([Open MPI's internal headers are missing ($ft_ompi_incdir/openmpi/$ft_header): install the Debian package libopenmpi-dev, or an Open MPI configured --with-devel-headers and named by --with-ompi=DIR])
        ])
    done
    AC_MSG_RESULT([$ft_ompi_incdir/openmpi])

    dnl System include folders: warnings inside Open MPI's headers are not ours to mend.
    OMPI_CPPFLAGS="-isystem $ft_ompi_incdir -isystem $ft_ompi_incdir/openmpi"
    OPAL_LIBS="-L$ft_ompi_libdir -lopen-pal"
    ORTE_LIBS="-L$ft_ompi_libdir -lopen-rte -lopen-pal"
    OMPI_LIBS="-L$ft_ompi_libdir -lmpi -lopen-rte -lopen-pal"
    AC_MSG_CHECKING([whether Open MPI's libraries link])
    ft_save_LIBS=$LIBS
    ft_save_CPPFLAGS=$CPPFLAGS
    LIBS="$OMPI_LIBS $LIBS"
    CPPFLAGS="$CPPFLAGS $OMPI_CPPFLAGS -DOMPI_SKIP_MPICXX=1"
    AC_LINK_IFELSE([AC_LANG_PROGRAM(
        [[#include <mpi.h>
          extern "C" int opal_show_help_add_dir(const char *);]],
        [[return MPI_Init(nullptr, nullptr) + opal_show_help_add_dir("");]])],
        [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])
         AC_MSG_ERROR([a program does not link with $OMPI_LIBS (see config.log): install the Debian package libopenmpi-dev, or give --with-ompi=DIR])])
    LIBS=$ft_save_LIBS
    CPPFLAGS=$ft_save_CPPFLAGS
    AC_SUBST([OMPI_CPPFLAGS])
    AC_SUBST([OPAL_LIBS])
    AC_SUBST([ORTE_LIBS])
    AC_SUBST([OMPI_LIBS])
])

dnl FT_CHECK_FORTRAN: mpifort with a compiler behind it, for the module mpi_ft.
AC_DEFUN([FT_CHECK_FORTRAN], [
    AC_PATH_PROGS([MPIFORT], [mpifort.openmpi mpifort], [], [$ft_ompi_path])
    AC_MSG_CHECKING([whether $MPIFORT compiles])
    cat > conftest.f90 <<'FT_END'
program conftest
    use mpi_f08_types, only : MPI_Comm
end program
FT_END
    ft_fortran=no
    AS_IF([test -n "$MPIFORT" && "$MPIFORT" -c -o conftest.o conftest.f90 >&AS_MESSAGE_LOG_FD 2>&1],
        [ft_fortran=mpi_ft.mod])
    rm -f conftest.f90 conftest.o
    AC_MSG_RESULT([$ft_fortran])
    AS_IF([test $ft_fortran = no],
        [AC_MSG_WARN([the Fortran module mpi_ft is not built: install the Debian package gfortran])])
    AM_CONDITIONAL([HAVE_FORTRAN], [test $ft_fortran != no])
])

dnl FT_INSTALL_DIRS: where components, help texts and the rest go.
AC_DEFUN([FT_INSTALL_DIRS], [
    AC_MSG_CHECKING([where components go])
    AS_IF([test "x$ft_prefix_given" = xyes], [
        componentdir='${libdir}/openmpi'
    ], [
        dnl The entry of mpirun's search path that belongs to the user, as opposed to the system's own.
        componentdir=
        ft_save_IFS=$IFS
        IFS=:
        for ft_dir in $ft_ompi_component_path; do
            AS_CASE([$ft_dir], ["$HOME"/*], [componentdir=$ft_dir; break])
        done
        IFS=$ft_save_IFS
        AS_IF([test -z "$componentdir"], [
            AC_MSG_RESULT([unknown])
            AC_MSG_ERROR([this Open MPI searches no folder below $HOME for components (it searches $ft_ompi_component_path): give --prefix=DIR, and set OMPI_MCA_mca_base_component_path=SYS_DEFAULT:DIR/lib/openmpi when running])
        ])
    ])
    AC_MSG_RESULT([$componentdir])
    helpdir='${datadir}/ompi-ft'
    AC_SUBST([componentdir])
    AC_SUBST([helpdir])
    AC_SUBST([pkgconfigdir], ['${libdir}/pkgconfig'])
    AC_SUBST([ft_ompi_version])
])

dnl FT_CHECK_ISAL: CRC32C.
AC_DEFUN([FT_CHECK_ISAL], [
    AC_CHECK_HEADER([isa-l/crc.h], [],
        [AC_MSG_ERROR([isa-l's header isa-l/crc.h is missing: install the Debian package libisal-dev])],
        [AC_INCLUDES_DEFAULT])
    AC_CHECK_LIB([isal], [crc32_iscsi], [ISAL_LIBS=-lisal],
        [AC_MSG_ERROR([isa-l's library was not found: install the Debian package libisal-dev])])
    AC_SUBST([ISAL_LIBS])
])

dnl FT_CHECK_OFI: datagrams through libfabric.
AC_DEFUN([FT_CHECK_OFI], [
    AC_CHECK_HEADER([rdma/fi_endpoint.h], [],
        [AC_MSG_ERROR([libfabric's header rdma/fi_endpoint.h is missing: install the Debian package libfabric-dev])],
        [AC_INCLUDES_DEFAULT])
    AC_CHECK_LIB([fabric], [fi_getinfo], [OFI_LIBS=-lfabric],
        [AC_MSG_ERROR([libfabric was not found: install the Debian package libfabric-dev])])
    AC_SUBST([OFI_LIBS])
])

dnl FT_CHECK_UCX: messages through UCX's lower layer, UCT.
AC_DEFUN([FT_CHECK_UCX], [
    PKG_CHECK_MODULES([UCX], [ucx-uct ucx-ucs >= 1.12], [],
        [AC_MSG_ERROR([UCX 1.12 or newer with the headers of its lower layer (uct/api/uct.h) was not found: install the Debian package libucx-dev])])
])

dnl FT_CHECK_EVENT: Debian's Open MPI uses libevent as a library of its own; one that brings its own exports it itself.
AC_DEFUN([FT_CHECK_EVENT], [
    EVENT_LIBS=
    AC_CHECK_LIB([event_core], [event_del], [EVENT_LIBS=-levent_core])
    AC_SUBST([EVENT_LIBS])
])

dnl FT_CHECK_CMOCKA: needed by `make check` alone, which says so if it is missing.
AC_DEFUN([FT_CHECK_CMOCKA], [
    ft_cmocka=yes
    AC_CHECK_HEADER([cmocka.h], [], [ft_cmocka=no],
        [[#include <setjmp.h>
          #include <cstdarg>
          #include <cstddef>
          #include <cstdint>]])
    AC_CHECK_LIB([cmocka], [_cmocka_run_group_tests], [CMOCKA_LIBS=-lcmocka], [ft_cmocka=no])
    AS_IF([test "x$ft_cmocka" = xno],
        [AC_MSG_WARN([cmocka was not found: "make check" needs the Debian package libcmocka-dev, the rest does not])])
    AC_SUBST([CMOCKA_LIBS])
    AM_CONDITIONAL([HAVE_CMOCKA], [test "x$ft_cmocka" = xyes])
])

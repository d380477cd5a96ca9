/**
 * \file
 * For programs written for user-level failure mitigation (ULFM), which include <mpi-ext.h>: Open
 * MPI's own header of that name, and with it the calls, types and error classes of mpi_ft.h. Put
 * the folder of this file on the include path before Open MPI's (pkg-config --cflags mpi_ft) and
 * link with what pkg-config --libs mpi_ft says.
 */
#ifndef MPI_FT_MPI_EXT_H
#define MPI_FT_MPI_EXT_H

#pragma GCC system_header /* #include_next is an extension of the compilers' */

#include <mpi.h>

#include_next <mpi-ext.h>

#include "mpi_ft.h"

/** What ULFM's own header defines, and programs ask for. */
#define OMPI_HAVE_MPI_EXT_FTMPI 1
#define OMPI_HAVE_MPIX_COMM_GET_FAILED 1
#define OMPI_HAVE_MPIX_COMM_ACK_FAILED 1
#define OMPI_HAVE_MPIX_COMM_ISHRINK 1

#endif

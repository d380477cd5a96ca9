/**
 * \file
 * What a program sees of the fault tolerance, beside MPI itself. C and C++.
 *
 * The error classes are compile-time constants. The PML "dr" makes them known to MPI, so that
 * MPI_Error_class and MPI_Error_string work on them; without it they never occur.
 */
#ifndef MPI_FT_H
#define MPI_FT_H

#include <mpi.h>

/** A process that takes part in the operation has failed. The two names mean the same. */
#define MPI_ERR_RANK_FAIL_STOP 75
#define MPIX_ERR_PROC_FAILED 75
/** A process that might have sent has failed; the receive from any source goes on. */
#define MPIX_ERR_PROC_FAILED_PENDING 76
/** The communicator has been revoked. */
#define MPIX_ERR_REVOKED 77
/** No way leads to the process any more, whether it lives or not. */
#define MPIX_ERR_UNREACHABLE 78

#endif

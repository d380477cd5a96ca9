/**
 * \file
 * What a program sees of the fault tolerance, beside MPI itself. C and C++; link with what
 * `pkg-config --libs mpi_ft` says.
 *
 * Run-through stabilization: a communicator that loses ranks goes on, its ranks unchanged. A
 * failure is first an error of whatever operation needs the failed rank. Once it is recognised, for
 * point-to-point operations by MPI_Comm_validate_clear or MPI_Comm_validate_all, for collective
 * ones by MPI_Comm_validate_all, the failed rank is like MPI_PROC_NULL, and collectives run without
 * it.
 *
 * Source: the run-through stabilization proposal of the MPI-3 Forum's fault-tolerance working
 * group; Buntinas, "Scalable Distributed Consensus to Support MPI Fault Tolerance", EuroMPI 2011.
 *
 * All functions return an error class, and call the communicator's error handler first. Errors
 * common to all: MPI_ERR_COMM, a null or invalid communicator; MPI_ERR_ARG, a null pointer;
 * MPI_ERR_UNSUPPORTED_OPERATION, coll/validate is not there (a message says why). Several threads
 * may call them at once, on different communicators. Calling one before MPI_Init or after
 * MPI_Finalize ends the program, and so does one in a program of another MPI: a message says so.
 *
 * On an intercommunicator ranks, states and counts are those of the remote group, as everywhere in
 * MPI; the collective calls take both groups, and both agree on the failures of both. Who has
 * failed in the own group MPIX_Comm_get_failed tells, or a communicator of that group.
 *
 * Who reports failures: errmgr/radixft (mpirun --mca errmgr radixft) every death, to all; pml/dr
 * (mpirun --mca pml dr) peers that no path leads to. Without either nothing is ever noticed.
 */
#ifndef MPI_FT_H
#define MPI_FT_H

#include <mpi.h>

#if !defined(OMPI_MAJOR_VERSION) || OMPI_MAJOR_VERSION != 4 || OMPI_MINOR_VERSION != 1
#error                                                                                             \
    "mpi_ft.h: this mpi.h is not Open MPI 4.1's; compile with the mpicc of the Open MPI that libmpi_ft was built for"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The error classes are compile-time constants. MPI_Error_class and MPI_Error_string work on
   them wherever coll/validate or the PML "dr" is. */

/** A process that takes part in the operation has failed. The two names mean the same. */
#define MPI_ERR_RANK_FAIL_STOP 75
#define MPIX_ERR_PROC_FAILED 75
/** Never given; programs for ULFM name it. When a process that might have sent has failed, a
    pending receive from any source ends with MPI_ERR_RANK_FAIL_STOP and its request is freed. Post
    it anew after MPIX_Comm_failure_ack: no message is lost. */
#define MPIX_ERR_PROC_FAILED_PENDING 76
/** The communicator has been revoked. */
#define MPIX_ERR_REVOKED 77
/** No way leads to the process any more, whether it lives or not. */
#define MPIX_ERR_UNREACHABLE 78

/** The rank works, as far as this process knows. */
#define MPI_RANK_OK 0
/** The rank has failed, and this is not recognised: operations with it are errors. */
#define MPI_RANK_FAILED 1
/** The rank has failed, and this is recognised: it is like MPI_PROC_NULL, and what it has sent and
    nobody has received is dropped. */
#define MPI_RANK_NULL 2

/** What one process knows of a rank of a communicator. */
typedef struct {
    int rank;
    int state;      /**< MPI_RANK_OK, MPI_RANK_FAILED or MPI_RANK_NULL */
    int generation; /**< how often the rank was replaced: 0, since ranks are not replaced */
} MPI_Rank_info;

/**
 * Agrees with all that live who of the communicator has failed, and recognises these failures.
 *
 * Collective over the ranks that live; each must call. All get the same set: it holds every failure
 * that any of them knew at its call, and only failures. Afterwards the collectives of the
 * communicator work among the others (their rooted ones need a root that lives), and point-to-point
 * operations with the failed ones are as with MPI_PROC_NULL. A rank that fails during the call may
 * be in the set or not.
 *
 * Strict semantics (the default): nobody ever returned another set, not even one that died since.
 * Loose semantics, cheaper: all that survive return the same set. The info key mpi_ft_semantics
 * (strict, loose), set on the communicator by MPI_Comm_set_info at all ranks alike, chooses.
 *
 * \param outcount how many ranks of the communicator (of an intercommunicator: of the remote group)
 * have failed altogether
 */
int MPI_Comm_validate_all(MPI_Comm comm, int *outcount);

/** The same, non-blocking. `outcount` is written when the request completes. */
int MPI_Icomm_validate_all(MPI_Comm comm, int *outcount, MPI_Request *request);

/** What this process knows of one rank. Local. MPI_ERR_RANK: no rank of the communicator. */
int MPI_Comm_validate_rank(MPI_Comm comm, int rank, MPI_Rank_info *info);

/**
 * What this process knows of failed ranks. Local.
 *
 * \param incount entries of `infos`
 * \param outcount how many ranks have failed, recognised or not; of the first `incount` of these,
 * in rising order, `infos` tells
 */
int MPI_Comm_validate(MPI_Comm comm, int incount, int *outcount, MPI_Rank_info infos[]);

/**
 * Recognises the failures of these ranks for this process's point-to-point operations. Local. What
 * is no failure is left alone. Each entry's state is brought up to date. Only `rank` is read.
 */
int MPI_Comm_validate_clear(MPI_Comm comm, int incount, MPI_Rank_info infos[]);

/*
 * User-level failure mitigation, as in the MPI Forum's proposal of that name, on the same
 * agreement.
 */

/** Every operation on the communicator but the agreements below ends with MPIX_ERR_REVOKED from now
    on, at all ranks that live, sooner or later. One rank is enough to call. */
int MPIX_Comm_revoke(MPI_Comm comm);

/** Whether it has been revoked, as far as this process knows. Local. */
int MPIX_Comm_is_revoked(MPI_Comm comm, int *flag);

/** A communicator of all that live, with ranks in the old order. Works on a revoked one. Collective
    over those. Of an intercommunicator, one of those that live in both groups; if none do in one,
    MPI_ERR_RANK_FAIL_STOP. */
int MPIX_Comm_shrink(MPI_Comm comm, MPI_Comm *newcomm);

/** The same, non-blocking. `newcomm` is written when the request completes. */
int MPIX_Comm_ishrink(MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request);

/**
 * Agrees on the bitwise AND of all flags; works on a revoked communicator. Collective over all that
 * live. MPIX_ERR_PROC_FAILED, at all alike: somebody has failed whose failure not all had
 * acknowledged; the flag is agreed upon nevertheless.
 */
int MPIX_Comm_agree(MPI_Comm comm, int *flag);

/** The same, non-blocking. */
int MPIX_Comm_iagree(MPI_Comm comm, int *flag, MPI_Request *request);

/** Acknowledges the failures that this process knows: receives from any source go on without these.
    Local. */
int MPIX_Comm_failure_ack(MPI_Comm comm);

/** The acknowledged failures, of an intercommunicator in both groups; a group that the caller
    frees. Local. */
int MPIX_Comm_failure_get_acked(MPI_Comm comm, MPI_Group *failed);

/** The failures that this process knows, of an intercommunicator in both groups, in the order in
    which they became known; a group that the caller frees. Local. */
int MPIX_Comm_get_failed(MPI_Comm comm, MPI_Group *failed);

/** Acknowledges the `count` failures that became known first: those that MPIX_Comm_get_failed told
   of when its group had so many. Local. \param acknowledged how many are acknowledged now */
int MPIX_Comm_ack_failed(MPI_Comm comm, int count, int *acknowledged);

/* The same functions. A tool that listens to a program's calls has the names above, and goes on to
   these. */
int PMPIX_Comm_revoke(MPI_Comm comm);
int PMPIX_Comm_is_revoked(MPI_Comm comm, int *flag);
int PMPIX_Comm_shrink(MPI_Comm comm, MPI_Comm *newcomm);
int PMPIX_Comm_ishrink(MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request);
int PMPIX_Comm_agree(MPI_Comm comm, int *flag);
int PMPIX_Comm_iagree(MPI_Comm comm, int *flag, MPI_Request *request);
int PMPIX_Comm_failure_ack(MPI_Comm comm);
int PMPIX_Comm_failure_get_acked(MPI_Comm comm, MPI_Group *failed);
int PMPIX_Comm_get_failed(MPI_Comm comm, MPI_Group *failed);
int PMPIX_Comm_ack_failed(MPI_Comm comm, int count, int *acknowledged);

#ifdef __cplusplus
}
#endif

#endif

/* A program as it is written for ULFM: nothing in it knows of this library. Rank 2 dies, the others
   shrink and go on. */
#include <mpi-ext.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>

#if !defined(OMPI_HAVE_MPI_EXT_FTMPI) || !OMPI_HAVE_MPI_EXT_FTMPI
#error "no ULFM here"
#endif
#if !defined(OMPI_HAVE_MPIX_COMM_GET_FAILED) || !defined(OMPI_HAVE_MPIX_COMM_ACK_FAILED)
#error "not all of it"
#endif

/* As a tool does that counts the calls. */
static int shrinks = 0;
int MPIX_Comm_shrink(MPI_Comm comm, MPI_Comm *newcomm)
{
    ++shrinks;
    return PMPIX_Comm_shrink(comm, newcomm);
}

static int work(MPI_Comm comm, int rank)
{
    int rc = MPI_SUCCESS;
    for (int i = 0; i < 10 && rc == MPI_SUCCESS; ++i) {
        int sum = 0;
        if (rank == 2 && i == 5) {
            raise(SIGKILL);
        }
        rc = MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    }
    return rc;
}

int main(int argc, char **argv)
{
    MPI_Comm world;
    MPI_Comm shrunk;
    MPI_Group failed;
    int rank = 0;
    int size = 0;
    int cls = 0;
    int flag = 1;
    int count = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(world, &rank);
    MPI_Error_class(work(world, rank), &cls);
    if (cls == MPIX_ERR_PROC_FAILED || cls == MPIX_ERR_PROC_FAILED_PENDING) {
        MPIX_Comm_revoke(world);
    }
    MPIX_Comm_failure_ack(world);
    MPIX_Comm_failure_get_acked(world, &failed);
    MPI_Group_size(failed, &count);
    MPI_Group_free(&failed);
    MPIX_Comm_agree(world, &flag);
#if OMPI_HAVE_MPIX_COMM_ISHRINK
    MPI_Request request;
    MPIX_Comm_ishrink(world, &shrunk, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_free(&shrunk);
#endif
    MPIX_Comm_shrink(world, &shrunk);
    MPI_Comm_set_errhandler(shrunk, MPI_ERRORS_RETURN);
    MPI_Comm_size(shrunk, &size);
    const int good = (cls == MPIX_ERR_PROC_FAILED || cls == MPIX_ERR_REVOKED) && count <= 1 &&
                     flag == 1 && size == 3 && shrinks == 1 && work(shrunk, -1) == MPI_SUCCESS;
    MPI_Comm_free(&shrunk);
    MPI_Finalize();
    printf("rank %d %s\n", rank, good ? "right" : "WRONG");
    return good ? 0 : 1;
}

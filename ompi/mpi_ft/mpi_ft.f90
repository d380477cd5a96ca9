! Fortran's side of mpi_ft.h: the same calls, constants and type, for `use mpi` (handles are integers) and
! for `use mpi_f08` (handles are types, ierror may be left out). mpi_ft.h says what each does.
!
! Only interfaces: the calls themselves are in libmpi_ft.
module mpi_ft
    use, intrinsic :: iso_c_binding, only : c_int
    use mpi_f08_types, only : MPI_Comm, MPI_Group, MPI_Request
    implicit none
    private

    integer, parameter, public :: MPI_ERR_RANK_FAIL_STOP = 75
    integer, parameter, public :: MPIX_ERR_PROC_FAILED = 75
    integer, parameter, public :: MPIX_ERR_PROC_FAILED_PENDING = 76
    integer, parameter, public :: MPIX_ERR_REVOKED = 77
    integer, parameter, public :: MPIX_ERR_UNREACHABLE = 78

    integer, parameter, public :: MPI_RANK_OK = 0
    integer, parameter, public :: MPI_RANK_FAILED = 1
    integer, parameter, public :: MPI_RANK_NULL = 2

    !> What one process knows of a rank of a communicator.
    type, bind(C), public :: MPI_Rank_info
        integer(c_int) :: rank
        integer(c_int) :: state
        integer(c_int) :: generation
    end type MPI_Rank_info

    public :: MPI_Comm_validate_all
    public :: MPI_Icomm_validate_all
    public :: MPI_Comm_validate_rank
    public :: MPI_Comm_validate
    public :: MPI_Comm_validate_clear
    public :: MPIX_Comm_revoke
    public :: MPIX_Comm_is_revoked
    public :: MPIX_Comm_shrink
    public :: MPIX_Comm_ishrink
    public :: MPIX_Comm_agree
    public :: MPIX_Comm_iagree
    public :: MPIX_Comm_failure_ack
    public :: MPIX_Comm_failure_get_acked
    public :: MPIX_Comm_get_failed
    public :: MPIX_Comm_ack_failed

    interface MPI_Comm_validate_all
        subroutine mpi_ft_validate_all(comm, outcount, ierror)
            integer, intent(in) :: comm
            integer, intent(out) :: outcount
            integer, intent(out) :: ierror
        end subroutine
        subroutine mpi_ft_validate_all_f08(comm, outcount, ierror)
            import :: MPI_Comm
            type(MPI_Comm), intent(in) :: comm
            integer, intent(out) :: outcount
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Icomm_validate_all
        subroutine mpi_ft_ivalidate_all(comm, outcount, request, ierror)
            integer, intent(in) :: comm
            integer, asynchronous, intent(inout) :: outcount
            integer, intent(out) :: request
            integer, intent(out) :: ierror
        end subroutine
        subroutine mpi_ft_ivalidate_all_f08(comm, outcount, request, ierror)
            import :: MPI_Comm, MPI_Request
            type(MPI_Comm), intent(in) :: comm
            integer, asynchronous, intent(inout) :: outcount
            type(MPI_Request), intent(out) :: request
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Comm_validate_rank
        subroutine mpi_ft_validate_rank(comm, rank, info, ierror)
            import :: MPI_Rank_info
            integer, intent(in) :: comm
            integer, intent(in) :: rank
            type(MPI_Rank_info), intent(out) :: info
            integer, intent(out) :: ierror
        end subroutine
        subroutine mpi_ft_validate_rank_f08(comm, rank, info, ierror)
            import :: MPI_Comm, MPI_Rank_info
            type(MPI_Comm), intent(in) :: comm
            integer, intent(in) :: rank
            type(MPI_Rank_info), intent(out) :: info
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Comm_validate
        subroutine mpi_ft_validate(comm, incount, outcount, infos, ierror)
            import :: MPI_Rank_info
            integer, intent(in) :: comm
            integer, intent(in) :: incount
            integer, intent(out) :: outcount
            type(MPI_Rank_info), intent(inout) :: infos(*)
            integer, intent(out) :: ierror
        end subroutine
        subroutine mpi_ft_validate_f08(comm, incount, outcount, infos, ierror)
            import :: MPI_Comm, MPI_Rank_info
            type(MPI_Comm), intent(in) :: comm
            integer, intent(in) :: incount
            integer, intent(out) :: outcount
            type(MPI_Rank_info), intent(inout) :: infos(*)
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Comm_validate_clear
        subroutine mpi_ft_validate_clear(comm, incount, infos, ierror)
            import :: MPI_Rank_info
            integer, intent(in) :: comm
            integer, intent(in) :: incount
            type(MPI_Rank_info), intent(inout) :: infos(*)
            integer, intent(out) :: ierror
        end subroutine
        subroutine mpi_ft_validate_clear_f08(comm, incount, infos, ierror)
            import :: MPI_Comm, MPI_Rank_info
            type(MPI_Comm), intent(in) :: comm
            integer, intent(in) :: incount
            type(MPI_Rank_info), intent(inout) :: infos(*)
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPIX_Comm_revoke
        subroutine mpi_ft_revoke(comm, ierror)
            integer, intent(in) :: comm
            integer, intent(out) :: ierror
        end subroutine
        subroutine mpi_ft_revoke_f08(comm, ierror)
            import :: MPI_Comm
            type(MPI_Comm), intent(in) :: comm
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPIX_Comm_is_revoked
        subroutine mpi_ft_is_revoked(comm, flag, ierror)
            integer, intent(in) :: comm
            logical, intent(out) :: flag
            integer, intent(out) :: ierror
        end subroutine
        subroutine mpi_ft_is_revoked_f08(comm, flag, ierror)
            import :: MPI_Comm
            type(MPI_Comm), intent(in) :: comm
            logical, intent(out) :: flag
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPIX_Comm_shrink
        subroutine mpi_ft_shrink(comm, newcomm, ierror)
            integer, intent(in) :: comm
            integer, intent(out) :: newcomm
            integer, intent(out) :: ierror
        end subroutine
        subroutine mpi_ft_shrink_f08(comm, newcomm, ierror)
            import :: MPI_Comm
            type(MPI_Comm), intent(in) :: comm
            type(MPI_Comm), intent(out) :: newcomm
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPIX_Comm_ishrink
        subroutine mpi_ft_ishrink(comm, newcomm, request, ierror)
            integer, intent(in) :: comm
            integer, asynchronous, intent(inout) :: newcomm
            integer, intent(out) :: request
            integer, intent(out) :: ierror
        end subroutine
        subroutine mpi_ft_ishrink_f08(comm, newcomm, request, ierror)
            import :: MPI_Comm, MPI_Request
            type(MPI_Comm), intent(in) :: comm
            type(MPI_Comm), asynchronous, intent(inout) :: newcomm
            type(MPI_Request), intent(out) :: request
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPIX_Comm_agree
        subroutine mpi_ft_agree(comm, flag, ierror)
            integer, intent(in) :: comm
            integer, intent(inout) :: flag
            integer, intent(out) :: ierror
        end subroutine
        subroutine mpi_ft_agree_f08(comm, flag, ierror)
            import :: MPI_Comm
            type(MPI_Comm), intent(in) :: comm
            integer, intent(inout) :: flag
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPIX_Comm_iagree
        subroutine mpi_ft_iagree(comm, flag, request, ierror)
            integer, intent(in) :: comm
            integer, asynchronous, intent(inout) :: flag
            integer, intent(out) :: request
            integer, intent(out) :: ierror
        end subroutine
        subroutine mpi_ft_iagree_f08(comm, flag, request, ierror)
            import :: MPI_Comm, MPI_Request
            type(MPI_Comm), intent(in) :: comm
            integer, asynchronous, intent(inout) :: flag
            type(MPI_Request), intent(out) :: request
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPIX_Comm_failure_ack
        subroutine mpi_ft_failure_ack(comm, ierror)
            integer, intent(in) :: comm
            integer, intent(out) :: ierror
        end subroutine
        subroutine mpi_ft_failure_ack_f08(comm, ierror)
            import :: MPI_Comm
            type(MPI_Comm), intent(in) :: comm
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPIX_Comm_failure_get_acked
        subroutine mpi_ft_failure_get_acked(comm, failed, ierror)
            integer, intent(in) :: comm
            integer, intent(out) :: failed
            integer, intent(out) :: ierror
        end subroutine
        subroutine mpi_ft_failure_get_acked_f08(comm, failed, ierror)
            import :: MPI_Comm, MPI_Group
            type(MPI_Comm), intent(in) :: comm
            type(MPI_Group), intent(out) :: failed
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPIX_Comm_get_failed
        subroutine mpi_ft_get_failed(comm, failed, ierror)
            integer, intent(in) :: comm
            integer, intent(out) :: failed
            integer, intent(out) :: ierror
        end subroutine
        subroutine mpi_ft_get_failed_f08(comm, failed, ierror)
            import :: MPI_Comm, MPI_Group
            type(MPI_Comm), intent(in) :: comm
            type(MPI_Group), intent(out) :: failed
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPIX_Comm_ack_failed
        subroutine mpi_ft_ack_failed(comm, count, acknowledged, ierror)
            integer, intent(in) :: comm
            integer, intent(in) :: count
            integer, intent(out) :: acknowledged
            integer, intent(out) :: ierror
        end subroutine
        subroutine mpi_ft_ack_failed_f08(comm, count, acknowledged, ierror)
            import :: MPI_Comm
            type(MPI_Comm), intent(in) :: comm
            integer, intent(in) :: count
            integer, intent(out) :: acknowledged
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface
end module mpi_ft

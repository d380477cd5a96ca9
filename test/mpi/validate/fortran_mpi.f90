! The calls of mpi_ft from Fortran, with mpi. Rank 2 dies.
program fortran_mpi
    use mpi
    use mpi_ft
    implicit none
    interface
        function c_raise(signal) bind(C, name="raise") result(code)
            use, intrinsic :: iso_c_binding, only : c_int
            integer(c_int), value :: signal
            integer(c_int) :: code
        end function
    end interface
    integer :: twin, fresh, heir
    integer :: failed
    integer :: request
    integer, asynchronous :: another
    type(MPI_Rank_info) :: info, infos(2)
    integer :: rank, count, flag, code, ierror
    integer, asynchronous :: later
    logical :: revoked, good

    call MPI_Init(ierror)
    call MPI_Comm_dup(MPI_COMM_WORLD, twin, ierror)
    call MPI_Comm_set_errhandler(twin, MPI_ERRORS_RETURN, ierror)
    call MPI_Comm_rank(twin, rank, ierror)
    if (rank == 2) code = c_raise(9)
    do
        call MPI_Comm_validate_rank(twin, 2, info, ierror)
        if (info%state /= MPI_RANK_OK) exit
    end do
    call MPI_Barrier(twin, code)
    good = code == MPI_ERR_RANK_FAIL_STOP
    call MPIX_Comm_get_failed(twin, failed, ierror)
    call MPI_Group_size(failed, count, ierror)
    good = good .and. count == 1
    call MPI_Group_free(failed, ierror)
    call MPIX_Comm_ack_failed(twin, 0, count, ierror)
    good = good .and. count == 0
    call MPIX_Comm_failure_ack(twin, ierror)
    call MPIX_Comm_failure_get_acked(twin, failed, ierror)
    call MPI_Group_size(failed, count, ierror)
    good = good .and. count == 1
    call MPI_Group_free(failed, ierror)
    later = 5 + 8 * rank
    call MPIX_Comm_iagree(twin, later, request, ierror)
    call MPI_Wait(request, MPI_STATUS_IGNORE, code)
    good = good .and. later == 5 .and. code == MPI_SUCCESS
    call MPI_Comm_validate(twin, 2, count, infos, ierror)
    good = good .and. count == 1 .and. infos(1)%rank == 2 .and. infos(1)%state == MPI_RANK_FAILED
    call MPI_Comm_dup(twin, fresh, code)
    good = good .and. code == MPI_ERR_RANK_FAIL_STOP
    call MPI_Comm_validate_clear(twin, 1, infos, ierror)
    good = good .and. infos(1)%state == MPI_RANK_NULL
    call MPI_Comm_validate_all(twin, count, ierror)
    good = good .and. count == 1
    ! What Open MPI's bindings call is this library's too.
    call MPI_Comm_dup(twin, heir, code)
    good = good .and. code == MPI_SUCCESS
    call MPI_Comm_set_errhandler(heir, MPI_ERRORS_RETURN, ierror)
    call MPI_Comm_validate_rank(heir, 2, info, ierror)
    good = good .and. info%state == MPI_RANK_NULL
    call MPI_Barrier(heir, code)
    good = good .and. code == MPI_SUCCESS
    call MPI_Comm_idup(heir, another, request, code)
    good = good .and. code == MPI_SUCCESS .and. another == MPI_COMM_NULL
    call MPI_Wait(request, MPI_STATUS_IGNORE, code)
    call MPI_Comm_size(another, count, ierror)
    good = good .and. code == MPI_SUCCESS .and. count == 4
    call MPI_Comm_free(another, ierror)
    call MPI_Cart_create(heir, 1, [3], [.true.], .false., fresh, code)
    good = good .and. code == MPI_SUCCESS
    if (fresh /= MPI_COMM_NULL) call MPI_Comm_free(fresh, ierror)
    call MPI_Comm_split(heir, 0, rank, fresh, code)
    call MPI_Comm_size(fresh, count, ierror)
    good = good .and. code == MPI_SUCCESS .and. count == 3
    call MPI_Comm_free(fresh, ierror)
    call MPI_Comm_free(heir, code)
    good = good .and. code == MPI_SUCCESS
    call MPI_Icomm_validate_all(twin, later, request, ierror)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    good = good .and. later == 1
    flag = 3 + 4 * rank
    call MPIX_Comm_agree(twin, flag, ierror)
    good = good .and. flag == 3
    call MPI_Barrier(twin, code)
    good = good .and. code == MPI_SUCCESS
    call MPIX_Comm_ishrink(twin, another, request, ierror)
    call MPI_Wait(request, MPI_STATUS_IGNORE, code)
    call MPI_Comm_size(another, count, ierror)
    good = good .and. code == MPI_SUCCESS .and. count == 3
    call MPI_Barrier(another, code)
    good = good .and. code == MPI_SUCCESS
    call MPIX_Comm_shrink(twin, fresh, ierror)
    call MPI_Comm_size(fresh, count, ierror)
    good = good .and. count == 3
    call MPIX_Comm_revoke(twin, ierror)
    call MPIX_Comm_is_revoked(twin, revoked, ierror)
    good = good .and. revoked
    call MPI_Finalize(ierror)
    if (good) then
        print "('rank ', i0, ' right')", rank
    else
        print "('rank ', i0, ' WRONG')", rank
    end if
end program

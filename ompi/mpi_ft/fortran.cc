// What the Fortran module mpi_ft (mpi_ft.f90) calls: arguments by reference, handles as integers.
// Each name stands twice: the module's interfaces for `use mpi` and for `use mpi_f08`, whose
// handles are an integer in a type, must differ.
#include "ompi/mpi_ft/communicators.hpp"

static_assert(sizeof(MPI_Fint) == sizeof(int), "Fortran's integers are passed on as they are");

namespace {

/// With `use mpi_f08` the last argument may be left out.
void set(MPI_Fint *ierror, int error) noexcept
{
    if (ierror != nullptr) {
        *ierror = error;
    }
}

MPI_Comm comm_of(const MPI_Fint *comm) noexcept
{
    return PMPI_Comm_f2c(*comm);
}

/// Calls `call` with a place for a new handle, and hands the handle over as Fortran's.
template <class Handle, class Call>
void give(MPI_Fint *handle, Handle none, MPI_Fint (*to_fortran)(Handle), MPI_Fint *ierror,
          Call call) noexcept
{
    Handle fresh = none;
    set(ierror, call(&fresh));
    *handle = to_fortran(fresh);
}

/// Starts a call that writes a communicator's handle when its request completes, which is after
/// this returned.
template <class Start>
void give_later(MPI_Fint *handle, MPI_Fint *request, MPI_Fint *ierror, Start start) noexcept
{
    *handle = PMPI_Comm_c2f(MPI_COMM_NULL);
    give(request, MPI_REQUEST_NULL, PMPI_Request_c2f, ierror, [&](MPI_Request *fresh) {
        return start([handle](MPI_Comm comm) { *handle = PMPI_Comm_c2f(comm); }, fresh);
    });
}

} // namespace

/// A function that Fortran calls, under both of its names. gfortran, ifort and flang append one
/// underscore.
#define FT_FORTRAN(name, ...)                                                                      \
    extern "C" void mpi_ft_##name##_f08_(__VA_ARGS__) noexcept                                     \
        __attribute__((alias("mpi_ft_" #name "_")));                                               \
    extern "C" void mpi_ft_##name##_(__VA_ARGS__) noexcept

FT_FORTRAN(validate_all, const MPI_Fint *comm, MPI_Fint *outcount, MPI_Fint *ierror)
{
    set(ierror, MPI_Comm_validate_all(comm_of(comm), outcount));
}

FT_FORTRAN(ivalidate_all, const MPI_Fint *comm, MPI_Fint *outcount, MPI_Fint *request,
           MPI_Fint *ierror)
{
    give(request, MPI_REQUEST_NULL, PMPI_Request_c2f, ierror, [&](MPI_Request *fresh) {
        return MPI_Icomm_validate_all(comm_of(comm), outcount, fresh);
    });
}

FT_FORTRAN(validate_rank, const MPI_Fint *comm, const MPI_Fint *rank, MPI_Rank_info *info,
           MPI_Fint *ierror)
{
    set(ierror, MPI_Comm_validate_rank(comm_of(comm), *rank, info));
}

FT_FORTRAN(validate, const MPI_Fint *comm, const MPI_Fint *incount, MPI_Fint *outcount,
           MPI_Rank_info *infos, MPI_Fint *ierror)
{
    set(ierror, MPI_Comm_validate(comm_of(comm), *incount, outcount, infos));
}

FT_FORTRAN(validate_clear, const MPI_Fint *comm, const MPI_Fint *incount, MPI_Rank_info *infos,
           MPI_Fint *ierror)
{
    set(ierror, MPI_Comm_validate_clear(comm_of(comm), *incount, infos));
}

FT_FORTRAN(revoke, const MPI_Fint *comm, MPI_Fint *ierror)
{
    set(ierror, MPIX_Comm_revoke(comm_of(comm)));
}

FT_FORTRAN(is_revoked, const MPI_Fint *comm, MPI_Fint *flag, MPI_Fint *ierror)
{
    int revoked = 0;
    set(ierror, MPIX_Comm_is_revoked(comm_of(comm), &revoked));
    *flag = revoked; // .true. is 1 to gfortran
}

FT_FORTRAN(shrink, const MPI_Fint *comm, MPI_Fint *newcomm, MPI_Fint *ierror)
{
    give(newcomm, MPI_COMM_NULL, PMPI_Comm_c2f, ierror,
         [&](MPI_Comm *fresh) { return MPIX_Comm_shrink(comm_of(comm), fresh); });
}

FT_FORTRAN(ishrink, const MPI_Fint *comm, MPI_Fint *newcomm, MPI_Fint *request, MPI_Fint *ierror)
{
    give_later(newcomm, request, ierror, [&](ft::validate::Place place, MPI_Request *fresh) {
        return ft::validate::shrink_later(comm_of(comm), std::move(place), fresh);
    });
}

FT_FORTRAN(agree, const MPI_Fint *comm, MPI_Fint *flag, MPI_Fint *ierror)
{
    set(ierror, MPIX_Comm_agree(comm_of(comm), flag));
}

FT_FORTRAN(iagree, const MPI_Fint *comm, MPI_Fint *flag, MPI_Fint *request, MPI_Fint *ierror)
{
    give(request, MPI_REQUEST_NULL, PMPI_Request_c2f, ierror,
         [&](MPI_Request *fresh) { return MPIX_Comm_iagree(comm_of(comm), flag, fresh); });
}

FT_FORTRAN(failure_ack, const MPI_Fint *comm, MPI_Fint *ierror)
{
    set(ierror, MPIX_Comm_failure_ack(comm_of(comm)));
}

FT_FORTRAN(failure_get_acked, const MPI_Fint *comm, MPI_Fint *failed, MPI_Fint *ierror)
{
    give(failed, MPI_GROUP_NULL, PMPI_Group_c2f, ierror,
         [&](MPI_Group *group) { return MPIX_Comm_failure_get_acked(comm_of(comm), group); });
}

FT_FORTRAN(get_failed, const MPI_Fint *comm, MPI_Fint *failed, MPI_Fint *ierror)
{
    give(failed, MPI_GROUP_NULL, PMPI_Group_c2f, ierror,
         [&](MPI_Group *group) { return MPIX_Comm_get_failed(comm_of(comm), group); });
}

FT_FORTRAN(ack_failed, const MPI_Fint *comm, const MPI_Fint *count, MPI_Fint *acknowledged,
           MPI_Fint *ierror)
{
    set(ierror, MPIX_Comm_ack_failed(comm_of(comm), *count, acknowledged));
}

// Open MPI's own binding of MPI_Comm_idup has the handle written into a variable of its own, which
// is gone when this library's function writes it. What a program calls, with `use mpi`, with
// mpif.h and by way of `use mpi_f08`:
extern "C" void ompi_comm_idup_f(const MPI_Fint *comm, MPI_Fint *newcomm, MPI_Fint *request,
                                 MPI_Fint *ierror) noexcept
{
    const MPI_Comm parent = comm_of(comm);
    if (ft::validate::ours(parent)) {
        give_later(newcomm, request, ierror, [&](ft::validate::Place place, MPI_Request *fresh) {
            return ft::validate::dup_later(parent, std::move(place), fresh);
        });
        return;
    }
    MPI_Comm twin = MPI_COMM_NULL; // Open MPI's own writes it before it returns
    give(request, MPI_REQUEST_NULL, PMPI_Request_c2f, ierror,
         [&](MPI_Request *fresh) { return FT_STOCK(MPI_Comm_idup)(parent, &twin, fresh); });
    *newcomm = PMPI_Comm_c2f(twin);
}
extern "C" decltype(ompi_comm_idup_f) mpi_comm_idup_ __attribute__((alias("ompi_comm_idup_f")));
extern "C" decltype(ompi_comm_idup_f) pmpi_comm_idup_ __attribute__((alias("ompi_comm_idup_f")));

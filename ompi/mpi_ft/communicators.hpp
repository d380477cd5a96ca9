/// \file
/// What the makers of communicators have in common: everybody prepares what can fail, one agreement
/// says whether all have, whether anybody has failed and which context ids are free, and what
/// follows is local. So they succeed at every survivor or at none.
#pragma once
#include "ompi/mpi_ft/call.hpp"

#include <dlfcn.h>

/// Open MPI's own function, which is hidden by the one of that name here.
#define FT_STOCK(name)                                                                             \
    ([] {                                                                                          \
        static const auto found =                                                                  \
            reinterpret_cast<decltype(&P##name)>(dlsym(RTLD_NEXT, "P" #name));                     \
        return found;                                                                              \
    }())

/// The function that stands here as PMPI_ is MPI_ too. A C program calls it by this name; Open
/// MPI's Fortran bindings and the tools that listen to a program's calls by that one.
#define FT_BOTH_NAMES(name) extern decltype(P##name) name __attribute__((alias("P" #name)))

namespace ft::validate {

/// Whether this library makes it. Not without coll/validate, nor when the call is an error of the
/// caller's that Open MPI's own reports.
bool ours(ompi_communicator_t *comm) noexcept;

/// What everybody has prepared, for itself.
struct Draft {
    bool well = true;        ///< nothing went wrong here
    Prepared comm = nullptr; ///< nullptr: this process is not to be in it
    bool inter = false;      ///< whether it is to be an intercommunicator
    bool topology = false;   ///< whether it is to have one
};

/// Agrees on the draft and brings it to life. \return an error class, the same everywhere
int finish(Record &record, Draft draft, ompi_communicator_t **fresh);
/// Where a call that does not wait puts its communicator when that is there: the place is a C
/// program's, or a Fortran program's and takes another kind of handle.
using Place = std::function<void(ompi_communicator_t *)>;
Place place_at(ompi_communicator_t **handle) noexcept;

/// The same, but does not wait: `request` ends with the error class.
int finish_later(Record &record, Draft draft, Place place, ompi_request_t **request);

/// MPI_Comm_idup, of one that is ours(), and MPIX_Comm_ishrink.
int dup_later(ompi_communicator_t *comm, Place place, ompi_request_t **request) noexcept;
int shrink_later(ompi_communicator_t *comm, Place place, ompi_request_t **request) noexcept;

/// What each process says of itself when a communicator is split: the part it goes to, and what
/// orders it there.
struct Choice {
    int part;
    int order;
};

/// Everybody hears what the (remote) group has chosen. Failed ranks have chosen MPI_UNDEFINED.
bool hear(ompi_communicator_t *comm, Choice mine, std::vector<Choice> &theirs);

/// The part of a split communicator to which this process goes; MPI_UNDEFINED: none.
Draft part_of(Record &record, Choice mine);

} // namespace ft::validate

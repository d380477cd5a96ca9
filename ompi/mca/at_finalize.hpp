/// \file
/// What is to happen before MPI_Finalize does anything else: it begins with the attributes of
/// MPI_COMM_SELF (MPI 3.1, section 8.7.1).
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

namespace ft::mca {

/// Calls `begins` when MPI_Finalize begins. To be called when MPI_COMM_SELF is there.
/// \return an error of Open MPI
inline int at_finalize(MPI_Comm_delete_attr_function *begins) noexcept
{
    ompi_attribute_fn_ptr_union_t copy;
    ompi_attribute_fn_ptr_union_t remove;
    // A duplicate of MPI_COMM_SELF means nothing when it is freed.
    copy.attr_communicator_copy_fn = [](MPI_Comm, int, void *, void *, void *, int *flag,
                                        MPI_Comm) noexcept {
        *flag = 0;
        return MPI_SUCCESS;
    };
    remove.attr_communicator_delete_fn = begins;
    int key = MPI_KEYVAL_INVALID;
    const int rc = ompi_attr_create_keyval(COMM_ATTR, copy, remove, &key, nullptr, 0, nullptr);
    return rc != OMPI_SUCCESS
               ? rc
               : ompi_attr_set_c(COMM_ATTR, &ompi_mpi_comm_self, &ompi_mpi_comm_self.comm.c_keyhash,
                                 key, nullptr, true);
}

} // namespace ft::mca

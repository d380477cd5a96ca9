/// \file
/// The error classes of mpi_ft.h, made known to MPI.
#pragma once

#include "ompi/mca/ompi_prelude.hpp"
#include "ompi/mpi_ft/mpi_ft.h"

#include <cstdio>
#include <iterator>

extern "C" OMPI_DECLSPEC opal_class_t ompi_mpi_errcode_t_class;

namespace ft::mca {

/// Makes them known to MPI_Error_class and MPI_Error_string, where nobody else has: the PML does so
/// before any of them can occur, and where it is another than dr, the library. \return an OMPI
/// error code
inline int register_error_classes() noexcept
{
    struct ClassText {
        int value;
        const char *text;
    };
    static constexpr ClassText texts[] = {
        {MPI_ERR_RANK_FAIL_STOP, "MPI_ERR_RANK_FAIL_STOP: a process has failed"},
        {MPIX_ERR_PROC_FAILED_PENDING,
         "MPIX_ERR_PROC_FAILED_PENDING: a process that might have sent has failed"},
        {MPIX_ERR_REVOKED, "MPIX_ERR_REVOKED: the communicator has been revoked"},
        {MPIX_ERR_UNREACHABLE, "MPIX_ERR_UNREACHABLE: no way leads to the process any more"},
    };
    static ompi_mpi_errcode_t objects[std::size(texts)];
    for (std::size_t i = 0; i < std::size(texts); ++i) {
        if (opal_pointer_array_get_item(&ompi_mpi_errcodes, texts[i].value) != nullptr) {
            continue;
        }
        ompi_mpi_errcode_t &object = objects[i];
        OBJ_CONSTRUCT(&object, ompi_mpi_errcode_t);
        object.code = texts[i].value;
        object.cls = texts[i].value;
        std::snprintf(object.errstring, sizeof object.errstring, "%s", texts[i].text);
        const int rc = opal_pointer_array_set_item(&ompi_mpi_errcodes, texts[i].value, &object);
        if (rc != OPAL_SUCCESS) {
            return rc;
        }
    }
    return OMPI_SUCCESS;
}

} // namespace ft::mca

/// \file
/// What the component counts, as performance variables of MPI_T.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

namespace ft::dr {

/// \return an OMPI error code
int register_pvars(const mca_base_component_t &component) noexcept;

} // namespace ft::dr

/// \file
/// What the component counts, as performance variables of MPI_T.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

namespace ft::dr {

/// \return an OMPI error code
int register_pvars(const mca_base_component_t &component) noexcept;
/// Whether there are peers to ask. MPI_T may be called at any time, MPI_Init and MPI_Finalize in
/// another thread included: when this returns with false, nobody is reading any more.
void let_pvars_be_read(bool may) noexcept;

} // namespace ft::dr

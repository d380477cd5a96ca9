/// \file
/// The module: the table of entry points that Open MPI copies.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

namespace ft::dr {

extern mca_pml_base_module_t module;

/// True between pml_enable and the end.
extern bool module_enabled;

} // namespace ft::dr

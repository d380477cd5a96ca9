/// \file
/// The component btl/fault: injects faults into the modules of the other BTLs, under any PML. What
/// it can do and how it is used is in mca_btl_fault.7.
#pragma once

#include "opal/mca/btl/fault/injector.hpp"

extern "C" {
/// What Open MPI looks for in the shared object.
extern mca_btl_base_component_t mca_btl_fault_component;
}

namespace ft::fault {

/// The module that hooks into bml/r2 and carries nothing.
Btl *module() noexcept;

/// Wraps the other modules, the first time it is called. Ends the job when that cannot be done as
/// asked.
void start() noexcept;

/// Gives every module its own entries back and prints the counters.
void stop() noexcept;

} // namespace ft::fault

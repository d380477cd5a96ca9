/// Keeps an error of libfabric from ending the process.
#pragma once

namespace ft::dr {

/// btl/ofi takes every error that libfabric reports for something under way, one to a peer that was
/// killed among them, for a reason to call exit(1). From here on it goes on instead: what failed is
/// lost, and what is lost pml/dr sends again or moves to another path. Does nothing where there is
/// no btl/ofi, or where it cannot send.
void survive_ofi_errors() noexcept;

/// Whether btl/ofi can be used for a path: it goes on after errors.
[[nodiscard]] bool ofi_errors_survived() noexcept;

/// Undoes it. To be called before btl/ofi or this component is unloaded.
void die_of_ofi_errors_again() noexcept;

} // namespace ft::dr

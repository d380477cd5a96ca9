/// Keeps a connection that broke from ending the process.
#pragma once

namespace ft::dr {

/// From here on SIGPIPE interrupts nothing and ends nothing: a write to a connection that the other
/// end has reset fails with EPIPE, which btl/tcp reports as a dead path. Without this the second
/// write after a reset ends the rank, since btl/tcp writes with plain writev(2) and the default
/// action of SIGPIPE is to end the process. Whoever has a handler of his own, or ignores the
/// signal, keeps that. Unlike SIG_IGN, what is set here is not inherited through exec.
void survive_broken_pipes() noexcept;

/// Sets the default action again, unless somebody else has changed it in the meantime. To be called
/// before the component is unloaded.
void die_of_broken_pipes_again() noexcept;

} // namespace ft::dr

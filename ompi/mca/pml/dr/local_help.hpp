/// Keeps what Open MPI says in a rank from ending mpirun.
#pragma once

namespace ft::dr {

/// From here on the help texts that Open MPI's own components show in this process (btl/tcp: "peer
/// hung up") go to its standard error, each once; those of failed connections as one line of dr's.
/// Open MPI hands them to mpirun through PMIx, and with Debian's they arrive garbled: mpirun prints
/// nothing, or reads a file name that is not there and dies of it, just when a rank reports that
/// another one is gone.
void show_help_here() noexcept;

/// Undoes that. To be called before the component is unloaded.
void show_help_there_again() noexcept;

} // namespace ft::dr

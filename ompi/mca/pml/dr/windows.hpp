/// \file
/// Windows of which a process has died.
#pragma once

namespace ft::dr {

/// Open MPI's one-sided layers wait for the dead for ever, and have nobody to tell: they look at
/// memory, or at receives whose errors they do not look at. So in a program that knows nothing of
/// failures, as its error handlers and its libraries tell, a window that holds a dead process ends
/// the job by the window's error handler. One of shared memory alone is let be: there is little to
/// wait for. To be called when somebody has died; no lock held.
void end_windows() noexcept;

} // namespace ft::dr

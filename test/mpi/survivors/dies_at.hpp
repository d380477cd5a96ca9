/// A rank that ends itself at a point of MPI_Init, or of a call that joins two jobs, which cannot
/// be hit from outside.
#pragma once

#include <functional>
#include <string>

namespace dies_at {

/// The points, in the order in which new ranks come by, after the modex: the addresses of the new
/// ones are published (by rank 0 alone), the two jobs are to be connected, they are, their
/// communicator is to have its context id, and to be activated.
/// Of ranks that call MPI_Comm_spawn: the new ones are to be started (by the root alone). Of the
/// root of MPI_Comm_accept or connect: it has been told who is on the other side.
/// Of every rank, spawned or not, before all these: its addresses are ready to be sent; the modex
/// is to begin, and has begun; so the barrier behind it; and that is over.
enum class Point {
    none,
    published,
    connect,
    connected,
    context_id,
    activate,
    spawn,
    looked_up,
    commit,
    modex,
    in_modex,
    barrier,
    in_barrier,
    wired
};

/// How: by SIGKILL, or by MPI_Abort, for which Open MPI exits with 1 as long as MPI_Init is not
/// over; or it stands there, until its host is taken away; or until it is sent SIGUSR1.
enum class How { killed, aborts, stands, waits };

/// From now on the process ends itself at `point`, after it has said "dies" in `fifo` ("stands"),
/// if it has rank `rank` among the new ones.
void arm(Point point, const std::string &rank, const char *fifo, How how = How::killed);

/// The first time that the process comes by `point`, it does this there. May be on a thread that
/// pml/dr has made for the runtime's call (spawn, looked_up, connect, connected): no MPI there.
void hold(Point point, std::function<void()> what);

} // namespace dies_at

/// A rank that ends itself at a point of MPI_Init that cannot be hit from outside.
#pragma once

#include <string>

namespace dies_at {

/// The points, in the order in which new ranks come by, after the modex: the addresses of the new
/// ones are published (by rank 0 alone), the two jobs are to be connected, they are, their
/// communicator is to have its context id, and to be activated.
enum class Point { none, published, connect, connected, context_id, activate };

/// From now on the process kills itself at `point`, after it has said "dies" in `fifo`, if it has
/// rank `rank` among the new ones.
void arm(Point point, const std::string &rank, const char *fifo);

} // namespace dies_at

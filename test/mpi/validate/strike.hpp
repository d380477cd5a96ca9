// Kills this process inside a collective, at its k-th point-to-point operation: for certain, and
// not by time. Counts what Open MPI's collectives ask of the PML, by standing in front of it.
#pragma once

namespace strike {

/// After MPI_Init. \param agreements whether the messages of agreements count too
void install(bool agreements = false);
/// From now on operations are counted anew, and the process dies before the k-th; 0: never.
void arm(int k);
/// How many there have been.
int counted();

} // namespace strike

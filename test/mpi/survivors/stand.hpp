/// Ways in which a rank is not getting on, some of them healthy.
#pragma once

/// Inside an MPI call, in a function of the progress engine: a deadlock. Does not return.
void deadlock_in_mpi();
/// The same for `ms` milliseconds, announced to radixft before.
void stand_in_mpi(int ms);
/// Computes for `ms` milliseconds, outside MPI.
void compute(int ms);

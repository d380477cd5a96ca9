/// Ways in which a rank is not getting on, some of them healthy.
#pragma once

/// Inside an MPI call, in a function of the progress engine: a deadlock. Does not return.
void deadlock_in_mpi();
/// The same in what the handler of a socket calls, when a message from any rank arrives that the
/// other function sends.
void deadlock_in_handler();
void trip_handler(int rank);
/// As the first for `ms` milliseconds, announced to radixft before.
void stand_in_mpi(int ms);
/// Computes for `ms` milliseconds, outside MPI.
void compute(int ms);

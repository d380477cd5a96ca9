// The collectives among neighbours, on a ring of all ranks (a periodic Cartesian topology): what is
// received is foretold, and a failed neighbour's block is untouched.
#pragma once
#include "check.hpp"

namespace around {

struct Outcome {
    int code = MPI_SUCCESS;
    std::vector<int> from[2]; ///< the left neighbour, the right one
};

MPI_Comm make_ring();
int count();
const char *name(int which);
Outcome call(int which, MPI_Comm ring, bool starting);
/// Whether every block is right.
void must_be_right(int which, const Outcome &outcome, const std::set<int> &dead);

} // namespace around

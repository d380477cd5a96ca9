// Every collective that MPI 3.1 has for intercommunicators, with data that depend on ranks in the
// two groups as they were made.
#pragma once
#include "check.hpp"

#include <map>

namespace sides {

/// An intercommunicator, seen from one of its sides. Processes are named by numbers of their own:
/// side times 100, and the rank that the process had when nobody had failed.
struct Pair {
    MPI_Comm comm = MPI_COMM_NULL;
    int self = 0;
    std::vector<int> local;
    std::vector<int> remote;
};

/// What a process has in the end: blocks by the number of the process that they are from.
struct Outcome {
    int code = MPI_SUCCESS;
    std::map<int, std::vector<int>> blocks;
};

/// In what is received before anything is.
inline constexpr int untouched = -7;

int count();
const char *name(int which);
bool rooted(int which);
/// Whether results depend on nothing but the processes that take part: those of a reduction that is
/// scattered depend on how many there were.
bool comparable(int which);
/// \param root number of a process
Outcome call(int which, const Pair &pair, int root, bool starting);
/// Calls it, and the same on an intercommunicator of the survivors: results must be equal, and the
/// blocks of the dead untouched.
void must_be_right(int which, const Pair &pair, const Pair &survivors, int root, bool starting,
                   const std::set<int> &dead);
/// Those of a group that live.
std::vector<int> left_of(const std::vector<int> &all, const std::set<int> &dead);
/// Of one that is not comparable: what this process must have. \param alive on the other side
std::vector<int> expected(int which, const Pair &pair, const std::vector<int> &alive);

} // namespace sides

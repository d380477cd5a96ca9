// Every collective of MPI 3.1 on a group of ranks, with data that depend on ranks in
// MPI_COMM_WORLD: the same call on MPI_COMM_WORLD with failed ranks and on a communicator of the
// survivors must give the same blocks.
#pragma once
#include "check.hpp"

#include <map>

namespace walk {

/// A communicator and which ranks of MPI_COMM_WORLD are in it.
struct Group {
    MPI_Comm comm = MPI_COMM_NULL;
    std::vector<int> world;
    int slot_of(int world_rank) const
    {
        for (std::size_t i = 0; i < world.size(); ++i) {
            if (world[i] == world_rank) {
                return static_cast<int>(i);
            }
        }
        return -1;
    }
    int size() const { return static_cast<int>(world.size()); }
};

enum class Form { blocking, starting, in_place, starting_in_place };

/// What a rank has in the end: blocks by rank in MPI_COMM_WORLD.
struct Outcome {
    int code = MPI_SUCCESS;
    std::map<int, std::vector<int>> blocks;
};

/// In what is received before anything is.
inline constexpr int untouched = -7;

/// How many there are, and their names.
int count();
const char *name(int which);
/// Whether it has a root.
bool rooted(int which);
/// \param root in MPI_COMM_WORLD
/// \param block how many elements each block has where all have as many
Outcome call(int which, const Group &group, int root, Form form, int block = 2);

} // namespace walk

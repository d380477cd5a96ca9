// What the programs have in common that walk through the collectives of MPI_COMM_WORLD.
#pragma once
#include "walk.hpp"

namespace among {

using namespace check;

inline walk::Group world()
{
    walk::Group group;
    group.comm = MPI_COMM_WORLD;
    for (int r = 0; r < size; ++r) {
        group.world.push_back(r);
    }
    return group;
}

/// The survivors' own communicator, to compare with.
inline walk::Group survivors(const std::set<int> &dead)
{
    walk::Group group;
    is(MPIX_Comm_shrink(MPI_COMM_WORLD, &group.comm), MPI_SUCCESS, "MPIX_Comm_shrink");
    MPI_Comm_set_errhandler(group.comm, MPI_ERRORS_RETURN);
    for (int r = 0; r < size; ++r) {
        if (dead.count(r) == 0) {
            group.world.push_back(r);
        }
    }
    int n = 0;
    MPI_Comm_size(group.comm, &n);
    that(n == group.size(), "%d survivors instead of %d", n, group.size());
    return group;
}

inline const char *form_of(walk::Form form)
{
    constexpr const char *names[] = {"blocking", "non-blocking", "in place",
                                     "non-blocking, in place"};
    return names[static_cast<std::size_t>(form)];
}

inline void compare(int which, walk::Form form, const walk::Outcome &got,
                    const walk::Outcome &wanted, const std::set<int> &dead)
{
    is(got.code, MPI_SUCCESS, walk::name(which));
    is(wanted.code, MPI_SUCCESS, walk::name(which));
    for (const auto &[rank, block] : wanted.blocks) {
        const auto its = got.blocks.find(rank);
        that(its != got.blocks.end() && its->second == block, "%s %s: block of rank %d differs",
             walk::name(which), form_of(form), rank);
    }
    for (const auto &[rank, block] : got.blocks) {
        if (dead.count(rank) != 0 && form != walk::Form::in_place &&
            form != walk::Form::starting_in_place) {
            for (const int x : block) {
                that(x == walk::untouched, "%s %s: the block of dead rank %d was written",
                     walk::name(which), form_of(form), rank);
            }
        }
    }
}

inline void validate(std::size_t wanted, MPI_Comm comm = MPI_COMM_WORLD)
{
    int count = -1;
    is(MPI_Comm_validate_all(comm, &count), MPI_SUCCESS, "MPI_Comm_validate_all");
    that(count == static_cast<int>(wanted), "%d failures instead of %zu", count, wanted);
}

/// All are behind a barrier before `last` goes on: else one that waits in it yet meets the failure.
inline void await_all(int last, const std::set<int> &dead)
{
    int token = 0;
    for (int rank = 0; rank < size; ++rank) {
        if (rank == last || dead.count(rank) != 0) {
            continue;
        }
        if (me == last) {
            is(MPI_Recv(&token, 1, MPI_INT, rank, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
               MPI_SUCCESS, "receive of a token");
        } else if (me == rank) {
            is(MPI_Send(&token, 1, MPI_INT, last, 7, MPI_COMM_WORLD), MPI_SUCCESS, "token");
        }
    }
}

} // namespace among

#include "test/mpi/programs/path_counts.hpp"

#include <cstdio>
#include <vector>

PathCounts::PathCounts(bool wanted) : wanted_(wanted)
{
    if (!wanted_) {
        return;
    }
    int provided = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_session_create(&session_);
    for (Variable &variable : variables_) {
        // No component that is in use may have it.
        if (int index = 0;
            MPI_T_pvar_get_index(variable.name, MPI_T_PVAR_CLASS_LEVEL, &index) == MPI_SUCCESS) {
            MPI_T_pvar_handle_alloc(session_, index, &comm_, &variable.handle, &variable.count);
        }
    }
}

PathCounts::~PathCounts()
{
    if (wanted_) {
        MPI_T_pvar_session_free(&session_);
        MPI_T_finalize();
    }
}

void PathCounts::print(int rank) const
{
    std::array<std::vector<double>, 2> values;
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!wanted_ || variables_[i].count < size) {
            return;
        }
        values[i].resize(static_cast<std::size_t>(variables_[i].count));
        MPI_T_pvar_read(session_, variables_[i].handle, values[i].data());
    }
    const std::size_t paths = values[0].size() / static_cast<std::size_t>(size);
    for (std::size_t i = 0; i < values[0].size(); ++i) {
        if (values[0][i] != 0 || values[1][i] != 0) {
            std::printf("paths: rank %d to %zu path %zu failovers %.0f returns %.0f\n", rank,
                        i / paths, i % paths, values[0][i], values[1][i]);
        }
    }
    std::fflush(stdout);
}

#include "test/mpi/programs/path_counts.hpp"

#include <cstdio>
#include <cstring>
#include <vector>

namespace {

/* -1 when no component that is in use has it. */
int index_of(const char *wanted)
{
    int count = 0;
    MPI_T_pvar_get_num(&count);
    for (int i = 0; i < count; ++i) {
        std::array<char, 128> name{};
        int name_length = name.size();
        int verbosity = 0;
        int its_class = 0;
        int help_length = 0;
        int bind = 0;
        int readonly = 0;
        int continuous = 0;
        int atomic = 0;
        MPI_Datatype type = MPI_DATATYPE_NULL;
        MPI_T_enum values = MPI_T_ENUM_NULL;
        if (MPI_T_pvar_get_info(i, name.data(), &name_length, &verbosity, &its_class, &type,
                                &values, nullptr, &help_length, &bind, &readonly, &continuous,
                                &atomic) == MPI_SUCCESS &&
            std::strcmp(name.data(), wanted) == 0) {
            return i;
        }
    }
    return -1;
}

} // namespace

PathCounts::PathCounts(bool wanted) : wanted_(wanted)
{
    if (!wanted_) {
        return;
    }
    int provided = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_session_create(&session_);
    for (Variable &variable : variables_) {
        if (const int index = index_of(variable.name); index >= 0) {
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

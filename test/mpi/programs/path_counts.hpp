/* How often each path to each rank was taken out and taken back, as pml/dr tells through MPI_T. */
#pragma once
#include <mpi.h>

#include <array>

/* Counts from its construction on, after MPI_Init; it ends MPI_T before MPI_Finalize does. */
class PathCounts {
  public:
    explicit PathCounts(bool wanted);
    PathCounts(const PathCounts &) = delete;
    PathCounts &operator=(const PathCounts &) = delete;
    ~PathCounts();

    /* A line for each path that ever failed or came back, on standard output:
     * "paths: rank 0 to 1 path 0 failovers 3 returns 2". */
    void print(int rank) const;

  private:
    struct Variable {
        const char *name;
        MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
        int count = 0;
    };
    bool wanted_;
    MPI_Comm comm_ = MPI_COMM_WORLD;
    MPI_T_pvar_session session_ = MPI_T_PVAR_SESSION_NULL;
    std::array<Variable, 2> variables_{
        Variable{.name = "pml_dr_path_failovers"},
        Variable{.name = "pml_dr_path_returns"},
    };
};

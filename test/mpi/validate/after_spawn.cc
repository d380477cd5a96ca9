// Stands between libmpi_ft and Open MPI: what a process does between Open MPI's MPI_Comm_spawn and
// what the library does with its outcome. Waits until somebody writes to the FIFO that is named, if
// one is.
#include <mpi.h>

#include <cstdlib>

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

extern "C" int PMPI_Comm_spawn(const char *command, char *argv[], int maxprocs, MPI_Info info,
                               int root, MPI_Comm comm, MPI_Comm *intercomm, int errcodes[])
{
    static const auto next =
        reinterpret_cast<decltype(&PMPI_Comm_spawn)>(dlsym(RTLD_NEXT, "PMPI_Comm_spawn"));
    const int code = next(command, argv, maxprocs, info, root, comm, intercomm, errcodes);
    if (const char *file = std::getenv("FT_AFTER_SPAWN"); code == MPI_SUCCESS && file != nullptr) {
        close(open(file, O_RDONLY)); // until somebody has opened it to write
    }
    return code;
}

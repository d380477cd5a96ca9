// Functions that MPI_Init calls, in the program itself, where the dynamic linker looks first.
#include <mpi.h>

#include "test/mpi/survivors/dies_at.hpp"

#include "test/mpi/survivors/mark.hpp"

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <utility>

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

namespace dies_at {

namespace {

Point armed = Point::none;
How how_armed = How::killed;
std::string where;
Point held = Point::none;
std::function<void()> held_by;

sigset_t awaited()
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    return set;
}

void pass(Point point)
{
    if (point == Point::none) {
        return;
    }
    if (point == held) {
        held = Point::none;
        held_by();
    }
    if (point == armed) {
        const bool stays = how_armed == How::stands || how_armed == How::waits;
        marks::mark(where.c_str(), stays ? "stands" : "dies");
        if (how_armed == How::waits) {
            const sigset_t set = awaited();
            int number = 0;
            sigwait(&set, &number);
            return;
        }
        while (how_armed == How::stands) {
            ::pause();
        }
        if (how_armed == How::aborts) {
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        std::raise(SIGKILL);
    }
}

/// What would have been called. PMIx's library is not in the global scope.
template <typename Function>
Function *next(const char *library, const char *name)
{
    void *const handle = library == nullptr ? RTLD_NEXT : dlopen(library, RTLD_NOLOAD | RTLD_LAZY);
    auto *const found = reinterpret_cast<Function *>(dlsym(handle, name));
    if (found == nullptr) {
        std::abort();
    }
    return found;
}

} // namespace

void arm(Point point, const std::string &rank, const char *fifo, How how)
{
    how_armed = how;
    const char *const mine = std::getenv("OMPI_COMM_WORLD_RANK");
    armed = mine != nullptr && rank == mine ? point : Point::none;
    where = fifo;
    if (armed != Point::none && how == How::waits) {
        // Before there is another thread, which would be killed by it.
        const sigset_t set = awaited();
        pthread_sigmask(SIG_BLOCK, &set, nullptr);
    }
}

void hold(Point point, std::function<void()> what)
{
    held = point;
    held_by = std::move(what);
}

} // namespace dies_at

using dies_at::next;
using dies_at::pass;
using dies_at::Point;

extern "C" {

int PMIx_Commit(void)
{
    pass(Point::commit);
    return next<decltype(PMIx_Commit)>("libpmix.so.2", "PMIx_Commit")();
}

int PMIx_Fence_nb(const void *procs, std::size_t count, const void *info, std::size_t infos,
                  void (*done)(int, void *), void *data)
{
    static int fences = 0;
    ++fences;
    pass(fences == 1 ? Point::modex : fences == 2 ? Point::barrier : Point::none);
    const int rc = next<decltype(PMIx_Fence_nb)>("libpmix.so.2", "PMIx_Fence_nb")(
        procs, count, info, infos, done, data);
    pass(fences == 1 ? Point::in_modex : fences == 2 ? Point::in_barrier : Point::none);
    return rc;
}

int ompi_dpm_init(void)
{
    pass(Point::wired);
    return next<decltype(ompi_dpm_init)>(nullptr, "ompi_dpm_init")();
}

int PMIx_Publish(const void *info, std::size_t count)
{
    const int rc = next<decltype(PMIx_Publish)>("libpmix.so.2", "PMIx_Publish")(info, count);
    pass(Point::published);
    return rc;
}

int PMIx_Lookup(void *data, std::size_t count, const void *info, std::size_t infos)
{
    const int rc =
        next<decltype(PMIx_Lookup)>("libpmix.so.2", "PMIx_Lookup")(data, count, info, infos);
    pass(Point::looked_up);
    return rc;
}

int PMIx_Spawn(const void *info, std::size_t infos, const void *programs, std::size_t count,
               char *name)
{
    pass(Point::spawn);
    return next<decltype(PMIx_Spawn)>("libpmix.so.2", "PMIx_Spawn")(info, infos, programs, count,
                                                                    name);
}

int PMIx_Connect(const void *procs, std::size_t count, const void *info, std::size_t infos)
{
    pass(Point::connect);
    const int rc =
        next<decltype(PMIx_Connect)>("libpmix.so.2", "PMIx_Connect")(procs, count, info, infos);
    pass(Point::connected);
    return rc;
}

int ompi_comm_nextcid(void *made, void *from, void *bridge, const void *leader, const void *port,
                      bool first, int mode)
{
    pass(Point::context_id);
    return next<decltype(ompi_comm_nextcid)>(nullptr, "ompi_comm_nextcid")(
        made, from, bridge, leader, port, first, mode);
}

int ompi_comm_activate(void *made, void *from, void *bridge, const void *leader, const void *port,
                       bool first, int mode)
{
    pass(Point::activate);
    return next<decltype(ompi_comm_activate)>(nullptr, "ompi_comm_activate")(
        made, from, bridge, leader, port, first, mode);
}
}

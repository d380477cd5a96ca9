// The collectives themselves. Each stands here once for its blocking and its non-blocking form.
#include "ompi/mca/coll/validate/coll_validate.hpp"

#include "ompi/mpi_ft/mpi_ft.h"

namespace ft::coll {

namespace {

using Type = ompi_datatype_t *;
using Types = ompi_datatype_t *const *;
using Op = ompi_op_t *;
using Comm = ompi_communicator_t *;
using Base = mca_coll_base_module_t *;
using Request = ompi_request_t **;

/// One call among the survivors.
class Among {
  public:
    Among(Module &module, bool neighbours)
        : comm(neighbours ? nullptr : module.among),
          module_(module),
          ranks_(&module.record->survivor_ranks())
    {
        if (OPAL_LIKELY(comm != nullptr)) {
            return;
        }
        const validate::Lock lock;
        deserted = module.record->deserted();
        if (!deserted) {
            comm = neighbours ? module.record->neighbours()
                              : (module.among = module.record->survivors());
        }
    }
    Comm comm;
    bool deserted = false; ///< nobody is left on the other side of an intercommunicator
    /// Calls whose arguments are the survivors' as they are have none.
    Scratch &scratch()
    {
        if (!scratch_) {
            scratch_ = std::make_unique<Scratch>();
        }
        return *scratch_;
    }
    const std::vector<int> &ranks() const { return *ranks_; }
    int size() const { return static_cast<int>(ranks_->size()); }
    bool has(int rank) const { return (*ranks_)[static_cast<std::size_t>(rank)] >= 0; }
    /// An intercommunicator's root is MPI_ROOT in its own group, and for the others of that
    /// MPI_PROC_NULL.
    bool has_root(int root) const { return root < 0 || has(root); }
    int root(int root) const { return root < 0 ? root : (*ranks_)[static_cast<std::size_t>(root)]; }
    /// Whether this process is the root.
    bool here(int root) const
    {
        return module_.record->inter() ? root == MPI_ROOT : module_.comm->c_my_rank == root;
    }

    /// The survivors' entries of an array that has one for each rank.
    int *pick(std::vector<int> &into, const int *all)
    {
        for (int r = 0; r < size(); ++r) {
            if (has(r)) {
                into.push_back(all[r]);
            }
        }
        return into.data();
    }
    Types pick(std::vector<Type> &into, Types all)
    {
        for (int r = 0; r < size(); ++r) {
            if (has(r)) {
                into.push_back(all[r]);
            }
        }
        return into.data();
    }
    /// The same count for every survivor, each at its old place.
    bool spread(int side, int count)
    {
        for (int r = 0; r < size(); ++r) {
            if (has(r)) {
                const long long place = static_cast<long long>(r) * count;
                if (place > INT_MAX) {
                    return false; // Open MPI's arrays of places are int
                }
                scratch().counts[side].push_back(count);
                scratch().places[side].push_back(static_cast<int>(place));
            }
        }
        return true;
    }
    /// The survivors' blocks of `from`, one behind the other. \param counts of each block
    const void *pack(const void *from, const int *counts, Type type)
    {
        long long total = 0;
        for (int r = 0; r < size(); ++r) {
            total += has(r) ? counts[r] : 0;
        }
        ptrdiff_t gap = 0;
        const ptrdiff_t span =
            opal_datatype_span(&type->super, static_cast<std::size_t>(total), &gap);
        scratch().bytes = std::make_unique<char[]>(static_cast<std::size_t>(span) + 1);
        ptrdiff_t lower = 0;
        ptrdiff_t extent = 0;
        ompi_datatype_get_extent(type, &lower, &extent);
        char *const base = scratch().bytes.get() - gap;
        char *to = base;
        const char *at = static_cast<const char *>(from);
        for (int r = 0; r < size(); ++r) {
            if (has(r) && counts[r] != 0) {
                ompi_datatype_copy_content_same_ddt(type, counts[r], to, const_cast<char *>(at));
                to += extent * counts[r];
            }
            at += extent * counts[r];
        }
        return base;
    }

    /// For a reduction over the other group of an intercommunicator that is scattered over the own
    /// one. The other group does not know which elements were for failed ranks, so all are
    /// reduced; a survivor takes those for the failed behind it, and the first those before it.
    /// \param counts for each rank of the own group
    /// \return where the result goes instead of `into`
    char *absorb(const int *counts, char *into, Type type)
    {
        const std::vector<int> &own = module_.record->local_survivor_ranks();
        std::vector<int> &merged = scratch().counts[0];
        int before = 0;
        for (std::size_t r = 0; r < own.size(); ++r) {
            if (own[r] >= 0) {
                merged.push_back(counts[r] + (merged.empty() ? before : 0));
            } else if (merged.empty()) {
                before += counts[r];
            } else {
                merged.back() += counts[r];
            }
        }
        const auto self = static_cast<std::size_t>(module_.comm->c_my_rank);
        const auto place = static_cast<std::size_t>(own[self]);
        ptrdiff_t gap = 0;
        const ptrdiff_t span =
            opal_datatype_span(&type->super, static_cast<std::size_t>(merged[place]), &gap);
        scratch().bytes = std::make_unique<char[]>(static_cast<std::size_t>(span) + 1);
        ptrdiff_t lower = 0;
        ptrdiff_t extent = 0;
        ompi_datatype_get_extent(type, &lower, &extent);
        char *const base = scratch().bytes.get() - gap;
        scratch().from = base + (place == 0 ? before * extent : 0);
        scratch().into = into;
        scratch().count = counts[self];
        scratch().type = type;
        return base;
    }

    /// The end of the call.
    int end(int rc, Request request)
    {
        if (request != nullptr) {
            return module_.watch(rc, request, scratch_.release());
        }
        if (rc == OMPI_SUCCESS && scratch_) {
            scratch_->hand_over();
        }
        return module_.result(rc);
    }
    int refuse(int error, Request request)
    {
        if (request != nullptr) {
            *request = &ompi_request_null.request;
        }
        return error;
    }

  private:
    Module &module_;
    std::unique_ptr<Scratch> scratch_;
    const std::vector<int> *ranks_;
};

/// Calls one of a pair of collectives on the survivors' communicator.
#define FT_CALL(name, ...)                                                                         \
    among.end(request == nullptr                                                                   \
                  ? among.comm->c_coll->coll_##name(__VA_ARGS__, among.comm,                       \
                                                    among.comm->c_coll->coll_##name##_module)      \
                  : among.comm->c_coll->coll_i##name(__VA_ARGS__, among.comm, request,             \
                                                     among.comm->c_coll->coll_i##name##_module),   \
              request)

/// \return what a call ends with that cannot run at all, with its request
int refused(const Module &module, Request request) noexcept
{
    if (request != nullptr) {
        *request = &ompi_request_null.request;
    }
    return module.mode == Mode::revoked ? MPIX_ERR_REVOKED : MPI_ERR_RANK_FAIL_STOP;
}

/// \param neighbours whether it runs among all ranks, those that failed being like MPI_PROC_NULL
template <class Call>
int survive(Module &module, Request request, Call call, bool neighbours = false) noexcept
try {
    if (module.mode != Mode::survivors) {
        return refused(module, request);
    }
    Among among(module, neighbours);
    if (among.deserted) {
        return refused(module, request);
    }
    return among.comm == nullptr ? among.refuse(MPI_ERR_NO_MEM, request) : call(among);
} catch (...) {
    return MPI_ERR_NO_MEM;
}

/// The same for a collective with a root, which must live.
template <class Call>
int survive_rooted(Module &module, int root, Request request, Call call) noexcept
{
    return survive(module, request, [&](Among &among) {
        return among.has_root(root) ? call(among, among.root(root))
                                    : among.refuse(MPI_ERR_RANK_FAIL_STOP, request);
    });
}

int late_barrier(Module &m, Request request) noexcept
{
    return survive(m, request, [&](Among &among) {
        return among.end(request == nullptr
                             ? among.comm->c_coll->coll_barrier(
                                   among.comm, among.comm->c_coll->coll_barrier_module)
                             : among.comm->c_coll->coll_ibarrier(
                                   among.comm, request, among.comm->c_coll->coll_ibarrier_module),
                         request);
    });
}

int late_bcast(Module &m, Request request, void *buffer, int count, Type type, int root) noexcept
{
    return survive_rooted(m, root, request, [&](Among &among, int to) {
        return FT_CALL(bcast, buffer, count, type, to);
    });
}

int late_reduce(Module &m, Request request, const void *from, void *into, int count, Type type,
                Op op, int root) noexcept
{
    return survive_rooted(m, root, request, [&](Among &among, int to) {
        return FT_CALL(reduce, from, into, count, type, op, to);
    });
}

int late_allreduce(Module &m, Request request, const void *from, void *into, int count, Type type,
                   Op op) noexcept
{
    return survive(m, request,
                   [&](Among &among) { return FT_CALL(allreduce, from, into, count, type, op); });
}

int late_scan(Module &m, Request request, const void *from, void *into, int count, Type type,
              Op op) noexcept
{
    return survive(m, request,
                   [&](Among &among) { return FT_CALL(scan, from, into, count, type, op); });
}

int late_exscan(Module &m, Request request, const void *from, void *into, int count, Type type,
                Op op) noexcept
{
    return survive(m, request,
                   [&](Among &among) { return FT_CALL(exscan, from, into, count, type, op); });
}

int late_gatherv(Module &m, Request request, const void *from, int send_count, Type send_type,
                 void *into, const int *counts, const int *places, Type type, int root) noexcept
{
    return survive_rooted(m, root, request, [&](Among &among, int to) {
        Scratch &s = among.scratch();
        const bool here = among.here(root);
        const int *c = here ? among.pick(s.counts[0], counts) : nullptr;
        const int *p = here ? among.pick(s.places[0], places) : nullptr;
        return FT_CALL(gatherv, from, send_count, send_type, into, c, p, type, to);
    });
}

int late_gather(Module &m, Request request, const void *from, int send_count, Type send_type,
                void *into, int count, Type type, int root) noexcept
{
    return survive_rooted(m, root, request, [&](Among &among, int to) {
        Scratch &s = among.scratch();
        if (among.here(root) && !among.spread(0, count)) {
            return among.refuse(MPI_ERR_COUNT, request);
        }
        return FT_CALL(gatherv, from, send_count, send_type, into, s.counts[0].data(),
                       s.places[0].data(), type, to);
    });
}

int late_scatterv(Module &m, Request request, const void *from, const int *counts,
                  const int *places, Type send_type, void *into, int count, Type type,
                  int root) noexcept
{
    return survive_rooted(m, root, request, [&](Among &among, int to) {
        Scratch &s = among.scratch();
        const bool here = among.here(root);
        const int *c = here ? among.pick(s.counts[0], counts) : nullptr;
        const int *p = here ? among.pick(s.places[0], places) : nullptr;
        return FT_CALL(scatterv, from, c, p, send_type, into, count, type, to);
    });
}

int late_scatter(Module &m, Request request, const void *from, int send_count, Type send_type,
                 void *into, int count, Type type, int root) noexcept
{
    return survive_rooted(m, root, request, [&](Among &among, int to) {
        Scratch &s = among.scratch();
        if (among.here(root) && !among.spread(0, send_count)) {
            return among.refuse(MPI_ERR_COUNT, request);
        }
        return FT_CALL(scatterv, from, s.counts[0].data(), s.places[0].data(), send_type, into,
                       count, type, to);
    });
}

int late_allgatherv(Module &m, Request request, const void *from, int send_count, Type send_type,
                    void *into, const int *counts, const int *places, Type type) noexcept
{
    return survive(m, request, [&](Among &among) {
        Scratch &s = among.scratch();
        return FT_CALL(allgatherv, from, send_count, send_type, into,
                       among.pick(s.counts[0], counts), among.pick(s.places[0], places), type);
    });
}

int late_allgather(Module &m, Request request, const void *from, int send_count, Type send_type,
                   void *into, int count, Type type) noexcept
{
    return survive(m, request, [&](Among &among) {
        Scratch &s = among.scratch();
        if (!among.spread(0, count)) {
            return among.refuse(MPI_ERR_COUNT, request);
        }
        return FT_CALL(allgatherv, from, send_count, send_type, into, s.counts[0].data(),
                       s.places[0].data(), type);
    });
}

int late_alltoall(Module &m, Request request, const void *from, int send_count, Type send_type,
                  void *into, int count, Type type) noexcept
{
    return survive(m, request, [&](Among &among) {
        Scratch &s = among.scratch();
        const bool in_place = from == MPI_IN_PLACE;
        if (!among.spread(0, in_place ? 0 : send_count) || !among.spread(1, count)) {
            return among.refuse(MPI_ERR_COUNT, request);
        }
        return FT_CALL(alltoallv, from, s.counts[0].data(), s.places[0].data(),
                       in_place ? type : send_type, into, s.counts[1].data(), s.places[1].data(),
                       type);
    });
}

int late_alltoallv(Module &m, Request request, const void *from, const int *send_counts,
                   const int *send_places, Type send_type, void *into, const int *counts,
                   const int *places, Type type) noexcept
{
    return survive(m, request, [&](Among &among) {
        Scratch &s = among.scratch();
        const bool in_place = from == MPI_IN_PLACE;
        const int *sc = in_place ? nullptr : among.pick(s.counts[0], send_counts);
        const int *sp = in_place ? nullptr : among.pick(s.places[0], send_places);
        const int *rc = among.pick(s.counts[1], counts);
        const int *rp = among.pick(s.places[1], places);
        return FT_CALL(alltoallv, from, sc, sp, send_type, into, rc, rp, type);
    });
}

int late_alltoallw(Module &m, Request request, const void *from, const int *send_counts,
                   const int *send_places, Types send_types, void *into, const int *counts,
                   const int *places, Types types) noexcept
{
    return survive(m, request, [&](Among &among) {
        Scratch &s = among.scratch();
        const bool in_place = from == MPI_IN_PLACE;
        const int *sc = in_place ? nullptr : among.pick(s.counts[0], send_counts);
        const int *sp = in_place ? nullptr : among.pick(s.places[0], send_places);
        Types st = in_place ? nullptr : among.pick(s.types[0], send_types);
        const int *rc = among.pick(s.counts[1], counts);
        const int *rp = among.pick(s.places[1], places);
        Types rt = among.pick(s.types[1], types);
        return FT_CALL(alltoallw, from, sc, sp, st, into, rc, rp, rt);
    });
}

int late_reduce_scatter(Module &m, Request request, const void *from, void *into, const int *counts,
                        Type type, Op op) noexcept
{
    return survive(m, request, [&](Among &among) {
        Scratch &s = among.scratch();
        if (m.record->inter()) {
            char *result = among.absorb(counts, static_cast<char *>(into), type);
            return FT_CALL(reduce_scatter, from, result, s.counts[0].data(), type, op);
        }
        const void *packed = among.pack(from == MPI_IN_PLACE ? into : from, counts, type);
        const int *c = among.pick(s.counts[0], counts);
        return FT_CALL(reduce_scatter, packed, into, c, type, op);
    });
}

int late_reduce_scatter_block(Module &m, Request request, const void *from, void *into, int count,
                              Type type, Op op) noexcept
{
    return survive(m, request, [&](Among &among) {
        Scratch &s = among.scratch();
        const std::vector<int> counts(m.record->local_survivor_ranks().size(), count);
        if (m.record->inter()) { // the survivors' blocks are not of one size any more
            char *result = among.absorb(counts.data(), static_cast<char *>(into), type);
            return FT_CALL(reduce_scatter, from, result, s.counts[0].data(), type, op);
        }
        const void *packed = among.pack(from == MPI_IN_PLACE ? into : from, counts.data(), type);
        return FT_CALL(reduce_scatter_block, packed, into, count, type, op);
    });
}

int late_neighbor_allgather(Module &m, Request request, const void *from, int send_count,
                            Type send_type, void *into, int count, Type type) noexcept
{
    return survive(
        m, request,
        [&](Among &among) {
            return FT_CALL(neighbor_allgather, from, send_count, send_type, into, count, type);
        },
        true);
}

int late_neighbor_allgatherv(Module &m, Request request, const void *from, int send_count,
                             Type send_type, void *into, const int *counts, const int *places,
                             Type type) noexcept
{
    return survive(
        m, request,
        [&](Among &among) {
            return FT_CALL(neighbor_allgatherv, from, send_count, send_type, into, counts, places,
                           type);
        },
        true);
}

int late_neighbor_alltoall(Module &m, Request request, const void *from, int send_count,
                           Type send_type, void *into, int count, Type type) noexcept
{
    return survive(
        m, request,
        [&](Among &among) {
            return FT_CALL(neighbor_alltoall, from, send_count, send_type, into, count, type);
        },
        true);
}

int late_neighbor_alltoallv(Module &m, Request request, const void *from, const int *send_counts,
                            const int *send_places, Type send_type, void *into, const int *counts,
                            const int *places, Type type) noexcept
{
    return survive(
        m, request,
        [&](Among &among) {
            return FT_CALL(neighbor_alltoallv, from, send_counts, send_places, send_type, into,
                           counts, places, type);
        },
        true);
}

int late_neighbor_alltoallw(Module &m, Request request, const void *from, const int *send_counts,
                            const MPI_Aint *send_places, Types send_types, void *into,
                            const int *counts, const MPI_Aint *places, Types types) noexcept
{
    return survive(
        m, request,
        [&](Among &among) {
            return FT_CALL(neighbor_alltoallw, from, send_counts, send_places, send_types, into,
                           counts, places, types);
        },
        true);
}

#undef FT_CALL

/// Module functions of one collective: stock while nobody has failed, else as above. A template
/// makes them from the functions' types, so that no argument list is written twice.
#define FT_ENTRY(name)                                                                             \
    struct Entry_##name {                                                                          \
        template <class... Args>                                                                   \
        static int blocking(Args... args, Comm comm, Base base) noexcept                           \
        {                                                                                          \
            Module &m = Module::of(base);                                                          \
            if (OPAL_LIKELY(m.stock())) {                                                          \
                return m.result(m.below.coll_##name(args..., comm, m.below.coll_##name##_module)); \
            }                                                                                      \
            return late_##name(m, nullptr, args...);                                               \
        }                                                                                          \
        template <class... Args>                                                                   \
        static int starting(Args... args, Comm comm, Request request, Base base) noexcept          \
        {                                                                                          \
            Module &m = Module::of(base);                                                          \
            if (OPAL_LIKELY(m.stock())) {                                                          \
                return m.watch(                                                                    \
                    m.below.coll_i##name(args..., comm, request, m.below.coll_i##name##_module),   \
                    request);                                                                      \
            }                                                                                      \
            return late_##name(m, request, args...);                                               \
        }                                                                                          \
        template <class... Args>                                                                   \
        static void set(Module &m, int (*)(Module &, Request, Args...) noexcept) noexcept          \
        {                                                                                          \
            m.coll_##name = &blocking<Args...>;                                                    \
            m.coll_i##name = &starting<Args...>;                                                   \
        }                                                                                          \
    };

FT_ENTRY(allgather)
FT_ENTRY(allgatherv)
FT_ENTRY(allreduce)
FT_ENTRY(alltoall)
FT_ENTRY(alltoallv)
FT_ENTRY(alltoallw)
FT_ENTRY(barrier)
FT_ENTRY(bcast)
FT_ENTRY(exscan)
FT_ENTRY(gather)
FT_ENTRY(gatherv)
FT_ENTRY(neighbor_allgather)
FT_ENTRY(neighbor_allgatherv)
FT_ENTRY(neighbor_alltoall)
FT_ENTRY(neighbor_alltoallv)
FT_ENTRY(neighbor_alltoallw)
FT_ENTRY(reduce)
FT_ENTRY(reduce_scatter)
FT_ENTRY(reduce_scatter_block)
FT_ENTRY(scan)
FT_ENTRY(scatter)
FT_ENTRY(scatterv)
#undef FT_ENTRY

} // namespace

void set_functions(Module &module) noexcept
{
    Entry_allgather::set(module, late_allgather);
    Entry_allgatherv::set(module, late_allgatherv);
    Entry_allreduce::set(module, late_allreduce);
    Entry_alltoall::set(module, late_alltoall);
    Entry_alltoallv::set(module, late_alltoallv);
    Entry_alltoallw::set(module, late_alltoallw);
    Entry_barrier::set(module, late_barrier);
    Entry_bcast::set(module, late_bcast);
    Entry_exscan::set(module, late_exscan);
    Entry_gather::set(module, late_gather);
    Entry_gatherv::set(module, late_gatherv);
    Entry_neighbor_allgather::set(module, late_neighbor_allgather);
    Entry_neighbor_allgatherv::set(module, late_neighbor_allgatherv);
    Entry_neighbor_alltoall::set(module, late_neighbor_alltoall);
    Entry_neighbor_alltoallv::set(module, late_neighbor_alltoallv);
    Entry_neighbor_alltoallw::set(module, late_neighbor_alltoallw);
    Entry_reduce::set(module, late_reduce);
    Entry_reduce_scatter::set(module, late_reduce_scatter);
    Entry_reduce_scatter_block::set(module, late_reduce_scatter_block);
    Entry_scan::set(module, late_scan);
    Entry_scatter::set(module, late_scatter);
    Entry_scatterv::set(module, late_scatterv);
}

} // namespace ft::coll

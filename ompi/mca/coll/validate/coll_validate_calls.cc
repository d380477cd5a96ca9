// The collectives themselves. Each stands here once for its blocking and its non-blocking form.
#include "ompi/mca/coll/validate/coll_validate.hpp"
#include "ompi/mca/coll/validate/coll_validate_among.hpp"

#include <algorithm>

#include "ompi/mpi_ft/mpi_ft.h"

namespace ft::coll {

namespace {

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
    Among among(module, neighbours, request != nullptr);
    if (among.deserted) {
        return refused(module, request);
    }
    return among.comm == nullptr ? among.refuse(MPI_ERR_NO_MEM, request) : call(among);
} catch (...) {
    if (request != nullptr) {
        *request = &ompi_request_null.request;
    }
    return MPI_ERR_NO_MEM;
}

/// The same for a collective with a root, which must live.
template <class Call>
int survive_rooted(Module &module, int root, Request request, Call call) noexcept
{
    return survive(module, request, [&](Among &among) {
        if (OPAL_LIKELY(among.has_root(root))) {
            return call(among, among.root(root));
        }
        if (request != nullptr && among.told_alone()) {
            // The root's group does not know who it is, and hands on. Non-blocking collectives
            // are counted, on both sides alike: like the others there this process has no part.
            if (const int rc = call(among, MPI_PROC_NULL); rc != OMPI_SUCCESS) {
                return rc;
            }
            ompi_request_free(request);
        }
        return among.refuse(MPI_ERR_RANK_FAIL_STOP, request);
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
        const bool here = among.here(root);
        if (among.small(here ? count : send_count, here ? type : send_type)) {
            if (!here) {
                return FT_CALL(gather, from, send_count, send_type, into, count, type, to);
            }
            const Block own = among.own_block(from, send_count, send_type, into, count, type);
            char *heard = among.room(among.scratch().bytes, count, type);
            among.unpack_later(heard, into, count, type);
            return FT_CALL(gather, own.bytes, own.count, own.type, heard, count, type, to);
        }
        if (!here) {
            const Block own = among.lone_block(root, send_count, send_type);
            return FT_CALL(gatherv, from, own.count, own.type, into, nullptr, nullptr, type, to);
        }
        const Blocks heard = among.spread(0, count, type);
        return FT_CALL(gatherv, from, send_count, send_type, into, heard.counts, heard.places,
                       heard.type, to);
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
        const bool here = among.here(root);
        if (among.small(here ? send_count : count, here ? send_type : type)) {
            const Block blocks =
                here ? among.packed_to_send(among.scratch().bytes, from, send_count, send_type)
                     : Block{from, send_count, send_type};
            return FT_CALL(scatter, blocks.bytes, blocks.count, blocks.type, into, count, type, to);
        }
        if (!here) {
            const Block own = among.lone_block(root, count, type);
            return FT_CALL(scatterv, from, nullptr, nullptr, send_type, into, own.count, own.type,
                           to);
        }
        const Blocks told = among.spread(0, send_count, send_type);
        return FT_CALL(scatterv, from, told.counts, told.places, told.type, into, count, type, to);
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
        if (among.small(count, type)) {
            const Block own = among.own_block(from, send_count, send_type, into, count, type);
            char *heard = among.room(among.scratch().bytes, count, type);
            among.unpack_later(heard, into, count, type);
            return FT_CALL(allgather, own.bytes, own.count, own.type, heard, count, type);
        }
        Block own = {from, send_count, send_type};
        const Blocks heard = among.spread(own, count, type);
        return FT_CALL(allgatherv, from, own.count, own.type, into, heard.counts, heard.places,
                       heard.type);
    });
}

int late_alltoall(Module &m, Request request, const void *from, int send_count, Type send_type,
                  void *into, int count, Type type) noexcept
{
    return survive(m, request, [&](Among &among) {
        const bool in_place = from == MPI_IN_PLACE;
        if (among.small(count, type)) {
            Scratch &s = among.scratch();
            char *heard = in_place ? among.packed(s.bytes, into, count, type)
                                   : among.room(s.bytes, count, type);
            Block told = {from, send_count, send_type};
            if (!in_place && send_type == type) { // no more do they overlap than what is received
                told.bytes = among.packed(s.more_bytes, from, send_count, send_type);
            } else if (!in_place) {
                told = among.packed_to_send(s.more_bytes, from, send_count, send_type);
            }
            among.unpack_later(heard, into, count, type);
            return FT_CALL(alltoall, told.bytes, told.count, told.type, heard, count, type);
        }
        const Blocks heard = among.spread(1, count, type);
        const Blocks told = in_place ? Blocks{nullptr, nullptr, heard.type}
                                     : among.spread(0, send_count, send_type);
        return FT_CALL(alltoallv, from, told.counts, told.places, told.type, into, heard.counts,
                       heard.places, heard.type);
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
        if (request == nullptr && !m.record->inter() && ompi_comm_size(among.comm) == 1) {
            // coll/self takes the places for elements; they are bytes.
            if (in_place) {
                return MPI_SUCCESS;
            }
            return ompi_datatype_sndrcv(static_cast<const char *>(from) + sp[0], sc[0], st[0],
                                        static_cast<char *>(into) + rp[0], rc[0], rt[0]);
        }
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
        const std::vector<int> &left = s.counts[0];
        const auto some = [](int elements) { return elements != 0; };
        if (request == nullptr && std::none_of(left.begin(), left.end(), some)) {
            // The stock algorithms divide by the sum. MPI_Reduce_scatter does not give them one of
            // 0, but the sum that it has seen had the failed ranks' counts in it.
            return MPI_SUCCESS;
        }
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

/// What stands in the table for one collective: stock while nobody has failed, else as above. A
/// template makes them from the functions' types, so that no argument list is written twice. What
/// follows news stands apart, since its locals would make a frame for every call.
#define FT_ENTRY(name)                                                                             \
    struct Entry_##name {                                                                          \
        template <class... Args>                                                                   \
        static int stock(Module &m, Args... args, Comm comm) noexcept                              \
        {                                                                                          \
            return m.result(m.hand_on([&] {                                                        \
                return m.below.coll_##name(args..., comm, m.below.coll_##name##_module);           \
            }));                                                                                   \
        }                                                                                          \
        template <class... Args>                                                                   \
        static int blocking(Args... args, Comm comm, Base) noexcept                                \
        {                                                                                          \
            Module &m = Module::of(comm);                                                          \
            if (OPAL_UNLIKELY(!m.surely_stock())) {                                                \
                return after_news<Args...>(args..., comm, m);                                      \
            }                                                                                      \
            return stock<Args...>(m, args..., comm);                                               \
        }                                                                                          \
        template <class... Args>                                                                   \
        [[gnu::noinline]] static int after_news(Args... args, Comm comm, Module &m) noexcept       \
        {                                                                                          \
            return m.stock() ? stock<Args...>(m, args..., comm)                                    \
                             : late_##name(m, nullptr, args...);                                   \
        }                                                                                          \
        template <class... Args>                                                                   \
        static int stock_start(Module &m, Args... args, Comm comm, Request request) noexcept       \
        {                                                                                          \
            const int rc = m.hand_on([&] {                                                         \
                return m.below.coll_i##name(args..., comm, request,                                \
                                            m.below.coll_i##name##_module);                        \
            });                                                                                    \
            return m.watch(rc, request);                                                           \
        }                                                                                          \
        template <class... Args>                                                                   \
        static int starting(Args... args, Comm comm, Request request, Base) noexcept               \
        {                                                                                          \
            Module &m = Module::of(comm);                                                          \
            if (OPAL_UNLIKELY(!m.surely_stock())) {                                                \
                return starting_after_news<Args...>(args..., comm, request, m);                    \
            }                                                                                      \
            return stock_start<Args...>(m, args..., comm, request);                                \
        }                                                                                          \
        template <class... Args>                                                                   \
        [[gnu::noinline]] static int starting_after_news(Args... args, Comm comm, Request request, \
                                                         Module &m) noexcept                       \
        {                                                                                          \
            return m.stock() ? stock_start<Args...>(m, args..., comm, request)                     \
                             : late_##name(m, request, args...);                                   \
        }                                                                                          \
        template <class... Args>                                                                   \
        static void set(mca_coll_base_comm_coll_t &table,                                          \
                        int (*)(Module &, Request, Args...) noexcept) noexcept                     \
        {                                                                                          \
            table.coll_##name = &blocking<Args...>;                                                \
            table.coll_i##name = &starting<Args...>;                                               \
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

const mca_coll_base_comm_coll_t &diverted_functions() noexcept
{
    static const mca_coll_base_comm_coll_t all = [] {
        mca_coll_base_comm_coll_t table{};
        Entry_allgather::set(table, late_allgather);
        Entry_allgatherv::set(table, late_allgatherv);
        Entry_allreduce::set(table, late_allreduce);
        Entry_alltoall::set(table, late_alltoall);
        Entry_alltoallv::set(table, late_alltoallv);
        Entry_alltoallw::set(table, late_alltoallw);
        Entry_barrier::set(table, late_barrier);
        Entry_bcast::set(table, late_bcast);
        Entry_exscan::set(table, late_exscan);
        Entry_gather::set(table, late_gather);
        Entry_gatherv::set(table, late_gatherv);
        Entry_neighbor_allgather::set(table, late_neighbor_allgather);
        Entry_neighbor_allgatherv::set(table, late_neighbor_allgatherv);
        Entry_neighbor_alltoall::set(table, late_neighbor_alltoall);
        Entry_neighbor_alltoallv::set(table, late_neighbor_alltoallv);
        Entry_neighbor_alltoallw::set(table, late_neighbor_alltoallw);
        Entry_reduce::set(table, late_reduce);
        Entry_reduce_scatter::set(table, late_reduce_scatter);
        Entry_reduce_scatter_block::set(table, late_reduce_scatter_block);
        Entry_scan::set(table, late_scan);
        Entry_scatter::set(table, late_scatter);
        Entry_scatterv::set(table, late_scatterv);
        return table;
    }();
    return all;
}

} // namespace ft::coll

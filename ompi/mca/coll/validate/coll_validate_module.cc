#include "ompi/mca/coll/validate/coll_validate.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dlfcn.h>

#include "ompi/mca/coll/validate/coll_validate_failed.hpp"
#include "ompi/mpi_ft/mpi_ft.h"

namespace ft::coll {

namespace {

/// Every collective that coll/validate stands above. Intercommunicators have none of the first.
#define FT_FOR_EACH_SCAN(DO)                                                                       \
    DO(exscan)                                                                                     \
    DO(scan)                                                                                       \
    DO(iexscan)                                                                                    \
    DO(iscan)
/// These may be missing where there is no topology.
#define FT_FOR_EACH_NEIGHBORHOOD(DO)                                                               \
    DO(neighbor_allgather)                                                                         \
    DO(neighbor_allgatherv)                                                                        \
    DO(neighbor_alltoall)                                                                          \
    DO(neighbor_alltoallv)                                                                         \
    DO(neighbor_alltoallw)                                                                         \
    DO(ineighbor_allgather)                                                                        \
    DO(ineighbor_allgatherv)                                                                       \
    DO(ineighbor_alltoall)                                                                         \
    DO(ineighbor_alltoallv)                                                                        \
    DO(ineighbor_alltoallw)
#define FT_FOR_EACH_OTHER(DO)                                                                      \
    DO(allgather)                                                                                  \
    DO(allgatherv)                                                                                 \
    DO(allreduce)                                                                                  \
    DO(alltoall)                                                                                   \
    DO(alltoallv)                                                                                  \
    DO(alltoallw)                                                                                  \
    DO(barrier)                                                                                    \
    DO(bcast)                                                                                      \
    DO(gather)                                                                                     \
    DO(gatherv)                                                                                    \
    DO(reduce)                                                                                     \
    DO(reduce_scatter)                                                                             \
    DO(reduce_scatter_block)                                                                       \
    DO(scatter)                                                                                    \
    DO(scatterv)                                                                                   \
    DO(iallgather)                                                                                 \
    DO(iallgatherv)                                                                                \
    DO(iallreduce)                                                                                 \
    DO(ialltoall)                                                                                  \
    DO(ialltoallv)                                                                                 \
    DO(ialltoallw)                                                                                 \
    DO(ibarrier)                                                                                   \
    DO(ibcast)                                                                                     \
    DO(igather)                                                                                    \
    DO(igatherv)                                                                                   \
    DO(ireduce)                                                                                    \
    DO(ireduce_scatter)                                                                            \
    DO(ireduce_scatter_block)                                                                      \
    DO(iscatter)                                                                                   \
    DO(iscatterv)
#define FT_FOR_EACH_COLLECTIVE(DO)                                                                 \
    FT_FOR_EACH_SCAN(DO) FT_FOR_EACH_NEIGHBORHOOD(DO) FT_FOR_EACH_OTHER(DO)

void construct(opal_object_t *object) noexcept
{
    Module *module = reinterpret_cast<Module *>(object);
    std::memset(&module->below, 0, sizeof module->below);
    module->stock_allgatherv = nullptr;
    module->stock_allgatherv_module = nullptr;
    module->diverted = module->settled = module->topmost = false;
    module->handing_on = 0;
    module->comm = nullptr;
    module->record = nullptr;
    module->stock_news = module->news = ~std::uint64_t{0};
    module->mode = Mode::stock;
    module->among = nullptr;
}

void destruct(opal_object_t *object) noexcept
{
    Module *module = reinterpret_cast<Module *>(object);
    if (module->record != nullptr) {
        const bool last = module->comm == &ompi_mpi_comm_world.comm;
        {
            const validate::Lock lock;
            validate::service().detach(module->record);
        }
        if (last) {
            unwatch_requests();
            validate::service().close();
        }
        module->record = nullptr;
    }
    if (module->below.coll_barrier_init_module != nullptr) {
        OBJ_RELEASE(module->below.coll_barrier_init_module);
    }
    if (module->stock_allgatherv_module != nullptr) {
        OBJ_RELEASE(module->stock_allgatherv_module);
    }
}

opal_class_t module_class = {"ft_coll_validate_module",
                             &mca_coll_base_module_t_class,
                             construct,
                             destruct,
                             0,
                             0,
                             nullptr,
                             nullptr,
                             sizeof(Module)};

/// Info key of a communicator: strict or loose. Another value changes nothing, as MPI wants it of
/// what an implementation does not know. \return what holds now, for MPI_Comm_get_info
char *take_semantics(opal_infosubscriber_t *object, char * /*key*/, char *value) noexcept
{
    static char strict[] = "strict";
    static char loose[] = "loose";
    const validate::Lock lock;
    validate::Record *record =
        validate::service().find(reinterpret_cast<ompi_communicator_t *>(object));
    if (record == nullptr) {
        return nullptr;
    }
    if (std::strcmp(value, strict) == 0) {
        record->semantics = validate::Semantics::strict;
    } else if (std::strcmp(value, loose) == 0) {
        record->semantics = validate::Semantics::loose;
    }
    return record->semantics == validate::Semantics::strict ? strict : loose;
}

/// A place in the table that is this module's from the beginning: by it a communicator leads to its
/// module. Nobody else's calls are as rare.
int barrier_init(ompi_communicator_t *comm, ompi_info_t *info, ompi_request_t **request,
                 mca_coll_base_module_t *base) noexcept
{
    const Module &module = Module::of(base);
    return module.below.coll_barrier_init(comm, info, request,
                                          module.below.coll_barrier_init_module);
}

/// The other one: see the top of coll_validate.hpp.
int allgatherv(const void *from, int send_count, ompi_datatype_t *send_type, void *into,
               const int *counts, const int *places, ompi_datatype_t *type,
               ompi_communicator_t *comm, mca_coll_base_module_t *base) noexcept
{
    Module &module = Module::of(base);
    return module.doubted(module.stock_allgatherv(from, send_count, send_type, into, counts, places,
                                                  type, comm, module.stock_allgatherv_module));
}

/// Whether the collectives of this module are made of the PML's messages, waited for by Open MPI's
/// functions on requests, and give back what those did. The module does not say of which component
/// it is; the file of its functions does. \param known modules' functions of which that is known
bool gives_errors_back(const mca_coll_base_module_t *module,
                       std::vector<mca_coll_base_module_enable_1_1_0_fn_t> &known)
{
    const auto enable = module->coll_module_enable;
    if (std::find(known.begin(), known.end(), enable) != known.end()) {
        return true;
    }
    Dl_info where{};
    if (dladdr(reinterpret_cast<void *>(enable), &where) == 0) {
        return false;
    }
    const std::string_view file(where.dli_fname);
    for (const char *name : {"basic", "inter", "libnbc", "self", "tuned"}) {
        if (file.ends_with(std::string("/mca_coll_") + name + ".so")) {
            known.push_back(enable);
            return true;
        }
    }
    return false;
}

} // namespace

int enable(mca_coll_base_module_t *base, ompi_communicator_t *comm) noexcept
try {
    Module &module = Module::of(base);
    const mca_coll_base_comm_coll_t &table = *comm->c_coll;
    module.comm = comm;
    bool complete = table.coll_barrier_init != nullptr;
#define FT_NEED(name) complete = complete && table.coll_##name != nullptr;
    FT_FOR_EACH_OTHER(FT_NEED)
    if (!OMPI_COMM_IS_INTER(comm)) {
        FT_FOR_EACH_SCAN(FT_NEED)
    }
#undef FT_NEED
    if (!complete) {
        return OMPI_ERR_NOT_FOUND; // somebody switched off what this module stands upon
    }
    module.below.coll_barrier_init = table.coll_barrier_init;
    module.below.coll_barrier_init_module = table.coll_barrier_init_module;
    OBJ_RETAIN(module.below.coll_barrier_init_module);
    validate::Service &service = validate::service();
    if (comm == &ompi_mpi_comm_world.comm) {
        if (!service.open()) {
            return OMPI_ERR_OUT_OF_RESOURCE;
        }
        if (const int rc = failed::let_go_at_finalize(); rc != OMPI_SUCCESS) {
            return rc;
        }
    }
    const validate::Lock lock;
    module.record = service.attach(comm);
    char key[] = "mpi_ft_semantics";
    char unset[] = "";
    if (const int rc = opal_infosubscribe_subscribe(&comm->super, key, unset, take_semantics);
        rc != OPAL_SUCCESS) {
        return rc;
    }
    // Nothing fails from here on: what is not enabled leaves neither the communicator's table nor
    // that of the requests other than it was.
    module.record->collectives = &module;
    module.record->divert = [](void *its) { static_cast<Module *>(its)->divert(); };
    bool trusted = true;
    std::vector<mca_coll_base_module_enable_1_1_0_fn_t> known; // a few for all the functions
#define FT_LOOK_AT(name)                                                                           \
    trusted = trusted && (table.coll_##name == nullptr ||                                          \
                          gives_errors_back(table.coll_##name##_module, known));
    FT_FOR_EACH_COLLECTIVE(FT_LOOK_AT)
#undef FT_LOOK_AT
    if (!OMPI_COMM_IS_INTER(comm)) {
        module.take_allgatherv(); // that of two groups gives back what its broadcast gave
    }
    if (!trusted || module.record->mode() != Mode::stock) {
        module.divert();
        module.settled = false; // components of higher priority have their turn now
    }
    if (comm == &ompi_mpi_comm_world.comm) {
        watch_requests();
    }
    return OMPI_SUCCESS;
} catch (...) {
    return OMPI_ERR_OUT_OF_RESOURCE;
}

namespace {

/// The class of a collective's error, by how the communicator's collectives are to run.
int class_of(Mode mode, int rc) noexcept
{
    switch (mode) {
    case Mode::revoked:
        return MPIX_ERR_REVOKED;
    case Mode::broken:
        return MPI_ERR_RANK_FAIL_STOP;
    case Mode::stock:
    case Mode::survivors:
        break;
    }
    // Among those who were the survivors until others were recognised: nobody has revoked it.
    return rc == MPIX_ERR_REVOKED ? MPI_ERR_RANK_FAIL_STOP : rc;
}

// Where there is a datatype or an operation of the program's own, Open MPI 4.1 puts a callback in
// front of a request's, to release it, and that one passes the data of ours on where the request
// belongs (complete_objs_callback in coll_base_util.c). So what a callback here is given is either
// the request or its data, and the data lead to the request.

Scratch *scratch_of(ompi_request_t *request_or_scratch) noexcept
{
    const char *first = nullptr;
    std::memcpy(&first, static_cast<const void *>(request_or_scratch), sizeof first);
    return first == &scratch_mark
               ? reinterpret_cast<Scratch *>(request_or_scratch)
               : static_cast<Scratch *>(request_or_scratch->req_complete_cb_data);
}

/// A collective has ended that has something to give back: its request's callback.
int ended(ompi_request_t *request_or_scratch) noexcept
{
    const std::unique_ptr<Scratch> scratch(scratch_of(request_or_scratch));
    ompi_request_t *const request = scratch->request;
    if (request->req_status.MPI_ERROR == MPI_SUCCESS) {
        scratch->hand_over();
    } else {
        fail(request, scratch->module->failure(request->req_status.MPI_ERROR));
    }
    return OMPI_SUCCESS;
}

/// The same for one that has nothing: all, as long as nobody fails. Its data are the request.
int watched(ompi_request_t *request) noexcept
{
    if (OPAL_UNLIKELY(request->req_status.MPI_ERROR != MPI_SUCCESS)) {
        fail(request, failure_on(request->req_mpi_object.comm, request->req_status.MPI_ERROR));
    }
    return OMPI_SUCCESS;
}

} // namespace

int failure_on(ompi_communicator_t *comm, int rc) noexcept
try {
    const validate::Lock lock;
    validate::service().take_news();
    const validate::Record *record = validate::service().find(comm);
    return record == nullptr ? rc : class_of(record->mode(), rc);
} catch (...) {
    return MPI_ERR_RANK_FAIL_STOP;
}

namespace {

/// The ways in which requests of collectives are given back: libnbc's, and those that Open MPI puts
/// in front of it for persistent ones with datatypes or operations of the program's own.
constexpr std::size_t ways_to_free = 8;
std::array<std::atomic<ompi_request_free_fn_t>, ways_to_free> stock_free{};

/// What is taken back is what it was: libnbc uses it again, and says only once of which type it is.
template <std::size_t Way>
int free_failed(ompi_request_t **request) noexcept
{
    (*request)->req_type = OMPI_REQUEST_COLL;
    (*request)->req_free = stock_free[Way].load(std::memory_order_relaxed);
    return (*request)->req_free(request);
}

/// The ones to stand in for them, each of its own, so that what was there is known at the end.
template <std::size_t... Way>
constexpr std::array<ompi_request_free_fn_t, ways_to_free>
each_free_failed(std::index_sequence<Way...> /*all*/) noexcept
{
    return {free_failed<Way>...};
}
constexpr std::array<ompi_request_free_fn_t, ways_to_free> stand_ins =
    each_free_failed(std::make_index_sequence<ways_to_free>());

} // namespace

bool of_a_collective(const ompi_request_t *request) noexcept
{
    return request->req_type == OMPI_REQUEST_COLL ||
           std::find(stand_ins.begin(), stand_ins.end(), request->req_free) != stand_ins.end();
}

/// Of collective requests Open MPI calls MPI_COMM_WORLD's error handler, of the PML's the
/// communicator's.
void fail(ompi_request_t *request, int error) noexcept
{
    request->req_status.MPI_ERROR = error;
    if (request->req_type != OMPI_REQUEST_COLL) {
        return;
    }
    for (std::size_t way = 0; way < ways_to_free; ++way) {
        ompi_request_free_fn_t known = nullptr;
        if (stock_free[way].compare_exchange_strong(known, request->req_free) ||
            known == request->req_free) {
            request->req_free = stand_ins[way];
            request->req_type = OMPI_REQUEST_PML;
            return;
        }
    }
}

Module *new_module() noexcept
{
    opal_object_t *object = opal_obj_new(&module_class);
    Module *module = reinterpret_cast<Module *>(object);
    if (module != nullptr) {
        module->coll_module_enable = enable;
        module->coll_barrier_init = barrier_init;
    }
    return module;
}

Module &Module::searched(ompi_communicator_t *comm) noexcept
{
    const validate::Lock lock;
    return *static_cast<Module *>(validate::service().find(comm)->collectives);
}

void Module::divert() noexcept
{
    if (!diverted) {
        diverted = settled = topmost = true;
        stand_above();
        return;
    }
    settle();
    if (topmost && handing_on == 0) {
        stand_above();
    }
}

void Module::take_allgatherv() noexcept
{
    mca_coll_base_comm_coll_t &table = *comm->c_coll;
    stock_allgatherv = table.coll_allgatherv;
    stock_allgatherv_module = table.coll_allgatherv_module; // and the table's hold on it
    table.coll_allgatherv = allgatherv;
    table.coll_allgatherv_module = this;
    OBJ_RETAIN(table.coll_allgatherv_module);
}

void Module::settle() noexcept
{
    if (!settled) {
        settled = true;
        topmost = stands_above();
    }
}

void Module::stand_above() noexcept
{
    mca_coll_base_comm_coll_t &table = *comm->c_coll;
    // What is not there below is not there above.
#define FT_DIVERT(name)                                                                            \
    if (table.coll_##name != nullptr && table.coll_##name != diverted_functions().coll_##name) {   \
        below.coll_##name = table.coll_##name;                                                     \
        below.coll_##name##_module = table.coll_##name##_module;                                   \
        __atomic_store_n(&table.coll_##name, diverted_functions().coll_##name, __ATOMIC_RELEASE);  \
    }
    FT_FOR_EACH_COLLECTIVE(FT_DIVERT)
#undef FT_DIVERT
}

bool Module::stands_above() const noexcept
{
    const mca_coll_base_comm_coll_t &table = *comm->c_coll;
    bool all = true;
#define FT_STANDS(name)                                                                            \
    all = all &&                                                                                   \
          (table.coll_##name == nullptr || table.coll_##name == diverted_functions().coll_##name);
    FT_FOR_EACH_COLLECTIVE(FT_STANDS)
#undef FT_STANDS
    return all;
}

void Module::come_back() noexcept
{
    if (--handing_on == 0 && topmost && OPAL_UNLIKELY(!stands_above())) {
        const validate::Lock lock;
        stand_above();
    }
}

Mode Module::look() noexcept
try {
    const validate::Lock lock;
    const std::uint64_t latest = process::news();
    validate::service().take_news();
    mode = record->mode();
    news = latest;
    stock_news = mode == Mode::stock ? latest : ~std::uint64_t{0};
    among = nullptr; // it may be another one from now on
    return mode;
} catch (...) {
    return Mode::broken;
}

namespace {

/// `copy` is given each run's part of `all`, of `packed`, and how many elements it has.
template <class Copy>
void each_run(const std::vector<RankRun> &runs, int count, ompi_datatype_t *type, Copy copy)
{
    ptrdiff_t lower = 0;
    ptrdiff_t extent = 0;
    ompi_datatype_get_extent(type, &lower, &extent);
    const ptrdiff_t block = extent * count;
    ptrdiff_t at = 0;
    for (const RankRun &run : runs) {
        copy(run.first * block, at, run.count * count);
        at += run.count * block;
    }
}

} // namespace

void pack_blocks(const std::vector<RankRun> &runs, int count, ompi_datatype_t *type,
                 const char *all, char *packed) noexcept
{
    each_run(runs, count, type, [&](ptrdiff_t from, ptrdiff_t to, int elements) {
        ompi_datatype_copy_content_same_ddt(type, elements, packed + to,
                                            const_cast<char *>(all) + from);
    });
}

void unpack_blocks(const std::vector<RankRun> &runs, int count, ompi_datatype_t *type,
                   const char *packed, char *all) noexcept
{
    each_run(runs, count, type, [&](ptrdiff_t to, ptrdiff_t from, int elements) {
        ompi_datatype_copy_content_same_ddt(type, elements, all + to,
                                            const_cast<char *>(packed) + from);
    });
}

void Scratch::hand_over() const noexcept
{
    if (blocks != nullptr) {
        unpack_blocks(*blocks, count, type, from, into);
        return;
    }
    if (into != nullptr && count != 0) {
        ompi_datatype_copy_content_same_ddt(type, count, into, from);
    }
}

int Module::failure(int rc) noexcept
{
    return class_of(look(), rc);
}

int Module::doubtful_success() noexcept
{
    // Of a communicator made for survivors only the board knows that it is revoked.
    return stock() && !process::is_revoked(comm->c_contextid) ? OMPI_SUCCESS
                                                              : failure(MPI_ERR_RANK_FAIL_STOP);
}

int Module::watch(int rc, ompi_request_t **request, Scratch *scratch) noexcept
{
    std::unique_ptr<Scratch> kept(scratch);
    if (rc != OMPI_SUCCESS) {
        *request = &ompi_request_null.request;
        return failure(rc);
    }
    if (REQUEST_COMPLETE(*request)) {
        if (kept) {
            kept->hand_over();
        }
        return rc;
    }
    // By its size Open MPI takes the lengths of the program's lists of datatypes, now and when it
    // ends; and errors are this communicator's, not the survivors'.
    (*request)->req_mpi_object.comm = comm;
    if (!kept) {
        ompi_request_set_callback(*request, watched, *request);
        return rc;
    }
    kept->module = this;
    kept->request = *request;
    ompi_request_set_callback(*request, ended, kept.release());
    return rc;
}

} // namespace ft::coll

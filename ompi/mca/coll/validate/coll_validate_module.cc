#include "ompi/mca/coll/validate/coll_validate.hpp"

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
            validate::service().close();
        }
        module->record = nullptr;
    }
#define FT_RELEASE(name)                                                                           \
    if (module->below.coll_##name##_module != nullptr) {                                           \
        OBJ_RELEASE(module->below.coll_##name##_module);                                           \
    }
    FT_FOR_EACH_COLLECTIVE(FT_RELEASE)
#undef FT_RELEASE
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

int enable(mca_coll_base_module_t *base, ompi_communicator_t *comm) noexcept
try {
    Module &module = Module::of(base);
    module.below = *comm->c_coll;
    module.comm = comm;
    bool complete = true;
    // What is not there below is not there above.
#define FT_RETAIN(name)                                                                            \
    if (module.below.coll_##name##_module == nullptr) {                                            \
        module.coll_##name = nullptr;                                                              \
    } else {                                                                                       \
        OBJ_RETAIN(module.below.coll_##name##_module);                                             \
    }
    FT_FOR_EACH_COLLECTIVE(FT_RETAIN)
#undef FT_RETAIN
#define FT_NEED(name) complete = complete && module.coll_##name != nullptr;
    FT_FOR_EACH_OTHER(FT_NEED)
    if (!OMPI_COMM_IS_INTER(comm)) {
        FT_FOR_EACH_SCAN(FT_NEED)
    }
#undef FT_NEED
    if (!complete) {
        return OMPI_ERR_NOT_FOUND; // somebody switched off what this module stands upon
    }
    validate::Service &service = validate::service();
    if (comm == &ompi_mpi_comm_world.comm && !service.open()) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    const validate::Lock lock;
    module.record = service.attach(comm);
    char key[] = "mpi_ft_semantics";
    char unset[] = "";
    return opal_infosubscribe_subscribe(&comm->super, key, unset, take_semantics);
} catch (...) {
    return OMPI_ERR_OUT_OF_RESOURCE;
}

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
    return rc;
}

int failure_on(ompi_communicator_t *comm, int rc) noexcept
try {
    const validate::Lock lock;
    validate::service().take_news();
    const validate::Record *record = validate::service().find(comm);
    return record == nullptr ? rc : class_of(record->mode(), rc);
} catch (...) {
    return MPI_ERR_RANK_FAIL_STOP;
}

// Where there is a datatype or an operation of the program's own, Open MPI 4.1 puts a callback in
// front of a request's, to release it, and that one passes the data of ours on where the request
// belongs (complete_objs_callback in coll_base_util.c). So what a callback here is given is either
// the request or its data, and the data lead to the request.

/// Of collective requests Open MPI calls MPI_COMM_WORLD's error handler, of the PML's the
/// communicator's.
void fail(ompi_request_t *request, int error) noexcept
{
    request->req_status.MPI_ERROR = error;
    request->req_type = OMPI_REQUEST_PML;
}

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

Module *new_module() noexcept
{
    opal_object_t *object = opal_obj_new(&module_class);
    Module *module = reinterpret_cast<Module *>(object);
    if (module != nullptr) {
        module->coll_module_enable = enable;
        set_functions(*module);
    }
    return module;
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

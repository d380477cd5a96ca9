#include "ompi/mpi_ft/call.hpp"

#include <algorithm>

#include <dlfcn.h>

#include "opal/ft/base/rng.hpp"
#include "opal/mca/show_help.hpp"
#include "opal/process/standing.hpp"

/// Of the libmpi that this library is for: other releases of one series have the same inside.
#define FT_MPI_SERIES "4.1."

namespace ft::validate {

namespace {

/// Runs when the library is loaded: with the program, before MPI_Init, or by one that is running
/// already. When MPI_Init itself loads it, it is coll/validate that does, and nobody asked. A
/// program that loads it after that finds it loaded: note_late_user().
__attribute__((constructor)) void note_user() noexcept
{
    if (ompi_mpi_state != OMPI_MPI_STATE_INIT_STARTED) {
        process::use_run_through();
    }
}

/// A program of another MPI has been linked with this library, which needs the libmpi that it was
/// built for and brings it along. Then that one is never initialised, and its own message would be
/// that MPI_Init has not been called. Ends the program, as every call before MPI_Init does.
void leave_another_mpi(const char *function) noexcept
{
    // Found where the program's calls are found: in its own MPI. MPICH writes up to 8 KiB.
    static char version[16384];
    int length = 0;
    if (PMPI_Get_library_version(version, &length) != MPI_SUCCESS ||
        std::strncmp(version, "Open MPI v" FT_MPI_SERIES, sizeof "Open MPI v" FT_MPI_SERIES - 1) ==
            0) {
        return;
    }
    version[std::strcspn(version, "\n")] = '\0';
    // Open MPI's help texts need it initialised.
    std::fprintf(
        stderr,
        "%s is of libmpi_ft, which belongs to Open MPI " FT_MPI_SERIES
        "x, but this program runs with another MPI: %s\n"
        "Compile and link it with the mpicc of that Open MPI (mpicc.openmpi), and start it "
        "with its mpirun. The program ends.\n",
        function, version);
    std::exit(EXIT_FAILURE);
}

int unsupported(ompi_communicator_t *comm, const char *function, const char *why) noexcept
{
    mca::show_help("help-mpi-ft.txt", why, function);
    return raise(comm, MPI_ERR_UNSUPPORTED_OPERATION, function);
}

/// Whether the program's calls that make communicators find libmpi's functions and not this
/// library's: libmpi stands before it on the line that linked the program. Tools that listen to a
/// program's calls stand before both, and go on to the PMPI_ name.
bool behind_libmpi() noexcept
{
    Dl_info maker{};
    Dl_info here{};
    const void *const found = dlsym(RTLD_DEFAULT, "PMPI_Comm_dup");
    return found != nullptr && dladdr(found, &maker) != 0 &&
           dladdr(reinterpret_cast<void *>(behind_libmpi), &here) != 0 &&
           maker.dli_fbase != here.dli_fbase;
}

/// A call of the program's shows what note_user() has not been told: it has loaded the library when
/// coll/validate had done so already. The lock is held.
void note_late_user()
{
    if (OPAL_UNLIKELY(!process::run_through())) {
        service().listen_on_all(); // may fail, and is tried again at the next call
        process::use_run_through();
        process::spread_news(); // receives from any source are judged by it
    }
}

/// Once a job: what is not promised the way the program was linked, and what only with pml/dr.
void tell_of_lesser_promise() noexcept
{
    static std::atomic<bool> told{false};
    const char *pml = mca_pml_base_selected_component.pmlm_version.mca_component_name;
    if (OPAL_LIKELY(told.load(std::memory_order_relaxed)) || told.exchange(true) ||
        ompi_mpi_comm_world.comm.c_my_rank != 0) {
        return;
    }
    if (std::strcmp(pml, "dr") != 0) {
        mca::show_help("help-mpi-ft.txt", "other pml", pml);
    }
    if (behind_libmpi()) {
        mca::show_help("help-mpi-ft.txt", "behind libmpi");
    }
}

int never_cancelled(ompi_request_t * /*request*/, int /*flag*/) noexcept
{
    return OMPI_SUCCESS;
}

} // namespace

int raise(ompi_communicator_t *comm, int error, const char *function) noexcept
{
    if (comm == nullptr || ompi_comm_invalid(comm)) {
        comm = &ompi_mpi_comm_world.comm;
    }
    OMPI_ERRHANDLER_INVOKE(comm, error, function);
    return error;
}

Record *checked(ompi_communicator_t *comm, const char *function, int &error) noexcept
{
    if (OPAL_UNLIKELY(ompi_mpi_state < OMPI_MPI_STATE_INIT_COMPLETED)) {
        leave_another_mpi(function);
    }
    OMPI_ERR_INIT_FINALIZE(function);
    if (comm == nullptr || ompi_comm_invalid(comm)) {
        error = raise(comm, MPI_ERR_COMM, function);
        return nullptr;
    }
    const Lock lock;
    Record *record = service().find(comm);
    if (record == nullptr) {
        error = unsupported(comm, function, "no component");
        return nullptr;
    }
    tell_of_lesser_promise();
    try {
        note_late_user();
    } catch (...) {
        error = raise(comm, MPI_ERR_NO_MEM, function);
        return nullptr;
    }
    return record;
}

int free_pending(ompi_request_t **request) noexcept
{
    const Lock lock;
    auto *pending = reinterpret_cast<Pending *>(*request);
    pending->freed_ = true;
    if (pending->complete_) {
        pending->destroy();
    }
    *request = MPI_REQUEST_NULL;
    return OMPI_SUCCESS;
}

Pending *Pending::make(ompi_communicator_t *comm) noexcept
try {
    auto pending = std::make_unique<Pending>();
    service().keep(comm);
    ompi_request_t *request = &pending->request_;
    OBJ_CONSTRUCT(request, ompi_request_t);
    OMPI_REQUEST_INIT(request, false);
    request->req_state = OMPI_REQUEST_ACTIVE;
    // The type whose errors go to the communicator's handler.
    request->req_type = OMPI_REQUEST_PML;
    request->req_mpi_object.comm = comm;
    request->req_free = free_pending;
    request->req_cancel = never_cancelled;
    return pending.release();
} catch (...) {
    return nullptr;
}

void Pending::complete(int error) noexcept
{
    request_.req_status.MPI_ERROR = error;
    request_.req_status._ucount = 0;
    request_.req_status._cancelled = 0;
    complete_ = true;
    if (freed_) {
        destroy();
        return;
    }
    ompi_request_complete(&request_, true);
}

void Pending::destroy() noexcept
{
    service().release(request_.req_mpi_object.comm);
    OMPI_REQUEST_FINI(&request_); // a Fortran program's handle is a place in a table
    OBJ_DESTRUCT(&request_);
    delete this;
}

void catch_up()
{
    // Until a whole pass, the PML's part of it first, has met nothing new: what comes in the middle
    // of one is known here before it is known there.
    std::uint64_t before = 0;
    do {
        before = process::news();
        {
            const Lock lock;
            service().take_news();
        }
        opal_progress();
    } while (process::news() != before);
}

Value agree_now(Record &record, const Brought &brought, Attempt *attempt)
{
    // Another thread's progress may run the callback: setting `over` is the last it does here.
    struct Outcome {
        Value value;
        std::atomic<bool> over{false};
    };
    Outcome outcome;
    {
        const Lock lock;
        record.agree(
            brought,
            [&outcome](const Value &value) {
                outcome.value = value;
                outcome.over.store(true, std::memory_order_release);
            },
            attempt);
    }
    wait_for([&] {
        if (outcome.over.load(std::memory_order_acquire)) {
            return true;
        }
        if (service().has_news()) {
            const Lock lock;
            service().take_news();
        }
        return outcome.over.load(std::memory_order_acquire);
    });
    return std::move(outcome.value);
}

namespace {

/// What a call does before and after each of the agreements that it takes. The lock is held.
class Attempts {
  public:
    Attempts(Record &record, Purpose purpose, std::function<std::size_t(const Value &)> needed)
        : record_(record), purpose_(purpose), needed_(std::move(needed)), first_(record.window())
    {
    }
    Brought begin()
    {
        agreed.window = (first_ + step()) % window_count();
        offer_.emplace(agreed.window);
        Brought brought;
        brought.flags = purpose_ == Purpose::recover
                            ? recovering(offer_->mask())
                            : making(purpose_ == Purpose::make, offer_->mask());
        return brought;
    }
    /// \return whether no other takes place
    bool end(const Value &value)
    {
        mixed_ = (value.flags & (all_make | all_recover)) == 0;
        const std::size_t wanted = needed_(value);
        agreed.value = value;
        agreed.contexts = offer_->take(value.flags, wanted);
        agreed.enough = agreed.contexts.size() == wanted;
        offer_.reset();
        if (agreed.enough && wanted != 0) {
            record_.serve_window(agreed.window);
        }
        return agreed.enough || ++attempt.number == window_count() + scattered();
    }
    /// Behind one that waited and is over. Not where some were making and some recovering: those
    /// who recover go on in the next agreement from where they began.
    void settle()
    {
        if (!mixed_) {
            record_.settle_window();
        }
    }
    Attempt attempt;
    Agreed agreed;

  private:
    /// From where the call began. Calls on several communicators that have met in one window, and
    /// came to it in another order at each process, so that none got anything, would meet in the
    /// next ones as well, again and again: each communicator has an order of its own, of ever more
    /// windows. Not of too many: Open MPI keeps a table up to the highest id. In the end each is
    /// tried.
    std::uint32_t step() const
    {
        if (attempt.number <= 1) { // the first may have been just full
            return attempt.number;
        }
        if (attempt.number > scattered()) {
            return attempt.number - scattered();
        }
        std::uint64_t seed = record_.key() + attempt.number;
        const std::uint32_t bits = std::min(attempt.number + 2, most_bits);
        return static_cast<std::uint32_t>(base::splitmix64(seed) & ((1U << bits) - 1));
    }

    /// How many attempts are not just in the next window.
    static std::uint32_t scattered()
    {
        constexpr std::uint32_t enough = 64;
        return window_count() == 1 ? 0 : std::min(4 * window_count(), enough);
    }

    static constexpr std::uint32_t most_bits = 10;
    Record &record_;
    Purpose purpose_;
    std::function<std::size_t(const Value &)> needed_;
    std::uint32_t first_;
    bool mixed_ = false;
    std::optional<Offer> offer_;
};

} // namespace

Agreed agree_with_contexts(Record &record, Purpose purpose,
                           const std::function<std::size_t(const Value &)> &needed)
{
    std::optional<Attempts> attempts;
    {
        const Lock lock;
        attempts.emplace(record, purpose, needed);
    }
    while (true) {
        Brought brought;
        {
            const Lock lock;
            brought = attempts->begin();
        }
        const Value value = agree_now(record, brought, &attempts->attempt);
        const Lock lock;
        if (attempts->end(value)) {
            attempts->settle();
            return attempts->agreed;
        }
    }
}

namespace {

void go_on(Record &record, const std::shared_ptr<Attempts> &attempts,
           std::function<void(const Agreed &)> then)
{
    const auto decided = [&record, attempts, then = std::move(then)](const Value &value) {
        if (attempts->end(value)) {
            then(attempts->agreed);
        } else {
            go_on(record, attempts, then);
        }
    };
    record.agree(attempts->begin(), decided, &attempts->attempt);
}

} // namespace

void agree_with_contexts_later(Record &record, Purpose purpose,
                               std::function<std::size_t(const Value &)> needed,
                               std::function<void(const Agreed &)> then)
{
    const auto attempts = std::make_shared<Attempts>(record, purpose, std::move(needed));
    go_on(record, attempts, std::move(then));
}

int group_of(const Record &record, const std::vector<Rank> &members, MPI_Group *group) noexcept
try {
    ompi_communicator_t *const comm = record.communicator();
    std::vector<int> places; // among the remote group and, behind it, the own one
    for (const Rank member : members) {
        const Rank rank = member - record.member(0);
        places.push_back(static_cast<int>(
            rank < record.ranks() ? rank : record.ranks() + member - record.local_member(0)));
    }
    ompi_group_t *all = comm->c_remote_group;
    if (record.inter()) {
        const int rc = ompi_group_union(comm->c_remote_group, comm->c_local_group, &all);
        if (rc != OMPI_SUCCESS) {
            return rc;
        }
    }
    const int rc = ompi_group_incl(all, static_cast<int>(places.size()), places.data(), group);
    if (record.inter()) {
        ompi_group_free(&all);
    }
    return rc;
} catch (...) {
    return MPI_ERR_NO_MEM;
}

} // namespace ft::validate

#include "ompi/mca/coll/validate/coll_validate_failed.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "ompi/mca/at_finalize.hpp"
#include "ompi/mca/coll/validate/coll_validate.hpp"

namespace ft::coll::failed {

namespace {

bool has_failed(const ompi_request_t *request) noexcept
{
    return request != nullptr && REQUEST_COMPLETE(request) &&
           request->req_status.MPI_ERROR != MPI_SUCCESS;
}

/// Whether Open MPI, when it looks for the failed one of an array, may read its communicator. It
/// does not look whether a request is over; what a collective's open one was made to say is told.
bool may_be_told(const ompi_request_t *request) noexcept
{
    return has_failed(request) ||
           (request != nullptr && request->req_status.MPI_ERROR != MPI_SUCCESS &&
            request->req_type == OMPI_REQUEST_PML && of_a_collective(request));
}

struct Kept {
    std::thread::id thread;
    ompi_communicator_t *comm;
};

std::mutex kept_mutex;
std::vector<Kept> &kept = *new std::vector<Kept>; // threads may end while the program is torn down
std::atomic<bool> any_kept{false};
std::atomic<bool> any_left{false}; ///< by a thread that has ended

/// What a thread leaves that ends may go at the next call, whose thread calls MPI anyway.
struct KeptHere {
    bool some = false; ///< this thread may have kept some
    ~KeptHere()
    {
        const std::lock_guard lock(kept_mutex);
        for (Kept &one : kept) {
            if (one.thread == std::this_thread::get_id()) {
                one.thread = {};
                any_left.store(true, std::memory_order_relaxed);
            }
        }
    }
};
thread_local KeptHere kept_here;

/// What Open MPI is going to read of a request. A request of the PML holds its communicator, that
/// of a collective does not: where it is gone, the error is for MPI_COMM_WORLD's handler.
/// \param number of requests that have failed; those that are over are about to be freed
/// \return nullptr when there is nothing to be kept
ompi_communicator_t *retained(ompi_request_t *request, std::size_t number) noexcept
{
    ompi_communicator_t *const comm = request->req_mpi_object.comm;
    if (request->req_type != OMPI_REQUEST_PML || comm == nullptr) {
        return nullptr;
    }
    // A request of libmpi_ft's own is of no other class, and its communicator outlives it.
    const opal_object_t &object = request->super.super.super;
    if (object.obj_class == OBJ_CLASS(ompi_request_t)) {
        return nullptr;
    }
    std::optional<validate::Lock> lock;
    if (of_a_collective(request)) {
        lock.emplace();
        if (validate::service().find(comm) == nullptr) {
            request->req_type = OMPI_REQUEST_COLL;
            return nullptr;
        }
    }
    if (OMPI_COMM_IS_INTRINSIC(comm)) { // always there
        return nullptr;
    }
    // Somebody else holds it, and nobody can let go of it meanwhile.
    const opal_object_t &held = comm->super.s_base;
    if (!opal_using_threads() && static_cast<std::size_t>(held.obj_reference_count) > number) {
        return nullptr;
    }
    OBJ_RETAIN(comm);
    return comm;
}

/// \return one that is not kept any longer, or nullptr
ompi_communicator_t *take_kept(bool of_any_thread) noexcept
{
    const std::lock_guard lock(kept_mutex);
    const auto at = std::find_if(kept.begin(), kept.end(), [&](const Kept &one) {
        return of_any_thread || one.thread == std::this_thread::get_id() ||
               one.thread == std::thread::id();
    });
    if (at == kept.end()) {
        return nullptr;
    }
    ompi_communicator_t *const comm = at->comm;
    *at = kept.back();
    kept.pop_back();
    any_kept.store(!kept.empty(), std::memory_order_relaxed);
    return comm;
}

/// Releasing may destroy: not with the mutex held.
void release_kept(bool of_any_thread) noexcept
{
    while (ompi_communicator_t *comm = take_kept(of_any_thread)) {
        OBJ_RELEASE(comm);
    }
}

/// MPI_Finalize deletes the attributes of MPI_COMM_SELF before it looks at communicators.
int finalize_begins(MPI_Comm /*comm*/, int /*key*/, void * /*value*/, void * /*state*/) noexcept
{
    let_communicators_go();
    return MPI_SUCCESS;
}

// A request that is complete has no use for its callback's data any more, and when it is used again
// they are set anew. So what is hidden ends with the request, whoever frees it.

/// What the data of a request with a hidden error point to: at the place of that error.
constexpr char hidden_errors[256] = {};
constexpr int most_hidden = static_cast<int>(std::size(hidden_errors)) - 1;
std::atomic<bool> any_hidden{false}; ///< there has been one

void hide(ompi_request_t *request) noexcept
{
    const int error = request->req_status.MPI_ERROR;
    const bool ours =
        request->req_type == OMPI_REQUEST_PML || request->req_type == OMPI_REQUEST_COLL;
    if (!ours || error < 0 || error > most_hidden) {
        return;
    }
    any_hidden.store(true, std::memory_order_relaxed);
    request->req_complete_cb_data = const_cast<char *>(&hidden_errors[error]);
    request->req_status.MPI_ERROR = MPI_SUCCESS;
}

} // namespace

void keep_communicators(std::size_t count, ompi_request_t **requests) noexcept
{
    std::vector<Kept> fresh;
    try {
        const auto number =
            static_cast<std::size_t>(std::count_if(requests, requests + count, may_be_told));
        fresh.reserve(number);
        for (std::size_t i = 0; i < count && fresh.size() < number; ++i) {
            ompi_communicator_t *const comm =
                may_be_told(requests[i]) ? retained(requests[i], number) : nullptr;
            if (comm != nullptr) {
                fresh.push_back({std::this_thread::get_id(), comm});
            }
        }
        if (fresh.empty()) {
            return;
        }
        const std::lock_guard lock(kept_mutex);
        kept.insert(kept.end(), fresh.begin(), fresh.end());
        any_kept.store(true, std::memory_order_relaxed);
        kept_here.some = true;
    } catch (...) { // without memory one that was freed before may be gone too early
        for (const Kept &one : fresh) {
            ompi_communicator_t *comm = one.comm;
            OBJ_RELEASE(comm);
        }
    }
}

void let_own_communicators_go() noexcept
{
    if (OPAL_UNLIKELY(any_kept.load(std::memory_order_relaxed)) &&
        (kept_here.some || any_left.exchange(false, std::memory_order_relaxed))) {
        kept_here.some = false;
        release_kept(false);
    }
}

void let_communicators_go() noexcept
{
    release_kept(true);
}

int let_go_at_finalize() noexcept
{
    return mca::at_finalize(finalize_begins);
}

void hide_all_but(int told, std::size_t count, ompi_request_t **requests) noexcept
{
    for (std::size_t i = 0; i < count; ++i) {
        if (static_cast<int>(i) != told && has_failed(requests[i])) {
            hide(requests[i]);
        }
    }
}

void begin(std::size_t count, ompi_request_t **requests) noexcept
{
    let_own_communicators_go();
    if (OPAL_LIKELY(!any_hidden.load(std::memory_order_relaxed))) {
        return;
    }
    const std::less<const char *> before;
    for (std::size_t i = 0; i < count; ++i) {
        ompi_request_t *const request = requests[i];
        if (request == nullptr || !REQUEST_COMPLETE(request)) {
            continue;
        }
        const auto *const data = static_cast<const char *>(request->req_complete_cb_data);
        if (!before(data, std::begin(hidden_errors)) && before(data, std::end(hidden_errors))) {
            request->req_status.MPI_ERROR = static_cast<int>(data - hidden_errors);
            request->req_complete_cb_data = nullptr;
        }
    }
}

} // namespace ft::coll::failed

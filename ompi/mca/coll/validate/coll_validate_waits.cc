#include "ompi/mca/coll/validate/coll_validate_waits.hpp"

#include <mutex>
#include <new>

namespace ft::coll::waits {

namespace {

/// Where a thread waits. Whoever completes a request may have taken this from it a moment ago, and
/// still tell it, when the thread has gone on because of another's error. So there is no moment at
/// which one could be destroyed: it waits for the next call, which such a late word wakes too early
/// at worst. Nobody must conclude anything from having been woken.
struct Place {
    ompi_wait_sync_t sync{};
    Place *next = nullptr;
};

std::mutex spare_mutex;
Place *spare = nullptr;

/// Held where there may be another thread.
std::unique_lock<std::mutex> hold_spare() noexcept
{
    return opal_using_threads() ? std::unique_lock(spare_mutex)
                                : std::unique_lock(spare_mutex, std::defer_lock);
}

/// \return nullptr without memory
Place *take_place(std::int32_t count) noexcept
{
    Place *place = nullptr;
    {
        const auto lock = hold_spare();
        if (spare != nullptr) {
            place = spare;
            spare = place->next;
        }
    }
    if (place == nullptr) {
        place = new (std::nothrow) Place;
        if (place == nullptr) {
            return nullptr;
        }
        pthread_cond_init(&place->sync.condition, nullptr);
        pthread_mutex_init(&place->sync.lock, nullptr);
    }
    place->sync.count = count;
    place->sync.status = OPAL_SUCCESS;
    place->sync.signaling = true;
    return place;
}

void give_back(Place *place) noexcept
{
    const auto lock = hold_spare();
    place->next = spare;
    spare = place;
}

enum class Until { all, one };

bool is_active(const ompi_request_t *request) noexcept
{
    return request->req_state != OMPI_REQUEST_INACTIVE; // MPI_REQUEST_NULL never is
}

/// What a look at the requests has found.
struct Found {
    Until until;
    bool open = false;
    bool enough = false; ///< one has failed, or it takes no more than one

    void see(const ompi_request_t *request) noexcept
    {
        enough = enough || until == Until::one || request->req_status.MPI_ERROR != MPI_SUCCESS;
    }
    void see_open() noexcept { open = true; }
    bool over() const noexcept { return enough || !open; }
};

bool replace(ompi_request_t *request, void *expected, void *by) noexcept
{
    return OPAL_ATOMIC_COMPARE_EXCHANGE_STRONG_PTR(&request->req_complete, &expected, by);
}

/// Looks at the requests and, when that is not enough, waits until more of them are complete.
/// \return whether it is over
bool look_and_wait(std::size_t count, ompi_request_t **requests, Until until) noexcept
{
    const auto wanted = static_cast<std::int32_t>(until == Until::all ? count : 1);
    Place *place = nullptr;
    std::int32_t told = 0; // so many will tell the place
    std::size_t end = 0;
    Found before{until};
    for (; end < count && !before.enough; ++end) {
        ompi_request_t *const request = requests[end];
        if (!is_active(request)) {
            continue;
        }
        if (!REQUEST_COMPLETE(request)) {
            place = place == nullptr ? take_place(wanted) : place;
            if (place != nullptr && replace(request, REQUEST_PENDING, &place->sync)) {
                ++told;
                before.see_open();
                continue;
            }
        }
        if (REQUEST_COMPLETE(request)) {
            opal_atomic_rmb(); // what it ended with was written before
            before.see(request);
        } else {
            before.see_open();
        }
    }
    if (place == nullptr || told == 0) {
        if (!before.over()) {
            opal_progress();
        }
        if (place != nullptr) {
            give_back(place);
        }
        return before.over();
    }
    if (!before.enough) {
        if (until == Until::all && told != wanted) {
            wait_sync_update(&place->sync, wanted - told, OPAL_SUCCESS);
        }
        SYNC_WAIT(&place->sync);
    }
    Found after{until, false, before.enough};
    for (std::size_t i = 0; i < end; ++i) {
        ompi_request_t *const request = requests[i];
        if (!is_active(request)) {
            continue;
        }
        // Without memory for a place an open one may not have been told of it.
        if (!REQUEST_COMPLETE(request)) {
            replace(request, &place->sync, REQUEST_PENDING);
        }
        if (REQUEST_COMPLETE(request)) {
            opal_atomic_rmb(); // what it ended with was written before
            after.see(request);
        } else {
            after.see_open();
        }
    }
    give_back(place);
    return after.over();
}

/// Tells of all requests, of which one has failed if one is open, and frees those that are
/// complete.
int finish(std::size_t count, ompi_request_t **requests, ompi_status_public_t *statuses) noexcept
{
    int rc = OMPI_SUCCESS;
    for (std::size_t i = 0; i < count; ++i) {
        ompi_request_t *const request = requests[i];
        ompi_status_public_t *const status =
            statuses == MPI_STATUSES_IGNORE ? nullptr : &statuses[i];
        if (!is_active(request)) {
            if (status != nullptr) {
                *status = ompi_status_empty;
            }
            continue;
        }
        if (!REQUEST_COMPLETE(request)) {
            if (status != nullptr) {
                status->MPI_ERROR = MPI_ERR_PENDING;
            }
            rc = MPI_ERR_IN_STATUS;
            continue;
        }
        opal_atomic_rmb();
        if (request->req_type == OMPI_REQUEST_GEN) { // wants to be asked, status or not
            ompi_grequest_invoke_query(request, &request->req_status);
        }
        const int error = request->req_status.MPI_ERROR;
        if (status != nullptr) {
            *status = request->req_status;
        }
        if (error != MPI_SUCCESS) {
            rc = MPI_ERR_IN_STATUS;
        }
        if (request->req_persistent) {
            request->req_state = OMPI_REQUEST_INACTIVE;
        } else if (error == MPI_SUCCESS) { // else the error handler is still to see it
            const int freed = ompi_request_free(&requests[i]);
            rc = rc == OMPI_SUCCESS ? freed : rc;
        }
    }
    return rc;
}

} // namespace

int wait_all(std::size_t count, ompi_request_t **requests, ompi_status_public_t *statuses) noexcept
{
    while (!look_and_wait(count, requests, Until::all)) {
    }
    return finish(count, requests, statuses);
}

int test_all(std::size_t count, ompi_request_t **requests, int *flag,
             ompi_status_public_t *statuses) noexcept
{
    opal_atomic_mb();
    Found found{Until::all};
    for (std::size_t i = 0; i < count && !found.enough; ++i) {
        const ompi_request_t *const request = requests[i];
        if (!is_active(request)) {
            continue;
        }
        if (REQUEST_COMPLETE(request)) {
            opal_atomic_rmb(); // what it ended with was written before
            found.see(request);
        } else {
            found.see_open();
        }
    }
    if (!found.over()) {
        *flag = 0;
        opal_progress();
        return OMPI_SUCCESS;
    }
    *flag = 1;
    return finish(count, requests, statuses);
}

void until_one(std::size_t count, ompi_request_t **requests) noexcept
{
    while (!look_and_wait(count, requests, Until::one)) {
    }
}

} // namespace ft::coll::waits

// What ends with an error because a rank has failed, on its way through Open MPI's functions on
// requests. They are a table that a component may replace, as its own pml/v does.
//
// Where several requests are waited for at once these functions give back that one of them failed
// (MPI_ERR_IN_STATUS, or MPI_ERR_OTHER), and most collective algorithms pass that on. Here it is
// the class of the failure. MPI_Waitall and its likes look at the requests for themselves.
//
// Some of Open MPI's functions have no use for a failure: they keep a persistent request's error
// for themselves, and where threads are on MPI_Waitall never returns when a request had failed
// before it was called. Those are replaced (coll_validate_waits.cc).
//
// What then becomes of the requests that have failed: coll_validate_failed.hpp.
//
// A non-blocking collective's error would go to MPI_COMM_WORLD's error handler. An error that the
// PML has made and libnbc handed on is left as it is, whatever has become of the communicator
// since: by now the program may have read it by MPI_Request_get_status.
#include "ompi/mca/coll/validate/coll_validate.hpp"

#include <algorithm>

#include "ompi/mca/coll/validate/coll_validate_failed.hpp"
#include "ompi/mca/coll/validate/coll_validate_waits.hpp"
#include "ompi/mpi_ft/mpi_ft.h"

namespace ft::coll {

namespace {

ompi_request_fns_t stock;
bool watching = false;

bool of_a_failure(int error) noexcept
{
    return error == MPI_ERR_RANK_FAIL_STOP || error == MPIX_ERR_REVOKED ||
           error == MPIX_ERR_UNREACHABLE;
}

/// What the program is told of each request where it waits for several: of request i, or of
/// indices[i] where there are indices.
struct Told {
    ompi_status_public_t *statuses = MPI_STATUSES_IGNORE;
    const int *ended = nullptr;
    const int *indices = nullptr;

    ompi_status_public_t *status_of(std::size_t request) const noexcept
    {
        if (statuses == MPI_STATUSES_IGNORE || indices == nullptr) {
            return statuses == MPI_STATUSES_IGNORE ? nullptr : &statuses[request];
        }
        const int *const at = std::find(indices, indices + *ended, static_cast<int>(request));
        return at == indices + *ended ? nullptr : &statuses[at - indices];
    }
};

/// A collective has failed: its error goes to its communicator's error handler, and has the class
/// of the failure. When a round of libnbc's has failed as soon as it has begun, an error of its own
/// stands there. One in the middle of a round has its error and is still open: Open MPI, which does
/// not look at that, may take it for the first of the array that has failed. It cannot be freed
/// then, and is told of again when it has ended; but whose error handler is called must be right.
void mend(ompi_request_t *request, ompi_status_public_t *status) noexcept
{
    ompi_communicator_t *const comm = request->req_mpi_object.comm;
    {
        const validate::Lock lock;
        if (validate::service().find(comm) == nullptr) {
            return;
        }
    }
    const int error = request->req_status.MPI_ERROR;
    fail(request, of_a_failure(error) ? error : failure_on(comm, error));
    if (status != nullptr) {
        status->MPI_ERROR = request->req_status.MPI_ERROR;
    }
}

/// \return what to say instead of `rc`
[[gnu::noinline]] int mended(int rc, std::size_t count, ompi_request_t **requests,
                             const Told &told) noexcept
{
    for (std::size_t i = 0; i < count; ++i) {
        ompi_request_t *const request = requests[i];
        if (request == nullptr || request->req_status.MPI_ERROR == MPI_SUCCESS) {
            continue;
        }
        const bool ended = REQUEST_COMPLETE(request);
        if (request->req_type == OMPI_REQUEST_COLL) {
            mend(request, ended ? told.status_of(i) : nullptr);
        }
        if (ended && !of_a_failure(rc) && of_a_failure(request->req_status.MPI_ERROR)) {
            rc = request->req_status.MPI_ERROR;
        }
    }
    failed::keep_communicators(count, requests);
    return rc;
}

int looked_at(int rc, std::size_t count, ompi_request_t **requests, const Told &told = {}) noexcept
{
    return OPAL_LIKELY(rc == OMPI_SUCCESS) ? rc : mended(rc, count, requests, told);
}

/// The same where one request is told of.
int looked_at_one(int rc, std::size_t count, ompi_request_t **requests, int told) noexcept
{
    if (OPAL_LIKELY(rc == OMPI_SUCCESS)) {
        return rc;
    }
    rc = mended(rc, count, requests, {});
    failed::hide_all_but(told, count, requests);
    return rc;
}

/// What Open MPI's MPI_Testany does not tell of a persistent request that has ended.
int error_kept_by(const ompi_request_t *request) noexcept
{
    return request->req_persistent ? request->req_status.MPI_ERROR : MPI_SUCCESS;
}

int test(ompi_request_t **request, int *flag, ompi_status_public_t *status) noexcept
{
    failed::begin(1, request);
    return looked_at(stock.req_test(request, flag, status), 1, request);
}

int test_any(std::size_t count, ompi_request_t **requests, int *index, int *flag,
             ompi_status_public_t *status) noexcept
{
    failed::begin(count, requests);
    int rc = stock.req_test_any(count, requests, index, flag, status);
    if (rc == OMPI_SUCCESS && *flag != 0 && *index != MPI_UNDEFINED) {
        rc = error_kept_by(requests[*index]);
    }
    return looked_at_one(rc, count, requests, *index);
}

int test_all(std::size_t count, ompi_request_t **requests, int *flag,
             ompi_status_public_t *statuses) noexcept
{
    failed::begin(count, requests);
    return looked_at(waits::test_all(count, requests, flag, statuses), count, requests, {statuses});
}

int test_some(std::size_t count, ompi_request_t **requests, int *ended, int *indices,
              ompi_status_public_t *statuses) noexcept
{
    failed::begin(count, requests);
    return looked_at(stock.req_test_some(count, requests, ended, indices, statuses), count,
                     requests, {statuses, ended, indices});
}

int wait(ompi_request_t **request, ompi_status_public_t *status) noexcept
{
    failed::begin(1, request);
    return looked_at(stock.req_wait(request, status), 1, request);
}

int wait_any(std::size_t count, ompi_request_t **requests, int *index,
             ompi_status_public_t *status) noexcept
{
    if (!opal_using_threads()) {
        failed::begin(count, requests);
        const int rc = stock.req_wait_any(count, requests, index, status);
        return looked_at_one(rc, count, requests, *index);
    }
    failed::let_own_communicators_go();
    int flag = 0;
    int rc = OMPI_SUCCESS;
    while (flag == 0) {
        waits::until_one(count, requests);
        rc = test_any(count, requests, index, &flag, status);
    }
    return rc;
}

int wait_all(std::size_t count, ompi_request_t **requests, ompi_status_public_t *statuses) noexcept
{
    failed::begin(count, requests);
    return looked_at(waits::wait_all(count, requests, statuses), count, requests, {statuses});
}

int wait_some(std::size_t count, ompi_request_t **requests, int *ended, int *indices,
              ompi_status_public_t *statuses) noexcept
{
    if (!opal_using_threads()) {
        failed::begin(count, requests);
        return looked_at(stock.req_wait_some(count, requests, ended, indices, statuses), count,
                         requests, {statuses, ended, indices});
    }
    failed::let_own_communicators_go();
    int rc = OMPI_SUCCESS;
    *ended = 0;
    while (*ended == 0) {
        waits::until_one(count, requests);
        rc = test_some(count, requests, ended, indices, statuses);
    }
    return rc;
}

constexpr ompi_request_fns_t ours = {test, test_any, test_all, test_some,
                                     wait, wait_any, wait_all, wait_some};

} // namespace

void watch_requests() noexcept
{
    stock = ompi_request_functions;
    ompi_request_functions = ours;
    watching = true;
}

void unwatch_requests() noexcept
{
    if (watching) {
        ompi_request_functions = stock;
        watching = false;
        failed::let_communicators_go();
    }
}

} // namespace ft::coll

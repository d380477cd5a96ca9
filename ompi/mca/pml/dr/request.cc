#include "ompi/mca/pml/dr/request.hpp"

#include "ompi/mca/pml/dr/mpi_buffer.hpp"
#include "ompi/mca/pml/dr/peer.hpp"
#include "ompi/mca/pml/dr/recv.hpp"
#include "ompi/mca/pml/dr/send.hpp"
#include "opal/mca/hand_over.hpp"

#include <algorithm>

namespace ft::dr {

namespace {

int free_send(ompi_request_t **request) noexcept
{
    SendRequest *send = send_request(*request);
    mca::take_over(send);
    bool last = false;
    if (send->peer == nullptr || OPAL_LIKELY(send->life.is_over())) {
        last = send->life.free();
    } else {
        // Its user may take the buffer away from now on (may_be_gone): whoever is just copying from
        // it holds the lock.
        Guard guard(send->peer->lock);
        last = send->life.free();
    }
    if (last) {
        release(send);
    }
    *request = MPI_REQUEST_NULL;
    return OMPI_SUCCESS;
}

int free_recv(ompi_request_t **request) noexcept
{
    RecvRequest *recv = recv_request(*request);
    mca::take_over(recv);
    if (recv->life.free()) {
        release(recv);
    }
    *request = MPI_REQUEST_NULL;
    return OMPI_SUCCESS;
}

/// A send is not cancelled: its bytes may be at the receiver already. MPI allows that.
int cancel_send(ompi_request_t * /*request*/, int /*flag*/) noexcept
{
    return OMPI_SUCCESS;
}

void construct_send(opal_object_t *object) noexcept
{
    SendRequest *send = send_request(reinterpret_cast<ompi_request_t *>(object));
    send->req_base.req_type = MCA_PML_REQUEST_SEND;
    send->ompi().req_start = start_requests;
    send->ompi().req_free = free_send;
    send->ompi().req_cancel = cancel_send;
    static_cast<Hook<PendingTag> &>(*send) = {};
    static_cast<Hook<DataTag> &>(*send) = {};
    send->life = {};
    mca::hand_over(send); // by whichever thread made the list longer, to whichever takes it
}

void construct_recv(opal_object_t *object) noexcept
{
    RecvRequest *recv = recv_request(reinterpret_cast<ompi_request_t *>(object));
    recv->req_base.req_type = MCA_PML_REQUEST_RECV;
    recv->ompi().req_start = start_requests;
    recv->ompi().req_free = free_recv;
    recv->ompi().req_cancel = cancel_recv;
    static_cast<Hook<PostedTag> &>(*recv) = {};
    recv->life = {};
    mca::hand_over(recv);
}

opal_class_t send_class = {"ft_dr_send_request",
                           &mca_pml_base_send_request_t_class,
                           construct_send,
                           nullptr,
                           0,
                           0,
                           nullptr,
                           nullptr,
                           sizeof(SendRequest)};
opal_class_t recv_class = {"ft_dr_recv_request",
                           &mca_pml_base_recv_request_t_class,
                           construct_recv,
                           nullptr,
                           0,
                           0,
                           nullptr,
                           nullptr,
                           sizeof(RecvRequest)};

/// Those who wait for requests that end with an error. Open MPI wakes them with the first one,
/// calls pending what is not complete when they look, and frees a moment later all in whose status
/// an error stands by then; and who completes a second one may tell it to somebody who has gone on.
/// So of what ends at once they hear when all of it is complete; where coll/validate does the
/// waiting, that is: what Open MPI's own sleep on is gone once another thread has woken them.
class Waiters {
  public:
    Waiters() noexcept = default;
    Waiters(const Waiters &) = delete;
    Waiters &operator=(const Waiters &) = delete;
    ~Waiters() { wake(); }

    /// Completes one that failed, as ompi_request_complete does; with its callback nobody is left
    /// asleep.
    void complete(ompi_request_t &request) noexcept
    {
        if (!several_threads() || request.req_complete_cb != nullptr ||
            ompi_request_functions.req_wait_all == ompi_request_default_wait_all) {
            ompi_request_complete(&request, true);
            return;
        }
        void *const was = OPAL_ATOMIC_SWAP_PTR(&request.req_complete, REQUEST_COMPLETED);
        if (was == REQUEST_PENDING) {
            return;
        }
        auto *const waiter = static_cast<ompi_wait_sync_t *>(was);
        if (waiter->count > 1) {
            add(waiter);
        } else {
            // Who waits for any of several goes on with whichever another thread completes, and is
            // not there any more later.
            wait_sync_update(waiter, 1, OMPI_ERROR);
        }
    }
    /// Before anything is called that may wait for them.
    void wake() noexcept
    {
        for (; count_ != 0; --count_) {
            wait_sync_update(asleep_[count_ - 1], 1, OMPI_ERROR);
        }
    }

  private:
    void add(ompi_wait_sync_t *waiter) noexcept
    {
        if (std::find(asleep_, asleep_ + count_, waiter) != asleep_ + count_) {
            return;
        }
        if (count_ == most) {
            wake();
        }
        asleep_[count_] = waiter;
        ++count_;
    }

    static constexpr std::size_t most = 8; ///< more are woken too soon
    ompi_wait_sync_t *asleep_[most];
    std::size_t count_ = 0;
};

template <class Request>
void end(Request &request, Waiters &waiters) noexcept
{
    const std::uint32_t epoch = request.life.epoch();
    request.req_base.req_pml_complete = true;
    if (OPAL_UNLIKELY(request.ompi().req_complete_cb != nullptr)) {
        waiters.wake();
    }
    if (OPAL_LIKELY(request.error == MPI_SUCCESS)) {
        mca::hand_over(&request);
        ompi_request_complete(&request.ompi(), true);
    } else {
        // Not before: Open MPI frees what it sees an error in, complete or not, when another
        // request has failed.
        request.ompi().req_status.MPI_ERROR = request.error;
        mca::hand_over(&request);
        waiters.complete(request.ompi());
    }
    if (request.life.finish(epoch)) {
        release(&request);
    }
}

} // namespace

int set_up_requests() noexcept
{
    constexpr int start = 4;
    constexpr int no_limit = -1;
    constexpr int at_a_time = 64;
    const auto line = static_cast<std::size_t>(opal_cache_line_size);
    const int rc = opal_free_list_init(&mca_pml_base_send_requests, sizeof(SendRequest), line,
                                       &send_class, 0, line, start, no_limit, at_a_time, nullptr, 0,
                                       nullptr, nullptr, nullptr);
    if (rc != OPAL_SUCCESS) {
        return rc;
    }
    return opal_free_list_init(&mca_pml_base_recv_requests, sizeof(RecvRequest), line, &recv_class,
                               0, line, start, no_limit, at_a_time, nullptr, 0, nullptr, nullptr,
                               nullptr);
}

SendRequest *new_send_request() noexcept
{
    auto *item = opal_free_list_get(&mca_pml_base_send_requests);
    if (item == nullptr) {
        return nullptr;
    }
    SendRequest *request = send_request(reinterpret_cast<ompi_request_t *>(item));
    mca::take_over(request);
    return request;
}

RecvRequest *new_recv_request() noexcept
{
    auto *item = opal_free_list_get(&mca_pml_base_recv_requests);
    if (item == nullptr) {
        return nullptr;
    }
    RecvRequest *request = recv_request(reinterpret_cast<ompi_request_t *>(item));
    mca::take_over(request);
    return request;
}

void release(SendRequest *request) noexcept
{
    mca_pml_base_send_request_t *base = request;
    MCA_PML_BASE_SEND_REQUEST_FINI(base);
    mca::hand_over(request);
    opal_free_list_return(&mca_pml_base_send_requests,
                          reinterpret_cast<opal_free_list_item_t *>(base));
}

void release(RecvRequest *request) noexcept
{
    mca_pml_base_recv_request_t *base = request;
    MCA_PML_BASE_RECV_REQUEST_FINI(base);
    mca::hand_over(request);
    opal_free_list_return(&mca_pml_base_recv_requests,
                          reinterpret_cast<opal_free_list_item_t *>(base));
}

int Completions::run_all() noexcept
{
    Waiters waiters;
    int count = 0;
    while (receives_ != nullptr) {
        RecvRequest *request = receives_;
        receives_ = request->next_done;
        if (receives_ == nullptr) {
            receives_tail_ = &receives_;
        }
        ++count;
        end(*request, waiters);
    }
    while (sends_ != nullptr) {
        SendRequest *request = sends_;
        sends_ = request->next_done;
        if (request->bsend_buffer != nullptr) {
            mca_pml_base_bsend_request_free(request->bsend_buffer);
            request->bsend_buffer = nullptr;
            if (request->end != 0) { // its receiver had asked for it
                left_mpi_buffer.fetch_add(1, std::memory_order_relaxed);
                leaving_mpi_buffer.fetch_sub(1, std::memory_order_release);
            }
        }
        ++count;
        end(*request, waiters);
    }
    return count;
}

} // namespace ft::dr

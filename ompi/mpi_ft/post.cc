#include "ompi/mpi_ft/post.hpp"

#include "ompi/mpi_ft/service.hpp"
#include "opal/process/standing.hpp"

namespace ft::validate {

namespace {

/// What stands before every body. Both ends have one representation: pml/dr sees to that, and ob1
/// converts nothing inside MPI_BYTE.
struct Envelope {
    std::uint32_t magic;
    std::uint32_t topic;
    std::uint64_t key;
};
constexpr std::uint32_t magic = 0x46545631; // "FTV1"

} // namespace

void Post::open(std::size_t largest, Receiver receiver) noexcept
{
    receiver_ = receiver;
    buffer_.resize(sizeof(Envelope) + largest);
    open_ = true;
    listen();
}

void Post::close() noexcept
{
    open_ = false;
    if (posted_ != nullptr) {
        ompi_request_t *request = posted_;
        posted_ = nullptr;
        request->req_complete_cb = nullptr;
        ompi_request_cancel(request);
        ompi_request_free(&request);
    }
}

void Post::listen() noexcept
{
    // What is there already is taken in a loop rather than by a callback inside a callback.
    while (open_ && posted_ == nullptr) {
        ompi_request_t *request = nullptr;
        const int rc =
            MCA_PML_CALL(irecv(buffer_.data(), buffer_.size(), &ompi_mpi_byte.dt, MPI_ANY_SOURCE,
                               process::agreement_tag, &ompi_mpi_comm_world.comm, &request));
        if (rc != OMPI_SUCCESS) {
            return;
        }
        if (REQUEST_COMPLETE(request)) {
            const bool more = request->req_status.MPI_ERROR == MPI_SUCCESS;
            take(request);
            ompi_request_free(&request);
            if (!more) {
                return; // everybody else is gone
            }
            continue;
        }
        posted_ = request;
        ompi_request_set_callback(request, on_received, this);
    }
}

int Post::on_received(ompi_request_t *request) noexcept
{
    auto *self = static_cast<Post *>(request->req_complete_cb_data);
    const Lock lock; // letting it go handles what was taken
    self->posted_ = nullptr;
    if (request->req_status._cancelled != 0 || !self->open_) {
        return OMPI_SUCCESS;
    }
    const bool more = request->req_status.MPI_ERROR == MPI_SUCCESS;
    self->take(request);
    ompi_request_free(&request);
    if (more) {
        self->listen();
    }
    return 1; // the request is given back already
}

void Post::take(ompi_request_t *request)
{
    const ompi_status_public_t &status = request->req_status;
    Envelope envelope;
    if (status.MPI_ERROR != MPI_SUCCESS || status._ucount < sizeof envelope) {
        return;
    }
    std::memcpy(&envelope, buffer_.data(), sizeof envelope);
    if (envelope.magic != magic) {
        return;
    }
    Letter letter;
    letter.from = static_cast<std::uint32_t>(status.MPI_SOURCE);
    letter.topic = static_cast<Topic>(envelope.topic);
    letter.key = envelope.key;
    letter.body.assign(buffer_.begin() + sizeof envelope,
                       buffer_.begin() + static_cast<std::ptrdiff_t>(status._ucount));
    receiver_(std::move(letter));
}

void Post::send(std::uint32_t to, Topic topic, std::uint64_t key, std::span<const std::byte> body)
{
    const Envelope envelope{magic, static_cast<std::uint32_t>(topic), key};
    scratch_.resize(sizeof envelope + body.size());
    std::memcpy(scratch_.data(), &envelope, sizeof envelope);
    std::copy(body.begin(), body.end(), scratch_.begin() + sizeof envelope);
    ompi_request_t *request = nullptr;
    const int rc = MCA_PML_CALL(isend(
        scratch_.data(), scratch_.size(), &ompi_mpi_byte.dt, static_cast<int>(to),
        process::agreement_tag, MCA_PML_BASE_SEND_STANDARD, &ompi_mpi_comm_world.comm, &request));
    if (rc != OMPI_SUCCESS) {
        return;
    }
    if (REQUEST_COMPLETE(request)) {
        ompi_request_free(&request);
        return;
    }
    // The bytes stay where they are until they have left.
    outgoing_.push_back({request, std::move(scratch_)});
    scratch_.clear();
}

void Post::reap() noexcept
{
    for (auto at = outgoing_.begin(); at != outgoing_.end();) {
        if (REQUEST_COMPLETE(at->request)) {
            ompi_request_free(&at->request);
            at = outgoing_.erase(at);
        } else {
            ++at;
        }
    }
}

} // namespace ft::validate

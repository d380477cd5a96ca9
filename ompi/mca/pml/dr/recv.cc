#include "ompi/mca/pml/dr/recv.hpp"

#include <utility>

#include "ompi/mca/pml/dr/clock.hpp"
#include "ompi/mca/pml/dr/errors.hpp"
#include "ompi/mca/pml/dr/peers.hpp"
#include "ompi/mca/pml/dr/send.hpp"
#include "ompi/mca/pml/dr/standing.hpp"
#include "opal/ft/base/copy.hpp"
#include "opal/mca/hand_over.hpp"
#include "opal/process/standing.hpp"

namespace ft::dr {

namespace {

void prepare(RecvRequest &request, void *buffer, std::size_t count, ompi_datatype_t *datatype,
             int source, int tag, ompi_communicator_t *comm, bool persistent) noexcept
{
    mca_pml_base_recv_request_t *base = &request;
    MCA_PML_BASE_RECV_REQUEST_INIT(base, buffer, count, datatype, source, tag, comm, persistent);
    request.comm = CommState::of(comm);
    request.capacity = datatype->super.size * count;
    const unsigned flags = datatype->super.flags;
    const bool piece = (flags & OPAL_DATATYPE_FLAG_NO_GAPS) != 0 ||
                       ((flags & OPAL_DATATYPE_FLAG_CONTIGUOUS) != 0 && count == 1);
    request.base = piece || request.capacity == 0
                       ? static_cast<std::byte *>(buffer) + datatype->super.true_lb
                       : nullptr;
    request.life.rest();
}

/// The state of a request at the start of each run.
void reset(RecvRequest &request) noexcept
{
    mca_pml_base_recv_request_t *base = &request;
    request.life.start();
    MCA_PML_BASE_RECV_START(base);
    request.peer = nullptr;
    request.number = 0;
    request.expected = 0;
    request.arrived = 0;
    request.gathered = nullptr;
    request.convertor_ready = false;
    request.error = MPI_SUCCESS;
}

/// What it ends with.
void set_error(RecvRequest &request, int error) noexcept
{
    request.error = static_cast<std::int16_t>(class_for(request.req_base.req_tag, error));
}

/// Whether its message can only be unpacked whole. For an element of which a part has come Open MPI
/// has 16 bytes of room, and does not look whether it has more.
bool wants_whole(const RecvRequest &request) noexcept
{
    constexpr std::size_t largest_parted = 16;
    static const std::uint32_t larger = [] {
        std::uint32_t types = 0;
        for (unsigned i = 0; i < OPAL_DATATYPE_MAX_PREDEFINED; ++i) {
            types |= std::uint32_t{opal_datatype_local_sizes[i] > largest_parted} << i;
        }
        return types;
    }();
    return request.base == nullptr && (request.req_base.req_datatype->super.bdt_used & larger) != 0;
}

/// Makes room for a message that comes in pieces and is unpacked whole. Without memory the receive
/// takes nothing, and its sender is told so and ends.
void gather(RecvRequest &request) noexcept
{
    request.gathered = static_cast<std::byte *>(std::malloc(request.expected));
    if (OPAL_UNLIKELY(request.gathered == nullptr)) {
        set_error(request, MPI_ERR_NO_MEM);
        request.ompi().req_status._ucount = 0;
        request.expected = 0;
        request.req_bytes_packed = 0;
    }
}

void unpack(RecvRequest &request, std::uint64_t offset, std::span<const std::byte> bytes) noexcept
{
    if (bytes.empty()) {
        return;
    }
    if (request.base != nullptr) {
        std::memcpy(request.base + offset, bytes.data(), bytes.size());
        return;
    }
    if (OPAL_UNLIKELY(request.gathered != nullptr)) {
        std::memcpy(request.gathered + offset, bytes.data(), bytes.size());
        return;
    }
    opal_convertor_t *convertor = &request.req_base.req_convertor;
    if (!request.convertor_ready) {
        opal_convertor_copy_and_prepare_for_recv(
            ompi_mpi_local_convertor, &request.req_base.req_datatype->super,
            request.req_base.req_count, request.req_base.req_addr, 0, convertor);
        request.convertor_ready = true;
    }
    if (offset != convertor->bConverted) {
        // Ahead from within an element or a loop it would go astray, from the start it does not.
        std::size_t position = 0;
        opal_convertor_set_position(convertor, &position);
        position = offset;
        opal_convertor_set_position(convertor, &position);
    }
    iovec piece{const_cast<std::byte *>(bytes.data()), bytes.size()};
    std::uint32_t pieces = 1;
    std::size_t unpacked = bytes.size();
    opal_convertor_unpack(convertor, &piece, &pieces, &unpacked);
}

/// All of the message has come.
void unpack_gathered(RecvRequest &request) noexcept
{
    if (OPAL_UNLIKELY(request.gathered != nullptr)) {
        std::byte *const message = std::exchange(request.gathered, nullptr);
        unpack(request, 0, {message, static_cast<std::size_t>(request.expected)});
        std::free(message);
    }
}

void conclude(RecvRequest &request, Completions &done) noexcept
{
    if (OPAL_UNLIKELY(request.gathered != nullptr)) {
        std::free(request.gathered); // it ends before all of it has come
        request.gathered = nullptr;
    }
    if (request.convertor_ready) {
        opal_convertor_cleanup(&request.req_base.req_convertor);
        request.convertor_ready = false;
    }
    done.add(&request);
}

/// Copies a message of this process into its receive by way of a buffer. A function of its own, and
/// the buffer short: threads may have stacks of a few pages.
[[gnu::noinline]] void repack(RecvRequest &request, SendRequest &sender) noexcept
{
    std::byte buffer[4096];
    for (std::uint64_t at = 0; at < request.expected;) {
        // Up to the end of the message: the receive may end inside an element, packing never.
        const std::size_t packed = pack(
            sender, buffer, std::min<std::uint64_t>(sizeof buffer, sender.req_bytes_packed - at));
        if (packed == 0) {
            break;
        }
        unpack(request, at, {buffer, std::min(packed, request.expected - at)});
        at += packed;
    }
}

/// The same, whole at once if it can be, then ends the send.
void copy_local(RecvRequest &request, SendRequest &sender, Completions &done) noexcept
{
    if (sender.base != nullptr) {
        unpack(request, 0, {sender.base, static_cast<std::size_t>(request.expected)});
    } else {
        repack(request, sender);
    }
    done.add(&sender);
}

/// What keeps a message that was matched from being asked for. Peer's lock held.
/// \return MPI_SUCCESS or an error class
int obstacle(const RecvRequest &request, const Arrival &arrival) noexcept
{
    if (arrival.peer->error != MPI_SUCCESS) {
        return arrival.peer->error;
    }
    if (OPAL_LIKELY(!any_peer_failed())) {
        return MPI_SUCCESS;
    }
    // Between its match and now the communicator may have been revoked. The sender has ended then
    // and answers no cts, and end_refused, which has had this lock, knew nothing of the receive.
    // That is asked for the message as it came: a receive from any source is one from its sender
    // now, who knows of no failure of others and waits.
    Guard guard(request.comm->lock);
    return std::max(refusal(*request.comm, arrival.source, arrival.tag), MPI_SUCCESS);
}

/// Asks the sender for the rest. Peer's lock held.
void reply(RecvRequest &request, const Arrival &arrival, Completions &done,
           base::Time present) noexcept
{
    PeerState &peer = *arrival.peer;
    if (const int error = obstacle(request, arrival); OPAL_UNLIKELY(error != MPI_SUCCESS)) {
        fail(request, error, done);
        return;
    }
    UpperHeader upper;
    upper.kind = MessageKind::cts;
    upper.sender_request = arrival.sender_request;
    upper.length = request.expected;
    if (request.arrived < request.expected) {
        request.number = peer.receives.add(&request);
        if (request.number == 0) {
            fail(request, MPI_ERR_NO_MEM, done);
            return;
        }
        upper.receiver_request = request.number;
    }
    TxOrdered *tx = peer.pools().get_ordered(upper, 0);
    if (tx == nullptr) {
        peer.receives.remove(request.number);
        request.number = 0;
        fail(request, MPI_ERR_NO_MEM, done);
        return;
    }
    request.peer = &peer;
    peer.submit(tx, present);
    if (request.number == 0) {
        conclude(request, done);
    }
}

/// What the sender is to be told of a match. Peer's lock held. \return whether there is something
/// to send
bool settle(RecvRequest &request, const Arrival &arrival, Completions &done,
            base::Time present) noexcept
{
    PeerState &peer = *arrival.peer;
    bool credit = false;
    if (arrival.unasked()) {
        credit = peer.take_eager(arrival.payload.size(), present);
    } else if (arrival.length <= peer.eager_limit) {
        // Short, and yet it asked: the sender is out of credit, perhaps with a smaller window.
        credit = peer.tell_taken(present);
    }
    if (!arrival.rendezvous) {
        conclude(request, done);
        return credit;
    }
    reply(request, arrival, done, present);
    return true;
}

/// Of a receive whose message has `length` bytes. \return how many of them it takes
std::size_t fill_status(RecvRequest &request, int source, int tag, std::uint64_t length) noexcept
{
    const std::size_t taken = std::min(length, request.capacity);
    ompi_status_public_t &status = request.ompi().req_status;
    status.MPI_SOURCE = source;
    status.MPI_TAG = tag;
    status._ucount = length; // of what is cut, too, all of it: as with pml/ob1
    status._cancelled = 0;
    if (OPAL_UNLIKELY(taken != length)) {
        set_error(request, MPI_ERR_TRUNCATE);
    }
    request.expected = taken;
    request.req_bytes_packed = taken;
    return taken;
}

} // namespace

void fail(RecvRequest &request, int error, Completions &done) noexcept
{
    ompi_status_public_t &status = request.ompi().req_status;
    if (status.MPI_SOURCE == OMPI_ANY_SOURCE) {
        status.MPI_SOURCE = request.req_base.req_peer;
    }
    set_error(request, error);
    status._ucount = 0;
    conclude(request, done);
}

bool receive_eager(RecvRequest &request, PeerState &peer, int source, int tag,
                   std::span<const std::byte> payload, Completions &done,
                   base::Time present) noexcept
{
    const std::size_t bytes = fill_status(request, source, tag, payload.size());
    request.req_base.req_proc = peer.proc;
    request.arrived = bytes;
    if (OPAL_LIKELY(request.base != nullptr)) {
        base::copy_short(request.base, payload.first(bytes));
    } else {
        unpack(request, 0, payload.first(bytes));
    }
    conclude(request, done);
    return peer.take_eager(payload.size(), present);
}

bool receive(RecvRequest &request, const Arrival &arrival, bool peer_locked, Completions &done,
             base::Time present) noexcept
{
    if (peer_locked && !arrival.rendezvous) {
        return receive_eager(request, *arrival.peer, arrival.source, arrival.tag, arrival.payload,
                             done, present);
    }
    fill_status(request, arrival.source, arrival.tag, arrival.length);
    const bool at_once = arrival.local != nullptr ? arrival.local->base != nullptr
                                                  : arrival.payload.size() >= request.expected;
    if (!at_once && request.expected != 0 && wants_whole(request)) {
        gather(request);
    }
    request.req_base.req_proc = arrival.peer == nullptr ? ompi_proc_local_proc : arrival.peer->proc;
    if (arrival.local != nullptr) {
        copy_local(request, *arrival.local, done);
        unpack_gathered(request);
        conclude(request, done);
        return false;
    }
    const auto first =
        static_cast<std::size_t>(std::min<std::uint64_t>(arrival.payload.size(), request.expected));
    unpack(request, 0, arrival.payload.first(first));
    request.arrived = first;
    if (arrival.peer == nullptr) {
        conclude(request, done); // of this process, copied
        return false;
    }
    if (peer_locked) {
        return settle(request, arrival, done, present);
    }
    {
        Guard guard(arrival.peer->lock);
        if (!settle(request, arrival, done, present)) {
            return false;
        }
    }
    peers().keep_busy(*arrival.peer);
    arrival.peer->transmit(present);
    return false;
}

bool receive_data(RecvRequest &request, std::uint64_t offset, std::span<const std::byte> bytes,
                  Completions &done) noexcept
{
    if (offset > request.expected || bytes.size() > request.expected - offset) {
        return false;
    }
    unpack(request, offset, bytes);
    received_in_place(request, bytes.size(), done);
    return true;
}

std::byte *place_of(const RecvRequest &request, std::uint64_t offset, std::size_t bytes) noexcept
{
    if (request.base == nullptr || offset > request.expected || bytes > request.expected - offset) {
        return nullptr;
    }
    return request.base + offset;
}

void received_in_place(RecvRequest &request, std::size_t bytes, Completions &done) noexcept
{
    request.arrived += bytes;
    if (request.arrived == request.expected) {
        request.peer->receives.remove(request.number);
        request.number = 0;
        unpack_gathered(request);
        conclude(request, done);
    }
}

int start_recv(RecvRequest &request) noexcept
{
    reset(request);
    CommState &comm = *request.comm;
    const int source = request.req_base.req_peer;
    if (OPAL_UNLIKELY(request.ompi().req_complete_cb != nullptr) &&
        request.req_base.req_tag != process::agreement_tag) {
        __atomic_store_n(&comm.calls_back, true, __ATOMIC_RELAXED);
    }
    Unexpected *message = nullptr;
    int error = MPI_SUCCESS;
    {
        Guard guard(comm.lock);
        if (OPAL_UNLIKELY(any_peer_failed())) {
            error = refusal(comm, source, request.req_base.req_tag);
        }
        if (OPAL_LIKELY(error == MPI_SUCCESS)) {
            message = comm.find(source, request.req_base.req_tag);
        }
        if (message != nullptr) {
            comm.take(message);
        } else if (error == MPI_SUCCESS && any_peer_failed()) {
            error = receive_error(comm.communicator(), source);
        }
        if (message == nullptr && error == MPI_SUCCESS && !comm.post(&request)) {
            error = MPI_ERR_NO_MEM;
        }
    }
    Completions done;
    if (message != nullptr) {
        receive(request, message->arrival, false, done, now());
        release(message);
    } else if (error == as_proc_null) {
        fill_as_proc_null(&request.ompi().req_status);
        conclude(request, done);
    } else if (error != MPI_SUCCESS) {
        fail(request, error, done);
    }
    return OMPI_SUCCESS;
}

int irecv_init(void *buffer, std::size_t count, ompi_datatype_t *datatype, int source, int tag,
               ompi_communicator_t *comm, ompi_request_t **request) noexcept
{
    RecvRequest *recv = new_recv_request();
    if (recv == nullptr) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    prepare(*recv, buffer, count, datatype, source, tag, comm, true);
    recv->req_base.req_pml_complete = true;
    *request = &recv->ompi();
    return OMPI_SUCCESS;
}

int irecv(void *buffer, std::size_t count, ompi_datatype_t *datatype, int source, int tag,
          ompi_communicator_t *comm, ompi_request_t **request) noexcept
{
    RecvRequest *recv = new_recv_request();
    if (recv == nullptr) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    prepare(*recv, buffer, count, datatype, source, tag, comm, false);
    *request = &recv->ompi();
    return start_recv(*recv);
}

int recv(void *buffer, std::size_t count, ompi_datatype_t *datatype, int source, int tag,
         ompi_communicator_t *comm, ompi_status_public_t *status) noexcept
{
    ompi_request_t *request = nullptr;
    int rc = irecv(buffer, count, datatype, source, tag, comm, &request);
    if (rc != OMPI_SUCCESS) {
        return rc;
    }
    ompi_request_wait_completion(request);
    mca::take_over(request);
    if (status != MPI_STATUS_IGNORE) {
        OMPI_COPY_STATUS(status, request->req_status, false);
    }
    rc = request->req_status.MPI_ERROR;
    ompi_request_free(&request);
    return rc;
}

int imrecv(void *buffer, std::size_t count, ompi_datatype_t *datatype, ompi_message_t **message,
           ompi_request_t **request) noexcept
{
    auto *found = static_cast<Unexpected *>((*message)->req_ptr);
    RecvRequest *recv = new_recv_request();
    if (recv == nullptr) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    ompi_communicator_t *comm = (*message)->comm;
    prepare(*recv, buffer, count, datatype, found->arrival.source, found->arrival.tag, comm, false);
    OBJ_RELEASE(comm); // as the message held it; the request does now
    reset(*recv);
    {
        Completions done;
        receive(*recv, found->arrival, false, done, now());
    }
    release(found);
    mca::hand_over(*message);
    ompi_message_return(*message);
    *message = MPI_MESSAGE_NULL;
    *request = &recv->ompi();
    return OMPI_SUCCESS;
}

int mrecv(void *buffer, std::size_t count, ompi_datatype_t *datatype, ompi_message_t **message,
          ompi_status_public_t *status) noexcept
{
    ompi_request_t *request = nullptr;
    int rc = imrecv(buffer, count, datatype, message, &request);
    if (rc != OMPI_SUCCESS) {
        return rc;
    }
    ompi_request_wait_completion(request);
    mca::take_over(request);
    if (status != MPI_STATUS_IGNORE) {
        OMPI_COPY_STATUS(status, request->req_status, false);
    }
    rc = request->req_status.MPI_ERROR;
    ompi_request_free(&request);
    return rc;
}

int cancel_recv(ompi_request_t *request, int /*flag*/) noexcept
{
    RecvRequest &recv = *recv_request(request);
    {
        Guard guard(recv.comm->lock);
        if (!recv.comm->withdraw(&recv)) {
            return OMPI_SUCCESS; // it has its message already
        }
    }
    request->req_status._cancelled = 1;
    Completions done;
    conclude(recv, done);
    return OMPI_SUCCESS;
}

} // namespace ft::dr

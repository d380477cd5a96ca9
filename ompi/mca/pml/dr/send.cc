#include "ompi/mca/pml/dr/send.hpp"

#include "ompi/mca/pml/dr/clock.hpp"
#include "ompi/mca/pml/dr/comm.hpp"
#include "ompi/mca/pml/dr/errors.hpp"
#include "ompi/mca/pml/dr/mpi_buffer.hpp"
#include "ompi/mca/pml/dr/peers.hpp"
#include "ompi/mca/pml/dr/recv.hpp"
#include "ompi/mca/pml/dr/standing.hpp"
#include "ompi/mpi_ft/mpi_ft.h"
#include "opal/ft/base/copy.hpp"
#include "opal/mca/hand_over.hpp"

namespace ft::dr {

namespace {

ompi_proc_t *process_of(ompi_communicator_t *comm, int rank) noexcept
{
    return ompi_comm_peer_lookup(comm, rank);
}

/// Where the bytes of a message lie when they lie in one piece, else nullptr.
const std::byte *contiguous(const ompi_datatype_t *datatype, std::size_t count,
                            const void *buffer) noexcept
{
    const unsigned flags = datatype->super.flags;
    const bool piece = (flags & OPAL_DATATYPE_FLAG_NO_GAPS) != 0 ||
                       ((flags & OPAL_DATATYPE_FLAG_CONTIGUOUS) != 0 && count == 1);
    return piece ? static_cast<const std::byte *>(buffer) + datatype->super.true_lb : nullptr;
}

std::size_t convert(opal_convertor_t &convertor, std::byte *out, std::size_t length) noexcept
{
    iovec piece{out, length};
    std::uint32_t pieces = 1;
    std::size_t packed = length;
    opal_convertor_pack(&convertor, &piece, &pieces, &packed);
    return packed;
}

void pack_all(const void *buffer, std::size_t count, const ompi_datatype_t *datatype,
              std::byte *out, std::size_t length) noexcept
{
    if (length == 0) {
        return;
    }
    if (const std::byte *bytes = contiguous(datatype, count, buffer); bytes != nullptr) {
        base::copy_short(out, {bytes, length});
        return;
    }
    opal_convertor_t convertor;
    OBJ_CONSTRUCT(&convertor, opal_convertor_t);
    opal_convertor_copy_and_prepare_for_send(ompi_mpi_local_convertor, &datatype->super, count,
                                             buffer, 0, &convertor);
    convert(convertor, out, length);
    OBJ_DESTRUCT(&convertor);
}

void prepare(SendRequest &request, PeerState *peer, ompi_proc_t *process, const void *buffer,
             std::size_t count, ompi_datatype_t *datatype, int destination, int tag,
             mca_pml_base_send_mode_t mode, ompi_communicator_t *comm, bool persistent) noexcept
{
    mca_pml_base_send_request_t *base = &request;
    base->req_base.req_proc = process;
    MCA_PML_BASE_SEND_REQUEST_INIT(base, buffer, count, datatype, destination, tag, comm, mode,
                                   persistent, 0);
    request.peer = peer;
    request.bsend_buffer = nullptr;
    request.base =
        count == 0 ? static_cast<const std::byte *>(buffer) : contiguous(datatype, count, buffer);
    request.life.rest();
}

/// The state of a request at the start of each run.
void reset(SendRequest &request) noexcept
{
    request.life.start();
    request.req_base.req_pml_complete = false;
    request.ompi().req_complete = REQUEST_PENDING;
    request.ompi().req_state = OMPI_REQUEST_ACTIVE;
    // MPI leaves the rest of a send's status open; osc/pt2pt tells by it whose operation is over.
    ompi_status_public_t &status = request.ompi().req_status;
    status.MPI_SOURCE = request.req_base.req_comm->c_my_rank;
    status.MPI_TAG = request.req_base.req_tag;
    status.MPI_ERROR = MPI_SUCCESS;
    status._ucount = request.req_bytes_packed;
    status._cancelled = 0;
    if (request.req_bytes_packed != 0 && request.base == nullptr) {
        std::size_t start = 0;
        opal_convertor_set_position(&request.req_base.req_convertor, &start);
    }
    request.number = 0;
    request.remote = 0;
    request.opened = 0;
    request.end = 0;
    request.open_vfrags = 0;
    request.synchronous = request.req_send_mode == MCA_PML_BASE_SEND_SYNCHRONOUS;
    request.cts_seen = false;
    request.started = false;
    request.error = MPI_SUCCESS;
}

UpperHeader envelope(ompi_communicator_t *comm, int tag, MessageKind kind) noexcept
{
    UpperHeader upper;
    upper.kind = kind;
    upper.context = comm->c_contextid;
    upper.source = comm->c_my_rank;
    upper.tag = tag;
    return upper;
}

enum class Eager {
    gone,        ///< nothing of ours to that peer is left here
    handed_over, ///< the BTL has it
    sent,
    no_room,
    failed
};

/// A short message without a request: copied, given to the engine, done.
/// \param order of its match, if it is not `gone`
Eager send_eager(PeerState &peer, const void *buffer, std::size_t count, ompi_datatype_t *datatype,
                 std::size_t bytes, int tag, ompi_communicator_t *comm,
                 std::uint32_t &order) noexcept
{
    const base::Time present = now();
    bool gone = false;
    bool alone = false; ///< no BTL holds anything for it
    {
        Guard guard(peer.lock);
        if (OPAL_UNLIKELY(peer.error != MPI_SUCCESS)) {
            return Eager::failed;
        }
        if (OPAL_UNLIKELY(!peer.pending.empty() || !peer.engine.has_room(bytes, true) ||
                          !peer.has_credit(bytes))) {
            return Eager::no_room;
        }
        peer.eager_sent += PeerState::eager_cost(bytes);
        const std::byte *piece = contiguous(datatype, count, buffer);
        // All that lies on the way of a short message is said to be likely: after a dozen checks of
        // even chances the compiler takes what follows for never executed, and saves bytes there.
        if (OPAL_LIKELY(peer.sends_brief && bytes <= reliability::most_brief_payload &&
                        (piece != nullptr || bytes == 0) &&
                        fits_brief(comm->c_contextid, comm->c_my_rank))) {
            gone = peer.send_brief({piece, bytes},
                                   pack_brief(comm->c_contextid, comm->c_my_rank, tag), present);
        }
        if (!gone) {
            TxOrdered *tx = peer.pools().get_match(comm->c_contextid, comm->c_my_rank, tag, bytes);
            if (tx == nullptr) {
                peer.eager_sent -= PeerState::eager_cost(bytes);
                return Eager::no_room;
            }
            pack_all(buffer, count, datatype, const_cast<std::byte *>(tx->bytes), bytes);
            gone = peer.send_at_once(*tx, present);
            if (OPAL_UNLIKELY(!gone)) {
                peer.engine.submit(tx->vfrag, present);
                order = tx->vfrag.order();
            } else if (OPAL_UNLIKELY(peer.take_kept(order))) {
                gone = false;
            }
        }
        alone = peer.nothing_held();
    }
    peers().keep_busy(peer);
    if (OPAL_LIKELY(gone)) {
        return alone ? Eager::gone : Eager::handed_over;
    }
    peer.transmit(present);
    return Eager::sent;
}

/// A short message right behind others like it. \param alone no BTL holds anything for that peer
/// \return the peer; nullptr: nothing was sent, and it is to be looked at closer
[[gnu::always_inline]] inline PeerState *
send_on_lane(const void *buffer, std::size_t count, const ompi_datatype_t *datatype,
             int destination, int tag, mca_pml_base_send_mode_t mode, ompi_communicator_t *comm,
             bool &alone) noexcept
{
    const ompi_proc_t *process = process_of(comm, destination);
    PeerState *peer = process == nullptr ? nullptr : Peers::existing(process);
    const std::size_t bytes = datatype->super.size * count;
    const std::byte *piece = contiguous(datatype, count, buffer);
    if (OPAL_UNLIKELY(peer == nullptr || mode == MCA_PML_BASE_SEND_SYNCHRONOUS ||
                      any_peer_failed() || bytes > reliability::most_compressed_payload ||
                      (piece == nullptr && bytes != 0) ||
                      !fits_brief(comm->c_contextid, comm->c_my_rank))) {
        return nullptr;
    }
    if (OPAL_UNLIKELY(!peer->sends_brief)) {
        return peer->sends_at_once && peer->send_plain({piece, bytes}, tag, comm, alone) ? peer
                                                                                         : nullptr;
    }
    const base::Time present = now();
    Guard guard(peer->lock);
    if (OPAL_UNLIKELY(bytes > peer->eager_limit || peer->error != MPI_SUCCESS ||
                      !peer->pending.empty() || !peer->has_credit(bytes) ||
                      !peer->send_on_lane({piece, bytes},
                                          pack_brief(comm->c_contextid, comm->c_my_rank, tag),
                                          present))) {
        return nullptr;
    }
    peer->eager_sent += PeerState::eager_cost(bytes);
    peers().keep_busy(*peer);
    alone = peer->nothing_held();
    return peer;
}

/// Gives a prepared request its way: to the engine, or in line behind others.
int start(SendRequest &request) noexcept
{
    reset(request);
    Completions done;
    const auto refused = [&] {
        const int why = OPAL_UNLIKELY(any_peer_failed()) ? refusal_of(request) : MPI_SUCCESS;
        if (why != MPI_SUCCESS) {
            finish(request, why == as_proc_null ? MPI_SUCCESS : why, done);
        }
        return why != MPI_SUCCESS;
    };
    if (request.peer == nullptr) {
        return refused() ? OMPI_SUCCESS : send_to_self(request);
    }
    PeerState &peer = *request.peer;
    const base::Time present = now();
    {
        Guard guard(peer.lock);
        // With the lock: another thread that ends what is refused from now on finds this one after
        // it, or has been there before.
        if (refused()) {
            return OMPI_SUCCESS;
        }
        if (peer.error != MPI_SUCCESS) {
            finish(request, peer.error, done);
            return OMPI_SUCCESS;
        }
        if (!peer.pending.empty() || !start_on_wire(request, present)) {
            peer.pending.push_back(&request);
        } else {
            peer.started(request, done);
        }
    }
    peers().keep_busy(peer);
    peer.transmit(present);
    Guard guard(peer.lock);
    peer.let_go(done);
    return OMPI_SUCCESS;
}

/// A buffered send that cannot leave at once: its bytes go to the MPI buffer, and a request that
/// the user never sees carries them from there.
int start_from_mpi_buffer(PeerState *peer, ompi_proc_t *process, const void *buffer,
                          std::size_t count, ompi_datatype_t *datatype, std::size_t bytes,
                          int destination, int tag, ompi_communicator_t *comm) noexcept
{
    if (peer != nullptr) {
        // The request that nobody sees could tell nobody.
        if (const int error = __atomic_load_n(&peer->error, __ATOMIC_ACQUIRE);
            OPAL_UNLIKELY(error != MPI_SUCCESS)) {
            return class_for(tag, error);
        }
    }
    void *copy = nullptr;
    if (bytes != 0) {
        copy = room_in_mpi_buffer(bytes);
        if (copy == nullptr) {
            return OMPI_ERR_BUFFER;
        }
        pack_all(buffer, count, datatype, static_cast<std::byte *>(copy), bytes);
    }
    SendRequest *carrier = new_send_request();
    if (carrier == nullptr) {
        if (copy != nullptr) {
            mca_pml_base_bsend_request_free(copy);
        }
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    prepare(*carrier, peer, process, copy, bytes, &ompi_mpi_byte.dt, destination, tag,
            MCA_PML_BASE_SEND_STANDARD, comm, false);
    carrier->bsend_buffer = copy;
    // Held until `start` returns, so that it does not end under us.
    const int rc = start(*carrier);
    ompi_request_t *handle = &carrier->ompi();
    ompi_request_free(&handle);
    return rc;
}

struct Target {
    ompi_proc_t *process = nullptr;
    PeerState *peer = nullptr; ///< nullptr also for this process itself
    bool self = false;
    bool gone = false; ///< all that was sent to it has left this process
};

/// \return an OMPI or MPI error code
int find_target(ompi_communicator_t *comm, int destination, Target &target) noexcept
{
    target.process = process_of(comm, destination);
    target.self = target.process == ompi_proc_local_proc;
    if (target.self) {
        return OMPI_SUCCESS;
    }
    if (target.process != nullptr && OPAL_UNLIKELY(any_peer_failed()) &&
        Peers::existing(target.process) == nullptr) {
        // Nobody has been told yet that it is dead; making contact would wait for it.
        if (const int error = death_error(target.process->super.proc_name); error != MPI_SUCCESS) {
            return error;
        }
    }
    target.peer = target.process == nullptr ? nullptr : peers().of(target.process);
    return target.peer == nullptr ? MPIX_ERR_UNREACHABLE : OMPI_SUCCESS;
}

} // namespace

std::size_t pack(SendRequest &request, std::byte *out, std::size_t length) noexcept
{
    if (request.base != nullptr) {
        std::memcpy(out, request.base + request.opened, length);
        return length;
    }
    return convert(request.req_base.req_convertor, out, length);
}

bool start_on_wire(SendRequest &request, base::Time present) noexcept
{
    PeerState &peer = *request.peer;
    const std::size_t bytes = request.req_bytes_packed;
    const bool whole = bytes <= peer.eager_limit && peer.has_credit(bytes);
    const std::size_t payload = whole ? bytes : 0;
    if (!peer.engine.has_room(payload, true)) {
        return false;
    }
    const bool rendezvous = request.synchronous || !whole;
    UpperHeader upper = envelope(request.req_base.req_comm, request.req_base.req_tag,
                                 rendezvous ? MessageKind::rts : MessageKind::match);
    if (rendezvous) {
        request.number = peer.sends.add(&request);
        if (request.number == 0) {
            return false;
        }
        upper.length = bytes;
        upper.sender_request = request.number;
    }
    TxOrdered *tx = peer.pools().get_ordered(upper, payload);
    if (tx == nullptr) {
        peer.sends.remove(request.number);
        request.number = 0;
        return false;
    }
    if (payload != 0) {
        pack(request, const_cast<std::byte *>(tx->bytes), payload);
    }
    request.opened = payload;
    request.started = true;
    if (!rendezvous || payload != 0) {
        peer.eager_sent += PeerState::eager_cost(payload);
    }
    peer.engine.submit(tx->vfrag, present);
    request.order = tx->vfrag.order();
    return true;
}

void finish(SendRequest &request, int error, Completions &done) noexcept
{
    if (request.number != 0) {
        request.peer->sends.remove(request.number);
        request.number = 0;
    }
    request.error = static_cast<std::int16_t>(class_for(request.req_base.req_tag, error));
    done.add(&request);
}

int isend_init(const void *buffer, std::size_t count, ompi_datatype_t *datatype, int destination,
               int tag, mca_pml_base_send_mode_t mode, ompi_communicator_t *comm,
               ompi_request_t **request) noexcept
{
    if (OPAL_UNLIKELY(any_peer_failed()) && refusal_of(comm, destination, tag) == as_proc_null) {
        return ompi_request_persistent_noop_create(request);
    }
    Target target;
    if (const int rc = find_target(comm, destination, target); rc != OMPI_SUCCESS) {
        return class_for(tag, rc);
    }
    SendRequest *send = new_send_request();
    if (send == nullptr) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    prepare(*send, target.peer, target.process, buffer, count, datatype, destination, tag, mode,
            comm, true);
    send->req_base.req_pml_complete = true;
    *request = &send->ompi();
    return OMPI_SUCCESS;
}

/// Of a short message that went without a request: one for it, if it has not left this process.
static ompi_request_t *request_for(const Target &target, std::uint32_t order, const void *buffer,
                                   std::size_t count, ompi_datatype_t *datatype, int destination,
                                   int tag, mca_pml_base_send_mode_t mode,
                                   ompi_communicator_t *comm) noexcept
{
    PeerState &peer = *target.peer;
    const auto left = [&] { return peer.error != MPI_SUCCESS || !peer.behind(order); };
    {
        Guard guard(peer.lock);
        if (OPAL_LIKELY(left())) {
            return &ompi_request_empty;
        }
    }
    SendRequest *send = new_send_request();
    if (send == nullptr) {
        return &ompi_request_empty; // it goes all the same
    }
    prepare(*send, target.peer, target.process, buffer, count, datatype, destination, tag, mode,
            comm, false);
    reset(*send);
    send->started = true;
    send->order = order;
    Completions done;
    Guard guard(peer.lock);
    if (left() || (any_peer_failed() && refusal_of(*send) > 0)) { // as end_refused would
        finish(*send, MPI_SUCCESS, done);
    } else {
        peer.leaving.push_back(send);
        peers().call_for_pass();
    }
    return &send->ompi();
}

/// A program's send that does not block tells of a failure in its request, as MPI wants it: to
/// begin it is no error. (Open MPI's own calls look at how they begin, and some at nothing else: of
/// the collectives by which MPI_Comm_dup looks for a context id it hears no error later.)
static int fail_in_request(int error, const void *buffer, std::size_t count,
                           ompi_datatype_t *datatype, int destination, int tag,
                           mca_pml_base_send_mode_t mode, ompi_communicator_t *comm,
                           ompi_request_t **request) noexcept
{
    ompi_proc_t *const process = process_of(comm, destination);
    SendRequest *const send = process == nullptr ? nullptr : new_send_request();
    if (send == nullptr) {
        return class_for(tag, error);
    }
    prepare(*send, nullptr, process, buffer, count, datatype, destination, tag, mode, comm, false);
    reset(*send);
    Completions done;
    finish(*send, error, done);
    *request = &send->ompi();
    return OMPI_SUCCESS;
}

/// isend, and whom it goes to. A blocking send waits by itself for what is left here.
static int begin(const void *buffer, std::size_t count, ompi_datatype_t *datatype, int destination,
                 int tag, mca_pml_base_send_mode_t mode, ompi_communicator_t *comm,
                 ompi_request_t **request, Target &target, bool blocking) noexcept
{
    int error = OPAL_UNLIKELY(any_peer_failed()) ? refusal_of(comm, destination, tag) : MPI_SUCCESS;
    if (error == MPI_SUCCESS) {
        error = find_target(comm, destination, target);
    }
    if (OPAL_UNLIKELY(error != MPI_SUCCESS)) {
        *request = &ompi_request_empty;
        if (error == as_proc_null) {
            return OMPI_SUCCESS;
        }
        return blocking || tag < 0 ? class_for(tag, error)
                                   : fail_in_request(error, buffer, count, datatype, destination,
                                                     tag, mode, comm, request);
    }
    const std::size_t bytes = datatype->super.size * count;
    if (OPAL_LIKELY(!target.self && mode != MCA_PML_BASE_SEND_SYNCHRONOUS &&
                    bytes <= target.peer->eager_limit)) {
        std::uint32_t order = 0;
        const Eager how =
            send_eager(*target.peer, buffer, count, datatype, bytes, tag, comm, order);
        if (OPAL_LIKELY(how == Eager::gone || how == Eager::handed_over || how == Eager::sent)) {
            target.gone = how == Eager::gone;
            *request = how == Eager::sent && !blocking && mode != MCA_PML_BASE_SEND_BUFFERED
                           ? request_for(target, order, buffer, count, datatype, destination, tag,
                                         mode, comm)
                           : &ompi_request_empty;
            return OMPI_SUCCESS;
        }
    }
    if (mode == MCA_PML_BASE_SEND_BUFFERED) {
        *request = &ompi_request_empty;
        return start_from_mpi_buffer(target.peer, target.process, buffer, count, datatype, bytes,
                                     destination, tag, comm);
    }
    SendRequest *send = new_send_request();
    if (send == nullptr) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    prepare(*send, target.peer, target.process, buffer, count, datatype, destination, tag, mode,
            comm, false);
    *request = &send->ompi();
    return start(*send);
}

int isend(const void *buffer, std::size_t count, ompi_datatype_t *datatype, int destination,
          int tag, mca_pml_base_send_mode_t mode, ompi_communicator_t *comm,
          ompi_request_t **request) noexcept
{
    Target target;
    target.peer = send_on_lane(buffer, count, datatype, destination, tag, mode, comm, target.gone);
    if (OPAL_LIKELY(target.peer != nullptr)) {
        std::uint32_t order = 0;
        target.process = target.peer->proc;
        *request =
            OPAL_UNLIKELY(!target.gone && mode != MCA_PML_BASE_SEND_BUFFERED &&
                          target.peer->take_kept(order))
                ? request_for(target, order, buffer, count, datatype, destination, tag, mode, comm)
                : &ompi_request_empty;
        return OMPI_SUCCESS;
    }
    return begin(buffer, count, datatype, destination, tag, mode, comm, request, target, false);
}

int send(const void *buffer, std::size_t count, ompi_datatype_t *datatype, int destination, int tag,
         mca_pml_base_send_mode_t mode, ompi_communicator_t *comm) noexcept
{
    ompi_request_t *request = &ompi_request_empty;
    Target target;
    int rc = OMPI_SUCCESS;
    target.peer = send_on_lane(buffer, count, datatype, destination, tag, mode, comm, target.gone);
    if (OPAL_UNLIKELY(target.peer == nullptr)) {
        rc = begin(buffer, count, datatype, destination, tag, mode, comm, &request, target, true);
    }
    if (OPAL_LIKELY(target.gone) || rc != OMPI_SUCCESS) {
        return rc;
    }
    if (request != &ompi_request_empty) {
        ompi_request_wait_completion(request);
        mca::take_over(request);
        rc = request->req_status.MPI_ERROR;
        ompi_request_free(&request);
    }
    // Who has sent may compute for long, and nobody else would hand on what is still here. Other
    // BTLs of shared memory than vader let go only when the receiver has looked: a buffered send
    // must not wait for that. Nor does one that would be refused by now (end_refused): it goes all
    // the same.
    while (target.peer != nullptr && mode != MCA_PML_BASE_SEND_BUFFERED && target.peer->behind() &&
           !__atomic_load_n(&CommState::of(comm)->calls_back, __ATOMIC_RELAXED) &&
           !(OPAL_UNLIKELY(any_peer_failed()) && refusal_of(comm, destination, tag) > 0)) {
        opal_progress();
    }
    return rc;
}

/// One run of a persistent buffered send. What its peer and its communicator are tells the request,
/// as of others: whoever carries the bytes could tell nobody. So does it when there is no room:
/// MPI_Startall hears of no error, and MPI_Start calls no error handler.
static void start_buffered(SendRequest &send) noexcept
{
    reset(send);
    int rc = OPAL_UNLIKELY(any_peer_failed()) ? refusal_of(send) : MPI_SUCCESS;
    if (rc == MPI_SUCCESS) {
        const mca_pml_base_request_t &base = send.req_base;
        rc = start_from_mpi_buffer(send.peer, base.req_proc, base.req_addr, base.req_count,
                                   base.req_datatype, send.req_bytes_packed, base.req_peer,
                                   base.req_tag, base.req_comm);
    } else if (rc == as_proc_null) {
        rc = MPI_SUCCESS;
    }
    Completions done;
    send.error = static_cast<std::int16_t>(ompi_errcode_get_mpi_code(rc));
    done.add(&send);
}

int start_requests(std::size_t count, ompi_request_t **requests) noexcept
{
    int first_error = OMPI_SUCCESS;
    for (std::size_t i = 0; i < count; ++i) {
        if (requests[i] == nullptr || requests[i]->req_type != OMPI_REQUEST_PML) {
            continue;
        }
        mca::take_over(requests[i]);
        auto *base = reinterpret_cast<mca_pml_base_request_t *>(requests[i]);
        int rc = OMPI_SUCCESS;
        if (base->req_type == MCA_PML_REQUEST_RECV) {
            rc = start_recv(*recv_request(requests[i]));
        } else if (base->req_type != MCA_PML_REQUEST_SEND) {
            rc = OMPI_ERR_REQUEST;
        } else if (SendRequest &send = *send_request(requests[i]);
                   send.req_send_mode == MCA_PML_BASE_SEND_BUFFERED) {
            start_buffered(send);
        } else {
            rc = start(send);
        }
        if (first_error == OMPI_SUCCESS) {
            first_error = rc; // the others are started all the same
        }
    }
    return first_error;
}

} // namespace ft::dr

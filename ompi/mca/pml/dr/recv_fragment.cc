#include "ompi/mca/pml/dr/recv_fragment.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include "ompi/mca/pml/dr/comm.hpp"
#include "ompi/mca/pml/dr/errors.hpp"
#include "ompi/mca/pml/dr/mpi_buffer.hpp"
#include "ompi/mca/pml/dr/parameters.hpp"
#include "ompi/mca/pml/dr/peers.hpp"
#include "ompi/mca/pml/dr/progress.hpp"
#include "ompi/mca/pml/dr/recv.hpp"
#include "ompi/mca/pml/dr/send.hpp"
#include "ompi/mca/pml/dr/standing.hpp"
#include "opal/ft/base/copy.hpp"
#include "opal/ft/base/crc32c.hpp"
#include "opal/ft/reliability/compressed.hpp"
#include "opal/mca/hand_over.hpp"
#include "opal/mca/show_help.hpp"
#include "opal/process/handlers.hpp"

namespace ft::dr {

namespace {

using reliability::FragHeader;
using reliability::Kind;
using reliability::ParseStatus;
using reliability::Verdict;
using Bytes = std::span<const std::byte>;

/// Of no peer that is known.
std::atomic<std::uint64_t> stray_corrupt{0};
std::atomic<std::uint64_t> stray_malformed{0};

void count(std::atomic<std::uint64_t> &counter) noexcept
{
    counter.fetch_add(1, std::memory_order_relaxed);
}

void refuse(ParseStatus status) noexcept
{
    count(status == ParseStatus::bad_checksum ? stray_corrupt : stray_malformed);
}

/// A message waits for its receive. Peer's lock and communicator's held.
void wait_for_receive(CommState &comm, const Arrival &arrival) noexcept
{
    Unexpected *message = keep(arrival);
    if (message == nullptr) {
        ft::mca::show_help("help-pml-dr.txt", "no memory", "an unexpected message");
        ompi_mpi_abort(comm.communicator(), MPI_ERR_NO_MEM);
        return;
    }
    comm.add(message);
}

/// A message meets its receive, or waits for it. Peer's lock held. \return true when there is
/// something to send to the peer
bool meet(CommState &comm, const Arrival &arrival, Completions &done, base::Time present)
{
    RecvRequest *receiver = nullptr;
    {
        Guard guard(comm.lock);
        if (OPAL_UNLIKELY(any_peer_failed()) && ignored(comm, arrival.source, arrival.tag)) {
            return arrival.unasked() && arrival.peer->take_eager(arrival.payload.size(), present);
        }
        receiver = comm.match(arrival.source, arrival.tag);
        if (receiver == nullptr) {
            wait_for_receive(comm, arrival);
        }
    }
    return receiver != nullptr && receive(*receiver, arrival, true, done, present);
}

/// The same for a short one, which came whole.
[[gnu::always_inline]] inline bool meet_short(CommState &comm, PeerState &peer,
                                              const UpperHeader &match, Bytes payload,
                                              Completions &done, base::Time present)
{
    RecvRequest *receiver = nullptr;
    {
        Guard guard(comm.lock);
        if (OPAL_UNLIKELY(any_peer_failed()) && ignored(comm, match.source, match.tag)) {
            return peer.take_eager(payload.size(), present);
        }
        receiver = comm.match(match.source, match.tag);
        if (OPAL_UNLIKELY(receiver == nullptr)) {
            Arrival arrival;
            arrival.peer = &peer;
            arrival.context = match.context;
            arrival.source = match.source;
            arrival.tag = match.tag;
            arrival.length = payload.size();
            arrival.payload = payload;
            wait_for_receive(comm, arrival);
            return false;
        }
    }
    return receive_eager(*receiver, peer, match.source, match.tag, payload, done, present);
}

/// An eager message or a rendezvous request. Peer's lock held.
bool on_envelope(PeerState &peer, const UpperHeader &upper, Bytes payload, Completions &done,
                 base::Time present)
{
    Arrival arrival;
    arrival.peer = &peer;
    arrival.context = upper.context;
    arrival.source = upper.source;
    arrival.tag = upper.tag;
    arrival.rendezvous = upper.kind == MessageKind::rts;
    arrival.length = arrival.rendezvous ? upper.length : payload.size();
    arrival.sender_request = upper.sender_request;
    arrival.payload = payload;
    if (payload.size() > arrival.length) {
        return false;
    }
    CommState *comm = comms().find_or_keep(arrival);
    if (comm == nullptr) {
        return true;
    }
    if (arrival.source < 0 || arrival.source >= comm->size()) {
        return false;
    }
    meet(*comm, arrival, done, present);
    return true;
}

/// The receiver is ready for the rest of a message. Peer's lock held.
bool on_cts(PeerState &peer, const UpperHeader &upper, Completions &done)
{
    SendRequest *request = peer.sends.find(upper.sender_request);
    if (request == nullptr || upper.length > request->req_bytes_packed ||
        (upper.length > request->opened && upper.receiver_request == 0)) {
        return false;
    }
    peer.sends.remove(request->number);
    request->number = 0;
    request->remote = upper.receiver_request;
    request->end = upper.length;
    if (request->opened >= request->end) {
        finish(*request, MPI_SUCCESS, done);
    } else {
        peer.data.push_back(request);
        if (request->bsend_buffer != nullptr) {
            leaving_mpi_buffer.fetch_add(1, std::memory_order_relaxed);
        }
    }
    return true;
}

/// Receives at the peer have taken what we sent unasked. Peer's lock held.
bool on_credit(PeerState &peer, const UpperHeader &upper) noexcept
{
    if (upper.consumed < peer.eager_credited || upper.consumed > peer.eager_sent) {
        return false;
    }
    peer.eager_credited = upper.consumed;
    return true;
}

/// What the engine accepted, in its turn. Peer's lock held.
void deliver(PeerState &peer, const FragHeader &header, Bytes fragment, Completions &done,
             base::Time present)
{
    const Bytes payload = reliability::payload_of(header, fragment);
    UpperHeader upper;
    const Bytes upper_bytes = reliability::upper_of(header, fragment);
    if (OPAL_LIKELY(header.kind == Kind::ordered && parse_match(upper_bytes, upper))) {
        if (!on_envelope(peer, upper, payload, done, present)) {
            ++peer.engine.drops().malformed;
        }
        return;
    }
    bool sensible = parse_upper(upper_bytes, upper) &&
                    (header.kind == Kind::data) == (upper.kind == MessageKind::data);
    if (sensible) {
        switch (upper.kind) {
        case MessageKind::match:
        case MessageKind::rts:
            sensible = on_envelope(peer, upper, payload, done, present);
            break;
        case MessageKind::credit:
            sensible = on_credit(peer, upper);
            break;
        case MessageKind::ping:
            break;
        case MessageKind::cts:
            sensible = on_cts(peer, upper, done);
            break;
        case MessageKind::data: {
            RecvRequest *request = peer.receives.find(upper.receiver_request);
            sensible = request != nullptr && receive_data(*request, upper.offset, payload, done);
            break;
        }
        }
    }
    if (!sensible) {
        ++peer.engine.drops().malformed;
    }
}

/// Data that goes straight to where the user wants it, summed (if it is) while it is copied: a
/// broken fragment spoils only bytes that it was to bring itself, of a receive that does not end
/// before they came whole. \return false when it has to go the long way
bool take_in_place(PeerState &peer, const FragHeader &header, Bytes fragment, PathId arrival,
                   Completions &done, base::Time present)
{
    const Bytes payload = reliability::payload_of(header, fragment);
    UpperHeader upper;
    if (header.kind != Kind::data || payload.empty() || parameters().disable.checksum ||
        !parse_upper(reliability::upper_of(header, fragment), upper) ||
        upper.kind != MessageKind::data) {
        return false;
    }
    RecvRequest *request = peer.receives.find(upper.receiver_request);
    std::byte *place =
        request == nullptr ? nullptr : place_of(*request, upper.offset, payload.size());
    if (place == nullptr) {
        return false;
    }
    const bool shared = arrival != reliability::no_path && peer.paths[arrival]->shared;
    if (header.has(reliability::flag_payload_checksummed)) {
        // What was in shared memory a moment ago is not what counts.
        const std::uint32_t crc =
            shared ? base::copy_crc32c_shared({place, payload.size()}, payload, base::Summed::copy)
                   : base::copy_crc32c({place, payload.size()}, payload);
        if (crc != header.payload_crc) {
            peer.engine.reject_payload(header);
            return true;
        }
    } else if (shared) {
        base::copy_by_vectors(place, payload);
    } else {
        std::memcpy(place, payload.data(), payload.size());
    }
    peer.engine.accept(header, present);
    received_in_place(*request, payload.size(), done);
    return true;
}

/// The early ones whose turn has come.
void deliver_early(PeerState &peer, Completions &done, base::Time present)
{
    std::vector<std::byte> kept;
    while (peer.engine.next_ready(kept)) {
        FragHeader its;
        if (reliability::parse_header(kept, false, its) == ParseStatus::ok) {
            deliver(peer, its, kept, done, present);
        }
    }
}

/// A fragment of a known peer. Peer's lock held.
void take(PeerState &peer, const FragHeader &header, Bytes fragment, PathId arrival,
          Completions &done, base::Time present)
{
    peer.last_heard = present;
    if (header.kind != Kind::ordered && header.kind != Kind::data) {
        peer.engine.on_control(header, fragment, arrival, present);
        return;
    }
    const Verdict verdict = peer.engine.on_fragment(header, arrival, present);
    if (verdict == Verdict::duplicate || verdict == Verdict::refused) {
        return;
    }
    if (verdict == Verdict::fresh &&
        take_in_place(peer, header, fragment, arrival, done, present)) {
        return;
    }
    if (!reliability::payload_is_whole(header, reliability::payload_of(header, fragment)) &&
        !parameters().disable.checksum) {
        peer.engine.reject_payload(header);
        return;
    }
    if (verdict == Verdict::early) {
        peer.engine.hold(header, fragment, present);
        return;
    }
    peer.engine.accept(header, present);
    deliver(peer, header, fragment, done, present);
    if (OPAL_UNLIKELY(header.kind == Kind::ordered && peer.engine.holds_early())) {
        deliver_early(peer, done, present);
    }
}

/// A fragment whose header is whole. In its callers, so that what they have just read is not read
/// again from memory: eight bytes are not had at once from where they were written by fours.
[[gnu::always_inline]] inline void accept(mca_btl_base_module_t *btl, const FragHeader &header,
                                          Bytes fragment)
{
    PeerState *peer = peers().by_name(header.source);
    if (peer == nullptr) {
        count(stray_malformed);
        return;
    }
    const base::Time present = now();
    Completions done;
    bool answer = false;
    {
        Guard guard(peer->lock);
        take(*peer, header, fragment, peer->arrival_path(btl), done, present);
        peer->collect_finished(done);
        // The program that waits for this message may go on after it and compute for long, and the
        // sender's would wait for what it is owed until this one calls MPI again: what a send
        // in synchronous mode waits for, and the acknowledgement of data. dr's turn comes in the
        // same pass behind the BTLs' own, but not behind the event loop, which is last. A BTL need
        // not stand being asked to send while it progresses, as UCX's does not.
        const bool last = btl->btl_component->btl_progress == nullptr;
        if (OPAL_LIKELY(header.kind == Kind::ordered)) {
            answer = OPAL_UNLIKELY(peer->call_again_after_arrival()) && last && done.received();
        } else {
            answer = last && done.received();
            if (done.received()) {
                peer->engine.flush_acks();
            }
            peer->call_again();
        }
    }
    peers().keep_busy(*peer);
    if (answer) {
        peer->transmit(present);
    }
    done.run();
}

/// With checksums switched off by a test, a broken header is believed as far as it can be read.
void accept_unchecked(mca_btl_base_module_t *btl, Bytes fragment)
{
    std::vector<std::byte> copy(fragment.begin(), fragment.end());
    if (copy.size() > 1) {
        copy[1] &= ~std::byte{reliability::flag_header_checksummed};
    }
    FragHeader header;
    if (const ParseStatus status = reliability::parse_header(copy, false, header);
        status == ParseStatus::ok) {
        accept(btl, header, copy);
    } else {
        refuse(status);
    }
}

/// The same fragment as it would have come without the brief form.
void accept_spread(mca_btl_base_module_t *btl, FragHeader header, const UpperHeader &match,
                   Bytes payload)
{
    constexpr std::size_t front = reliability::header_bytes + match_bytes;
    std::array<std::byte, front + reliability::most_brief_payload> buffer;
    header.upper_bytes = match_bytes;
    header.flags &= static_cast<std::uint8_t>(
        ~(reliability::flag_payload_checksummed | reliability::flag_header_checksummed));
    reliability::write_header(header, buffer);
    write_match(match.context, match.source, match.tag,
                std::span(buffer).subspan<reliability::header_bytes, match_bytes>());
    std::copy(payload.begin(), payload.end(), buffer.begin() + front);
    accept(btl, header, Bytes(buffer).first(front + payload.size()));
}

/// A short message whose header is whole, and which asks for nothing. Nearly always it is the next
/// of all, and goes on from here to its receive. \param present when it came \param last its BTL
/// has no progress function: see `accept` above \return false when it is not: nothing was done
[[gnu::always_inline]] inline bool accept_next(mca_btl_base_module_t *btl, PeerState &peer,
                                               const FragHeader &header, const UpperHeader &match,
                                               Bytes payload, base::Time present, bool last)
{
    Completions done;
    bool answer = false;
    {
        Guard guard(peer.lock);
        CommState *comm = comms().find(match.context);
        if (OPAL_UNLIKELY(comm == nullptr || match.source < 0 || match.source >= comm->size() ||
                          !peer.engine.is_next(header))) {
            return false;
        }
        peer.last_heard = present;
        const bool acknowledges = peer.engine.accept_next(header, peer.arrival_path(btl), present);
        const bool answers = meet_short(*comm, peer, match, payload, done, present);
        if (acknowledges || last) {
            peer.collect_finished(done);
            answer = peer.call_again_after_arrival() && last && done.received();
        } else if (OPAL_UNLIKELY(answers || peer.engine.answer_due())) {
            peers().call_for_pass();
        } else {
            peers().call_for_pass_at(peer.engine.answer_deadline());
        }
    }
    peers().keep_busy(peer);
    if (OPAL_UNLIKELY(answer)) {
        peer.transmit(present);
    }
    done.run();
    return true;
}

/// One of the short forms. Whatever is otherwise about it goes the way of all fragments.
[[gnu::always_inline]] inline void accept_short(mca_btl_base_module_t *btl, PeerState *peer,
                                                const FragHeader &header, std::uint64_t packed,
                                                Bytes payload)
{
    const UpperHeader match = unpack_brief(packed);
    if (OPAL_UNLIKELY(!accept_next(btl, *peer, header, match, payload, arrival_time(), false))) {
        accept_spread(btl, header, match, payload);
    }
}

/// The same for a short message in the full form, as all come over a network. \return false when it
/// is none, or not the next of all, or broken: nothing was done
[[gnu::always_inline]] inline bool accept_match(mca_btl_base_module_t *btl,
                                                const FragHeader &header, Bytes fragment)
{
    UpperHeader match;
    if (header.kind != Kind::ordered || (header.flags & ~reliability::brief_flags) != 0 ||
        header.payload_bytes > reliability::most_brief_payload ||
        !parse_match(reliability::upper_of(header, fragment), match)) {
        return false;
    }
    const Bytes payload = reliability::payload_of(header, fragment);
    PeerState *peer = peers().by_name(header.source);
    return peer != nullptr && OPAL_LIKELY(reliability::payload_is_whole(header, payload)) &&
           accept_next(btl, *peer, header, match, payload, now(),
                       btl->btl_component->btl_progress == nullptr);
}

/// A short message in the compressed form that is the next of all. \return false when it is not, or
/// broken: nothing was done
[[gnu::always_inline]] inline bool accept_awaited(mca_btl_base_module_t *btl, PeerState &peer,
                                                  Bytes fragment)
{
    Completions done;
    {
        Guard guard(peer.lock);
        reliability::Numbers numbers;
        if (OPAL_UNLIKELY(!peer.engine.awaits(numbers))) {
            return false;
        }
        const reliability::Awaited it = reliability::read_awaited(fragment, numbers);
        const UpperHeader match = unpack_brief(it.upper);
        CommState *comm = it.whole ? comms().find(match.context) : nullptr;
        if (OPAL_UNLIKELY(comm == nullptr || match.source >= comm->size())) {
            return false;
        }
        const base::Time present = arrival_time();
        peer.last_heard = present;
        peer.engine.accept_awaited(numbers, static_cast<std::uint32_t>(it.payload.size()),
                                   peer.arrival_path(btl), present);
        const bool answers = meet_short(*comm, peer, match, it.payload, done, present);
        if (OPAL_UNLIKELY(answers || peer.engine.answer_due())) {
            peers().call_for_pass();
        } else {
            peers().call_for_pass_at(peer.engine.answer_deadline());
        }
    }
    peers().keep_busy(peer);
    done.run();
    return true;
}

/// A short message in the compressed form. One whose numbers were foretold wrong is as good as
/// broken: it is sent again in another form.
void accept_compressed(mca_btl_base_module_t *btl, Bytes fragment)
{
    if (OPAL_UNLIKELY(fragment.size() < reliability::compressed_bytes)) {
        refuse(ParseStatus::truncated);
        return;
    }
    PeerState *peer = peers().met_before(reliability::compressed_rank(fragment));
    if (OPAL_UNLIKELY(peer == nullptr)) {
        refuse(ParseStatus::bad_checksum); // nobody compresses before there is a context
        return;
    }
    if (OPAL_LIKELY(accept_awaited(btl, *peer, fragment))) {
        return;
    }
    FragHeader header;
    std::uint64_t packed = 0;
    {
        Guard guard(peer->lock);
        const ParseStatus status = reliability::parse_compressed(
            fragment, peer->engine.foretold(), peers().self().job, header, packed);
        if (OPAL_UNLIKELY(status != ParseStatus::ok)) {
            reliability::RareCounters &counters = peer->engine.drops();
            ++(status == ParseStatus::bad_checksum ? counters.corrupt_header : counters.malformed);
            return;
        }
    }
    accept_short(btl, peer, header, packed,
                 fragment.subspan(reliability::compressed_bytes, header.payload_bytes));
}

/// A short message in the brief form.
void accept_brief(mca_btl_base_module_t *btl, Bytes fragment)
{
    // Its lines are in the sender's cache still. They come one behind the other when the sum asks
    // for them, and all at once when they are asked for before.
    constexpr std::size_t line = 64;
    for (std::size_t at = 2 * line; at < fragment.size(); at += line) {
        __builtin_prefetch(fragment.data() + at);
    }
    FragHeader header;
    std::uint64_t packed = 0;
    const ParseStatus status = reliability::parse_brief(
        fragment, peers().self().job, parameters().requires_sealed, header, packed);
    if (OPAL_UNLIKELY(status != ParseStatus::ok)) {
        if (status != ParseStatus::bad_checksum || !parameters().disable.checksum ||
            header.payload_bytes > reliability::most_brief_payload) {
            refuse(status);
            return;
        }
        header.flags &= reliability::brief_flags; // believed as far as it can be read
    }
    PeerState *peer = peers().by_name(header.source);
    if (peer == nullptr) {
        count(stray_malformed);
        return;
    }
    accept_short(btl, peer, header, packed,
                 fragment.subspan(reliability::brief_bytes, header.payload_bytes));
}

void accept(mca_btl_base_module_t *btl, Bytes fragment)
{
    // None of them is said to be likely: to most BTLs the last one is.
    if (reliability::is_compressed(fragment)) {
        accept_compressed(btl, fragment);
        return;
    }
    if (reliability::is_brief(fragment)) {
        accept_brief(btl, fragment);
        return;
    }
    FragHeader header;
    const ParseStatus status =
        reliability::parse_header(fragment, parameters().requires_sealed, header);
    if (OPAL_LIKELY(status == ParseStatus::ok)) {
        if (!accept_match(btl, header, fragment)) {
            accept(btl, header, fragment);
        }
    } else if (status == ParseStatus::bad_checksum && parameters().disable.checksum) {
        accept_unchecked(btl, fragment);
    } else {
        refuse(status);
    }
}

} // namespace

reliability::Counters stray_counters() noexcept
{
    reliability::Counters counters;
    counters.corrupt_header = stray_corrupt.load(std::memory_order_relaxed);
    counters.malformed = stray_malformed.load(std::memory_order_relaxed);
    return counters;
}

void on_fragment(mca_btl_base_module_t *btl, mca_btl_base_tag_t /*tag*/,
                 mca_btl_base_descriptor_t *descriptor, void * /*context*/) noexcept
{
    const auto segment = [&](std::size_t i) {
        const mca_btl_base_segment_t &s = descriptor->des_segments[i];
        return Bytes{static_cast<const std::byte *>(s.seg_addr.pval), s.seg_len};
    };
    if (OPAL_LIKELY(descriptor->des_segment_count == 1)) {
        // A BTL without a progress function (btl/tcp) brings fragments from an event's handler.
        if (btl->btl_component->btl_progress == nullptr) {
            const process::InHandler inside;
            accept(btl, segment(0));
        } else {
            accept(btl, segment(0));
        }
    } else {
        std::vector<std::byte> whole;
        for (std::size_t i = 0; i < descriptor->des_segment_count; ++i) {
            const Bytes piece = segment(i);
            whole.insert(whole.end(), piece.begin(), piece.end());
        }
        accept(btl, whole);
    }
    mca::hand_over(descriptor); // btl/tcp receives into what it sends from
}

} // namespace ft::dr

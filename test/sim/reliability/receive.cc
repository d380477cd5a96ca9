// The layer above the engine, receiving side.
#include <algorithm>
#include <cstring>

#include "opal/ft/base/bitmap.hpp"
#include "opal/ft/base/wire.hpp"
#include "opal/ft/reliability/compressed.hpp"
#include "test/sim/reliability/world.hpp"

namespace ft::sim {

using base::Time;
using namespace ft::reliability;

namespace {

/// What the upper header of a fragment says.
struct Upper {
    std::uint32_t message = 0;
    std::uint32_t number = 0;
    std::uint64_t offset = 0;
    bool ok = false;
};

Upper read_upper(const FragHeader &header, std::span<const std::byte> fragment)
{
    base::WireReader r(upper_of(header, fragment));
    Upper upper;
    upper.message = r.u32();
    upper.number = r.u32();
    upper.offset = r.u64();
    upper.ok = r.ok();
    return upper;
}

} // namespace

void Endpoint::receive(Packet &packet, unsigned way_id)
{
    FragHeader header;
    bool awaited = false;
    const ParseStatus status = read(packet.bytes, header, awaited);
    world_.pairs.count(TableId::parse, status, static_cast<unsigned>(packet.kind) - 1);
    if (status != ParseStatus::ok) {
        RareCounters &counters = peer_.drops();
        ++(status == ParseStatus::bad_checksum ? counters.corrupt_header : counters.malformed);
        world_.say("%u: a broken header from %u is dropped", process_, remote_);
        return;
    }
    if (header.source != Name{77, remote_}) {
        ++peer_.drops().malformed; // nobody of that name, or not over this link
        return;
    }
    PathId arrival = world_.ways[way_id].path_at_to;
    const double unknown = world_.plan.processes[process_].unknown_arrival;
    if (unknown > 0 && world_.rng.chance(unknown)) {
        arrival = no_path;
    }
    if (now() >= peer_.next_deadline() && world_.plan.processes[process_].time_first) {
        take_time();
    }
    snapshot();
    if (header.kind == Kind::ordered || header.kind == Kind::data) {
        on_fragment(header, packet, arrival, awaited);
    } else {
        on_control(header, packet, arrival);
    }
    compare(true);
    pump(false);
}

ParseStatus Endpoint::read(std::vector<std::byte> &bytes, FragHeader &header, bool &awaited)
{
    const bool strict = world_.plan.config.checksum_header;
    const bool compressed = is_compressed(bytes);
    if (!compressed && !is_brief(bytes)) {
        return parse_header(bytes, strict, header);
    }
    std::uint64_t upper = 0;
    const ParseStatus status = compressed
                                   ? parse_compressed(bytes, peer_.foretold(), 77, header, upper)
                                   : parse_brief(bytes, 77, strict, header, upper);
    Numbers numbers;
    if (compressed && bytes.size() >= compressed_bytes && peer_.awaits(numbers)) {
        const Awaited it = read_awaited(bytes, numbers);
        awaited = it.whole;
        // Who compresses what its receiver cannot foretell is wrong, though this way could tell.
        if (awaited && (status != ParseStatus::ok || numbers != numbers_of(header) ||
                        !peer_.is_next(header))) {
            world_.breach(Breach::contract, "the next of all is another when it is looked for");
        }
    }
    if (status != ParseStatus::ok) {
        return status;
    }
    const std::span<const std::byte> payload =
        std::span(bytes).subspan(compressed ? compressed_bytes : brief_bytes, header.payload_bytes);
    const auto message = static_cast<std::uint32_t>(upper);
    const auto number = static_cast<std::uint32_t>(upper >> 32);
    const std::uint64_t offset = message < world_.messages.size()
                                     ? std::uint64_t{number} * world_.messages[message].pieces_per
                                     : 0;
    header.upper_bytes = 16;
    header.payload_crc = header.has(flag_payload_checksummed) ? base::crc32c(payload) : 0;
    std::vector<std::byte> whole(header_bytes + header.upper_bytes + payload.size());
    write_header(header, whole);
    base::WireWriter w{std::span(whole).subspan(header_bytes)};
    w.u32(message);
    w.u32(number);
    w.u64(offset);
    w.bytes(payload);
    if (header.has(flag_header_checksummed)) {
        seal(whole);
    }
    bytes.swap(whole);
    return status;
}

void Endpoint::on_fragment(const FragHeader &h, Packet &packet, PathId arrival, bool awaited)
{
    const bool ordered = h.kind == Kind::ordered;
    world_.pairs.count(TableId::peer, state(),
                       ordered ? PeerEvent::ordered_came : PeerEvent::data_came);
    const bool lost = peer_.unreachable();
    if (!lost) {
        heard_at_ = now();
        const Upper upper = read_upper(h, packet.bytes);
        if (upper.ok && upper.message < world_.messages.size() &&
            upper.number < world_.messages[upper.message].pieces.size()) {
            const Piece &piece = world_.messages[upper.message].pieces[upper.number];
            Place place = Place::unseen;
            if (serial_diff(h.sequence, peer_.receiver().cumulative()) < 0) {
                place = Place::past;
            } else if (piece.accepted == base::full_mask(piece.count)) {
                place = Place::whole_ahead;
            } else if (piece.accepted != 0) {
                place = (piece.accepted >> h.index & 1U) != 0 ? Place::partly_with
                                                              : Place::partly_without;
            }
            const Arriving arriving =
                static_cast<Arriving>((ordered ? 0 : 2) + (h.has(flag_retransmission) ? 1 : 0));
            world_.pairs.count(TableId::place, place, arriving);
        }
        count_acknowledgement(h, nullptr);
    }
    const bool whole = payload_is_whole(h, payload_of(h, packet.bytes));
    // As pml/dr does with what comes in the short forms. What it sees at once it takes at once.
    Numbers numbers;
    awaited = awaited && peer_.awaits(numbers) && numbers == numbers_of(h);
    const bool next = awaited || (whole && ordered && h.payload_bytes <= most_brief_payload &&
                                  (h.flags & ~brief_flags) == 0 && peer_.is_next(h));
    Verdict verdict = Verdict::fresh;
    if (awaited) {
        peer_.accept_awaited(numbers, h.payload_bytes, arrival, now());
    } else if (next) {
        (void)peer_.accept_next(h, arrival, now());
    } else {
        verdict = peer_.on_fragment(h, arrival, now());
    }
    if (!lost) {
        world_.pairs.count(TableId::verdict, verdict,
                           static_cast<unsigned>(ordered ? 0 : 2) + (whole ? 0 : 1));
    } else if (verdict != Verdict::refused) {
        world_.breach(Breach::contract, "a fragment of a peer that is lost is taken");
    }
    if (world_.trace) {
        static constexpr std::array names{"fresh", "early", "duplicate", "refused"};
        world_.say("%u<-%u: VFRAG %u [%u/%u] path %u tx %u: %s%s", process_, remote_, h.sequence,
                   h.index, h.count, h.path, h.tx, names[static_cast<unsigned>(verdict)],
                   whole ? "" : ", payload broken");
    }
    if (verdict == Verdict::duplicate || verdict == Verdict::refused) {
        return;
    }
    if (!whole) {
        peer_.reject_payload(h);
        return;
    }
    mark_accepted(h, packet.bytes);
    if (next) {
        deliver(packet.bytes, h);
        return;
    }
    if (verdict == Verdict::early) {
        peer_.hold(h, packet.bytes, now());
        return;
    }
    peer_.accept(h, now());
    deliver(packet.bytes, h);
    if (!ordered) {
        return;
    }
    std::vector<std::byte> ready;
    while (peer_.next_ready(ready)) {
        FragHeader again;
        if (parse_header(ready, world_.plan.config.checksum_header, again) != ParseStatus::ok) {
            world_.breach(Breach::bytes, "an early fragment was kept badly");
        }
        deliver(ready, again);
    }
}

void Endpoint::mark_accepted(const FragHeader &h, std::span<const std::byte> fragment)
{
    ++fragments_accepted_;
    const Upper upper = read_upper(h, fragment);
    if (!upper.ok || upper.message >= world_.messages.size() ||
        upper.number >= world_.messages[upper.message].pieces.size()) {
        world_.breach(Breach::bytes, "an upper header that nobody wrote is accepted");
    }
    Piece &piece = world_.messages[upper.message].pieces[upper.number];
    if ((piece.accepted >> h.index & 1U) != 0) {
        world_.breach(Breach::exactly_once, "fragment %u of message %u part %u is accepted again",
                      h.index, upper.message, upper.number);
    }
    piece.accepted |= base::bit(h.index);
}

void Endpoint::deliver(std::span<const std::byte> fragment, const FragHeader &h)
{
    const Upper upper = read_upper(h, fragment);
    const auto payload = payload_of(h, fragment);
    if (!upper.ok || upper.message >= world_.messages.size()) {
        world_.breach(Breach::bytes, "an upper header that nobody wrote is delivered");
    }
    Message &message = world_.messages[upper.message];
    const MessagePlan &plan = message.plan;
    if (plan.from != remote_ || plan.to != process_ || upper.number >= message.pieces.size() ||
        upper.offset + payload.size() > plan.length || h.index >= max_fragments) {
        world_.breach(Breach::bytes, "message %u: an upper header that nobody wrote",
                      upper.message);
    }
    Piece &piece = message.pieces[upper.number];
    const std::uint64_t expected = std::uint64_t{upper.number} * message.pieces_per +
                                   std::uint64_t{h.index} * plan.fragment_bytes;
    const std::uint64_t size = std::min<std::uint64_t>(plan.fragment_bytes, plan.length - expected);
    if (upper.offset != expected || h.count != piece.count || payload.size() != size ||
        plan.ordered != (h.kind == Kind::ordered)) {
        world_.breach(Breach::bytes, "message %u: the header does not fit", upper.message);
    }
    if (!std::ranges::equal(payload, world_.content(upper.message, upper.offset, payload.size()))) {
        world_.breach(Breach::bytes, "message %u at %llu: other bytes than were sent",
                      upper.message, static_cast<unsigned long long>(upper.offset));
    }
    if ((piece.delivered >> h.index & 1U) != 0) {
        world_.breach(Breach::exactly_once, "fragment %u of message %u part %u is delivered again",
                      h.index, upper.message, upper.number);
    }
    piece.delivered |= base::bit(h.index);
    if (plan.ordered) {
        const auto &sent = world_.endpoints[id_ ^ 1U]->ordered_sent_;
        if (ordered_delivered_ >= sent.size() || sent[ordered_delivered_] != upper.message) {
            world_.breach(Breach::order, "message %u is delivered out of turn", upper.message);
        }
        ++ordered_delivered_;
    }
    if (piece.delivered == base::full_mask(piece.count) &&
        ++message.delivered_pieces == message.pieces.size()) {
        world_.say("%u<-%u: message %u is complete", process_, remote_, upper.message);
        world_.delivered(upper.message);
    }
}

void Endpoint::on_control(const FragHeader &h, Packet &packet, PathId arrival)
{
    const bool lost = peer_.unreachable();
    if (!lost) {
        heard_at_ = now();
    }
    if (h.kind == Kind::ack) {
        const auto payload = payload_of(h, packet.bytes);
        AckBody body;
        const bool whole = payload_is_whole(h, payload) && parse_ack(payload, body);
        world_.pairs.count(TableId::peer, state(),
                           whole ? PeerEvent::ack_came : PeerEvent::ack_broken);
        if (!lost) {
            count_acknowledgement(h, whole ? &body : nullptr);
        }
    } else {
        world_.pairs.count(TableId::peer, state(),
                           h.kind == Kind::probe ? PeerEvent::probe_came
                                                 : PeerEvent::probe_reply_came);
        if (!lost) {
            if (h.kind == Kind::probe_reply && h.path < ways_.size()) {
                const Path &path = peer_.paths()[h.path];
                const bool current = path.probe_in_flight && path.probe_nonce == h.sequence;
                world_.pairs.count(TableId::path, path.state,
                                   current ? PathEventKind::probe_answered
                                           : PathEventKind::probe_answered_late);
            }
            count_acknowledgement(h, nullptr);
        }
    }
    if (world_.trace) {
        static constexpr std::array names{"", "", "", "ack", "probe", "probe reply"};
        world_.say("%u<-%u: %s, cumulative %u, nonce or sequence %u", process_, remote_,
                   names[static_cast<unsigned>(h.kind)], h.cumulative, h.sequence);
    }
    peer_.on_control(h, packet.bytes, arrival, now());
}

} // namespace ft::sim

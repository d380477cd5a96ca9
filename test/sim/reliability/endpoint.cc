// The layer above the engine, sending side: what pml/dr does, in short.
#include <algorithm>

#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/bitmap.hpp"
#include "opal/ft/base/crc32c.hpp"
#include "opal/ft/base/wire.hpp"
#include "opal/ft/reliability/compressed.hpp"
#include "test/sim/reliability/world.hpp"

namespace ft::sim {

using namespace ft::base::literals;
using base::Duration;
using base::Time;
using namespace ft::reliability;

Endpoint::Endpoint(World &world, unsigned id, unsigned process, unsigned remote)
    : world_(world),
      id_(id),
      process_(process),
      remote_(remote),
      peer_(world.plan.config, Name{77, process})
{
}

Time Endpoint::now() const
{
    return world_.clock(process_);
}

void Endpoint::open(const PairPlan &pair)
{
    for (PathId path = 0; path < ways_.size(); ++path) {
        const LinkPlan &link = *world_.ways[ways_[path]].link;
        PathInfo info;
        info.bandwidth = link.bandwidth;
        info.latency = link.latency;
        info.max_fragment_bytes = link.max_fragment_bytes;
        info.checksum_payload = link.checksum_payload;
        info.unreliable = link.unreliable;
        info.keeps_order = link.fifo;
        info.in_memory = link.in_memory;
        info.acknowledged = link.acknowledged;
        if (peer_.add_path(info, now()) != path) {
            world_.breach(Breach::contract, "path %u got another number", path);
        }
        path_state_.push_back(PathState::up);
    }
    peer_.start_at(pair.first_sequence, pair.first_order, pair.first_tx);
}

bool Endpoint::idle() const
{
    return queue_.empty() && outstanding_.empty() && (peer_.unreachable() || peer_.drained());
}

PeerState Endpoint::state() const
{
    return peer_.unreachable() ? PeerState::unreachable
           : peer_.drained()   ? PeerState::idle
                               : PeerState::outstanding;
}

void Endpoint::enqueue(std::uint32_t id)
{
    Message &message = world_.messages[id];
    message.queued = true;
    queue_.push_back(id);
    pump(false);
}

/// Splits the message at its head into VFRAGs and submits as many as there is room for.
bool Endpoint::submit_some()
{
    bool any = false;
    while (!queue_.empty()) {
        Message &message = world_.messages[queue_.front()];
        MessagePlan &plan = message.plan;
        if (peer_.unreachable()) {
            message.abandoned = true;
            queue_.pop_front();
            continue;
        }
        if (message.pieces.empty()) {
            plan.fragment_bytes = std::min(plan.fragment_bytes, peer_.fragment_bytes());
            if (plan.ordered) {
                plan.length = std::min<std::uint64_t>(plan.length, plan.fragment_bytes);
            }
            const std::uint64_t window = world_.plan.config.window_bytes;
            const auto most = std::min<std::uint64_t>(max_fragments, window / plan.fragment_bytes);
            message.pieces_per = static_cast<std::uint32_t>(most * plan.fragment_bytes);
            message.pieces.resize(std::max<std::uint64_t>(
                1, (plan.length + message.pieces_per - 1) / message.pieces_per));
        }
        const std::uint64_t offset = std::uint64_t{message.submitted} * message.pieces_per;
        const std::uint64_t bytes =
            std::min<std::uint64_t>(plan.length - offset, message.pieces_per);
        if (!peer_.has_room(bytes, plan.ordered)) {
            return any;
        }
        if (free_.empty()) {
            free_.push_back(&storage_.emplace_back());
        }
        SimVfrag &v = *free_.back();
        free_.pop_back();
        const unsigned count = Vfrag::count_for(bytes, plan.fragment_bytes);
        v.vfrag.ordered = plan.ordered;
        v.vfrag.fragment_bytes = plan.fragment_bytes;
        v.vfrag.length = bytes;
        v.vfrag.fragments = std::span(v.records).first(count);
        v.vfrag.user = &v;
        v.message = queue_.front();
        v.number = message.submitted;
        v.outstanding = true;
        v.submitted_at = now();
        ++v.generation;
        message.pieces[v.number].count = static_cast<std::uint8_t>(count);
        message.pieces[v.number].submitted = true;
        if (peer_.drained()) {
            outstanding_since_ = now();
        }
        if (!send_express(v)) {
            peer_.submit(v.vfrag, now());
        }
        (v.outstanding ? outstanding_ : free_).push_back(&v);
        if (world_.trace) {
            world_.say("%u->%u: submit VFRAG %u, message %u part %u, %s, %u fragments, %llu bytes",
                       process_, remote_, v.vfrag.sequence(), v.message, v.number,
                       plan.ordered ? "ordered" : "data", count,
                       static_cast<unsigned long long>(bytes));
        }
        if (plan.ordered) {
            ordered_sent_.push_back(v.message);
        }
        any = true;
        if (++message.submitted == message.pieces.size()) {
            queue_.pop_front();
        }
    }
    return any;
}

/// Of eight ordered VFRAGs seven go the short way, when there is one.
bool Endpoint::send_express(SimVfrag &v)
{
    if (!v.vfrag.ordered || v.message % 8 == 0) {
        return false;
    }
    const Form best = best_form(v);
    const bool open = peer_.lane_takes(v.vfrag.length, now());
    const bool lane = open && best == Form::compressed;
    const PathId path = peer_.express_path(v.vfrag.length, now());
    if (path == no_path) {
        if (open) {
            world_.breach(Breach::contract, "the lane is open where there is no short way");
        }
        return false;
    }
    const unsigned way_id = ways_[path];
    Way &way = world_.ways[way_id];
    if (way.told || way.error_on_use || !world_.has_room(way)) {
        return false;
    }
    if (!completes_at_once(way) && (best != Form::full || !peer_.paths()[path].info.acknowledged)) {
        return false;
    }
    v.records[0] = FragmentRecord{};
    Transmit t;
    t.path = path;
    t.choice = {&v.vfrag, 0, path, false};
    t.header = peer_.express_header(v.vfrag, path, now(), best);
    if (lane && (path != peer_.lane_path() || t.header.form != Form::compressed ||
                 peer_.lane_numbers() != numbers_of(t.header))) {
        world_.breach(Breach::contract, "the lane would not send what the short way does");
    }
    send_fragment(t, way_id, lane ? WayOut::lane : WayOut::express);
    return true;
}

/// Of these all but one get a short form, if it has room for them.
Form Endpoint::best_form(const SimVfrag &v) const
{
    const std::uint64_t bytes = v.vfrag.length;
    if (v.message % 8 == 1 || !world_.plan.config.checksum_header ||
        world_.messages[v.message].plan.upper_bytes != 16 || bytes > most_brief_payload) {
        return Form::full;
    }
    return bytes > most_compressed_payload ? Form::brief : Form::compressed;
}

bool Endpoint::completes_at_once(const Way &way)
{
    const Transport &transport = way.link->transport[way.direction];
    return transport.within_send && transport.complete == Duration{} &&
           transport.complete_late == 0 && !way.stuck;
}

void Endpoint::send_fragment(const Transmit &transmit, unsigned way_id, WayOut out)
{
    const bool express = out != WayOut::chosen;
    SimVfrag &v = *static_cast<SimVfrag *>(transmit.choice.vfrag->user);
    const unsigned index = transmit.choice.index;
    Way &way = world_.ways[way_id];
    const Message &message = world_.messages[v.message];
    Transmit t = transmit;
    if (!v.outstanding) {
        world_.breach(Breach::contract, "a VFRAG that was handed back is sent");
    }
    if (t.header.payload_bytes > way.link->max_fragment_bytes) {
        world_.breach(Breach::contract, "%u bytes for path %u, which takes %u",
                      t.header.payload_bytes, t.path, way.link->max_fragment_bytes);
    }
    const FragmentState before = v.vfrag.fragments[index].state;
    world_.pairs.count(TableId::fragment, before, FragmentEvent::sent);
    world_.pairs.count(TableId::vfrag, express ? VfragState::queued : v.state(),
                       t.choice.retransmission ? VfragEvent::fragment_repeated
                                               : VfragEvent::fragment_sent);
    world_.pairs.count(TableId::path, peer_.paths()[t.path].state, PathEventKind::fragment_sent);

    const std::uint64_t within = v.vfrag.offset_of(index);
    const std::uint64_t offset = std::uint64_t{v.number} * message.pieces_per + within;
    const auto payload = world_.content(v.message, offset, t.header.payload_bytes);
    t.header.upper_bytes = message.plan.upper_bytes;
    const PathInfo &info = peer_.paths()[t.path].info;
    if (info.checksum_payload && world_.plan.config.checksum_payload) {
        t.header.flags |= flag_payload_checksummed;
        t.header.payload_crc = base::crc32c(payload);
    }
    std::array<std::byte, header_bytes + max_upper_bytes + 65536> buffer;
    write_header(t.header, buffer);
    base::WireWriter w{std::span(buffer).subspan(header_bytes)};
    w.u32(v.message);
    w.u32(v.number);
    w.u64(offset);
    w.zeros(message.plan.upper_bytes - 16U);
    w.bytes(payload);
    FT_ASSERT(w.ok());
    auto whole = std::span(buffer).first(header_bytes + w.position());
    if (t.header.form != Form::full) {
        // Room for what is before the payload there is; both have one checksum for all of it.
        whole = whole.last(payload.size() +
                           (t.header.form == Form::brief ? brief_bytes : compressed_bytes));
        const std::uint64_t upper = v.message | std::uint64_t{v.number} << 32;
        if (t.header.form == Form::brief) {
            t.header.flags |= flag_header_checksummed;
            write_brief(t.header, upper, whole);
        } else {
            write_compressed(t.header, upper, whole);
        }
    } else if (world_.plan.config.checksum_header) {
        seal(whole);
    }
    if (world_.trace) {
        world_.say("%u->%u: %s VFRAG %u [%u/%u] over path %u (%s) tx %u, %u bytes", process_,
                   remote_, t.choice.retransmission ? "repeat" : "send", t.header.sequence, index,
                   v.vfrag.count(), t.path, to_string(peer_.paths()[t.path].state), t.header.tx,
                   t.header.payload_bytes);
    }
    world_.transmit(way_id, whole, t.header.kind, t.choice.retransmission,
                    index + 1U == v.vfrag.count());
    ++fragments_sent_;
    const bool complete = completes_at_once(way);
    if (express) {
        const bool summed = t.header.has(flag_payload_checksummed);
        base::Time by = out == WayOut::lane ? peer_.sent_on_lane(v.vfrag, summed, now())
                                            : peer_.sent_express(v.vfrag, t.path, t.header, now());
        if (!complete) {
            by = std::min(by, peer_.kept(v.vfrag, t.path, now()));
        }
        if (by < peer_.next_deadline()) {
            world_.breach(Breach::contract, "a deadline that next_deadline does not know");
        }
        if (!info.acknowledged) { // it is ours again
            Piece &piece = world_.messages[v.message].pieces[v.number];
            piece.handed_back = piece.acknowledged = true;
            v.outstanding = false;
        }
    } else {
        peer_.sent(t, now(), complete);
    }
    if (complete) {
        return;
    }
    ++v.descriptors;
    const std::uint32_t slot = world_.new_descriptor();
    world_.descriptors[slot] = {
        &v,   v.generation, static_cast<std::uint16_t>(way_id), static_cast<std::uint8_t>(index),
        true, now()};
    world_.depart(slot);
}

void Endpoint::send_control(const Transmit &t, unsigned way_id)
{
    static constexpr std::array kinds{PathEventKind::fragment_sent, PathEventKind::ack_sent,
                                      PathEventKind::probe_sent, PathEventKind::probe_reply_sent};
    world_.pairs.count(TableId::path, peer_.paths()[t.path].state,
                       kinds[static_cast<unsigned>(t.what)]);
    std::array<std::byte, max_control_bytes> buffer;
    const std::size_t bytes = peer_.write_control(t, buffer);
    if (world_.trace) {
        static constexpr std::array names{"?", "ack", "probe", "probe reply"};
        world_.say("%u->%u: %s over path %u (%s), cumulative %u, nonce %u", process_, remote_,
                   names[static_cast<unsigned>(t.what)], t.path,
                   to_string(peer_.paths()[t.path].state), t.header.cumulative, t.nonce);
    }
    world_.transmit(way_id, std::span(buffer).first(bytes), t.header.kind, false, false);
    peer_.sent(t, now());
}

bool Endpoint::transmit_some()
{
    bool any = false;
    Transmit t;
    unsigned turns = 0;
    const bool calm = peer_.calm();
    while (peer_.next_transmit(t, now())) {
        if (calm) {
            world_.breach(Breach::contract, "it sends although it said that it is calm");
        }
        if (++turns > 100'000) {
            world_.breach(Breach::contract, "it never stops sending");
        }
        if (t.path >= ways_.size()) {
            world_.breach(Breach::contract, "there is no path %u", t.path);
        }
        const unsigned way_id = ways_[t.path];
        Way &way = world_.ways[way_id];
        if (way.told) {
            world_.breach(Breach::contract, "sends over path %u, which is gone", t.path);
        }
        if (way.error_on_use) {
            way.error_on_use = false;
            way.told = way.was_told = true;
            path_error(t.path);
            continue;
        }
        if (!world_.has_room(way)) {
            world_.pairs.count(TableId::path, peer_.paths()[t.path].state, PathEventKind::blocked);
            peer_.blocked(t.path);
            // A transport that is full tells by a completion that it is not; one that refused does
            // not.
            if (!poll_pending_ && way.descriptors < way.link->transport[way.direction].room) {
                poll_pending_ = true;
                world_.at(world_.now + 30_us, World::Type::poll, id_);
            }
            continue;
        }
        if (t.what == Transmit::What::fragment) {
            send_fragment(t, way_id);
        } else {
            send_control(t, way_id);
        }
        any = true;
    }
    return any;
}

bool Endpoint::finish_some()
{
    bool any = false;
    while (Vfrag *finished = peer_.next_finished()) {
        SimVfrag &v = *static_cast<SimVfrag *>(finished->user);
        Message &message = world_.messages[v.message];
        Piece &piece = message.pieces[v.number];
        any = true;
        if (!v.outstanding || piece.handed_back) {
            world_.breach(Breach::handed_back, "VFRAG %u of message %u is handed back again",
                          finished->sequence(), v.message);
        }
        if (finished->descriptors_held() != v.descriptors) {
            world_.breach(Breach::handed_back, "VFRAG %u says %u descriptors, there are %u",
                          finished->sequence(), finished->descriptors_held(), v.descriptors);
        }
        piece.handed_back = true;
        piece.acknowledged = finished->acknowledged();
        v.outstanding = false;
        std::erase(outstanding_, &v);
        if (piece.acknowledged && piece.accepted != base::full_mask(piece.count) &&
            !trusts(world_.plan)) {
            world_.breach(Breach::exactly_once,
                          "VFRAG %u of message %u is acknowledged, but %llx of %u was accepted",
                          finished->sequence(), v.message,
                          static_cast<unsigned long long>(piece.accepted), piece.count);
        }
        if (!piece.acknowledged && !peer_.unreachable()) {
            world_.breach(Breach::handed_back, "VFRAG %u fails though the peer is reachable",
                          finished->sequence());
        }
        if (world_.trace) {
            world_.say("%u->%u: VFRAG %u %s, %u descriptors held", process_, remote_,
                       finished->sequence(), piece.acknowledged ? "done" : "failed", v.descriptors);
        }
        (v.descriptors == 0 ? free_ : left_behind_).push_back(&v);
    }
    return any;
}

void Endpoint::complete(std::uint32_t slot)
{
    const Descriptor d = world_.descriptors[slot];
    SimVfrag &v = *d.vfrag;
    FT_ASSERT(v.descriptors > 0);
    --v.descriptors;
    const PathId path = world_.ways[d.way].path_at_from;
    if (v.outstanding && v.generation == d.generation) {
        world_.pairs.count(TableId::fragment, v.vfrag.fragments[d.index].state,
                           FragmentEvent::local_completion);
        world_.pairs.count(TableId::vfrag, v.state(), VfragEvent::local_completion);
        if (!peer_.paths()[path].info.acknowledged) {
            heard_at_ = now(); // nothing else may tell that the peer moves
        }
        peer_.locally_complete(v.vfrag, d.index, path, d.sent_at, now());
        return;
    }
    world_.pairs.count(TableId::peer, state(), PeerEvent::late_descriptor);
    peer_.descriptor_released(path, d.sent_at);
    if (v.descriptors == 0) {
        std::erase(left_behind_, &v);
        free_.push_back(&v);
    }
}

void Endpoint::path_error(PathId path)
{
    world_.say("%u->%u: error on path %u", process_, remote_, path);
    world_.pairs.count(TableId::peer, state(), PeerEvent::path_error);
    world_.pairs.count(TableId::path, peer_.paths()[path].state, PathEventKind::error);
    if (peer_.unreachable()) {
        peer_.path_error(path, now());
        return;
    }
    count_path_gone(path);
    snapshot();
    before_loss();
    peer_.path_error(path, now());
    after_loss();
    compare(false);
}

void Endpoint::path_revived(PathId path)
{
    world_.say("%u->%u: path %u has a fresh transport", process_, remote_, path);
    world_.pairs.count(TableId::path, peer_.paths()[path].state, PathEventKind::revived);
    peer_.path_revived(path, now());
}

void Endpoint::declare_dead()
{
    world_.say("%u: is told that %u is dead", process_, remote_);
    declared_dead_ = true;
    before_loss();
    peer_.declare_dead();
    after_loss();
    pump(false);
}

void Endpoint::on_wake(Time at)
{
    // A process that computes sees it late. An earlier one that was replaced changes nothing.
    if (at >= wake_at_) {
        wake_at_ = Time::never();
    }
    pump(true);
}

void Endpoint::pump(bool with_time)
{
    ++pumps_;
    poll_pending_ = false;
    if (with_time || now() >= peer_.next_deadline()) {
        take_time();
    }
    const ProcessPlan &process = world_.plan.processes[process_];
    if (process.flush > 0 && world_.rng.chance(process.flush)) {
        world_.pairs.count(TableId::peer, state(), PeerEvent::flush);
        peer_.flush_acks();
    }
    peer_.unblock();
    bool more = true;
    while (more) {
        more = submit_some();
        more = transmit_some() || more;
        more = finish_some() || more;
    }
    PathEvent event;
    while (peer_.next_event(event)) {
        count_transition(event);
    }
    check_cheap();
    if (pumps_ % 16 == 0) {
        check_all();
    }
    // The engine's clock and the world's run at the same pace.
    const Time deadline = peer_.next_deadline();
    if (!deadline.is_never()) {
        const Time when = std::max(world_.now, world_.now + (deadline - now()));
        if (when < wake_at_) {
            wake_at_ = when;
            world_.at(when, World::Type::wake, id_);
        }
    }
}

} // namespace ft::sim

// Looks at the engine before and after each call: what is counted, and what must hold.
#include <algorithm>

#include "opal/ft/base/bitmap.hpp"
#include "test/sim/reliability/world.hpp"

namespace ft::sim {

using base::Time;
using namespace ft::reliability;

std::uint64_t SimVfrag::mask_of(FragmentState wanted) const
{
    std::uint64_t mask = 0;
    for (unsigned i = 0; i < vfrag.count(); ++i) {
        mask |= vfrag.fragments[i].state == wanted ? base::bit(i) : 0;
    }
    return mask;
}

VfragState SimVfrag::state() const
{
    if (vfrag.acknowledged()) {
        return VfragState::draining;
    }
    if (vfrag.fragments.back().state != FragmentState::unsent) {
        return VfragState::waiting;
    }
    return vfrag.fragments.front().state == FragmentState::unsent ? VfragState::queued
                                                                  : VfragState::sending;
}

void Endpoint::snapshot()
{
    snapshot_.clear();
    for (SimVfrag *v : outstanding_) {
        snapshot_.push_back(
            {v, v->mask_of(FragmentState::in_flight), v->mask_of(FragmentState::lost)});
    }
}

void Endpoint::before_loss()
{
    lost_before_ = peer_.unreachable();
    fragments_before_ = {};
    vfrags_before_ = {};
    for (const SimVfrag *v : outstanding_) {
        ++vfrags_before_[static_cast<unsigned>(v->state())];
        for (unsigned i = 0; i < v->vfrag.count(); ++i) {
            ++fragments_before_[static_cast<unsigned>(v->vfrag.fragments[i].state)];
        }
    }
}

void Endpoint::after_loss()
{
    if (lost_before_ || !peer_.unreachable()) {
        return;
    }
    for (unsigned state = 0; state < 4; ++state) {
        if (fragments_before_[state] != 0) {
            world_.pairs.count(TableId::fragment, state, FragmentEvent::peer_lost);
        }
        if (vfrags_before_[state] != 0) {
            world_.pairs.count(TableId::vfrag, state, VfragEvent::peer_lost);
        }
    }
}

void Endpoint::compare(bool by_ack)
{
    for (const Snapshot &before : snapshot_) {
        for (unsigned i = 0; i < before.vfrag->vfrag.count(); ++i) {
            const FragmentRecord &record = before.vfrag->vfrag.fragments[i];
            const bool was_in_flight = (before.in_flight >> i & 1U) != 0;
            if (was_in_flight && record.state == FragmentState::lost &&
                record.reason != LossReason::none) {
                const unsigned reason = static_cast<unsigned>(record.reason) - 1;
                world_.pairs.count(TableId::loss_first, reason, record.tries > 1 ? 1U : 0U);
                if (by_ack &&
                    (record.reason == LossReason::gap || record.reason == LossReason::tail)) {
                    world_.pairs.count(TableId::fragment, FragmentState::in_flight,
                                       FragmentEvent::found_lost_gap);
                } else if (by_ack && record.reason == LossReason::failover) {
                    world_.pairs.count(TableId::fragment, FragmentState::in_flight,
                                       FragmentEvent::found_lost_failover);
                }
                if (world_.trace) {
                    static constexpr std::array names{"",     "timeout", "watchdog", "gap",
                                                      "tail", "NACK",    "failover"};
                    world_.say("%u->%u: VFRAG %u [%u] is lost: %s", process_, remote_,
                               before.vfrag->vfrag.sequence(), i,
                               names[static_cast<unsigned>(record.reason)]);
                }
            }
            if ((before.lost >> i & 1U) != 0 && record.state == FragmentState::acked &&
                record.reason != LossReason::none) {
                world_.pairs.count(TableId::loss_first, static_cast<unsigned>(record.reason) - 1,
                                   2U);
            }
        }
    }
}

void Endpoint::count_acknowledgement(const FragHeader &h, const AckBody *body)
{
    if (h.has(flag_echo) && h.echo_path < ways_.size()) {
        world_.pairs.count(TableId::path, peer_.paths()[h.echo_path].state,
                           PathEventKind::sign_of_life);
    }
    if (!h.has(flag_ack)) {
        return;
    }
    const auto count_mask = [&](const SimVfrag &v, std::uint64_t mask, FragmentEvent event) {
        base::for_each_bit(mask & base::full_mask(v.vfrag.count()), [&](unsigned i) {
            world_.pairs.count(TableId::fragment, v.vfrag.fragments[i].state, event);
        });
    };
    for (const SimVfrag *v : outstanding_) {
        const std::int32_t ahead = serial_diff(v->vfrag.sequence(), h.cumulative);
        if (ahead < 0) {
            count_mask(*v, ~std::uint64_t{0}, FragmentEvent::acked_cumulative);
            world_.pairs.count(TableId::vfrag, v->state(), VfragEvent::acked_whole);
            continue;
        }
        const auto offset = static_cast<unsigned>(ahead);
        if (body == nullptr || offset >= max_window) {
            continue;
        }
        if (offset / 64 < body->words && (body->whole[offset / 64] >> offset % 64 & 1U) != 0) {
            count_mask(*v, ~std::uint64_t{0}, FragmentEvent::acked_whole);
            world_.pairs.count(TableId::vfrag, v->state(), VfragEvent::acked_whole);
            continue;
        }
        for (unsigned p = 0; p < body->partials; ++p) {
            const AckBody::Partial &partial = body->partial[p];
            if (partial.offset == offset) {
                count_mask(*v, partial.received, FragmentEvent::acked_mask);
                count_mask(*v, partial.broken & ~partial.received, FragmentEvent::nacked);
                count_mask(*v, ~partial.received & ~partial.broken, FragmentEvent::left_out);
                world_.pairs.count(TableId::vfrag, v->state(), VfragEvent::acked_partly);
            }
        }
    }
}

void Endpoint::count_path_gone(PathId path)
{
    for (const SimVfrag *v : outstanding_) {
        bool any = false;
        for (unsigned i = 0; i < v->vfrag.count(); ++i) {
            const FragmentRecord &record = v->vfrag.fragments[i];
            if (record.path == path && record.state != FragmentState::unsent) {
                world_.pairs.count(TableId::fragment, record.state, FragmentEvent::path_gone);
                any = true;
            }
        }
        if (any || v->state() == VfragState::queued) {
            world_.pairs.count(TableId::vfrag, v->state(), VfragEvent::path_gone);
        }
    }
}

void Endpoint::count_transition(const PathEvent &event)
{
    world_.pairs.count(TableId::transition, event.from, event.to);
    if (path_state_[event.path] != event.from) {
        world_.breach(Breach::contract, "path %u was not %s but %s", event.path,
                      to_string(event.from), to_string(path_state_[event.path]));
    }
    path_state_[event.path] = event.to;
    if (world_.trace) {
        world_.say("%u->%u: path %u: %s -> %s", process_, remote_, event.path,
                   to_string(event.from), to_string(event.to));
    }
}

void Endpoint::take_time()
{
    if (!peer_.unreachable() && now() >= peer_.next_deadline()) {
        world_.pairs.count(TableId::peer, state(), PeerEvent::deadline);
    }
    std::array<std::uint8_t, max_paths> timeouts{};
    std::array<PathState, max_paths> states{};
    for (PathId path = 0; path < ways_.size(); ++path) {
        timeouts[path] = peer_.paths()[path].timeouts;
        states[path] = peer_.paths()[path].state;
    }
    for (const SimVfrag *v : outstanding_) {
        const bool acked = v->vfrag.acknowledged();
        if (!acked && v->vfrag.ack_deadline() <= now()) {
            world_.pairs.count(TableId::vfrag, v->state(), VfragEvent::ack_timer);
            for (unsigned i = 0; i < v->vfrag.count(); ++i) {
                world_.pairs.count(TableId::fragment, v->vfrag.fragments[i].state,
                                   FragmentEvent::ack_timer);
            }
        }
        if (v->vfrag.watchdog_deadline() <= now()) {
            world_.pairs.count(TableId::vfrag, v->state(), VfragEvent::watchdog);
            for (unsigned i = 0; i < v->vfrag.count(); ++i) {
                world_.pairs.count(TableId::fragment, v->vfrag.fragments[i].state,
                                   FragmentEvent::watchdog);
            }
        }
    }
    snapshot();
    const bool silent =
        now() - std::max(heard_at_, outstanding_since_) >= world_.plan.config.give_up / 2;
    if (silent) {
        before_loss();
    }
    peer_.on_time(now());
    if (silent) {
        after_loss();
    }
    compare(false);
    for (PathId path = 0; path < ways_.size(); ++path) {
        const Path &after = peer_.paths()[path];
        if (after.timeouts > timeouts[path] ||
            (states[path] == PathState::probing && after.state == PathState::down)) {
            world_.pairs.count(TableId::path, states[path], PathEventKind::timeout);
        }
    }
    if (peer_.next_deadline() <= now()) {
        world_.breach(Breach::deadline, "on_time leaves a deadline that has passed");
    }
}

void Endpoint::check_unreachable()
{
    was_unreachable_ = true;
    world_.say("%u: %u is unreachable", process_, remote_);
    for (const SimVfrag *v : outstanding_) {
        world_.breach(Breach::handed_back, "VFRAG %u was not given back when the peer was lost",
                      v->vfrag.sequence());
    }
    bool all_gone = true;
    for (PathId path = 0; path < ways_.size(); ++path) {
        all_gone = all_gone && peer_.paths()[path].state == PathState::gone;
    }
    if (!all_gone && !declared_dead_ && world_.unread(process_, remote_)) {
        world_.breach(Breach::unreachable, "unreachable, while its fragments lie in our own inbox");
    }
    const Time since = std::max(heard_at_, outstanding_since_);
    if (!all_gone && !declared_dead_ && now() - since < world_.plan.config.give_up) {
        world_.breach(Breach::unreachable, "unreachable after %.6f s of silence",
                      (now() - since).seconds());
    }
}

void Endpoint::check_patience()
{
    // What a transport that does not move holds is handed back later than it is acknowledged.
    for (const SimVfrag *v : outstanding_) {
        const base::Duration took = now() - v->submitted_at;
        if (!v->vfrag.acknowledged() && took > world_.plan.patience) {
            world_.breach(Breach::liveness,
                          "VFRAG %u is not acknowledged after %.6f s, though a path carries",
                          v->vfrag.sequence(), took.seconds());
        }
    }
}

void Endpoint::check_cheap()
{
    const Config &c = world_.plan.config;
    const Sender &sender = peer_.sender();
    if (sender.window_bytes() > c.window_bytes || sender.window_vfrags() > c.window_vfrags) {
        world_.breach(Breach::window, "%llu bytes and %u VFRAGs are in the window",
                      static_cast<unsigned long long>(sender.window_bytes()),
                      sender.window_vfrags());
    }
    if (peer_.receiver().held_bytes() > c.reorder_bytes && !trusts(world_.plan)) {
        world_.breach(Breach::window, "%zu bytes are kept for their turn",
                      peer_.receiver().held_bytes());
    }
    for (PathId path = 0; path < ways_.size(); ++path) {
        if (peer_.paths()[path].held > c.path_depth) {
            world_.breach(Breach::window, "%u descriptors are on path %u", peer_.paths()[path].held,
                          path);
        }
    }
    if (world_.plan.patience != base::Duration::max()) {
        check_patience();
    }
    if (peer_.unreachable() && !was_unreachable_) {
        check_unreachable();
    }
    const Time since = std::max(heard_at_, outstanding_since_);
    if (!peer_.unreachable() && !peer_.drained() &&
        now() - since > c.give_up + c.rto_max * 2 + world_.plan.processes[process_].busy_for) {
        world_.breach(Breach::unreachable, "reachable after %.6f s of silence",
                      (now() - since).seconds());
    }
    if (peer_.unreachable() && !outstanding_.empty()) {
        world_.breach(Breach::handed_back, "the peer is lost, and VFRAGs are kept");
    }
}

void Endpoint::check_all()
{
    std::array<std::uint64_t, max_paths> in_flight{};
    std::uint64_t fragments = 0;
    for (const SimVfrag *v : outstanding_) {
        for (unsigned i = 0; i < v->vfrag.count(); ++i) {
            const FragmentRecord &record = v->vfrag.fragments[i];
            if (record.state == FragmentState::in_flight) {
                ++fragments;
                in_flight[record.path] += v->vfrag.bytes_of(i);
            }
        }
    }
    const Counters &c = peer_.counters();
    if (c.fragments_sent + c.acknowledged_late !=
        c.fragments_acknowledged + c.declared_lost + fragments) {
        world_.breach(Breach::counters,
                      "%llu sent + %llu late != %llu acknowledged + %llu lost + %llu in flight",
                      static_cast<unsigned long long>(c.fragments_sent),
                      static_cast<unsigned long long>(c.acknowledged_late),
                      static_cast<unsigned long long>(c.fragments_acknowledged),
                      static_cast<unsigned long long>(c.declared_lost),
                      static_cast<unsigned long long>(fragments));
    }
    for (PathId path = 0; path < ways_.size(); ++path) {
        if (peer_.paths()[path].in_flight != in_flight[path]) {
            world_.breach(Breach::counters, "path %u says %llu bytes are in flight, there are %llu",
                          path, static_cast<unsigned long long>(peer_.paths()[path].in_flight),
                          static_cast<unsigned long long>(in_flight[path]));
        }
    }
    const std::uint64_t repeated = c.retransmitted_timeout + c.retransmitted_watchdog +
                                   c.retransmitted_gap + c.retransmitted_tail +
                                   c.retransmitted_nack + c.retransmitted_failover;
    if (c.fragments_sent != fragments_sent_ || c.fragments_received != fragments_accepted_ ||
        repeated > c.declared_lost || repeated > c.fragments_sent ||
        c.spurious_timeouts > c.declared_lost) {
        world_.breach(Breach::counters, "fragments are not counted as they were seen");
    }
}

void Endpoint::check_final()
{
    check_all();
    if (peer_.unreachable()) {
        return;
    }
    if (world_.plan.calm && peer_.counters().path_down != 0) {
        world_.breach(Breach::path_lost, "%llu paths were taken out, and nothing was lost",
                      static_cast<unsigned long long>(peer_.counters().path_down));
    }
    const Sender &sender = peer_.sender();
    if (!outstanding_.empty() || sender.window_bytes() != 0 || sender.window_vfrags() != 0) {
        world_.breach(Breach::handed_back, "all is done, but the window is not empty");
    }
    const Endpoint &other = *world_.endpoints[id_ ^ 1U];
    if (other.peer_.unreachable()) {
        return;
    }
    for (const Message &message : world_.messages) {
        if (message.plan.from != process_ || message.plan.to != remote_ || !message.queued) {
            continue;
        }
        for (const Piece &piece : message.pieces) {
            if (!piece.acknowledged || piece.delivered != base::full_mask(piece.count)) {
                world_.breach(Breach::liveness, "a message is not delivered whole");
            }
        }
    }
    if (peer_.receiver().held_bytes() != 0) {
        world_.breach(Breach::window, "fragments wait for a turn that does not come");
    }
    const Counters &mine = peer_.counters();
    const Counters &theirs = other.peer_.counters();
    if (mine.fragments_acknowledged != theirs.fragments_received ||
        mine.bytes_acknowledged != theirs.bytes_received ||
        mine.acks_received > theirs.acks_sent * 2 + 1000) {
        world_.breach(Breach::counters, "%llu fragments are acknowledged, %llu were received",
                      static_cast<unsigned long long>(mine.fragments_acknowledged),
                      static_cast<unsigned long long>(theirs.fragments_received));
    }
}

} // namespace ft::sim

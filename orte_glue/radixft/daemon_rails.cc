// What a daemon does where it and the others have several networks, and the one that its connection
// to another one goes over loses everything without a word.
#include "orte_glue/radixft/daemon.hpp"

#include "orte_glue/radixft/callbacks.hpp"
#include "orte_glue/radixft/oob_tcp.hpp"
#include "orte_glue/radixft/probe.hpp"

namespace ft::radixft {

using namespace base::literals;

namespace {

/// Between looks at the connections.
constexpr base::Duration look_each = 50_ms;
/// How long an address has to accept a connection. With Stalls::patience and one heartbeat in front
/// it must be over before a silent daemon is believed dead.
constexpr base::Duration address_patience = 100_ms;
/// How long the higher one of two has to open the new connection. Until it knows that the old one
/// is no good it would turn one down that the lower one opens.
constexpr base::Duration moving_patience = 2_s;
/// Between two requests to it.
constexpr base::Duration ask_each = 200_ms;
/// Between two nudges of everybody.
constexpr base::Duration nudge_each = 1_s;
/// More steps than a tree of any size has levels.
constexpr std::uint8_t most_steps = 64;

std::string text(const sockaddr_storage &address)
{
    char name[INET6_ADDRSTRLEN] = "";
    if (address.ss_family == AF_INET) {
        inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in &>(address).sin_addr, name,
                  sizeof name);
    } else {
        inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6 &>(address).sin6_addr, name,
                  sizeof name);
    }
    return name;
}

/// The tree neighbour of `self` on the way to `to`; both must be members.
NodeId towards(const membership::View &view, NodeId self, NodeId to)
{
    for (NodeId at = to; at != no_node; at = view.parent(at)) {
        if (view.parent(at) == self) {
            return at;
        }
    }
    return view.parent(self);
}

Bytes let_go_text(NodeId to, NodeId from, const Ports &ports, std::uint8_t steps)
{
    Bytes body(4 + 4 + 4 + 4 + 1);
    base::WireWriter out(body);
    out.u32(to);
    out.u32(from);
    out.u32(ports.here);
    out.u32(ports.there);
    out.u8(steps);
    return body;
}

} // namespace

void Daemon::start_rails()
{
    own_addresses_ = addresses_in(contact(self_));
    if (has_rails()) {
        streams_.start();
        Callbacks::after(look_each, [] { get().watch_rails(); });
    }
}

void Daemon::watch_rails()
{
    if (!started_) {
        return;
    }
    Callbacks::after(look_each, [] { get().watch_rails(); });
    if (!begun() || over_ || orte_orteds_term_ordered) {
        return;
    }
    const base::Time now = monotonic_now();
    const auto look = [this, now](NodeId id) {
        if (id == self_ || !reachable(id) || moving_.contains(id)) {
            return;
        }
        const auto peer = OobPeer::find(id);
        if (peer) {
            streams_.look(id, *peer);
        }
        if (const auto progress = peer ? peer->progress() : std::nullopt; !progress) {
            stalls_.forget(id);
        } else if (!examined_.contains(id)) {
            if (const unsigned times = stalls_.look(now, id, *progress); times != 0) {
                examine(id, is_broken(times, *progress));
            }
        }
    };
    for (const NodeId id : connected_) {
        look(id);
    }
    // Those to whom a connection is only being opened.
    if (const membership::ViewPtr &view = session_->engine().view(); view != nullptr) {
        for (membership::Position p = 0; p < view->size(); ++p) {
            if (!connected_.contains(view->at(p))) {
                look(view->at(p));
            }
        }
    }
    for (auto &[id, request] : let_go_) {
        if (now - request.asked_at >= ask_each) {
            request.asked_at = now;
            ask_to_let_go(id);
        }
    }
    // Who joins is in no tree along which it could be asked to let go, and so has to notice by
    // itself. The members' part is in on_address().
    if (!is_member()) {
        nudge_all();
    }
}

/// Asks at each of a daemon's addresses whether it is to be had there.
void Daemon::examine(NodeId id, bool broken)
{
    const auto peer = OobPeer::find(id);
    const auto before = peer ? peer->progress() : std::nullopt;
    const std::vector<sockaddr_storage> addresses = addresses_of(id);
    if (!before || addresses.size() < 2 || !examined_.insert(id).second) {
        return;
    }
    story(2, "nothing gets through to daemon %u, knocks at all of its addresses", id);
    knock_at_each(addresses, address_patience,
                  [id, addresses, before, broken](const std::vector<Knock> &answers) {
                      Daemon &self = get();
                      self.examined_.erase(id);
                      if (self.started_ && self.reachable(id) && !self.over_ &&
                          !orte_orteds_term_ordered) {
                          self.examined(id, addresses, answers, *before, broken);
                      }
                  });
}

void Daemon::examined(NodeId id, const std::vector<sockaddr_storage> &addresses,
                      std::span<const Knock> answers, const Progress &before, bool broken)
{
    auto peer = OobPeer::find(id);
    const auto progress = peer ? peer->progress() : std::nullopt;
    if (!progress || progress->mark != before.mark) {
        return; // another connection, or one on which something has got through
    }
    std::size_t used = 0;
    while (used < addresses.size() && !peer->uses(addresses[used])) {
        ++used;
    }
    const auto better = better_address(answers, used, broken);
    if (!better) {
        return;
    }
    const bool was_open = peer->open();
    const Ports ports = peer->ports();
    peer->prefer(addresses[*better]);
    if (!peer->give_up()) {
        return;
    }
    story(1, "daemon %u is silent at %s%s: goes on at %s", id, text(addresses[used]).c_str(),
          *better == used ? " on this connection" : "", text(addresses[*better]).c_str());
    if (was_open) {
        moving_.insert(id);
        streams_.given_up(id, *peer);
        if (id > self_) {
            let_go_[id] = {.ports = ports, .asked_at = monotonic_now()};
            ask_to_let_go(id);
        }
    }
    nudge_all();
}

/// The channel has found a connection ended that this daemon has ended. The higher one of the two
/// opens the next one: the lower one takes it, even if it believes that it has one.
bool Daemon::changes_rail(NodeId id)
{
    if (moving_.erase(id) == 0 || !started_ || !reachable(id)) {
        return false;
    }
    if (id < self_) {
        transmit(id, opening_tag, Bytes(1));
    } else if (held_.begin(id)) {
        await_connection(id, moving_patience);
    }
    return true;
}

/// There is a new connection. `replaced`: the other daemon has found that the old one was no good.
void Daemon::greet_rail(NodeId id, bool replaced)
{
    stalls_.forget(id);
    moving_.erase(id);
    let_go_.erase(id);
    auto peer = begun() && has_rails() ? OobPeer::find(id) : std::nullopt;
    if (!peer) {
        return;
    }
    const Bytes had = streams_.connected(id, *peer, replaced);
    peer->begin_anew();
    if (had.empty()) {
        return;
    }
    send({id, Type::resume, had});
    if (replaced) {
        nudge_all();
    }
}

/// It is no member any more. Who comes back under its id has nothing to do with its connection.
void Daemon::forget_rail(NodeId id)
{
    stalls_.forget(id);
    moving_.erase(id);
    let_go_.erase(id);
    streams_.ended(id);
}

/// What has taken one connection may have taken others, of which nobody knows while there is
/// nothing to say. So something is said to all: who is well acknowledges it at once.
void Daemon::nudge_all()
{
    if (!has_rails() || std::exchange(nudge_due_, true)) {
        return;
    }
    const base::Duration since = monotonic_now() - nudged_at_;
    Callbacks::after(since < nudge_each ? nudge_each - since : base::Duration(), [] {
        Daemon &self = get();
        self.nudge_due_ = false;
        self.nudged_at_ = monotonic_now();
        for (const NodeId id : self.connected_) {
            self.nudge(id);
        }
    });
}

void Daemon::nudge(NodeId id)
{
    if (started_ && has_rails() && connected_.contains(id) && reachable(id) &&
        !held_.waits_for(id) && !moving_.contains(id)) {
        transmit(id, opening_tag, Bytes(1));
    }
}

/// A neighbour in the tree has found out by itself that nothing gets through. Another one has
/// nothing to say here, and is told through the tree.
void Daemon::ask_to_let_go(NodeId id)
{
    const membership::ViewPtr &view = session_->engine().view();
    if (view == nullptr || !view->contains(self_) || !view->contains(id)) {
        return;
    }
    if (const NodeId next = towards(*view, self_, id); next != id && next != no_node) {
        send({next, Type::let_go, let_go_text(id, self_, let_go_[id].ports, 0)});
    }
}

bool Daemon::on_let_go(std::span<const std::byte> body)
{
    base::WireReader in(body);
    const NodeId to = in.u32();
    const NodeId from = in.u32();
    Ports there;
    there.here = in.u32();
    there.there = in.u32();
    const std::uint8_t steps = in.u8();
    const membership::ViewPtr view = begun() ? session_->engine().view() : nullptr;
    if (!in.complete() || steps >= most_steps || view == nullptr || !view->contains(self_) ||
        !view->contains(to) || !view->contains(from)) {
        return false;
    }
    if (to == self_) {
        const auto peer = OobPeer::find(from);
        examine(from, peer && peer->ports() == Ports{.here = there.there, .there = there.here});
    } else if (const NodeId next = towards(*view, self_, to); next != no_node) {
        send({next, Type::let_go,
              let_go_text(to, from, there, static_cast<std::uint8_t>(steps + 1))});
    }
    return true;
}

} // namespace ft::radixft

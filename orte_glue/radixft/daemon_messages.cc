#include "orte_glue/radixft/daemon.hpp"

#include "orte_glue/radixft/callbacks.hpp"
#include "orte_glue/radixft/oob_tcp.hpp"
#include "orte_glue/radixft/probe.hpp"

#include "opal/ft/base/wire.hpp"

namespace ft::radixft {

using namespace base::literals;

namespace {

/// Protocol messages kept for the time before GO; more than that is a fault of the sender.
constexpr std::size_t most_early = 4096;

constexpr std::size_t tag_bytes = membership::Sealer::tag_size;

/// Up to so many daemons have connections to each other; of more, the first few have to all.
constexpr membership::Position most_meshed = 32;
constexpr membership::Position next_roots = 4;
/// How long the lower one of two daemons has to open the connection between them.
constexpr base::Duration opening_patience = 20_ms;
/// How long a newcomer has to. It does so when it is invited, at the time at which the members hear
/// of it; the longer this is, the less can both open one at once, however busy a host is.
constexpr base::Duration newcomer_patience = 1_s;

/// What is to be done once, when its event comes.
struct Later {
    opal_event_t event;
    std::function<void()> what;

    static void come(int, short, void *data) noexcept
    {
        const std::unique_ptr<Later> self(static_cast<Later *>(data));
        self->what();
    }
};

} // namespace

void Callbacks::received(int status, orte_process_name_t *sender, opal_buffer_t *buffer,
                         orte_rml_tag_t tag, void *) noexcept
{
    if (status != ORTE_SUCCESS) {
        return;
    }
    Daemon &daemon = Daemon::get();
    if (sender->jobid != ORTE_PROC_MY_NAME->jobid) {
        daemon.drop(no_node, Drops::Why::foreign);
        return;
    }
    const auto *bytes = reinterpret_cast<const std::byte *>(buffer->unpack_ptr);
    const auto *end = reinterpret_cast<const std::byte *>(buffer->base_ptr) + buffer->bytes_used;
    if (bytes == nullptr || bytes > end) {
        daemon.drop(sender->vpid, Drops::Why::malformed); // it is empty
        return;
    }
    daemon.on_bytes(sender->vpid, tag, {bytes, end});
}

void Callbacks::sent(int, orte_process_name_t *, opal_buffer_t *buffer, orte_rml_tag_t,
                     void *) noexcept
{
    // What is lost is repeated by the protocol above; an error here must not end the daemon.
    OBJ_RELEASE(buffer);
}

void Callbacks::output(int status, orte_process_name_t *sender, opal_buffer_t *buffer,
                       orte_rml_tag_t, void *) noexcept
{
    if (status == ORTE_SUCCESS && sender->jobid == ORTE_PROC_MY_NAME->jobid) {
        Daemon::get().on_output(buffer);
    }
}

void Callbacks::request(int status, orte_process_name_t *sender, opal_buffer_t *buffer,
                        orte_rml_tag_t, void *) noexcept
{
    if (status == ORTE_SUCCESS && sender->jobid == ORTE_PROC_MY_NAME->jobid) {
        Daemon::get().on_request(sender, buffer);
    }
}

void Callbacks::timer(int, short, void *) noexcept
{
    Daemon::get().on_timer();
}

void Callbacks::later(std::function<void()> what) noexcept
{
    after(base::Duration(), std::move(what));
}

void Callbacks::after(base::Duration delay, std::function<void()> what) noexcept
{
    auto *later = new Later{.event = {}, .what = std::move(what)};
    opal_event_evtimer_set(orte_event_base, &later->event, Later::come, later);
    opal_event_set_priority(&later->event, ORTE_MSG_PRI);
    timeval tv{.tv_sec = delay.us() / 1000000, .tv_usec = delay.us() % 1000000};
    opal_event_evtimer_add(&later->event, &tv);
}

void Callbacks::when_readable(int file, std::function<void()> what) noexcept
{
    auto *later = new Later{.event = {}, .what = std::move(what)};
    opal_event_set(orte_event_base, &later->event, file, OPAL_EV_READ, Later::come, later);
    opal_event_set_priority(&later->event, ORTE_MSG_PRI);
    opal_event_add(&later->event, nullptr);
}

/// At mpirun, which has told all to leave: who has closed its connection has, though the news may
/// be waiting behind this event still. To open another one would fail, and the channel would tell
/// the user of a firewall.
bool Daemon::is_leaving(NodeId id) const noexcept
{
    if (self_ != 0 || !orte_orteds_term_ordered) {
        return false;
    }
    const auto peer = OobPeer::find(id);
    return peer && !peer->open() && !peer->opening();
}

void Daemon::send(NodeId to, orte_rml_tag_t tag, const Bytes &bytes)
{
    if (to == self_ || !reachable(to) || bytes.empty() || is_leaving(to)) {
        return;
    }
    if (to < self_ && !connected_.contains(to) && held_.begin(to)) {
        await_connection(to, opening_patience);
    }
    if (held_.waits_for(to)) {
        if (!held_.keep(to, {tag, bytes})) {
            drops_.count(Drops::Why::no_room);
        }
        return;
    }
    transmit(to, tag, bytes);
}

void give(NodeId to, orte_rml_tag_t tag, opal_buffer_t *message) noexcept
{
    orte_process_name_t name = *ORTE_PROC_MY_NAME;
    name.vpid = to;
    if (orte_rml.send_buffer_nb(static_cast<orte_rml_conduit_t>(orte_mgmt_conduit), &name, message,
                                tag, Callbacks::sent, nullptr) != ORTE_SUCCESS) {
        OBJ_RELEASE(message);
    }
}

void order(NodeId to, orte_daemon_cmd_flag_t command) noexcept
{
    opal_buffer_t *message = OBJ_NEW(opal_buffer_t);
    if (opal_dss.pack(message, &command, 1, ORTE_DAEMON_CMD) == ORTE_SUCCESS) {
        give(to, ORTE_RML_TAG_DAEMON, message);
    } else {
        OBJ_RELEASE(message);
    }
}

void Daemon::transmit(NodeId to, orte_rml_tag_t tag, const Bytes &bytes)
{
    void *copy = std::malloc(bytes.size());
    if (copy == nullptr) {
        return;
    }
    std::memcpy(copy, bytes.data(), bytes.size());
    opal_buffer_t *buffer = OBJ_NEW(opal_buffer_t);
    opal_dss.load(buffer, copy, static_cast<std::int32_t>(bytes.size()));
    give(to, tag, buffer);
}

void Daemon::send_held(NodeId to)
{
    for (const Held::Message &m : held_.end(to)) {
        if (reachable(to)) { // still
            transmit(to, m.tag, m.bytes);
        }
    }
}

/// To one that is gone. A host that is off answers nothing, so the attempt would last for minutes;
/// should a newcomer come back under that id meanwhile, the channel turns its connections away and
/// goes on with its own, to where the dead one was.
void Daemon::stop_opening(NodeId to) noexcept
{
    if (auto peer = OobPeer::find(to); peer && peer->opening()) {
        story(2, "ends its attempt to connect to daemon %u, which is gone", to);
        (void)peer->give_up();
    }
}

/// Of two daemons the one with the lower id opens the connection between them: when both do at once
/// it takes longer. It does so before there is anything to say, with all members or, as those who
/// may become the root next, in a larger job; nobody waits for a handshake while a view changes
/// then.
void Daemon::open_connections()
{
    const membership::ViewPtr &view = session_->engine().view();
    if (view == nullptr || !view->contains(self_) || over_) {
        return;
    }
    const membership::Position mine = view->position(self_);
    if (view->size() > most_meshed && mine >= next_roots) {
        return;
    }
    for (membership::Position p = mine + 1; p < view->size(); ++p) {
        const NodeId id = view->at(p);
        if (!connected_.contains(id) && reachable(id) && !held_.waits_for(id)) {
            transmit(id, opening_tag, Bytes(1));
        }
    }
}

/// The one that is not to open a connection does so only if the other one has not in time: that may
/// know of no reason to.
void Daemon::await_connection(NodeId from, base::Duration patience)
{
    awaited_.insert(from);
    story(2, "waits for daemon %u to open a connection", from);
    // Who is dead will not; that is to be known at once.
    knock(addresses_of(from), opening_patience, [from](Knock answer) {
        Daemon &self = get();
        if (answer == Knock::refused && self.awaited_.erase(from) != 0) {
            self.held_.end(from);
            self.on_refused(from);
        }
    });
    Callbacks::after(patience, [from] {
        Daemon &self = get();
        if (self.awaited_.erase(from) != 0) {
            story(2, "daemon %u has not opened a connection", from);
            self.send_held(from);
        }
    });
}

/// A newcomer opens its connections itself, to the higher and the lower, as soon as it knows whom
/// to: the others would look for one that comes back at its old address. What they have to say to
/// it waits for that. That to mpirun is there: by it the newcomer was invited.
void Daemon::open_connections_of_newcomer(std::span<const NodeId> members)
{
    for (const NodeId id : members) {
        if (id == 0 || id == self_ || connected_.contains(id) || !held_.begin(id)) {
            continue;
        }
        // The runtime would print a page about one that has just died.
        knock(addresses_of(id), opening_patience, [id](Knock answer) {
            Daemon &self = get();
            const std::vector<Held::Message> held = self.held_.end(id);
            if (!self.started_) {
                return;
            }
            if (answer == Knock::refused) {
                self.on_refused(id);
                return;
            }
            transmit(id, opening_tag, Bytes(1));
            for (const Held::Message &m : held) {
                transmit(id, m.tag, m.bytes);
            }
        });
    }
}

void Daemon::await_newcomer(NodeId id)
{
    if (!connected_.contains(id) && held_.begin(id)) {
        await_connection(id, newcomer_patience);
    }
}

void Daemon::disconnected(NodeId id) noexcept
{
    // The channel tells of a loss in an event of its own: the next connection may be there already.
    if (const auto peer = OobPeer::find(id); !peer || peer->ports() == Ports{}) {
        connected_.erase(id);
        streams_.lost(id);
    }
    if (const auto it = leaving_.find(id); it != leaving_.end()) {
        it->second.told = false; // the order may have been lost with the connection
    }
}

void Daemon::connected(NodeId id) noexcept
{
    const bool replaced = !connected_.insert(id).second;
    doubted_us_.erase(id); // a death to come is not dated to what made this connection necessary
    auto peer = OobPeer::find(id);
    if (peer) {
        peer->keep_trying();
    }
    // While a job is launched mpirun only takes connections, as many as there are hosts.
    if (peer && (begun() || self_ != 0) && peer->drop_attempts()) {
        story(2, "daemon %u has opened a connection just when this one was to", id);
        // What was to go out on the other connection waits for the next message on this one.
        transmit(id, opening_tag, Bytes(1));
    }
    if (awaited_.erase(id) != 0) {
        send_held(id);
    }
    // Behind it: what this says is not repeated, and there may be no room among what is held.
    greet_rail(id, replaced);
}

/// `bytes` with the tag under `key` behind them.
Bytes Daemon::sealed(const membership::Key &key, Bytes bytes)
{
    const std::uint64_t mac = membership::siphash24(key, bytes);
    bytes.resize(bytes.size() + tag_bytes);
    base::WireWriter tail(std::span<std::byte>(bytes).last(tag_bytes));
    tail.u64(mac);
    return bytes;
}

void Daemon::send(const Outgoing &message)
{
    Bytes bytes(4 + 1 + message.body.size());
    base::WireWriter out(bytes);
    out.u32(self_);
    out.u8(static_cast<std::uint8_t>(message.type));
    out.bytes(message.body);
    send(message.to, glue_tag, sealed(sealer_ ? key_ : launch_key_, std::move(bytes)));
}

void Daemon::on_bytes(NodeId from, orte_rml_tag_t tag, std::span<const std::byte> bytes)
{
    if (!started_) {
        return;
    }
    if (tag == protocol_tag) {
        if (begun()) {
            on_protocol(from, bytes);
        } else if (early_.size() < most_early) {
            early_.emplace_back(from, Bytes(bytes.begin(), bytes.end()));
        } else {
            drop(from, Drops::Why::no_room);
        }
    } else if (tag == glue_tag) {
        on_glue(from, bytes);
    } else if (tag == launch_tag) {
        on_launch(from, bytes);
    } else if (bytes.size() != 1) { // it has opened the connection, and says nothing
        drop(from, Drops::Why::malformed);
    }
    board_.post(drops());
    flush();
    arm_timer();
}

void Daemon::on_protocol(NodeId from, std::span<const std::byte> bytes)
{
    using Fault = membership::Sealer::Fault;
    auto fault = Fault::none;
    const std::optional<membership::Message> m = sealer_->open(bytes, &fault);
    if (!m || m->from != from || m->to != self_) {
        const bool nonsense = fault == Fault::too_short || fault == Fault::malformed;
        drop(from, nonsense ? Drops::Why::malformed : Drops::Why::forged);
        return;
    }
    if (turns_away(from)) {
        drop(from, Drops::Why::stale);
        return;
    }
    if (m->proposal) {
        // Who comes back under an old id is to be spoken to again.
        for (const membership::Identity &who : m->proposal->change.joined) {
            lost_.erase(who.id);
        }
    }
    session_->message(monotonic_now(), *m);
}

void Daemon::on_launch(NodeId from, std::span<const std::byte> bytes)
{
    if (bytes.size() < 4 + tag_bytes) {
        drop(from, Drops::Why::malformed);
        return;
    }
    const auto text = bytes.first(bytes.size() - tag_bytes);
    base::WireReader tail(bytes.last(tag_bytes));
    const bool genuine = tail.u64() == membership::siphash24(launch_key_, text);
    base::WireReader in(text);
    if (in.u32() != magic) {
        drop(from, Drops::Why::malformed);
    } else if (self_ != 0 && (from != 0 || !genuine)) {
        drop(from, Drops::Why::forged);
    } else if (self_ == 0) {
        on_ready(from, in, genuine);
    } else {
        on_go(in);
    }
}

void Daemon::on_glue(NodeId from, std::span<const std::byte> bytes)
{
    if (bytes.size() < 4 + 1 + tag_bytes) {
        drop(from, Drops::Why::malformed);
        return;
    }
    const auto text = bytes.first(bytes.size() - tag_bytes);
    base::WireReader tail(bytes.last(tag_bytes));
    const std::uint64_t mac = tail.u64();
    base::WireReader in(text);
    const NodeId claimed = in.u32();
    const auto type = static_cast<Type>(in.u8());
    const auto body = in.rest();
    bool genuine = sealer_ && mac == membership::siphash24(key_, text);
    bool late = false;
    if (genuine) {
        sealing_.insert(from);
    } else {
        // What a daemon sent before it got GO may still be on its way to mpirun.
        const bool early = mac == membership::siphash24(launch_key_, text);
        genuine = early && (!sealer_ || (self_ == 0 && !sealing_.contains(from)));
        late = early && !genuine;
    }
    if (!genuine || claimed != from) {
        drop(from, late && claimed == from ? Drops::Why::stale : Drops::Why::forged);
        return;
    }
    jobs_.learn();
    bool used = false;
    switch (type) {
    case Type::rank_died:
    case Type::ranks_dead:
    case Type::ranks_dead_ack:
    case Type::ranks_known_ask:
    case Type::ranks_known:
        used = session_->spread(monotonic_now(), from, type, body);
        break;
    case Type::contribution:
    case Type::release:
    case Type::released:
    case Type::wanted:
        used = gather_->on_message(from, type, body);
        break;
    case Type::address:
        used = on_address(from, body);
        break;
    case Type::let_go:
        used = on_let_go(body);
        break;
    case Type::resume:
        used = streams_.on_resume(from, body);
        break;
    case Type::ranks_are:
    case Type::leave:
        used = wind_down_->on_message(from, type, body);
        break;
    }
    if (!used) {
        drop(from, Drops::Why::stale);
    }
}

/// Counts it, and says so the first time that it is one that none of the job's daemons has sent.
void Daemon::drop(NodeId from, Drops::Why why)
{
    const std::uint64_t before = drops_.strange();
    drops_.count(why);
    if (before == 0 && drops_.strange() != 0) {
        story(
            1,
            "drops a message that came in the name of daemon %u: it is %s; others will be counted",
            from, why == Drops::Why::forged ? "forged" : "malformed");
    }
}

Drops Daemon::drops() const
{
    return begun() ? drops_.with(session_->engine().counters()) : drops_;
}

} // namespace ft::radixft

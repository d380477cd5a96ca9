#include "test/sim/membership/world.hpp"

#include <algorithm>
#include <cstdio>

namespace sim {

World::World(const Config &config, Position nodes, const Weather &weather, std::uint64_t seed,
             unsigned localised)
    : config_(config),
      localised_(config.mode == TreeMode::rebuild ? localised : 0),
      weather_(weather),
      rng_(seed),
      pool_(std::make_shared<ViewPool>()),
      initial_(View::initial(nodes, config.arity, config.mode))
{
    nodes_.resize(nodes);
    views_[0] = {initial_, false};
    commits_.push_back({initial_, now_});
    for (NodeId id = 0; id < nodes; ++id) {
        nodes_[id].engine =
            std::make_unique<Stabilizer>(config_of(id), pool_, Identity{id, 0}, initial_, now_);
        schedule(id);
    }
}

Config World::config_of(NodeId id) const
{
    Config c = config_;
    c.form = localised_ != 0 && id % localised_ == 0 ? ViewForm::localised : ViewForm::full;
    return c;
}

std::string World::label(NodeId id) const
{
    return std::to_string(id) + (nodes_[id].incarnation != 0
                                     ? "." + std::to_string(nodes_[id].incarnation)
                                     : std::string());
}

void World::violation(const std::string &what)
{
    if (verbose) {
        std::printf("# %10.3f ms VIOLATION %s\n", static_cast<double>(now_.ns()) / 1e6,
                    what.c_str());
    }
    if (violations_.size() < 20) {
        violations_.push_back(what);
    }
}

bool World::participating(NodeId id) const
{
    if (!running(id)) {
        return false;
    }
    const State s = nodes_[id].engine->state();
    return s == State::joining || s == State::member || s == State::suspended;
}

// The queue.

void World::push(Time at, Item::Kind kind, NodeId node, std::uint32_t index, NodeId other)
{
    queue_.push({at, order_++, kind, node, index, other});
}

void World::at(Time t, std::function<void()> f)
{
    calls_.push_back(std::move(f));
    push(t, Item::Kind::call, 0, static_cast<std::uint32_t>(calls_.size() - 1));
}

void World::schedule(NodeId id)
{
    Node &n = nodes_[id];
    if (n.dead || n.stopped || !n.engine) {
        return;
    }
    // Its deadline by its own clock.
    const Time t = std::max(n.engine->next_deadline() - n.clock, now_);
    if (t < n.wake) {
        n.wake = t;
        push(t, Item::Kind::wake, id, n.incarnation);
    }
}

void World::run_until(Time t)
{
    while (!queue_.empty() && queue_.top().at <= t) {
        const Item item = queue_.top();
        queue_.pop();
        now_ = std::max(now_, item.at);
        ++events_;
        Node &n = nodes_[item.node];
        switch (item.kind) {
        case Item::Kind::wake:
            if (n.incarnation != item.index || n.wake != item.at) {
                break; // a newer one is scheduled
            }
            n.wake = Time::never();
            if (!n.dead && !n.stopped && n.engine) {
                n.engine->on_time(local(item.node), out_);
                absorb(item.node);
            }
            break;
        case Item::Kind::message:
            deliver(item.index);
            break;
        case Item::Kind::suspicion:
        case Item::Kind::proof:
            if (running(item.node) && !n.stopped && nodes_[item.other].incarnation == item.index &&
                nodes_[item.other].dead && reachable(item.node, item.other) &&
                reachable(item.other, item.node)) {
                if (item.kind == Item::Kind::proof) {
                    n.engine->on_proof(local(item.node), item.other, ProofKind::refused, out_);
                } else {
                    n.engine->on_suspicion(local(item.node), item.other, out_);
                }
                absorb(item.node);
            }
            break;
        case Item::Kind::application:
            application(item.node, item.other, item.index);
            break;
        case Item::Kind::call:
            calls_[item.index]();
            break;
        }
    }
    now_ = std::max(now_, t);
}

// Messages.

void World::transmit(NodeId from, Message m)
{
    remember(from, m);
    if (m.proposal && !m.proposal->change.joined.empty() && m.proposal->change.makes_exiles()) {
        violation("newcomers join beside an exile, which cannot know of them: " + describe(m));
    }
    if (m.type != Type::heartbeat) {
        ++nodes_[from].sent;
    }
    if (on_send && !on_send(m)) {
        return;
    }
    if (verbose && m.type != Type::heartbeat) {
        std::printf("# %10.3f ms %s\n", static_cast<double>(now_.ns()) / 1e6, describe(m).c_str());
    }
    if (m.to < nodes_.size() && !reachable(from, m.to) && keep_what_is_cut) {
        kept_.push_back(std::move(m));
        return;
    }
    if (m.to >= nodes_.size() || !reachable(from, m.to) ||
        (weather_.loss > 0 && rng_.uniform() < weather_.loss) || (on_way && !on_way(m))) {
        return;
    }
    if (through_bytes) {
        const Sealer sealer(key);
        const auto bytes = sealer.seal(m);
        auto back = sealer.open(bytes);
        if (!back || !equal(*back, m)) {
            violation("a message changed on the way through its bytes: " + describe(m));
            return;
        }
        m = std::move(*back);
    }
    carry(std::move(m));
}

void World::carry(Message m)
{
    const unsigned copies = weather_.duplicate > 0 && rng_.uniform() < weather_.duplicate ? 2 : 1;
    std::uint32_t slot = 0;
    if (free_slots_.empty()) {
        slot = static_cast<std::uint32_t>(slots_.size());
        slots_.emplace_back();
    } else {
        slot = free_slots_.back();
        free_slots_.pop_back();
    }
    const NodeId to = m.to;
    slots_[slot] = {std::move(m), copies, false};
    for (unsigned i = 0; i < copies; ++i) {
        const std::uint64_t jitter = static_cast<std::uint64_t>(weather_.jitter.ns());
        const Duration extra =
            Duration::from_ns(jitter == 0 ? 0 : static_cast<std::int64_t>(rng_.below(jitter)));
        push(now_ + weather_.latency + extra, Item::Kind::message, to, slot);
    }
}

void World::release(std::uint32_t slot)
{
    if (--slots_[slot].copies == 0) {
        slots_[slot].message = Message();
        free_slots_.push_back(slot);
    }
}

void World::deliver(std::uint32_t slot)
{
    // Copied: what the receiver sends may move the slots.
    const Message m = slots_[slot].message;
    Node &n = nodes_[m.to];
    if (!reachable(m.from, m.to)) {
        release(slot);
        return;
    }
    if (!n.engine || n.dead) {
        // A host that is up refuses for a process that is gone.
        if (n.engine && n.loud && now_ >= n.refuses && reachable(m.to, m.from) && running(m.from)) {
            push(now_ + weather_.latency, Item::Kind::proof, m.from, n.incarnation, m.to);
        }
        release(slot);
        return;
    }
    if (n.stopped) {
        n.mail.push_back(slot);
        return;
    }
    if (on_receive) {
        on_receive(m);
        if (nodes_[m.to].dead || nodes_[m.to].stopped) {
            release(slot);
            return;
        }
    }
    const Stabilizer::Verdict v = n.engine->on_message(local(m.to), m, out_);
    if (v == Stabilizer::Verdict::taken) {
        follow_newcomer(m);
        if (slots_[slot].taken) {
            violation("no duplication: taken twice: " + describe(m));
        }
        slots_[slot].taken = true;
        if (!was_sent(m)) {
            violation("delivery integrity: taken, but not sent: " + describe(m));
        }
    }
    release(slot);
    absorb(m.to);
}

void World::absorb(NodeId id)
{
    // The engine's output may make it act again only through the queue, so one pass is enough; but
    // a kill from a send hook may stop it in the middle.
    Output out;
    std::swap(out, out_);
    for (const Event &e : out.events) {
        if (verbose) {
            static const char *const kinds[] = {
                "installs", "has all votes for", "believes dead", "hears from", "suspends",
                "resumes",  "is evicted",        "ends",          "has left"};
            std::printf("# %10.3f ms    %s %s %s\n", static_cast<double>(now_.ns()) / 1e6,
                        label(id).c_str(), kinds[static_cast<unsigned>(e.kind)],
                        e.kind == Event::Kind::believed || e.kind == Event::Kind::refuted
                            ? std::to_string(e.who.id).c_str()
                        : e.view ? ("view " + std::to_string(e.view->epoch()) + " of " +
                                    std::to_string(e.view->size()))
                                       .c_str()
                                 : "");
        }
        switch (e.kind) {
        case Event::Kind::installed:
            on_installed(id, e);
            break;
        case Event::Kind::stabilized:
            commits_.push_back({e.view, now_});
            break;
        case Event::Kind::evicted:
            ++evictions_;
            if (rejoin_evicted) {
                const std::uint32_t life = nodes_[id].incarnation;
                at(now_ + Duration::from_ms(20), [this, id, life] {
                    if (running(id) && nodes_[id].incarnation == life) {
                        kill(id, Death::loud);
                        start(id);
                    }
                });
            }
            break;
        default:
            break;
        }
        if (on_event) {
            on_event(id, e);
        }
    }
    for (Message &m : out.messages) {
        if (nodes_[id].dead || nodes_[id].stopped) {
            break;
        }
        transmit(id, std::move(m));
    }
    out.clear();
    out_ = std::move(out);
    schedule(id);
}

void World::on_installed(NodeId id, const Event &e)
{
    ++installs_;
    Node &n = nodes_[id];
    const View &v = *e.view;
    if (!v.contains(Identity{id, n.incarnation})) {
        violation("self inclusion: " + label(id) + " installs view " + std::to_string(v.epoch()) +
                  " without itself");
    }
    if (v.epoch() <= n.last_epoch && n.last_epoch != 0) {
        violation("epochs rise: " + label(id) + " goes from " + std::to_string(n.last_epoch) +
                  " to " + std::to_string(v.epoch()));
    }
    n.last_epoch = v.epoch();
    const auto [known, fresh] = views_.try_emplace(v.epoch(), Installed{e.view, false});
    Installed &first = known->second;
    if (first.view->digest() != v.digest()) {
        violation("two primary views: epoch " + std::to_string(v.epoch()) +
                  " names two views, one at " + label(id));
    } else if (first.view->form() != v.form() && !first.compared && check_tree) {
        first.compared = true;
        if (!first.view->agrees(v)) {
            violation("the full and the localised form of view " + std::to_string(v.epoch()) +
                      " disagree, one at " + label(id));
        }
    }
    if (fresh && check_tree && !v.consistent()) {
        violation("the tree of view " + std::to_string(v.epoch()) + " does not span its members");
    }
    auto held = std::move(n.held);
    n.held.clear();
    for (const auto &[from, mcast] : held) {
        push(now_, Item::Kind::application, id, mcast, from);
    }
}

void World::multicast(NodeId from)
{
    if (!running(from) || stopped(from) || !nodes_[from].engine->view() ||
        nodes_[from].engine->state() != State::member) {
        return;
    }
    const ViewPtr &v = nodes_[from].engine->view();
    mcasts_.push_back({v->epoch(), v->digest(), from, {}});
    for (const NodeId id : v->members()) {
        if (id != from && id < nodes_.size() && reachable(from, id)) {
            mcasts_.back().to.insert({id, v->incarnation_of(id)});
            const auto spread = static_cast<std::uint64_t>(weather_.jitter.ns()) + 1;
            push(now_ + weather_.latency +
                     Duration::from_ns(static_cast<std::int64_t>(rng_.below(spread))),
                 Item::Kind::application, id, static_cast<std::uint32_t>(mcasts_.size() - 1), from);
        }
    }
}

void World::application(NodeId to, NodeId from, std::uint32_t mcast)
{
    if (!running(to) || stopped(to)) {
        return;
    }
    switch (nodes_[to].engine->admit(from, mcasts_[mcast].epoch)) {
    case Stabilizer::Gate::deliver:
        if (mcasts_[mcast].from != from ||
            mcasts_[mcast].to.erase({to, nodes_[to].incarnation}) == 0) {
            violation("delivery integrity: delivered, but not sent, or once more: by " + label(to) +
                      " from " + std::to_string(from));
        }
        if (!nodes_[to].engine->view() ||
            nodes_[to].engine->view()->digest() != mcasts_[mcast].digest) {
            violation("same view delivery: " + label(to) + " delivers in another view what " +
                      std::to_string(from) + " sent in view " +
                      std::to_string(mcasts_[mcast].epoch));
        }
        break;
    case Stabilizer::Gate::hold:
        nodes_[to].held.emplace_back(from, mcast);
        break;
    case Stabilizer::Gate::drop:
        break;
    }
}

// Faults.

void World::kill(NodeId id, Death how)
{
    if (!running(id)) {
        return;
    }
    if (verbose) {
        std::printf("# %10.3f ms    %s dies (%s)\n", static_cast<double>(now_.ns()) / 1e6,
                    label(id).c_str(),
                    how == Death::silent ? "silent"
                    : how == Death::slow ? "slow"
                                         : "loud");
    }
    Node &n = nodes_[id];
    n.dead = true;
    n.loud = how != Death::silent;
    n.refuses = now_;
    if (how == Death::slow) {
        n.refuses = now_ + Duration::from_us(static_cast<std::int64_t>(rng_.below(800'000)));
    }
    n.stopped = false;
    for (const std::uint32_t slot : n.mail) {
        release(slot);
    }
    n.mail.clear();
    n.held.clear();
    deaths_[{id, n.incarnation}] = now_;
    const ViewPtr view = n.engine->view();
    if (how != Death::silent && view) {
        // Those connected to it see the connection break, and their host's refusal after it.
        std::vector<NodeId> neighbours;
        view->children(id, neighbours);
        if (view->parent(id) != no_node) {
            neighbours.push_back(view->parent(id));
        }
        for (const NodeId other : neighbours) {
            const auto late = rng_.below(static_cast<std::uint64_t>(weather_.latency.ns()) + 1);
            const Duration way =
                weather_.latency + Duration::from_ns(static_cast<std::int64_t>(late));
            if (how == Death::slow) {
                push(now_ + way, Item::Kind::suspicion, other, n.incarnation, id);
            }
            push(n.refuses + way, Item::Kind::proof, other, n.incarnation, id);
        }
    }
}

void World::stop(NodeId id)
{
    if (running(id)) {
        nodes_[id].stopped = true;
    }
}

void World::resume(NodeId id)
{
    Node &n = nodes_[id];
    if (!running(id) || !n.stopped) {
        return;
    }
    n.stopped = false;
    for (const std::uint32_t slot : n.mail) {
        push(now_, Item::Kind::message, id, slot);
    }
    n.mail.clear();
    n.wake = Time::never();
    schedule(id);
}

void World::start(NodeId id)
{
    if (running(id)) {
        return;
    }
    if (id >= nodes_.size()) {
        nodes_.resize(id + 1);
    }
    Node &n = nodes_[id];
    n.incarnation += n.engine ? 1 : 0;
    n.dead = false;
    n.loud = true;
    n.stopped = false;
    n.last_epoch = 0;
    n.wake = Time::never();
    std::vector<NodeId> known;
    for (NodeId other = 0; other < nodes_.size(); ++other) {
        known.push_back(other);
    }
    n.heard_of = {known.begin(), known.end()};
    n.engine = std::make_unique<Stabilizer>(config_of(id), pool_, Identity{id, n.incarnation},
                                            std::move(known), local(id));
    schedule(id);
}

void World::announce(Position ids)
{
    nodes_.resize(std::max<std::size_t>(nodes_.size(), ids));
}

void World::leave(NodeId id)
{
    if (running(id) && !stopped(id)) {
        nodes_[id].engine->leave(local(id), out_);
        absorb(id);
    }
}

void World::step_clock(NodeId id, Duration by)
{
    if (running(id)) {
        nodes_[id].clock += by;
        // A timer runs for as long as it was set to, also when the clock goes back.
        nodes_[id].wake = by > Duration::zero() ? Time::never() : nodes_[id].wake;
        schedule(id);
    }
}

void World::cut(NodeId from, NodeId to)
{
    cuts_.insert({from, to});
}

void World::partition(const std::set<NodeId> &side, bool both_ways)
{
    for (const NodeId a : side) {
        for (NodeId b = 0; b < nodes_.size(); ++b) {
            if (!side.contains(b)) {
                cut(a, b);
                if (both_ways) {
                    cut(b, a);
                }
            }
        }
    }
}

void World::heal()
{
    cuts_.clear();
    if (kept_.empty()) {
        return;
    }
    // Not before whoever heals has cut anew what is to stay cut.
    at(now_, [this] {
        std::vector<Message> kept;
        std::swap(kept, kept_);
        std::map<std::pair<NodeId, NodeId>, Time> next; // of a way: one after the other
        for (Message &m : kept) {
            if (!reachable(m.from, m.to)) {
                kept_.push_back(std::move(m));
                continue;
            }
            keep_what_is_cut(m);
            Time &when = next.try_emplace({m.from, m.to}, now_).first->second;
            at(when, [this, m] { carry(m); });
            when = when + Duration::from_us(250);
        }
    });
}

} // namespace sim

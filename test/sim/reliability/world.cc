#include "test/sim/reliability/world.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "opal/ft/base/assert.hpp"

namespace ft::sim {

using namespace ft::base::literals;
using base::Duration;
using base::Time;
using reliability::PathState;

namespace {

/// A run that takes more events than this goes round in circles.
constexpr std::uint64_t most_events = 400'000;

const std::vector<std::byte> &pattern_bytes()
{
    static const std::vector<std::byte> bytes = [] {
        base::Rng rng(4711);
        std::vector<std::byte> made(1024 * 1024);
        for (std::byte &b : made) {
            b = static_cast<std::byte>(rng.next());
        }
        return made;
    }();
    return bytes;
}

} // namespace

const char *to_string(Breach breach)
{
    switch (breach) {
    case Breach::order:
        return "order";
    case Breach::exactly_once:
        return "exactly once";
    case Breach::bytes:
        return "bytes";
    case Breach::liveness:
        return "liveness";
    case Breach::unreachable:
        return "unreachable";
    case Breach::path_lost:
        return "path lost";
    case Breach::counters:
        return "counters";
    case Breach::window:
        return "window";
    case Breach::handed_back:
        return "handed back";
    case Breach::deadline:
        return "deadline";
    case Breach::contract:
        return "contract";
    }
    return "?";
}

World::World(const Plan &p, Pairs &pair_counts, bool with_trace)
    : plan(p), pairs(pair_counts), trace(with_trace), rng(base::Rng(p.seed).fork(1))
{
    build();
    plan_faults();
}

void World::build()
{
    processes_.resize(plan.processes.size());
    for (const PairPlan &pair : plan.pairs) {
        const auto first = static_cast<unsigned>(endpoints.size());
        for (unsigned side = 0; side < 2; ++side) {
            endpoints.push_back(std::make_unique<Endpoint>(*this, first + side, pair.process[side],
                                                           pair.process[1 - side]));
        }
        const std::size_t links = pair.links.size();
        for (std::size_t i = 0; i < links; ++i) {
            links_.push_back(&pair.links[i]);
            for (unsigned direction = 0; direction < 2; ++direction) {
                Way way;
                way.link = &pair.links[i];
                way.direction = direction;
                way.from = first + direction;
                way.to = first + 1 - direction;
                const auto straight = static_cast<reliability::PathId>(i);
                const auto mirrored = static_cast<reliability::PathId>(links - 1 - i);
                const reliability::PathId at_second = pair.mirrored ? mirrored : straight;
                way.path_at_from = direction == 0 ? straight : at_second;
                way.path_at_to = direction == 0 ? at_second : straight;
                way.rng = rng.fork(100 + ways.size());
                ways.push_back(std::move(way));
            }
        }
        const std::size_t base_way = ways.size() - 2 * links;
        for (unsigned side = 0; side < 2; ++side) {
            for (std::size_t path = 0; path < links; ++path) {
                const std::size_t link = side == 1 && pair.mirrored ? links - 1 - path : path;
                endpoints[first + side]->add_way(static_cast<unsigned>(base_way + 2 * link + side));
            }
            endpoints[first + side]->open(pair);
            if (!pair.declared_dead[side].is_never()) {
                at(pair.declared_dead[side], Type::declare, first + side);
            }
        }
    }
    deaths_.resize(links_.size());
    messages.reserve(plan.messages.size());
    replies_.resize(plan.messages.size());
    for (const MessagePlan &m : plan.messages) {
        const auto id = static_cast<std::uint32_t>(messages.size());
        messages.push_back({});
        messages.back().plan = m;
        if (m.reply_to < 0) {
            ++pending_submits_;
            healed_at_ = std::max(healed_at_, m.at);
            at(m.at, Type::submit, id);
        } else {
            replies_[static_cast<std::size_t>(m.reply_to)].push_back(id);
        }
    }
}

void World::plan_faults()
{
    healed_at_ = std::max(healed_at_, plan.heal_at);
    at(plan.heal_at, Type::heal, 0);
    for (std::size_t i = 0; i < links_.size(); ++i) {
        const LinkPlan &link = *links_[i];
        if (link.death == Death::none) {
            continue;
        }
        at(link.dies_at, Type::die, static_cast<std::uint32_t>(i));
        const Time last = link.dead_for == Duration::max()
                              ? link.dies_at
                              : link.dies_at + link.dead_for * (2 * link.deaths);
        healed_at_ = std::max(healed_at_, last);
    }
    for (std::size_t i = 0; i < plan.processes.size(); ++i) {
        const ProcessPlan &p = plan.processes[i];
        if (!p.busy_from.is_never()) {
            at(p.busy_from, Type::busy_begin, static_cast<std::uint32_t>(i));
            at(p.busy_from + p.busy_for, Type::busy_end, static_cast<std::uint32_t>(i));
            healed_at_ = std::max(healed_at_, p.busy_from + p.busy_for);
        }
    }
}

void World::at(Time when, Type type, std::uint32_t a, std::uint32_t b)
{
    FT_ASSERT(when >= now);
    queue_.push_back({when, order_++, type, a, b});
    std::push_heap(queue_.begin(), queue_.end());
}

Time World::polls_at(unsigned endpoint) const
{
    const unsigned process = endpoints[endpoint]->process();
    const ProcessPlan &p = plan.processes[process];
    return processes_[process].busy ? p.busy_from + p.busy_for : now;
}

bool World::unread(unsigned process, unsigned remote) const
{
    const auto &inbox = processes_[process].inbox;
    return std::any_of(inbox.begin(), inbox.end(), [&](const auto &entry) {
        return endpoints[ways[entry.first].from]->process() == remote;
    });
}

Time World::clock(unsigned process) const
{
    return now + plan.processes[process].clock;
}

std::span<const std::byte> World::content(std::uint32_t message, std::uint64_t offset,
                                          std::size_t bytes) const
{
    const std::size_t begin = (message * 7919U) % 65536 + offset;
    FT_ASSERT(begin + bytes <= pattern_bytes().size());
    return std::span(pattern_bytes()).subspan(begin, bytes);
}

void World::say(const char *format, ...) const
{
    if (!trace) {
        return;
    }
    std::printf("# %12.3f us  ", static_cast<double>(now.ns()) / 1000);
    va_list arguments;
    va_start(arguments, format);
    std::vprintf(format, arguments);
    va_end(arguments);
    std::putchar('\n');
}

void World::breach(Breach kind, const char *format, ...) const
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    say("VIOLATION %s: %s", to_string(kind), text);
    throw Violation{kind, std::string(text) + " (at " +
                              std::to_string(static_cast<double>(now.ns()) / 1000) + " us)"};
}

unsigned World::process_of(const Event &event) const
{
    switch (event.type) {
    case Type::arrival:
        return endpoints[ways[event.a].to]->process();
    case Type::completion:
        return endpoints[ways[descriptors[event.a].way].from]->process();
    case Type::wake:
    case Type::declare:
    case Type::poll:
        return endpoints[event.a]->process();
    case Type::submit:
        return messages[event.a].plan.from;
    case Type::die:
    case Type::come_back:
    case Type::heal:
    case Type::busy_begin:
    case Type::busy_end:
        break;
    }
    return ~0U;
}

void World::arrival(std::uint32_t way, std::uint32_t slot)
{
    in_transit_ -= counts(packets_[slot].kind) ? 1U : 0U;
    endpoints[ways[way].to]->receive(packets_[slot], way);
    free_packets_.push_back(slot);
}

void World::handle(const Event &event)
{
    const unsigned process = process_of(event);
    if (process != ~0U && processes_[process].busy) {
        if (event.type == Type::arrival) {
            processes_[process].inbox.emplace_back(event.a, event.b);
        } else {
            // Nothing of it is seen before the process polls again.
            const ProcessPlan &p = plan.processes[process];
            at(p.busy_from + p.busy_for, event.type, event.a, event.b);
        }
        return;
    }
    switch (event.type) {
    case Type::arrival:
        arrival(event.a, event.b);
        break;
    case Type::wake:
        endpoints[event.a]->on_wake(event.at);
        break;
    case Type::poll:
        endpoints[event.a]->pump(false);
        break;
    case Type::completion: {
        const unsigned from = ways[descriptors[event.a].way].from;
        complete(event.a);
        endpoints[from]->pump(false);
        break;
    }
    case Type::submit: {
        const Message &message = messages[event.a];
        --pending_submits_;
        for (auto &endpoint : endpoints) {
            if (endpoint->process() == message.plan.from && endpoint->remote() == message.plan.to) {
                endpoint->enqueue(event.a);
            }
        }
        break;
    }
    case Type::die:
    case Type::come_back: {
        // An end that computes cannot be told: then it happens when it polls again.
        const Time when =
            std::max(polls_at(ways[2 * event.a].from), polls_at(ways[2 * event.a].to));
        if (when > now) {
            const Duration dead = links_[event.a]->dead_for;
            healed_at_ = std::max(healed_at_, when + (dead == Duration::max()
                                                          ? Duration{}
                                                          : dead * (2 * links_[event.a]->deaths)));
            at(when, event.type, event.a);
        } else if (event.type == Type::die) {
            die(event.a);
        } else {
            come_back(event.a);
        }
        break;
    }
    case Type::heal:
        heal();
        break;
    case Type::declare:
        endpoints[event.a]->declare_dead();
        break;
    case Type::busy_begin:
        say("process %u computes", event.a);
        processes_[event.a].busy = true;
        break;
    case Type::busy_end: {
        say("process %u polls again", event.a);
        Process &p = processes_[event.a];
        p.busy = false;
        if (plan.processes[event.a].time_first) {
            for (auto &endpoint : endpoints) {
                if (endpoint->process() == event.a) {
                    endpoint->pump(true);
                }
            }
        }
        const auto inbox = std::move(p.inbox);
        p.inbox.clear();
        for (const auto &[way, slot] : inbox) {
            arrival(way, slot);
        }
        break;
    }
    }
}

void World::delivered(std::uint32_t message)
{
    for (const std::uint32_t reply : replies_[message]) {
        ++pending_submits_;
        at(now, Type::submit, reply);
    }
}

bool World::works(const Endpoint &endpoint) const
{
    // A path is of use when neither end knows it as gone and the link passes fragments.
    for (std::size_t path = 0; path < endpoint.paths(); ++path) {
        const unsigned way = endpoint.way_of(static_cast<reliability::PathId>(path));
        if (!ways[way].dead && !ways[way ^ 1U].dead) {
            return true;
        }
    }
    return false;
}

bool World::all_done() const
{
    return pending_submits_ == 0 &&
           std::all_of(endpoints.begin(), endpoints.end(),
                       [](const auto &endpoint) { return endpoint->idle(); });
}

bool World::settled() const
{
    return in_transit_ == 0 && all_done() &&
           std::all_of(endpoints.begin(), endpoints.end(), [](const auto &endpoint) {
               return endpoint->peer().unreachable() || endpoint->peer().quiet();
           });
}

bool World::paths_settled() const
{
    for (const auto &endpoint : endpoints) {
        if (endpoint->peer().unreachable() ||
            endpoints[endpoint->id() ^ 1U]->peer().unreachable()) {
            continue;
        }
        // An end that does not know by which path a probe came answers by any; over one that is
        // dead without its knowing, if luck has it.
        const unsigned answers = endpoint->remote();
        if (plan.processes[answers].unknown_arrival > 0) {
            continue;
        }
        if (endpoint->peer().resting()) {
            continue; // until it is needed again
        }
        for (std::size_t path = 0; path < endpoint->paths(); ++path) {
            const auto id = static_cast<reliability::PathId>(path);
            const unsigned way = endpoint->way_of(id);
            const PathState state = endpoint->peer().paths()[id].state;
            if (!ways[way].dead && !ways[way ^ 1U].dead && state != PathState::gone &&
                state != PathState::up) {
                return false;
            }
        }
    }
    return true;
}

bool World::awake() const
{
    return std::any_of(endpoints.begin(), endpoints.end(), [](const auto &endpoint) {
        return !endpoint->peer().next_deadline().is_never();
    });
}

void World::run()
{
    const reliability::Config &c = plan.config;
    // After healing: a backed-off timer, then ordinary traffic. Dead for good: the give-up bound.
    Duration bound = c.rto_max * 6 + 2_s;
    // What is sent of the messages takes a round trip for each window full of it, at best.
    std::uint64_t bytes = 0;
    std::int64_t ordered = 0;
    for (const MessagePlan &message : plan.messages) {
        bytes += message.length;
        ordered += message.ordered ? 1 : 0;
    }
    const auto windows =
        static_cast<std::int64_t>(bytes / c.window_bytes + plan.messages.size() / c.window_vfrags);
    // What comes early is dropped, without any fault, where there is no room to keep it. Of the
    // last on its path only a timer tells, and while that runs those behind it are dropped again.
    if (c.reorder_bytes <= c.fragment_bytes) {
        bound = bound + c.rto_max * ordered;
    }
    for (const LinkPlan *link : links_) {
        if (link->latency * 2 > c.rto_max || link->latency >= 20_ms) {
            // Repeats more than it sends.
            bound = std::max<Duration>(bound, link->latency * (600 + 2 * windows));
        }
    }
    const Time deadline = healed_at_ + bound;
    // Copies of what was sent before come up to 3 s late, and each is a sign of life.
    const Time give_up_deadline = std::max(deadline, healed_at_ + 3_s) + c.give_up * 2;
    Duration flap_bound = c.hold_down * 64 + c.probe_interval * 8 + c.rto_max * 8 + 1_s;
    // The next answer to a probe is waited for for twice as long as the last one took, and that was
    // as long as its process did not look.
    Duration away{};
    for (const ProcessPlan &process : plan.processes) {
        away = process.busy_from.is_never() ? away : std::max(away, process.busy_for);
    }
    flap_bound = flap_bound + away * 2;
    const bool watch_paths = plan.seed % 8 == 0;
    const bool to_the_end = c.give_up < 5_s; // until nobody probes anybody any more
    Time paths_deadline = Time::never();
    bool done = false;
    while (true) {
        if (queue_.empty()) {
            if (!all_done()) {
                breach(Breach::liveness, "nothing more happens, but not all is done");
            }
            break;
        }
        std::pop_heap(queue_.begin(), queue_.end());
        const Event event = queue_.back();
        queue_.pop_back();
        now = event.at;
        if (++events_run > most_events) {
            breach(Breach::liveness, "%llu events and no end",
                   static_cast<unsigned long long>(events_run));
        }
        handle(event);
        // Not for good: a fragment still on its way may be answered by a message.
        const bool was_done = std::exchange(done, all_done());
        if (done && !was_done) {
            const bool lost = std::any_of(endpoints.begin(), endpoints.end(),
                                          [](const auto &e) { return e->peer().unreachable(); });
            slack = lost ? Duration{} : now - healed_at_;
            paths_deadline = std::max(now, healed_at_) + flap_bound;
        }
        if (now < healed_at_) {
            continue;
        }
        if (done) {
            const bool over = settled() && (!watch_paths || paths_settled());
            if (over && !to_the_end) {
                break;
            }
            if (!over && now > paths_deadline && in_transit_ == 0) {
                breach(Breach::liveness, "a path that works does not come back");
            }
            // Copies come up to 3 s late, and make an end believe in the other for another while.
            if (now > paths_deadline + c.give_up * 2 + 4_s && in_transit_ == 0 && awake()) {
                breach(Breach::deadline, "paths are probed although nobody needs them");
            }
        } else if (now > deadline) {
            for (const auto &endpoint : endpoints) {
                if (!endpoint->idle() && works(*endpoint) && !endpoint->lost_by_order() &&
                    !endpoints[endpoint->id() ^ 1U]->peer().unreachable()) {
                    breach(Breach::liveness, "process %u still waits for %u, %.3f s after healing",
                           endpoint->process(), endpoint->remote(), bound.seconds());
                }
            }
            if (now > give_up_deadline) {
                breach(Breach::unreachable, "the give-up bound has passed");
            }
        }
    }
    for (auto &endpoint : endpoints) {
        endpoint->check_final();
    }
}

} // namespace ft::sim

#include "world.hpp"

#include "opal/ft/base/assert.hpp"

#include <algorithm>

namespace sim {

World::World(const Plan &plan) : plan_(plan), rng_(plan.seed)
{
    const Rank size = plan.shape->size();
    FT_ASSERT(plan.members.size() == size);
    engines_.reserve(size);
    for (Rank rank = 0; rank < size; ++rank) {
        engines_.emplace_back(rank, InstanceId{7, 1}, plan.settings, plan.shape);
    }
    busy_.assign(size, 0);
    run_.fates.resize(size);
    for (Rank rank = 0; rank < size; ++rank) {
        const Member &member = plan.members[rank];
        if (member.dies_at == 0 && member.starts == never) {
            old_dead_.insert(rank);
        } else if (member.dies_at != never) {
            push({member.dies_at, 0, Event::Kind::die, false, rank, rank, 0});
        }
    }
    old_failures();
    for (Rank rank = 0; rank < size; ++rank) {
        const Member &member = plan.members[rank];
        if (member.starts != never) {
            push({member.starts, 0, Event::Kind::start, false, rank, rank, 0});
        }
    }
    for (const Suspicion &s : plan.false_suspicions) {
        push({s.at, 0, Event::Kind::accuse, s.cut, s.accuser, s.victim, 0});
    }
}

/// Those that died long ago are noticed all at once.
void World::old_failures()
{
    if (old_dead_.empty()) {
        return;
    }
    for (Rank rank = 0; rank < run_.fates.size(); ++rank) {
        if (old_dead_.contains(rank)) {
            run_.fates[rank].dead = run_.fates[rank].dead_before_start = true;
            run_.fates[rank].died = 0;
            note("died long ago:", rank, "");
        } else {
            push({plan_.detection[rank % plan_.detection.size()], 0, Event::Kind::suspect, true,
                  rank, no_rank, 0});
        }
    }
}

void World::push(Event event)
{
    event.order = order_++;
    queue_.push(event);
}

void World::record(const Event &event, const Message &message)
{
    if (!plan_.record) {
        return;
    }
    Step step{Step::Input::calls, event.to, event.from, {}, message, {}, false};
    switch (event.kind) {
    case Event::Kind::start:
        step.whom = plan_.members[event.to].brings.suspects;
        break;
    case Event::Kind::deliver:
        step.input = Step::Input::hears;
        break;
    case Event::Kind::suspect:
    case Event::Kind::accuse:
        step.input = event.kind == Event::Kind::suspect && event.confirmed ? Step::Input::is_sure_of
                                                                           : Step::Input::suspects;
        step.whom = event.from == no_rank ? old_dead_ : RankSet{event.from};
        break;
    case Event::Kind::die:
        step.input = Step::Input::dies;
        break;
    }
    run_.steps.push_back(std::move(step));
}

Run World::run()
{
    std::uint64_t events = 0;
    while (!queue_.empty()) {
        if (++events > plan_.event_limit) {
            run_.out_of_events = true;
            break;
        }
        const Event event = queue_.top();
        queue_.pop();
        run_.end = event.at;
        step(event);
    }
    return std::move(run_);
}

void World::note(const char *what, Rank who, const std::string &text)
{
    if (plan_.watch) {
        run_.trace.push_back(std::to_string(who) + " " + what + " " + text);
    }
}

void World::step(const Event &event)
{
    Fate &fate = run_.fates[event.to];
    Message message;
    if (event.kind == Event::Kind::deliver) {
        message = std::move(slots_[event.slot]);
        slots_[event.slot] = {};
        free_.push_back(event.slot);
    }
    if (event.kind == Event::Kind::accuse && event.confirmed) {
        cuts_.emplace_back(event.to, event.from);
    }
    if (fate.dead) {
        return;
    }
    record(event, message);
    Time now = std::max(event.at, busy_[event.to]);
    LazyAgreement &engine = engines_[event.to];
    actions_.clear();
    switch (event.kind) {
    case Event::Kind::die:
        kill(event.to, event.at);
        return;
    case Event::Kind::start: {
        if (fate.stopped) {
            return;
        }
        fate.started = true;
        run_.first_start = std::min(run_.first_start, event.at);
        const Contribution &brings = plan_.members[event.to].brings;
        note("calls", event.to, "suspecting " + describe(brings.suspects));
        engine.start(brings, actions_);
        break;
    }
    case Event::Kind::deliver: {
        if (cut(event.from, event.to)) {
            return;
        }
        const bool merges = message.kind == Kind::answer || message.kind == Kind::exchange;
        now += plan_.costs.receive + (merges ? plan_.costs.merge : 0);
        if (plan_.watch) {
            note("hears", event.to,
                 "from " + std::to_string(event.from) + ": " + describe(message));
        }
        engine.on_message(event.from, message, actions_);
        break;
    }
    case Event::Kind::suspect:
    case Event::Kind::accuse: {
        const bool confirmed = event.kind == Event::Kind::suspect && event.confirmed;
        const RankSet whom = event.from == no_rank ? old_dead_ : RankSet{event.from};
        note(confirmed ? "is sure of" : "suspects", event.to, describe(whom));
        engine.on_suspects(whom, confirmed ? Certainty::confirmed : Certainty::unconfirmed,
                           actions_);
        break;
    }
    }
    carry_out(event.to, now);
}

/// The actions of one step, one by one; a death may come between any two.
void World::carry_out(Rank who, Time now)
{
    Fate &fate = run_.fates[who];
    const Member &member = plan_.members[who];
    bool ends = false;
    for (Action &action : actions_) {
        if (fate.actions >= member.dies_after) {
            break;
        }
        ++fate.actions;
        if (plan_.record) {
            run_.steps.back().done.push_back(action);
        }
        switch (action.kind) {
        case Action::Kind::decide:
            fate.returned = now;
            returned(who, now);
            break;
        case Action::Kind::stop:
            note("stops", who, "");
            fate.stopped = true;
            ends = true;
            break;
        case Action::Kind::send:
            ++fate.sends;
            now += plan_.costs.send;
            post(who, action.to, std::move(action.message), now);
            break;
        }
    }
    busy_[who] = now;
    if (fate.actions >= member.dies_after) {
        kill(who, now);
    } else if (ends) {
        // A process that is told to stop ends itself after its last words.
        push({now + 1, 0, Event::Kind::die, false, who, who, 0});
    }
}

Time World::wire(Rank a, Rank b)
{
    const bool near = !plan_.node_of.empty() && plan_.node_of[a] == plan_.node_of[b];
    const Time base = near ? plan_.costs.wire_near : plan_.costs.wire;
    return base + (b == plan_.slow ? plan_.slow_by : 0) +
           (plan_.costs.jitter != 0 ? rng_.below(plan_.costs.jitter) : 0);
}

void World::post(Rank from, Rank to, Message message, Time leaves)
{
    ++run_.messages;
    if (plan_.watch) {
        note("sends", from, "to " + std::to_string(to) + ": " + describe(message));
    }
    if (plan_.over_bytes) {
        const auto bytes = encode(message);
        run_.bytes += bytes.size();
        auto read = decode(bytes, plan_.shape->size());
        if (!read || *read != message) {
            run_.broken = "wire: a message does not survive encoding: " + describe(message);
            return;
        }
        message = std::move(*read);
    }
    std::uint32_t slot = 0;
    if (free_.empty()) {
        slot = static_cast<std::uint32_t>(slots_.size());
        slots_.push_back(std::move(message));
    } else {
        slot = free_.back();
        free_.pop_back();
        slots_[slot] = std::move(message);
    }
    push({leaves + wire(from, to), 0, Event::Kind::deliver, false, to, from, slot});
}

void World::kill(Rank who, Time now)
{
    Fate &fate = run_.fates[who];
    if (fate.dead) {
        return;
    }
    fate.dead = true;
    fate.died = now;
    if (plan_.record) {
        run_.steps.back().died = true;
    }
    fate.dead_before_start = !fate.started;
    note("dies", who, "");
    for (Rank rank = 0; rank < run_.fates.size(); ++rank) {
        if (rank != who && !run_.fates[rank].dead) {
            push({now + plan_.detection[rank % plan_.detection.size()], 0, Event::Kind::suspect,
                  true, rank, who, 0});
        }
    }
}

bool World::cut(Rank a, Rank b) const
{
    return std::any_of(cuts_.begin(), cuts_.end(), [&](const auto &c) {
        return (c.first == a && c.second == b) || (c.first == b && c.second == a);
    });
}

void World::returned(Rank who, Time now)
{
    Fate &fate = run_.fates[who];
    const Value *value = engines_[who].decision();
    FT_ASSERT(value != nullptr);
    note("returns", who, describe(value->failed));
    fate.has_value = true;
    fate.value = *value;
    run_.last_return = std::max(run_.last_return, now);
    if (plan_.settings.semantics == Semantics::loose || !run_.broken.empty()) {
        return;
    }
    for (const Rank failed : value->failed.members()) {
        const Fate &other = run_.fates[failed];
        if (!other.dead && !other.stopped) {
            run_.broken = "fence: rank " + std::to_string(who) + " returned while rank " +
                          std::to_string(failed) + ", which is in the set, went on";
        }
    }
}

} // namespace sim

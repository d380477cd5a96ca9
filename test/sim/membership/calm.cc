#include "test/sim/membership/calm.hpp"

#include "opal/ft/base/assert.hpp"

#include <algorithm>

namespace sim {

namespace {

Duration from_us(double us)
{
    return Duration::from_ns(static_cast<std::int64_t>(us * 1e3 + 0.5));
}

double us(Duration d)
{
    return static_cast<double>(d.ns()) / 1e3;
}

} // namespace

Calm::Calm(Position nodes, unsigned arity, TreeMode mode, Costs costs, ViewForm form)
    : costs_(std::move(costs)), live_(nodes), sent_(nodes)
{
    Config config;
    config.arity = arity;
    config.mode = mode;
    config.form = form;
    config.heartbeat.interval = Duration::zero();
    // Changes without loss: nothing needs asking again, however large the tree.
    config.repeat = config.repeat_max = config.give_up = config.commit_wait = Duration::from_s(100);
    const auto pool = std::make_shared<ViewPool>();
    const ViewPtr initial = View::initial(nodes, arity, mode, form);
    nodes_.reserve(nodes);
    for (NodeId id = 0; id < nodes; ++id) {
        const Identity self{id, 0};
        nodes_.push_back(form == ViewForm::full
                             ? std::make_unique<Stabilizer>(config, pool, self, initial, now_)
                             : std::make_unique<Stabilizer>(config, std::make_shared<ViewPool>(),
                                                            self, initial->apply(0, {}), now_));
    }
    if (costs_.handling_us > 0) {
        busy_until_.resize(nodes);
    }
}

NodeId Calm::root() const
{
    NodeId id = 0;
    while (!nodes_[id]) {
        ++id;
    }
    return id;
}

void Calm::absorb(NodeId from, Time now, Time began, Measured &measured, Position &with_view)
{
    for (const Event &e : out_.events) {
        if (e.kind == Event::Kind::stabilized) {
            measured.stabilized_us = us(now - began);
        } else if (e.kind == Event::Kind::installed) {
            ++with_view;
            measured.installed_us = std::max(measured.installed_us, us(now - began));
        }
    }
    Time leaves = now;
    for (Message &m : out_.messages) {
        ++measured.messages;
        measured.most_sent = std::max<std::uint64_t>(measured.most_sent, ++sent_[from]);
        leaves = leaves + from_us(costs_.handling_us);
        // A level costs its computing once, on the way down, as in the model.
        const bool brings_view = is_proposal(m.type) || m.type == Type::view_commit;
        const double way = costs_.latency_us(m.from, m.to) + (brings_view ? costs_.compute_us : 0);
        auto slot = static_cast<std::uint32_t>(slots_.size());
        if (free_.empty()) {
            slots_.emplace_back();
        } else {
            slot = free_.back();
            free_.pop_back();
        }
        slots_[slot] = std::move(m);
        queue_.push({leaves + from_us(way), order_++, slot});
    }
    if (!busy_until_.empty()) {
        busy_until_[from] = leaves;
    }
    out_.clear();
}

Measured Calm::fail(NodeId victim)
{
    FT_ASSERT(alive(victim) && live_ > 1);
    nodes_[victim] = nullptr;
    --live_;
    std::fill(sent_.begin(), sent_.end(), 0);
    Measured measured;
    Position with_view = 0;
    const Time began = now_;
    const NodeId first = root();
    nodes_[first]->on_proof(began, victim, ProofKind::reaped, out_);
    absorb(first, began + from_us(costs_.compute_us), began, measured, with_view);
    while (!queue_.empty()) {
        const Arrival a = queue_.top();
        queue_.pop();
        const Message m = std::move(slots_[a.slot]);
        free_.push_back(a.slot);
        if (!nodes_[m.to]) {
            continue;
        }
        Time now = a.at;
        if (!busy_until_.empty()) {
            now = std::max(now, busy_until_[m.to]) + from_us(costs_.handling_us);
            busy_until_[m.to] = now;
        }
        now_ = std::max(now_, now);
        nodes_[m.to]->on_message(now, m, out_);
        absorb(m.to, now, began, measured, with_view);
    }
    measured.complete = with_view == live_ && view().size() == live_;
    return measured;
}

} // namespace sim

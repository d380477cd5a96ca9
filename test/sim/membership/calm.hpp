/// A network in which nothing goes wrong but what it is asked for: real engines, messages with a
/// latency by model, in virtual time. For measuring changes of the view, up to a million nodes.
#pragma once

#include "opal/ft/membership/stabilizer.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

namespace sim {

using namespace ft::membership;
using ft::base::Duration;
using ft::base::Time;

/// What a message costs.
struct Costs {
    /// From `from` to `to`, in microseconds.
    std::function<double(NodeId from, NodeId to)> latency_us;
    /// A new view costs each node this once (the paper's O_cp), in microseconds.
    double compute_us = 0;
    /// Sending or taking a message keeps a node busy for so long, in microseconds; 0: the paper's
    /// models, in which a parent's messages to its children all leave at once.
    double handling_us = 0;
};

/// What a change took.
struct Measured {
    double stabilized_us = 0; ///< T_s: from the root's knowing of it to its last acknowledgement
    double installed_us = 0;  ///< ... until the last member has the view
    std::uint64_t messages = 0;
    std::uint64_t most_sent = 0; ///< by one member
    bool complete = false;       ///< every survivor has the view
};

class Calm {
  public:
    /// Full: all members share one view. Localised: each has one of its own.
    Calm(Position nodes, unsigned arity, TreeMode mode, Costs costs,
         ViewForm form = ViewForm::full);

    /// `victim` is dead, and the root (its successor when it was the root) has proof.
    Measured fail(NodeId victim);

    NodeId root() const;
    const View &view() const { return *nodes_[root()]->view(); }
    bool alive(NodeId id) const { return nodes_[id] != nullptr; }
    Position live() const { return live_; }

  private:
    struct Arrival {
        Time at;
        std::uint64_t order;
        std::uint32_t slot;
        bool operator>(const Arrival &o) const { return at != o.at ? at > o.at : order > o.order; }
    };

    void absorb(NodeId from, Time now, Time began, Measured &measured, Position &with_view);

    Costs costs_;
    Position live_;
    std::vector<std::unique_ptr<Stabilizer>> nodes_;
    std::vector<Time> busy_until_; // empty without handling
    std::vector<std::uint32_t> sent_;
    Time now_;
    std::uint64_t order_ = 0;
    std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> queue_;
    std::vector<Message> slots_;
    std::vector<std::uint32_t> free_;
    Output out_;
};

} // namespace sim

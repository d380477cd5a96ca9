/// How the daemons of a job whose mpirun has died agree that it is over, and leave.
///
/// Every daemon tells the root when the last of its ranks has ended, and again until it is told to
/// leave. When all have, or one says that the whole job must end, the root tells everybody to
/// leave; it goes last, when the others' connections are closed. A new root starts with an empty
/// list, which the repetitions fill.
///
/// Pure state machine: messages in, messages out; the caller calls tick() at regular intervals. One
/// thread.
#pragma once

#include "orte_glue/radixft/types.hpp"

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ft::radixft {

/// What a daemon says of its ranks. Values go over the wire; a higher one is never taken back.
enum class RanksAre : std::uint8_t {
    running = 0,
    over = 1,   ///< all of this daemon's ranks have ended
    to_end = 2, ///< something happened after which the whole job must end
};

class WindDown {
  public:
    explicit WindDown(NodeId self) : self_(self) {}

    /// mpirun is gone and this view is in force. Before the first call nothing is sent.
    void on_view(NodeId root, std::span<const NodeId> members);
    /// How it stands here.
    /// `why` is for the user, with `to_end`.
    void report(RanksAre state, const std::string &why = {});
    /// One of the two messages `ranks_are` and `leave`. False if it was malformed or made no sense.
    bool on_message(NodeId from, Type type, std::span<const std::byte> body);
    /// A daemon is not there any more.
    void has_left(NodeId id);
    /// Repeats what has not been answered.
    void tick();

    std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
    /// It is over: this daemon is to end what ranks it has, and to leave when may_leave().
    bool leaving() const { return leaving_; }
    /// Why the job must end, at the root; empty when its ranks have ended by themselves.
    const std::string &why() const { return why_; }
    /// At the root only when the others have left, or had time enough.
    bool may_leave() const;

  private:
    void say();
    void check();

    NodeId self_;
    NodeId root_ = no_node;
    RanksAre state_ = RanksAre::running;
    std::string why_;
    std::map<NodeId, RanksAre> others_; ///< at the root: the other members
    bool leaving_ = false;
    unsigned patience_ = 30; ///< ticks that the root waits for the others
    std::vector<Outgoing> outgoing_;
};

} // namespace ft::radixft

/// An agreement whose engine is built when something is amiss, and not before.
///
/// Nearly every agreement is one in which nobody fails, and all know alike who has failed before
/// it, and then all that an engine does is to count steps and to AND flags. So this counts them by
/// itself, and remembers them. Whatever else turns up (a suspicion in the middle, or one that is
/// not confirmed, a message of another kind, another set in one, a step that does not fit, a
/// question after the end) builds an Agreement, which is told all that there was in the order in
/// which it was. What it says to that has been done already; from then on everything goes to it.
///
/// So there is one protocol, Agreement's, and this is the same to whoever uses it: action by
/// action, message by message (test/unit/consensus/test_lazy_agreement.cc; the simulator runs on
/// it). Pure; one object belongs to one thread.
#pragma once

#include "opal/ft/consensus/agreement.hpp"

#include <algorithm>
#include <optional>
#include <vector>

namespace ft::consensus {

/// What one input makes a process send, in this order.
class PlainSteps {
  public:
    struct Outgoing {
        Rank to;
        PlainStep step;
    };
    void add(Rank to, Stage stage, std::uint8_t step, std::uint64_t flags)
    {
        all_[count_++] = {to, {stage, step, flags}};
    }
    const Outgoing *begin() const { return all_; }
    const Outgoing *end() const { return all_ + count_; }
    std::size_t size() const { return count_; }

  private:
    // A ring of at most most_plain processes has 12 steps, a tree 32 neighbours; twice.
    static constexpr std::size_t most = 2 * (most_fan_out + 1);
    std::size_t count_ = 0;
    union {
        Outgoing all_[most]; ///< not written to before they are needed
    };

  public:
    PlainSteps() {}
};

class LazyAgreement {
  public:
    /// Of larger groups each agreement has its engine: what is remembered grows with the group, and
    /// nobody would notice what it saves.
    static constexpr Rank most_plain = 4096;

    LazyAgreement() = default;
    LazyAgreement(Rank self, InstanceId id, const Settings &settings,
                  const std::shared_ptr<const TreeShape> &shape)
    {
        begin(self, id, settings, shape);
    }
    /// As if it were made anew, in the memory that it has. Arguments as of Agreement.
    void begin(Rank self, InstanceId id, const Settings &settings,
               const std::shared_ptr<const TreeShape> &shape);

    // As of Agreement.
    void start(const Contribution &brought, Actions &out);
    void on_message(Rank from, const Message &message, Actions &out);
    void on_suspects(const RankSet &who, Certainty certainty, Actions &out);
    const Value *decision() const
    {
        return engine_ ? engine_->decision() : decided_ ? &value_ : nullptr;
    }

    /// start() for who knows of no failure but the tag's, and the message that is a step with this
    /// tag. True if that is done, with what is to be sent in `out`, then decision() to be looked
    /// at; false if nothing is, and start() or on_message() must be called.
    bool start_plain(std::uint64_t flags, PlainSteps &out);
    bool on_plain(Rank from, const RankSet &tag, const PlainStep &step, PlainSteps &out);
    /// The confirmed failures that were known before the first step, as long as no engine is
    /// needed.
    const RankSet &tag() const { return tag_; }

    /// Whether an engine was needed.
    bool has_engine() const { return engine_.has_value(); }

  private:
    struct Heard {
        Rank from;
        std::uint32_t bit; ///< which step of its sweep
        PlainStep step;
    };
    Agreement &engine(Actions &out);
    bool leave_out(const RankSet &dead);
    void take(const Heard &heard);
    std::uint32_t bit_of(Rank from, const PlainStep &step) const;
    void advance(PlainSteps &out);
    void add(Rank place, Stage stage, std::uint8_t step, PlainSteps &out) const;
    void accept();
    bool advance_ring(PlainSteps &out);
    bool advance_ring(Stage stage, PlainSteps &out);
    bool advance_tree(PlainSteps &out);
    void do_as_actions(const PlainSteps &steps, Actions &out) const;
    static unsigned sweep(const PlainStep &step) { return static_cast<unsigned>(step.stage); }
    Rank place_after(Rank place, unsigned step) const
    {
        const Rank next = place + (Rank{1} << step); // at most twice most_plain
        return next < alive_ ? next : next - alive_;
    }
    /// Who has this place among those outside the tag, in the order of ranks.
    Rank at_place(Rank place) const { return tag_.absent(place); }
    bool along_tree() const { return settings_.algorithm == Algorithm::tree; }
    bool strict() const { return settings_.semantics == Semantics::strict; }
    Sweeps sweeps() const { return {place_, alive_, settings_.fan_out, strict()}; }
    bool carries_value(Stage stage, std::uint8_t step) const
    {
        return along_tree() ? sweeps().carries_value(stage, step) : stage == Stage::ballot;
    }

    Rank self_ = 0;
    Rank alive_ = 1; ///< how many are outside the tag
    Rank place_ = 0; ///< this process's among them, in the order of ranks
    RankSet tag_;
    InstanceId id_;
    Settings settings_;
    std::shared_ptr<const TreeShape> shape_;
    bool plain_ = false; ///< no engine yet, and none needed by the settings
    bool started_ = false;
    bool accepted_ = false; ///< value_ is known
    bool decided_ = false;
    std::uint8_t steps_ = 0;          ///< of the ring, in each sweep
    Sweeps::Done sweeps_done_;        ///< as of Agreement
    std::uint32_t early_[2] = {0, 0}; ///< the same of what came before the call
    std::uint64_t brought_ = 0;       ///< this process's flags
    std::uint64_t flags_ = 0;         ///< the AND so far
    Value value_;
    std::size_t done_ = 0;         ///< actions that were carried out
    std::size_t heard_before_ = 0; ///< of heard_, before the call
    std::vector<Heard> heard_;
    std::optional<Agreement> engine_;
};

} // namespace ft::consensus

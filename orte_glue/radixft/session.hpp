/// The membership engine of one daemon and the spreading of ranks' deaths along its views, with a
/// log of everything that goes in and comes out.
///
/// Both are pure state machines, so the log of a real run, fed to new ones, must give the same
/// output again; replay() checks that. A log is text, one line for each call: its time in
/// nanoseconds, what was called with what, and behind it what came out. One thread.
#pragma once

#include "opal/ft/membership/seal.hpp"
#include "opal/ft/membership/stabilizer.hpp"
#include "orte_glue/radixft/death_spread.hpp"

#include <iosfwd>
#include <optional>
#include <span>
#include <string>

namespace ft::radixft {

class Session {
  public:
    /// Of the daemon `self`. Until begin(), daemon 0 alone is told of deaths, and tells nobody.
    explicit Session(NodeId self);

    /// The log is written to `log` from now on, beginning with what was called before. Null: no log
    /// is wanted. Must outlive the session.
    void log_to(std::ostream *log);

    /// The daemon is a member of the default view of `daemons`. `config` must make sense, and self
    /// be below `daemons`. Once.
    void begin(base::Time now, const membership::Config &config, std::uint32_t daemons);
    /// Instead of begin(): the daemon wants to join the members among `known`, in this life. The
    /// engine has no view until it is one of them. Its first question comes with the first time().
    void begin_joiner(base::Time now, const membership::Config &config, std::uint32_t incarnation,
                      const std::vector<NodeId> &known);
    bool begun() const { return engine_.has_value(); }

    // Only after begin().
    membership::Stabilizer::Verdict message(base::Time now, const membership::Message &m);
    void time(base::Time now);
    void suspicion(base::Time now, NodeId id);
    void proof(base::Time now, NodeId id, membership::ProofKind kind);
    void turn_away(base::Time now, const membership::Identity &who);
    void leave(base::Time now);
    const membership::Stabilizer &engine() const { return *engine_; }

    // Deaths of ranks, as in DeathSpread. It is told of views by the session.
    void report(base::Time now, std::span<const RankDeath> deaths);
    void report(base::Time now, const RankDeath &death) { report(now, std::span(&death, 1)); }
    bool spread(base::Time now, NodeId from, Type type, std::span<const std::byte> body);
    void tick(base::Time now);
    const DeathSpread &deaths() const { return deaths_; }

    /// What the calls since the last take gave.
    membership::Output take();
    std::vector<Outgoing> take_outgoing();
    std::vector<RankDeath> take_news();

  private:
    template <class Call>
    auto run(base::Time now, const std::string &text, Call call);
    void follow_views(std::size_t from);
    void write(const std::string &lines);
    bool logging() const { return log_ != nullptr || !decided_; }

    NodeId self_;
    std::optional<membership::Stabilizer> engine_;
    DeathSpread deaths_;
    membership::Output output_;
    std::vector<Outgoing> outgoing_;
    std::vector<RankDeath> news_;
    std::ostream *log_ = nullptr;
    std::string early_;    ///< the log, before it is known where it goes
    bool decided_ = false; ///< it is known
};

/// What a replay found.
struct Replay {
    std::size_t calls = 0;
    std::size_t messages = 0; ///< that came out: the engine's, and those about ranks' deaths
    std::size_t events = 0;   ///< the engine's, and ranks' deaths
    unsigned arity = 0;
    std::size_t views = 0;      ///< installed after the first
    std::size_t deaths = 0;     ///< of ranks
    std::uint64_t sent = 0;     ///< messages that the bound of a change is about
    std::uint64_t again = 0;    ///< of those, asked again
    DeathSpread::Counts told{}; ///< messages about deaths of ranks
    /// Empty when the log was given again to the last line; else the first difference, with its
    /// line.
    std::string difference;
};

/// Feeds the calls of a log to a new session and compares what comes out.
Replay replay(std::istream &log);

} // namespace ft::radixft

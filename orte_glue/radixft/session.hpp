/// The membership engine of one daemon, with a log of everything that goes in and comes out.
///
/// The engine is a pure state machine, so the log of a real run, fed to a new engine, must give the
/// same output again; replay() checks that. A log is text, one line for each call: its time in
/// nanoseconds, what was called with what, and behind it what came out. One thread.
#pragma once

#include "opal/ft/membership/seal.hpp"
#include "opal/ft/membership/stabilizer.hpp"

#include <iosfwd>
#include <memory>
#include <span>
#include <string>

namespace ft::radixft {

class Session {
  public:
    /// A member of the default view of `daemons` from the start. `log` may be null; it must outlive
    /// the session.
    Session(const membership::Config &config, membership::NodeId self, std::uint32_t daemons,
            base::Time now, std::ostream *log);

    membership::Stabilizer::Verdict message(base::Time now, const membership::Message &m);
    void time(base::Time now);
    void suspicion(base::Time now, membership::NodeId id);
    void proof(base::Time now, membership::NodeId id, membership::ProofKind kind);
    void leave(base::Time now);

    /// What the calls since the last take() gave.
    membership::Output take();

    const membership::Stabilizer &engine() const { return engine_; }

  private:
    void record(base::Time now, const std::string &call, std::size_t messages, std::size_t events);

    membership::Stabilizer engine_;
    membership::Output output_;
    std::ostream *log_;
};

/// What a replay found.
struct Replay {
    std::size_t calls = 0;
    std::size_t messages = 0;
    std::size_t events = 0;
    /// Empty when the log was given again to the last line; else the first difference, with its
    /// line.
    std::string difference;
};

/// Feeds the calls of a log to a new engine and compares what comes out.
Replay replay(std::istream &log);

} // namespace ft::radixft

/// \file
/// What is kept back: fragments that are late or overtaken, and completions that are due.
///
/// Pure: the caller passes the time. Not thread-safe.
#pragma once

#include "opal/ft/base/time.hpp"
#include "opal/mca/btl/fault/settings.hpp"

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <optional>

namespace ft::fault {

/// Something to be done at its time.
struct Later {
    Direction direction = Direction::send;
    /// The endpoint it is about, or null: it is abandoned when the endpoint goes away.
    const void *endpoint = nullptr;
    /// Does it. False: it could not be done yet, try again.
    std::function<bool()> act;
    /// Gives back what it holds, instead of being done. May be empty.
    std::function<void()> abandon;
};

class LaterQueue {
  public:
    /// Done once `due` has come.
    void at(base::Time due, Later later) { timed_.emplace(due, std::move(later)); }

    /// Done once `count` further fragments went by in the same direction at the same endpoint, or
    /// when `latest` has come and not so many did.
    void after_overtaken(unsigned count, base::Time latest, Later later);

    /// A fragment goes by.
    void overtaken(Direction direction, const void *endpoint);

    /// Takes out what is due first, if anything is due at `now`.
    [[nodiscard]] std::optional<Later> pop_due(base::Time now);

    /// Abandons what is about `endpoint`, or everything when it is null.
    void abandon(const void *endpoint);

    [[nodiscard]] std::size_t size() const { return timed_.size() + waiting_.size(); }
    [[nodiscard]] bool empty() const { return timed_.empty() && waiting_.empty(); }

  private:
    struct Waiting {
        unsigned count;
        base::Time latest;
        Later later;
    };

    std::multimap<base::Time, Later> timed_;
    std::list<Waiting> waiting_; ///< oldest first, so the first has the earliest `latest`
};

} // namespace ft::fault

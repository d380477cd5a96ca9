/// The daemons' addresses, kept so that the runtime's store need not be asked when one is wanted.
///
/// Knows nothing of the runtime. One thread.
#pragma once

#include "orte_glue/radixft/types.hpp"

#include <functional>
#include <map>
#include <string>

namespace ft::radixft {

class ContactBook {
  public:
    /// What the store has of a daemon; empty: nothing.
    using LookUp = std::function<std::string(NodeId)>;
    /// Whether that will not change as long as nobody calls forget().
    using Lasts = std::function<bool(NodeId)>;

    ContactBook(LookUp look_up, Lasts lasts)
        : look_up_(std::move(look_up)), lasts_(std::move(lasts))
    {
    }

    /// As kept here, or looked up; empty when nobody has it.
    std::string get(NodeId id);
    void remember(NodeId id, const std::string &uri) { known_[id] = uri; }
    void forget(NodeId id) { known_.erase(id); }

    /// There are other daemons than before, or they may have moved.
    void begin_anew() { next_ = 0; }
    /// Of `count` daemons, the one with each number being `at(number)`, looks up at most so many
    /// that are not known. Each is tried once.
    template <typename At>
    void look_up_some(std::size_t count, At at, std::size_t most)
    {
        for (; next_ < count && most > 0; ++next_) {
            if (const NodeId id = at(next_); !known_.contains(id)) {
                get(id);
                --most;
            }
        }
    }

  private:
    LookUp look_up_;
    Lasts lasts_;
    std::map<NodeId, std::string> known_;
    std::size_t next_ = 0;
};

} // namespace ft::radixft

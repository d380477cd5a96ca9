/// Messages to daemons that are being asked whether they still listen.
///
/// While a knock is under way nothing is sent there: the runtime's channel would print a page about
/// a dead daemon. But what is to be sent meanwhile must not be lost either, or a live one, whose
/// connection alone broke, hears nothing until the next repetition, 100 ms later. So it is kept,
/// and sent when the knock is answered. One thread; knows nothing of the runtime.
#pragma once

#include "orte_glue/radixft/types.hpp"

#include <cstdint>
#include <map>
#include <vector>

namespace ft::radixft {

class Held {
  public:
    struct Message {
        std::uint32_t tag = 0;
        Bytes bytes;
    };
    /// Kept for one daemon. What comes later is left to the protocols' repetitions.
    static constexpr std::size_t most = 256;

    /// A knock at `id` begins. False, and nothing changed, when one is under way.
    bool begin(NodeId id) { return kept_.try_emplace(id).second; }
    /// Whether a knock is under way.
    bool waits_for(NodeId id) const { return kept_.contains(id); }
    /// Keeps a message for `id`, at which a knock must be under way. False: too many are kept.
    bool keep(NodeId id, Message message);
    /// The knock is answered: what was kept, oldest first.
    std::vector<Message> end(NodeId id);

  private:
    std::map<NodeId, std::vector<Message>> kept_;
};

} // namespace ft::radixft

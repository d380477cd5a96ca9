#include "orte_glue/radixft/held.hpp"

#include <utility>

namespace ft::radixft {

bool Held::keep(NodeId id, Message message)
{
    std::vector<Message> &kept = kept_.at(id);
    if (kept.size() >= most) {
        return false;
    }
    kept.push_back(std::move(message));
    return true;
}

std::vector<Held::Message> Held::end(NodeId id)
{
    auto kept = kept_.extract(id);
    return kept.empty() ? std::vector<Message>() : std::move(kept.mapped());
}

} // namespace ft::radixft

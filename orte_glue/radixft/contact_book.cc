#include "orte_glue/radixft/contact_book.hpp"

namespace ft::radixft {

std::string ContactBook::get(NodeId id)
{
    if (const auto at = known_.find(id); at != known_.end()) {
        return at->second;
    }
    std::string text = look_up_(id);
    if (!text.empty() && lasts_(id)) {
        known_.emplace(id, text);
    }
    return text;
}

} // namespace ft::radixft

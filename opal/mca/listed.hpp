/// \file
/// What a user has named.
#pragma once

#include "opal/mca/opal_prelude.hpp"

#include <string_view>

namespace ft::mca {

/// Whether the user has listed a component of a framework by its name (`--mca btl tcp,dgram`), and
/// not only excluded others.
inline bool is_listed(const mca_base_framework_t &framework, std::string_view component) noexcept
{
    if (framework.framework_selection == nullptr || framework.framework_selection[0] == '^') {
        return false;
    }
    std::string_view list(framework.framework_selection);
    while (true) {
        const std::size_t comma = list.find(',');
        if (list.substr(0, comma) == component) {
            return true;
        }
        if (comma == std::string_view::npos) {
            return false;
        }
        list.remove_prefix(comma + 1);
    }
}

} // namespace ft::mca

/// \file
/// Who takes a fragment, by the tag that came with it.
#pragma once
#include "opal/mca/opal_prelude.hpp"

#include <cstdint>
#include <iterator>

namespace ft::btl {

/// \param tag as it came from the network: any value \return nullptr when nobody takes it. Tags
/// below the PML's are the BTLs' own: what their receivers are sent names addresses of this process
/// to read and write, which only who shares its memory may do.
[[nodiscard]] inline const mca_btl_active_message_callback_t *receiver_of(std::uint8_t tag) noexcept
{
    const auto &receivers = mca_btl_base_active_message_trigger; // one less than there are tags
    if (tag < MCA_BTL_TAG_PML || tag >= std::size(receivers)) {
        return nullptr;
    }
    return receivers[tag].cbfunc == nullptr ? nullptr : &receivers[tag];
}

} // namespace ft::btl

/// \file
/// Whether a BTL has a descriptor in one of its lists.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

namespace ft::dr {

/// \param des has been in no list, or in ones that it was taken out of by their front, since it
/// came out of its BTL's free list. The BTL may go on meanwhile, on another thread.
inline bool in_list(const mca_btl_base_descriptor_t &des) noexcept
{
    const auto load = [](const auto &link) { return __atomic_load_n(&link, __ATOMIC_ACQUIRE); };
    const opal_list_item_t &item = des.super.super;
    for (;;) {
        // Only builds for debugging clear the links of what is taken out. But what it links to, the
        // next fragment or the list's end, is told then who is before it from now on.
        const volatile opal_list_item_t *const next = load(item.opal_list_next);
        if (next == nullptr || load(next->opal_list_prev) == &item) {
            return next != nullptr;
        }
        if (load(item.opal_list_next) == next) {
            return false;
        }
        // Between the two looks another one was put behind it.
    }
}

} // namespace ft::dr

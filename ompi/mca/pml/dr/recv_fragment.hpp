/// \file
/// The BTLs' receive callback.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include "opal/ft/reliability/counters.hpp"

namespace ft::dr {

/// A fragment came. Called by the BTLs, possibly with locks of theirs held.
void on_fragment(mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                 mca_btl_base_descriptor_t *descriptor, void *context) noexcept;

/// Fragments that could not be ascribed to a peer, as of now.
reliability::Counters stray_counters() noexcept;

} // namespace ft::dr

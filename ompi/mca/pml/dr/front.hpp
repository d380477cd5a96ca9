/// \file
/// What all ways of a fragment to its BTL have in common: the header, and what is asked of the BTL.
#pragma once
#include "ompi/mca/pml/dr/btl_path.hpp"
#include "ompi/mca/pml/dr/parameters.hpp"
#include "opal/ft/reliability/header.hpp"

namespace ft::dr {

/// A BTL that can send at once does, and tells by its return value; it takes the descriptor back
/// itself. BTLs that keep it call back. What btl/tcp would keep goes out at its next turn only, and
/// the program may be gone from MPI by then, with the answer that its peer waits for.
inline constexpr std::uint32_t prompt_flags =
    MCA_BTL_DES_FLAGS_BTL_OWNERSHIP | MCA_BTL_DES_FLAGS_PRIORITY;

/// Where a descriptor's bytes begin.
inline std::byte *front(mca_btl_base_descriptor_t *des) noexcept
{
    return static_cast<std::byte *>(des->des_segments[0].seg_addr.pval);
}

/// btl_send, without the peer's lock where there are threads. \return what it returned
inline int give(BtlPath &path, mca_btl_base_descriptor_t *des) noexcept
{
    const int rc = path.btl->btl_send(path.btl, path.endpoint, des, btl_tag);
    if (rc < 0 && path.tcp != nullptr) {
        path.tcp->forget_closed_socket();
    }
    if (rc != 1) {
        watch_connection(path);
    }
    return rc;
}

/// The header, before an upper header that stands behind it already.
inline void write_front(reliability::FragHeader &header, std::span<std::byte> front) noexcept
{
    if (parameters().engine.seals_headers()) {
        header.flags |= reliability::flag_header_checksummed;
        reliability::write_sealed(header, front);
    } else {
        reliability::write_header(header, front);
    }
}

} // namespace ft::dr

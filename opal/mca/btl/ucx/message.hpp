/// \file
/// The eight bytes in front of every active message of btl/ucx: whom it is for, what it is, and the
/// BTL tag. In the byte order of the machine: UCT does not leave the architecture either.
#pragma once
#include <cstdint>

namespace ft::ucx {

enum class Kind : std::uint8_t {
    fragment = 0, ///< of the PML's
    goodbye = 1   ///< the sender closes this way; its cookie follows
};

struct Header {
    static constexpr std::uint64_t cookie_mask = ~std::uint64_t{0} << 16;

    std::uint64_t cookie = 0; ///< of the receiver; its upper 48 bits travel
    Kind kind = Kind::fragment;
    std::uint8_t tag = 0;

    [[nodiscard]] constexpr std::uint64_t packed() const noexcept
    {
        return (cookie & cookie_mask) | std::uint64_t{static_cast<std::uint8_t>(kind)} << 8 | tag;
    }
    static constexpr Header of(std::uint64_t packed) noexcept
    {
        return {packed & cookie_mask, static_cast<Kind>(packed >> 8 & 0xff),
                static_cast<std::uint8_t>(packed & 0xff)};
    }
    /// Whether it is meant for the process with this cookie.
    [[nodiscard]] constexpr bool is_for(std::uint64_t mine) const noexcept
    {
        return ((cookie ^ mine) & cookie_mask) == 0;
    }
};

} // namespace ft::ucx

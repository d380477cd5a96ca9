/// \file
/// Copies of memory that its owner may have given back: where it is gone the kernel says so, and
/// nobody crashes. A look before the copy would not do: another thread may take it away between.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace ft::dr {

enum class Copied : std::uint8_t {
    whole,
    gone,   ///< a part of it at least cannot be read
    not_now ///< no way to ask the kernel just now: to be tried again
};

/// Any thread.
[[nodiscard]] Copied copy_if_there(std::byte *to, std::span<const std::byte> from) noexcept;

namespace detail {

/// At once, where no filter of system calls forbids it: as if to another process.
[[nodiscard]] Copied copy_as_to_another(std::byte *to, std::span<const std::byte> from) noexcept;
/// Everywhere, as long as there is room for two more file descriptors.
[[nodiscard]] Copied copy_by_pipe(std::byte *to, std::span<const std::byte> from) noexcept;

} // namespace detail
} // namespace ft::dr

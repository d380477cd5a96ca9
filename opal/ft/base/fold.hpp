/// \file
/// Copying and summing in one pass over the bytes, on x86-64: CRC32C by folding with carry-less
/// multiplication, after Gopal et al., "Fast CRC Computation for Generic Polynomials Using
/// PCLMULQDQ" (Intel, 2009), in registers of 512 or 256 bits; what is left at the end is summed by
/// the processor's own instruction instead of a Barrett reduction. For crc32c.hpp, which is what
/// others call. Pure functions; any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace ft::base {

/// As usual, or as copy_past_caches (copy.hpp) does.
enum class Store : std::uint8_t { usual, past_caches };

#if defined(__x86_64__)

/// Of the registers.
enum class Width : std::uint8_t { bits_256, bits_512 };

/// Whether the processor has what that takes: VPCLMULQDQ, and AVX2 or AVX-512.
bool can_fold(Width width) noexcept;

/// \param state the register before these bytes, not inverted \param to room for `from`, which it
/// must not overlap \return the register after them \pre can_fold, and at least least_in_one_pass
/// (crc32c.hpp) bytes, past the caches 64 more
std::uint32_t copy_folding(Width width, Store store, std::uint32_t state, std::byte *to,
                           std::span<const std::byte> from) noexcept;

#endif

} // namespace ft::base

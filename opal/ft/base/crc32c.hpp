/// CRC32C, the checksum of every header and payload.
///
/// Polynomial 0x1EDC6F41 (Castagnoli), reflected, initial value and final exclusive-or 0xFFFFFFFF,
/// as in RFC 3720 appendix B.4 (iSCSI) and RFC 4960 appendix B (SCTP); "123456789" gives
/// 0xE3069283. It detects every error of up to three bits in messages shorter than 2^31 bits,
/// every burst of up to 32 bits, and all but one in 2^32 of the rest. The work is done by isa-l,
/// which uses the processor's carry-less multiplication. Pure functions and plain values: any
/// thread may call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

namespace ft::base {

/// Which bytes are read for the sum of a copy. In one pass they are the same.
enum class Summed : std::uint8_t { source, copy };

/// A checksum in the making, over data that comes in pieces.
class Crc32c {
  public:
    /// Goes on with `data`, of any length, empty included. Returns itself for chaining.
    Crc32c &update(std::span<const std::byte> data);

    /// The same, and copies `from` as the function of the like name does (copy_crc32c and so on).
    Crc32c &copy(std::span<std::byte> to, std::span<const std::byte> from);
    Crc32c &copy_shared(std::span<std::byte> to, std::span<const std::byte> from, Summed summed);
    Crc32c &copy_past_caches(std::span<std::byte> to, std::span<const std::byte> from);

    /// The checksum of everything given so far; 0 when nothing was.
    std::uint32_t value() const { return ~state_; }

  private:
    std::uint32_t state_ = 0xffffffffU;
};

/// What is shorter is not copied and summed in one pass anywhere.
inline constexpr std::size_t least_in_one_pass = 256;

/// The checksum of one run of bytes.
std::uint32_t crc32c(std::span<const std::byte> data);
/// The checksum of two, one after the other: for headers, one call.
std::uint32_t crc32c(std::span<const std::byte> first, std::span<const std::byte> second);
/// The checksum of a front of 40 bytes, a word as it would stand behind it (little-endian), and the
/// rest: for a short header whose last word holds the checksum itself.
std::uint32_t crc32c(std::span<const std::byte, 40> front, std::uint64_t last,
                     std::span<const std::byte> rest);

/// The checksum of three words as they would stand one behind the other (little-endian), and the
/// rest: for a header of which not all is on the wire.
std::uint32_t crc32c(const std::array<std::uint64_t, 3> &words, std::span<const std::byte> rest);

/// Copies `from` to the beginning of `to`, which must be at least as long and not overlap it, and
/// returns the checksum of the bytes copied. One pass where the processor has VPCLMULQDQ and AVX2
/// (looked up at run time): with AVX-512 it costs, from tens of KiB up, what the copy costs.
/// Elsewhere, and below least_in_one_pass bytes, memcpy and isa-l, piece by piece.
std::uint32_t copy_crc32c(std::span<std::byte> to, std::span<const std::byte> from);

/// The same for memory, on one side, that another core uses too: memcpy's place is taken by
/// copy_by_vectors (copy.hpp).
std::uint32_t copy_crc32c_shared(std::span<std::byte> to, std::span<const std::byte> from,
                                 Summed summed);

/// The same into such memory, with copy_past_caches (copy.hpp). The source is summed.
std::uint32_t copy_crc32c_past_caches(std::span<std::byte> to, std::span<const std::byte> from);

/// The checksum of several runs of bytes as if they stood one after the other.
std::uint32_t crc32c(std::span<const std::span<const std::byte>> pieces);
std::uint32_t crc32c(std::initializer_list<std::span<const std::byte>> pieces);

} // namespace ft::base

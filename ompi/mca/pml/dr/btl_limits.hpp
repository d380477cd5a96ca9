/// \file
/// How large the fragments are that one process can take over each BTL, and the form in which it
/// tells the others: a magic number of 4 bytes, then for each module the length of its BTL's name
/// (1 byte), the name, and the size in bytes (8 bytes). One without a name says that headers need
/// no checksum. Little-endian; a process of another build
/// may have written it, so nothing of it is believed that does not fit.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "opal/ft/base/wire.hpp"

namespace ft::dr {

/// A value.
class BtlLimits {
  public:
    /// What a peer can surely take over any BTL that says nothing of it: btl/tcp's default, which
    /// no other of Open MPI's BTLs needs to be told, bytes.
    static constexpr std::size_t unsaid = std::size_t{128} * 1024;

    /// Another module of that BTL, whose name has at most 255 bytes.
    void add(std::string_view btl, std::uint64_t bytes)
    {
        limits_.emplace_back(btl.substr(0, UINT8_MAX), bytes);
    }

    /// The process believes headers that have no checksum (pml_dr_checksum none).
    void add_trust() { add({}, 1); }
    [[nodiscard]] bool trusts() const noexcept { return over({}) != unsaid; }

    /// Largest fragment with all headers that can be taken over all modules of that BTL, bytes.
    [[nodiscard]] std::size_t over(std::string_view btl) const noexcept
    {
        std::uint64_t least = UINT64_MAX;
        for (const auto &[name, limit] : limits_) {
            if (name == btl) {
                least = std::min(least, limit);
            }
        }
        return least == UINT64_MAX ? unsaid : least;
    }

    /// \return the bytes written, 0 when `out` is too small
    [[nodiscard]] std::size_t write(std::span<std::byte> out) const noexcept
    {
        base::WireWriter writer(out);
        writer.u32(magic);
        for (const auto &[name, limit] : limits_) {
            writer.u8(static_cast<std::uint8_t>(name.size()));
            writer.bytes(std::as_bytes(std::span(name)));
            writer.u64(limit);
        }
        return writer.ok() ? writer.position() : 0;
    }

    /// What was written so; nothing at all when any of it makes no sense.
    [[nodiscard]] static BtlLimits read(std::span<const std::byte> blob)
    {
        BtlLimits limits;
        base::WireReader reader(blob);
        if (reader.u32() != magic) {
            reader.fail();
        }
        while (reader.remaining() != 0) {
            const auto name = reader.bytes(reader.u8());
            const std::uint64_t limit = reader.u64();
            if (reader.ok()) {
                limits.add({reinterpret_cast<const char *>(name.data()), name.size()}, limit);
            }
        }
        return reader.ok() ? limits : BtlLimits{};
    }

  private:
    static constexpr std::uint32_t magic = 0x316d6c64; // "dlm1"
    std::vector<std::pair<std::string, std::uint64_t>> limits_;
};

} // namespace ft::dr

/// \file
/// Fragments that came in parts, because the way carries smaller datagrams than was announced.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "opal/ft/datagram/datagram.hpp"

namespace ft::dgram {

/// A bounded number of unfinished fragments; the oldest gives way, as if it were lost. One thread.
class Reassembly {
  public:
    /// A part, parsed. \return the whole fragment when this was the last that was missing, valid
    /// until the next call; else nothing. Throws std::bad_alloc, and then it is as if the part were
    /// lost
    [[nodiscard]] std::span<const std::byte> take(const Header &header,
                                                  std::span<const std::byte> payload);
    /// Fragments of which not every part came.
    [[nodiscard]] std::uint64_t given_up() const noexcept { return given_up_; }

  private:
    struct Slot {
        bool used = false;
        std::uint32_t sender = 0;
        std::uint32_t number = 0;
        std::uint32_t total = 0;
        std::uint8_t tag = 0;
        std::uint32_t have = 0; ///< bytes
        std::vector<std::byte> bytes;
        std::vector<std::uint32_t> offsets; ///< of the parts that came
    };
    std::array<Slot, 64> slots_;
    std::size_t next_ = 0;
    std::uint64_t given_up_ = 0;
};

} // namespace ft::dgram

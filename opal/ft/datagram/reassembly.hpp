/// \file
/// Fragments that came in parts, because the way carries smaller datagrams than was announced.
#pragma once
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "opal/ft/datagram/datagram.hpp"

namespace ft::dgram {

/// Unfinished fragments. Those of one sender are bounded in number, so that what others send takes
/// no place from them, and all together in bytes; the oldest gives way, as if it were lost. One
/// thread.
class Reassembly {
  public:
    /// Of one sender: a few are under way at once, the rest lack a part that was lost.
    static constexpr std::size_t most_of_a_sender = 32;
    /// Of all fragments' bytes.
    static constexpr std::size_t most_bytes = std::size_t{16} << 20;

    /// A part, parsed. \return the whole fragment when this was the last that was missing, valid
    /// until the next call; else nothing. Throws std::bad_alloc, and then it is as if the part were
    /// lost
    [[nodiscard]] std::span<const std::byte> take(const Header &header,
                                                  std::span<const std::byte> payload);
    /// Fragments of which not every part came.
    [[nodiscard]] std::uint64_t given_up() const noexcept { return given_up_; }

  private:
    struct Key {
        std::uint32_t sender = 0;
        std::uint32_t number = 0;
        auto operator<=>(const Key &) const = default;
    };
    struct Unfinished {
        Key key;
        std::uint64_t age = 0; ///< the place in the order of arrival
        std::uint8_t tag = 0;
        std::uint32_t have = 0; ///< bytes
        std::vector<std::byte> bytes;
        std::vector<std::uint32_t> offsets; ///< of the parts that came
    };
    using ByAge = std::list<Unfinished>;

    Unfinished &begin(const Header &header);
    void make_room(const Header &header) noexcept;
    void end(ByAge::iterator fragment) noexcept;

    ByAge unfinished_; ///< the oldest first
    std::map<Key, ByAge::iterator> places_;
    ByAge spare_; ///< of an ended one, whose memory the next one takes: one at most
    std::size_t bytes_ = 0;
    std::uint64_t begun_ = 0;
    std::uint64_t given_up_ = 0;
};

} // namespace ft::dgram

/// \file
/// How large a datagram may be that a way still carries: a search in the manner of RFC 8899
/// (Packetization Layer Path MTU Discovery for datagram transports), section 5. A pure state
/// machine: the time and answers come in, probes to send come out.
///
/// The size that both ends announce is used from the start. Rounds of two probes, one of the size
/// in use and one of the least, go out while the way is in use. A round of which only the small one
/// is answered counts against the size; several such rounds with no answer to a large one between
/// them lower it: something on the way swallows large datagrams without a word. A round without any
/// answer says nothing of sizes. After a while a lowered size is tried again.
#pragma once
#include <cstdint>
#include <vector>

#include "opal/ft/base/time.hpp"

namespace ft::dgram {

/// Every IPv4 host takes datagrams of 576 bytes (RFC 791), headers of IP and UDP included.
inline constexpr std::uint32_t least_datagram = 548;

/// Not synchronised; deterministic.
class SizeSearch {
  public:
    /// \param announced largest datagram, bytes, at least `least_datagram` \param interval between
    /// rounds while nothing is wrong
    SizeSearch(std::uint32_t announced, base::Duration interval);

    /// Bytes of a datagram that is believed to pass.
    [[nodiscard]] std::uint32_t size() const noexcept { return sizes_[index_]; }

    struct Probes {
        std::uint32_t count = 0;
        std::uint32_t size[2] = {};
        std::uint32_t nonce = 0; ///< the same in both
    };
    /// Call whenever the way is used and before `send` would be of use later, at any rate.
    /// \param nonce for the probes, if there are any: one that no other search of the process had
    /// lately, since the answer to one may come by another's way \return what to send now
    Probes on_time(base::Time now, std::uint32_t nonce);
    /// An answer to a probe with that nonce, whose datagram had that many bytes. That to another
    /// search's does nothing.
    void on_reply(std::uint32_t nonce, std::uint32_t bytes);
    [[nodiscard]] base::Time next() const noexcept { return next_; }
    [[nodiscard]] std::uint32_t times_lowered() const noexcept { return lowered_; }

  private:
    void judge(base::Time now);

    std::vector<std::uint32_t> sizes_; ///< to try, descending
    std::size_t index_ = 0;
    base::Duration interval_;
    base::Time next_;
    base::Time raise_at_ = base::Time::never();
    std::uint32_t nonce_ = 0;
    std::uint32_t tried_ = 0; ///< size of the large probe in flight, 0: none
    std::uint32_t against_ = 0;
    std::uint32_t lowered_ = 0;
    bool large_answered_ = false;
    bool small_answered_ = false;
};

} // namespace ft::dgram

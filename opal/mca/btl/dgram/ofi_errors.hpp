/// \file
/// What errors of libfabric mean for datagrams, and how many operations of a provider are used.
/// Keeps no state; any thread may call it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace ft::dgram {

/// The call and libfabric's words for its error (negative or not).
[[nodiscard]] std::string said(const char *call, long error);

/// What the network lost, as networks do; see transport_udp.cc.
[[nodiscard]] bool lost_by_network(int error) noexcept;

/// How many receives stand ready. \param bytes wanted of them all together \param room of one
/// \param offered how many the provider takes
[[nodiscard]] std::size_t receives_for(std::size_t bytes, std::size_t room,
                                       std::size_t offered) noexcept;

/// What became of a receive whose completion is an error of libfabric.
enum class ReceiveFate : std::uint8_t {
    truncated, ///< longer than any datagram of ours; its room is posted again
    lost,      ///< what the network or a full queue lost; the same
    broken     ///< the endpoint will receive nothing any more
};
[[nodiscard]] ReceiveFate fate_of_receive(int error) noexcept;

} // namespace ft::dgram

/// \file
/// The way from a transport over UDP to one of its peers, a socket of its own.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "opal/mca/btl/dgram/transport_udp.hpp"
#include "opal/mca/btl/dgram/udp_socket.hpp"

namespace ft::dgram {

/// Older kernels than 6.9 take no more; one call carries one maximum datagram in all anyway.
inline constexpr std::size_t most_segments = 64;

/// As Transport::connect. May throw
[[nodiscard]] std::unique_ptr<Channel>
open_udp_channel(TransportCounters &counters, const btl::IpAddress &local, const Place &peer,
                 const UdpSettings &settings, std::string &why);

/// The network lost it, as networks do, or there is no room now: anything but that the socket is of
/// no use. What will last is noticed by who waits for an answer.
[[nodiscard]] bool transient(int error) noexcept;

/// The name of a call and what the system says of an error.
[[nodiscard]] std::string said(const char *call, int error);

} // namespace ft::dgram

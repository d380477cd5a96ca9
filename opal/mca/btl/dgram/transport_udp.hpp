/// \file
/// Datagrams over the kernel's UDP sockets: many in one system call, segmented and put together
/// again by the kernel or the network card where they can (UDP_SEGMENT, UDP_GRO).
#pragma once
#include <memory>
#include <string>

#include "opal/mca/btl/base/interfaces.hpp"
#include "opal/mca/btl/dgram/transport.hpp"

namespace ft::dgram {

struct UdpSettings {
    std::uint32_t receive_buffer = 8U << 20U; ///< bytes asked of the kernel
    std::uint32_t send_buffer = 4U << 20U;    ///< bytes asked of the kernel
    std::uint32_t largest = 0; ///< bytes of a datagram, 0: what the interface carries
    bool offload = true;
};

/// Binds a socket to the interface's address, at a port of the kernel's choice.
/// \return nullptr, and why, when that cannot be done
[[nodiscard]] std::unique_ptr<Transport>
open_udp(const Interface &interface, const UdpSettings &settings, std::string &why) noexcept;

/// "udp"
[[nodiscard]] const std::string &udp_provider() noexcept;

} // namespace ft::dgram

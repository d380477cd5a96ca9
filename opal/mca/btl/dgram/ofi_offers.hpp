/// \file
/// What libfabric says that it has on this host. fi_getinfo(3).
#pragma once
#include <rdma/fabric.h>

#include <cstddef>
#include <string>

#include "opal/mca/btl/base/interfaces.hpp"
#include "opal/mca/btl/dgram/ofi_handles.hpp"

namespace ft::dgram {

[[nodiscard]] std::string provider_of(const fi_info &info);

/// Whether its addresses are those of IP.
[[nodiscard]] bool is_of_ip(const fi_info &info) noexcept;

/// Whether the provider wants one call at a time into a domain and what belongs to it.
[[nodiscard]] bool wants_single_calls(const fi_info &info) noexcept;

/// Bytes of the longest datagram that the interface carries in one packet.
[[nodiscard]] std::size_t packet_of(const fi_info &info, const btl::Interface &interface) noexcept;

/// Datagram endpoints of a provider, of any if it is "", those that several threads may call at
/// once if it has such ones. \param at the address of IP that they are asked for, which not every
/// provider looks at; nullptr: all that there are \param rc why there are none
[[nodiscard]] Info offers(const std::string &provider, const btl::IpAddress *at, int &rc);

} // namespace ft::dgram

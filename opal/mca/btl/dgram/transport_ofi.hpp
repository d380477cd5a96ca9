/// \file
/// Datagrams through libfabric: any provider that has an endpoint of type FI_EP_DGRAM (udp, verbs,
/// efa, psm2, usnic, ...). One transport is one endpoint of one domain, with a ring of receives
/// that are always posted. fi_getinfo(3), fi_endpoint(3), fi_cq(3).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "opal/mca/btl/base/interfaces.hpp"
#include "opal/mca/btl/dgram/transport.hpp"

namespace ft::dgram {

struct OfiSettings {
    std::string provider;                     ///< libfabric's name; empty: the first that is there
    std::uint32_t largest = 0;                ///< bytes of a datagram, 0: what the provider carries
    std::uint32_t receive_buffer = 8U << 20U; ///< bytes of the ring of receives
};

/// Providers of this host that have datagram endpoints, each once, in libfabric's order: the one it
/// thinks fastest first. Looks at all of them, which takes some 50 ms and may load drivers.
[[nodiscard]] std::vector<std::string> ofi_providers() noexcept;

/// Whether libfabric has a provider of that name on this host, with whatever endpoints.
[[nodiscard]] bool ofi_knows(const std::string &provider) noexcept;

/// In front of libfabric's own names in the parameter provider.
inline constexpr const char *ofi_prefix = "ofi:";

struct Opened {
    Interface interface; ///< address 0: not one of IP, `name` is libfabric's domain
    std::unique_ptr<Transport> transport;
};

/// Opens an endpoint at the address of every interface; where the provider has other addresses than
/// those of IP, one in each of its domains. \param why what went wrong with those that are missing
[[nodiscard]] std::vector<Opened> open_ofi(const std::vector<Interface> &interfaces,
                                           const OfiSettings &settings, std::string &why) noexcept;

} // namespace ft::dgram

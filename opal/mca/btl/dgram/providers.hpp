/// \file
/// From the parameter provider to open transports.
#pragma once
#include <string>
#include <vector>

#include "opal/mca/btl/dgram/transport_ofi.hpp"
#include "opal/mca/btl/dgram/transport_udp.hpp"

namespace ft::dgram {

/// Whether the words of a user are "auto", "udp", "ofi" or "ofi:" and a name.
[[nodiscard]] bool is_provider(const std::string &words) noexcept;

/// Why `words` names nothing that this host can use: libfabric does not know the name, or the
/// provider has no datagram endpoint. Empty when it can be used.
[[nodiscard]] std::string unusable(const std::string &words);

/// What "auto" stands for on this host: the kernel's sockets, or libfabric's provider for a network
/// adapter that is driven from user space. Over the adapters that the kernel drives its sockets
/// with segmentation offload are several times faster than libfabric's udp (mca_btl_dgram.7).
[[nodiscard]] std::string fastest_provider();

/// One transport for each interface (for each domain where there are no IP addresses).
/// \param words as above, but not "auto" \param why what went wrong with those that are missing
[[nodiscard]] std::vector<Opened> open_transports(const std::string &words,
                                                  const std::vector<Interface> &interfaces,
                                                  const UdpSettings &settings, std::string &why);

} // namespace ft::dgram

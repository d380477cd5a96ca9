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

/// What "auto" stands for on this host. Not measured at the start of each job, since processes that
/// found different ones would not reach each other, but decided by what was measured once (`test/
/// bench/dgram --only provider`, the figures are in mca_btl_dgram.7): over an adapter that the
/// kernel drives its own sockets are faster than any provider of libfabric's, which use the same
/// sockets without segmentation offload. Only where there is an adapter that can be driven from
/// user space, and a provider that does, is that one taken.
[[nodiscard]] std::string fastest_provider();
/// The same for a host with such an adapter, by the names that libfabric offers.
[[nodiscard]] std::string fastest_of(const std::vector<std::string> &offered);
/// Whether one of these folders has something in it.
[[nodiscard]] bool any_adapter(const std::vector<std::string> &folders);

/// One transport for each interface (for each domain where there are no IP addresses).
/// \param words as above, but not "auto" \param why what went wrong with those that are missing
[[nodiscard]] std::vector<Opened> open_transports(const std::string &words,
                                                  const std::vector<Interface> &interfaces,
                                                  const UdpSettings &settings, std::string &why);

} // namespace ft::dgram

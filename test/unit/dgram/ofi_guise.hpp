/// \file
/// What libfabric's provider udp looks like where it is to pass for one that it is not: with
/// addresses that are none of IP and several domains, with space of its own in front of every
/// message (FI_MSG_PREFIX), with memory that must be registered (FI_MR_LOCAL), without locks of its
/// own (FI_THREAD_DOMAIN), by the name of verbs. How a provider says so is in fi_getinfo(3),
/// fi_endpoint(3), fi_mr(3) and fi_domain(3). For ofi_faults.
#pragma once
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <cstddef>
#include <cstdint>

#include "test/unit/dgram/ofi_faults.hpp"

namespace ft::test {

using GetInfo = decltype(fi_getinfo);

/// As fi_getinfo: what the provider offers in its guise, by `own`, which is the real one.
int info_in_guise(GetInfo *own, std::uint32_t version, const char *node, const char *service,
                  std::uint64_t flags, const fi_info *hints, fi_info **info);
/// The same information as the real provider gave it. For who frees it.
fi_info *info_without_guise(const fi_info &info);

/// What the real provider is called that passes for this one.
[[nodiscard]] const char *own_name(const char *provider);

/// Registrations of memory, as a domain makes them.
int register_memory(fid *domain, const void *memory, std::size_t bytes, std::uint64_t access,
                    std::uint64_t offset, std::uint64_t key, std::uint64_t flags, fid_mr **out,
                    void *context);

/// One message that the provider was given to send or to receive into.
struct Message {
    std::byte *bytes;
    std::size_t length;
    void *descriptor;
};
/// Takes the provider's part of it, and spoils the space that is its own. \param access FI_SEND or
/// FI_RECV; 0: injected, which needs no registration \return false, and counted, when it is not
/// what the guise asks for
bool take_message(Message &message, std::uint64_t access);

} // namespace ft::test

#include "opal/mca/btl/dgram/ofi_offers.hpp"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>

#include "opal/mca/btl/dgram/transport_ofi.hpp"

namespace ft::dgram {

namespace {

constexpr std::uint32_t api = FI_VERSION(1, 9);

Info hints(const std::string &provider)
{
    Info all(fi_allocinfo());
    if (all == nullptr) {
        return all;
    }
    all->ep_attr->type = FI_EP_DGRAM;
    all->caps = FI_MSG | FI_SEND | FI_RECV;
    all->mode = FI_CONTEXT | FI_CONTEXT2 | FI_MSG_PREFIX;
    all->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    all->domain_attr->threading = FI_THREAD_UNSPEC; // whatever it has
    if (!provider.empty()) {
        all->fabric_attr->prov_name = strdup(provider.c_str()); // fi_freeinfo frees it
    }
    return all;
}

/// What libfabric has for the hints, at a node's address if one is given.
Info ask(const fi_info &wanted, const char *node, int &rc)
{
    fi_info *list = nullptr;
    rc = fi_getinfo(api, node, nullptr, node == nullptr ? 0 : FI_SOURCE, &wanted, &list);
    return Info(rc == 0 ? list : nullptr);
}

} // namespace

std::string provider_of(const fi_info &info)
{
    return info.fabric_attr->prov_name == nullptr ? "" : info.fabric_attr->prov_name;
}

bool is_of_ip(const fi_info &info) noexcept
{
    return info.addr_format == FI_SOCKADDR || info.addr_format == FI_SOCKADDR_IN ||
           info.addr_format == FI_SOCKADDR_IN6;
}

bool wants_single_calls(const fi_info &info) noexcept
{
    return info.domain_attr->threading != FI_THREAD_SAFE;
}

/// Its provider udp says 1472 bytes of every interface, whatever that carries: more would go in two
/// packets, as 1472 bytes over IPv6 and Ethernet do. What others say is their own network's.
std::size_t packet_of(const fi_info &info, const btl::Interface &interface) noexcept
{
    const std::size_t headers = udp_headers(interface.address);
    const char *const provider = info.fabric_attr->prov_name;
    const bool udp = provider != nullptr && std::strcmp(provider, "udp") == 0;
    return udp && interface.mtu > headers ? interface.mtu - headers : most_datagram_bytes;
}

Info offers(const std::string &provider, const btl::IpAddress *at, int &rc)
{
    const Info wanted = hints(provider);
    if (wanted == nullptr) {
        rc = -FI_ENOMEM;
        return nullptr;
    }
    const std::string node = at == nullptr ? "" : printed(*at);
    if (at != nullptr) {
        wanted->addr_format = at->is_v4() ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
    }
    // One thread may receive while another sends. A provider that has no locks of its own for that
    // offers nothing to who asks for them: efa has FI_THREAD_DOMAIN, usnic FI_THREAD_ENDPOINT.
    for (const fi_threading threading : {FI_THREAD_SAFE, FI_THREAD_UNSPEC}) {
        wanted->domain_attr->threading = threading;
        if (Info list = ask(*wanted, at == nullptr ? nullptr : node.c_str(), rc); list != nullptr) {
            return list;
        }
    }
    return nullptr;
}

std::vector<std::string> ofi_providers() noexcept
try {
    std::vector<std::string> names;
    const Info wanted = hints("");
    int rc = 0;
    const Info list = wanted == nullptr ? nullptr : ask(*wanted, nullptr, rc);
    for (const fi_info *info = list.get(); info != nullptr; info = info->next) {
        if (std::find(names.begin(), names.end(), provider_of(*info)) == names.end()) {
            names.push_back(provider_of(*info));
        }
    }
    return names;
} catch (...) {
    return {};
}

bool ofi_knows(const std::string &provider) noexcept
try {
    const Info any = hints(provider);
    if (any == nullptr) {
        return false;
    }
    any->ep_attr->type = FI_EP_UNSPEC;
    any->caps = 0;
    int rc = 0;
    return ask(*any, nullptr, rc) != nullptr;
} catch (...) {
    return false;
}

} // namespace ft::dgram

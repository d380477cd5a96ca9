#include "opal/mca/btl/dgram/providers.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

namespace ft::dgram {

namespace {

constexpr std::string_view prefix = ofi_prefix;

/// libfabric's name within "ofi" (any) or "ofi:NAME".
std::string ofi_name(const std::string &words)
{
    return words.size() > prefix.size() ? words.substr(prefix.size()) : "";
}

/// An adapter of InfiniBand, RoCE, EFA, usNIC or Omni-Path. Asking libfabric costs 50 ms and more.
bool has_adapter()
{
    std::error_code error;
    for (const auto *place : {"/sys/class/infiniband", "/sys/class/hfi1"}) {
        const std::filesystem::directory_iterator entries(place, error);
        if (!error && entries != std::filesystem::directory_iterator{}) {
            return true;
        }
    }
    return false;
}

} // namespace

bool is_provider(const std::string &words) noexcept
{
    return words == "auto" || words == udp_provider() || words == prefix.substr(0, 3) ||
           (words.size() > prefix.size() && words.compare(0, prefix.size(), prefix) == 0);
}

std::string unusable(const std::string &words)
{
    if (words == udp_provider() || words == "auto") {
        return "";
    }
    const std::string name = ofi_name(words);
    const std::vector<std::string> all = ofi_providers();
    if (all.empty()) {
        return "libfabric has no provider with a datagram endpoint (FI_EP_DGRAM) on this host";
    }
    if (name.empty() || std::find(all.begin(), all.end(), name) != all.end()) {
        return "";
    }
    std::string known;
    for (const std::string &one : all) {
        known += (known.empty() ? "" : ", ") + std::string(prefix) + one;
    }
    return (ofi_knows(name) ? "that provider of libfabric has no datagram endpoint (FI_EP_DGRAM)"
                            : "libfabric has no provider of that name on this host") +
           std::string("; those with one are ") + known;
}

std::string fastest_provider()
{
    constexpr std::array<std::string_view, 5> software{"udp", "sockets", "tcp", "net", "shm"};
    if (has_adapter()) {
        for (const std::string &name : ofi_providers()) {
            if (std::find(software.begin(), software.end(), name) == software.end()) {
                return std::string(prefix) + name;
            }
        }
    }
    return udp_provider();
}

std::vector<Opened> open_transports(const std::string &words,
                                    const std::vector<Interface> &interfaces,
                                    const UdpSettings &settings, std::string &why)
{
    if (words != udp_provider()) {
        return open_ofi(interfaces, {ofi_name(words), settings.largest, settings.receive_buffer},
                        why);
    }
    std::vector<Opened> all;
    why.clear();
    for (const Interface &interface : interfaces) {
        std::string its;
        auto transport = open_udp(interface, settings, its);
        if (transport != nullptr) {
            all.push_back({interface, std::move(transport)});
        } else {
            why += (why.empty() ? "" : "; ") + interface.name + " (" + printed(interface.address) +
                   "): " + its;
        }
    }
    return all;
}

} // namespace ft::dgram

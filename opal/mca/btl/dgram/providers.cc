#include "opal/mca/btl/dgram/providers.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
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

/// What a user's choice may have to do with it that a provider is not there.
std::string hidden_by_user()
{
    // A list of those that are used, or behind "^" of those that are not.
    const char *const list = std::getenv("FI_PROVIDER");
    return list == nullptr || *list == '\0'
               ? ""
               : std::string(" (FI_PROVIDER is \"") + list +
                     "\" in the environment, which hides providers of libfabric)";
}

/// Where Linux lists the adapters that can be driven from user space: InfiniBand, RoCE, EFA, usNIC,
/// and Omni-Path.
const std::vector<std::string> &adapter_folders()
{
    static const std::vector<std::string> folders{"/sys/class/infiniband", "/sys/class/hfi1"};
    return folders;
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
        return "libfabric has no provider with a datagram endpoint (FI_EP_DGRAM) on this host" +
               hidden_by_user();
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
           std::string("; those with one are ") + known + hidden_by_user();
}

bool any_adapter(const std::vector<std::string> &folders)
{
    return std::any_of(folders.begin(), folders.end(), [](const std::string &folder) {
        std::error_code error;
        const std::filesystem::directory_iterator entries(folder, error);
        return !error && entries != std::filesystem::directory_iterator{};
    });
}

std::string fastest_of(const std::vector<std::string> &offered)
{
    constexpr std::array<std::string_view, 6> native{"verbs", "efa", "psm2",
                                                     "psm3",  "opx", "usnic"};
    for (const std::string &name : offered) {
        if (std::find(native.begin(), native.end(), name) != native.end()) {
            return std::string(prefix) + name;
        }
    }
    return udp_provider();
}

std::string fastest_provider()
{
    // Asking libfabric costs 50 ms and more.
    return any_adapter(adapter_folders()) ? fastest_of(ofi_providers()) : udp_provider();
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

#include "opal/mca/btl/dgram/interfaces.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace ft::dgram {

namespace {

std::uint32_t mtu_of(const char *name)
{
    constexpr std::uint32_t ethernet = 1500;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return ethernet;
    }
    ifreq request{};
    std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    const bool known = ioctl(fd, SIOCGIFMTU, &request) == 0 && request.ifr_mtu > 0;
    close(fd);
    return known ? static_cast<std::uint32_t>(request.ifr_mtu) : ethernet;
}

std::uint32_t host_order(const sockaddr *address)
{
    sockaddr_in in{};
    std::memcpy(&in, address, sizeof in);
    return ntohl(in.sin_addr.s_addr);
}

bool parse_network(std::string_view word, Selector &out)
{
    const std::size_t slash = word.find('/');
    const std::string host(word.substr(0, slash));
    in_addr address{};
    if (inet_pton(AF_INET, host.c_str(), &address) != 1) {
        return false;
    }
    unsigned bits = 32;
    if (slash != std::string_view::npos) {
        const char *end = word.data() + word.size();
        const auto [at, error] = std::from_chars(word.data() + slash + 1, end, bits);
        if (error != std::errc{} || at != end || bits > 32) {
            return false;
        }
    }
    out.mask = bits == 0 ? 0 : ~std::uint32_t{0} << (32 - bits);
    out.network = ntohl(address.s_addr) & out.mask;
    return true;
}

} // namespace

bool Selector::matches(const Interface &interface) const noexcept
{
    return name.empty() ? (interface.address & mask) == network : interface.name == name;
}

bool parse_selectors(std::string_view list, std::vector<Selector> &out, std::string &bad)
{
    out.clear();
    while (!list.empty()) {
        const std::string_view word = list.substr(0, list.find(','));
        list.remove_prefix(std::min(word.size() + 1, list.size()));
        Selector selector;
        const bool digits = word.find_first_not_of("0123456789./") == std::string_view::npos;
        if (word.empty() || (digits && !parse_network(word, selector)) ||
            (!digits && (word.find('/') != std::string_view::npos || word.size() >= IFNAMSIZ))) {
            bad = word;
            return false;
        }
        if (!digits) {
            selector.name = word;
        }
        out.push_back(selector);
    }
    return true;
}

std::vector<Interface> local_interfaces()
{
    std::vector<Interface> found;
    ifaddrs *list = nullptr;
    if (getifaddrs(&list) != 0) {
        return found;
    }
    for (const ifaddrs *entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET ||
            entry->ifa_netmask == nullptr || (entry->ifa_flags & IFF_UP) == 0) {
            continue;
        }
        Interface interface;
        interface.name = entry->ifa_name;
        interface.address = host_order(entry->ifa_addr);
        interface.mask = host_order(entry->ifa_netmask);
        interface.mtu = mtu_of(entry->ifa_name);
        interface.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
        found.push_back(interface);
    }
    freeifaddrs(list);
    return found;
}

std::vector<Interface> choose(const std::vector<Interface> &all,
                              const std::vector<Selector> &include,
                              const std::vector<Selector> &exclude)
{
    const auto any = [](const std::vector<Selector> &list, const Interface &interface) {
        return std::any_of(list.begin(), list.end(),
                           [&](const Selector &s) { return s.matches(interface); });
    };
    std::vector<Interface> wanted;
    if (!include.empty()) {
        std::copy_if(all.begin(), all.end(), std::back_inserter(wanted),
                     [&](const Interface &i) { return any(include, i); });
        return wanted;
    }
    std::copy_if(all.begin(), all.end(), std::back_inserter(wanted),
                 [&](const Interface &i) { return !i.loopback && !any(exclude, i); });
    if (wanted.empty()) {
        std::copy_if(all.begin(), all.end(), std::back_inserter(wanted),
                     [&](const Interface &i) { return i.loopback && !any(exclude, i); });
    }
    return wanted;
}

std::string printed(std::uint32_t address)
{
    const in_addr in{htonl(address)};
    char text[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &in, text, sizeof text);
    return text;
}

} // namespace ft::dgram

#include "opal/mca/btl/base/interfaces.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/if_addr.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdio>
#include <cstring>

namespace ft::btl {

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

/// \return none for addresses of other families
IpAddress address_in(const sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        sockaddr_in in{};
        std::memcpy(&in, address, sizeof in);
        return IpAddress::v4(ntohl(in.sin_addr.s_addr));
    }
    IpAddress out;
    if (address->sa_family == AF_INET6) {
        sockaddr_in6 in{};
        std::memcpy(&in, address, sizeof in);
        std::memcpy(out.bytes.data(), &in.sin6_addr, out.bytes.size());
    }
    return out;
}

/// Bits of a mask, of 128.
std::uint8_t bits_of(const sockaddr *mask, int family)
{
    // A mask's own family need not be filled in.
    const bool v4 = family == AF_INET;
    std::array<std::uint8_t, sizeof(in6_addr)> bytes{};
    if (v4) {
        sockaddr_in in{};
        std::memcpy(&in, mask, sizeof in);
        std::memcpy(bytes.data(), &in.sin_addr, sizeof in.sin_addr);
    } else {
        sockaddr_in6 in{};
        std::memcpy(&in, mask, sizeof in);
        std::memcpy(bytes.data(), &in.sin6_addr, sizeof in.sin6_addr);
    }
    unsigned bits = v4 ? IpAddress::v4_prefix : 0;
    for (const std::uint8_t byte : bytes) {
        bits += static_cast<unsigned>(std::countl_one(byte));
        if (byte != 0xff) {
            break;
        }
    }
    return static_cast<std::uint8_t>(bits);
}

/// The addresses of IPv6 that will not stay, or are not there yet.
std::vector<IpAddress> passing_addresses()
{
    std::vector<IpAddress> found;
    std::FILE *const table = std::fopen("/proc/net/if_inet6", "re");
    if (table == nullptr) {
        return found; // without IPv6
    }
    char digits[33] = "";
    unsigned flags = 0;
    // Address, index, bits, scope, flags, name.
    while (std::fscanf(table, "%32s %*x %*x %*x %x %*s", digits, &flags) == 2) {
        constexpr unsigned any =
            IFA_F_TEMPORARY | IFA_F_DADFAILED | IFA_F_DEPRECATED | IFA_F_TENTATIVE;
        if ((flags & any) == 0) {
            continue;
        }
        IpAddress address;
        for (std::size_t i = 0; i < address.bytes.size(); ++i) {
            std::from_chars(digits + 2 * i, digits + 2 * i + 2, address.bytes[i], 16);
        }
        found.push_back(address);
    }
    std::fclose(table);
    return found;
}

/// Those of IPv6 that one interface has, behind one another, in an order that is not of their age.
void sort_each(std::vector<Interface> &all)
{
    const auto before = [](const Interface &a, const Interface &b) {
        return a.passing != b.passing ? b.passing : a.address.bytes < b.address.bytes;
    };
    for (auto first = all.begin(); first != all.end();) {
        const auto last = std::find_if(first, all.end(), [&](const Interface &other) {
            return other.name != first->name || other.address.is_v4() != first->address.is_v4();
        });
        if (!first->address.is_v4()) {
            std::sort(first, last, before);
        }
        first = last;
    }
}

bool link_local(const IpAddress &address) noexcept
{
    return address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0U) == 0x80;
}

bool parse_address(const std::string &text, IpAddress &out)
{
    in_addr v4{};
    if (inet_pton(AF_INET, text.c_str(), &v4) == 1) {
        out = IpAddress::v4(ntohl(v4.s_addr));
        return true;
    }
    return inet_pton(AF_INET6, text.c_str(), out.bytes.data()) == 1;
}

bool parse_network(std::string_view word, Selector &out)
{
    const std::size_t slash = word.find('/');
    if (!parse_address(std::string(word.substr(0, slash)), out.network)) {
        return false;
    }
    const unsigned front = out.network.is_v4() ? IpAddress::v4_prefix : 0;
    unsigned bits = 128 - front;
    if (slash != std::string_view::npos) {
        const char *end = word.data() + word.size();
        const auto [at, error] = std::from_chars(word.data() + slash + 1, end, bits);
        if (error != std::errc{} || at != end || bits > 128 - front) {
            return false;
        }
    }
    out.bits = static_cast<std::uint8_t>(front + bits);
    return true;
}

/// Meant as a network, rightly written or not: of what networks are written with and nothing else.
/// Names have other letters, also where they have a colon, like mlx5_0:1 and eth0:1.
bool is_network(std::string_view word) noexcept
{
    const bool has_colon = word.find(':') != std::string_view::npos;
    const std::string_view written_with = has_colon ? "0123456789abcdefABCDEF:./" : "0123456789./";
    return word.find_first_not_of(written_with) == std::string_view::npos;
}

std::string_view without_blanks(std::string_view word) noexcept
{
    constexpr std::string_view blanks = " \t";
    word.remove_prefix(std::min(word.find_first_not_of(blanks), word.size()));
    return word.substr(0, word.find_last_not_of(blanks) + 1);
}

/// Whether that may be the name of an interface, or of a device with its port, like mlx5_0:1.
bool is_name(std::string_view word) noexcept
{
    constexpr std::size_t most_of_device = 64; // as the kernel has it for adapters of InfiniBand
    const bool has_port = word.find(':') != std::string_view::npos;
    return !word.empty() && word.find('/') == std::string_view::npos &&
           word.size() < (has_port ? most_of_device : IFNAMSIZ);
}

} // namespace

IpAddress IpAddress::v4(std::uint32_t host_order) noexcept
{
    IpAddress out;
    out.bytes[10] = 0xff;
    out.bytes[11] = 0xff;
    for (unsigned i = 0; i < 4; ++i) {
        out.bytes[12 + i] = static_cast<std::uint8_t>(host_order >> (24 - 8 * i));
    }
    return out;
}

bool IpAddress::is_v4() const noexcept
{
    constexpr std::array<std::uint8_t, 12> front{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::equal(front.begin(), front.end(), bytes.begin());
}

bool IpAddress::alike(const IpAddress &other, unsigned bits) const noexcept
{
    if (is_v4() != other.is_v4()) {
        return false;
    }
    const unsigned whole = bits / 8;
    if (!std::equal(bytes.begin(), bytes.begin() + whole, other.bytes.begin())) {
        return false;
    }
    const unsigned rest = bits % 8;
    return rest == 0 || ((bytes[whole] ^ other.bytes[whole]) >> (8 - rest)) == 0;
}

std::string printed(const IpAddress &address)
{
    char text[INET6_ADDRSTRLEN] = "";
    if (address.is_v4()) {
        inet_ntop(AF_INET, address.bytes.data() + IpAddress::v4_prefix / 8, text, sizeof text);
    } else {
        inet_ntop(AF_INET6, address.bytes.data(), text, sizeof text);
    }
    return text;
}

bool Selector::matches(const Interface &interface) const noexcept
{
    if (name.empty()) {
        return network.alike(interface.address, bits);
    }
    const std::string &other = interface.name;
    return other == name ||
           (other.size() > name.size() && other.starts_with(name) && other[name.size()] == ':');
}

bool parse_selectors(std::string_view list, std::vector<Selector> &out, std::string &bad)
{
    out.clear();
    while (!list.empty()) {
        const std::string_view given = list.substr(0, list.find(','));
        list.remove_prefix(std::min(given.size() + 1, list.size()));
        const std::string_view word = without_blanks(given);
        Selector selector;
        selector.word = word;
        const bool network = is_network(word);
        if (network ? !parse_network(word, selector) : !is_name(word)) {
            bad = word;
            return false;
        }
        if (!network) {
            selector.name = word;
        }
        out.push_back(selector);
    }
    return true;
}

std::vector<std::string> unmatched(const std::vector<Selector> &list,
                                   const std::vector<Interface> &all,
                                   const std::vector<std::string> &devices)
{
    std::vector<std::string> words;
    for (const Selector &selector : list) {
        const auto matched = [&](const Interface &one) { return selector.matches(one); };
        if (std::none_of(all.begin(), all.end(), matched) &&
            std::find(devices.begin(), devices.end(), selector.word) == devices.end()) {
            words.push_back(selector.word);
        }
    }
    return words;
}

std::vector<Interface> local_interfaces()
{
    std::vector<Interface> found;
    ifaddrs *list = nullptr;
    if (getifaddrs(&list) != 0) {
        return found;
    }
    const std::vector<IpAddress> passing = passing_addresses();
    for (const int family : {AF_INET, AF_INET6}) {
        for (const ifaddrs *entry = list; entry != nullptr; entry = entry->ifa_next) {
            if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family ||
                entry->ifa_netmask == nullptr || (entry->ifa_flags & IFF_UP) == 0) {
                continue;
            }
            Interface interface;
            interface.name = entry->ifa_name;
            interface.address = address_in(entry->ifa_addr);
            interface.bits = bits_of(entry->ifa_netmask, family);
            interface.mtu = mtu_of(entry->ifa_name);
            interface.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
            interface.passing =
                std::find(passing.begin(), passing.end(), interface.address) != passing.end();
            if (!link_local(interface.address)) {
                found.push_back(interface);
            }
        }
    }
    freeifaddrs(list);
    sort_each(found);
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
    const auto asked_for = [&](const Interface &interface) {
        return std::any_of(include.begin(), include.end(), [&](const Selector &s) {
            return s.name.empty() && s.matches(interface);
        });
    };
    // `all` has the addresses of IPv4 first.
    const auto further = [&](const Interface &interface) {
        const auto first = std::find_if(all.begin(), all.end(), [&](const Interface &other) {
            return other.name == interface.name;
        });
        return !interface.address.is_v4() && first->address != interface.address;
    };
    const auto named = [&](const Interface &interface) {
        return std::any_of(include.begin(), include.end(), [&](const Selector &s) {
            return s.name.empty() && s.bits == 128 && s.matches(interface);
        });
    };
    std::vector<Interface> wanted;
    const auto take = [&](const auto &condition) {
        const auto better = [&](const Interface &i) {
            return i.passing && !named(i) &&
                   std::any_of(all.begin(), all.end(), [&](const Interface &other) {
                       return !other.passing && other.name == i.name &&
                              i.same_network(other.address) && condition(other) &&
                              (asked_for(other) || !further(other));
                   });
        };
        std::copy_if(all.begin(), all.end(), std::back_inserter(wanted), [&](const Interface &i) {
            return condition(i) && (asked_for(i) || !further(i)) && !better(i);
        });
    };
    if (!include.empty()) {
        take([&](const Interface &i) { return any(include, i); });
        return wanted;
    }
    take([&](const Interface &i) { return !i.loopback && !any(exclude, i); });
    if (wanted.empty()) {
        take([&](const Interface &i) { return i.loopback && !any(exclude, i); });
    }
    return wanted;
}

} // namespace ft::btl

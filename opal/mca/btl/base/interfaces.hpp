/// \file
/// The networks of this host, and which of them a user wants.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ft::btl {

/// An address of IP in network byte order, one of IPv4 as IPv6 writes it (::ffff:10.1.2.3, RFC 4291
/// 2.5.5.2). All zeros: none.
struct IpAddress {
    static constexpr unsigned v4_prefix = 96; ///< bits in front of an address of IPv4
    std::array<std::uint8_t, 16> bytes{};

    [[nodiscard]] static IpAddress v4(std::uint32_t host_order) noexcept;
    [[nodiscard]] bool none() const noexcept { return *this == IpAddress{}; }
    [[nodiscard]] bool is_v4() const noexcept;
    /// Of one family, and alike in so many bits of the 128.
    [[nodiscard]] bool alike(const IpAddress &other, unsigned bits) const noexcept;
    friend bool operator==(const IpAddress &, const IpAddress &) noexcept = default;
};

/// "10.1.2.3" or "fd00::1"
[[nodiscard]] std::string printed(const IpAddress &address);

/// An address of an interface that is up.
struct Interface {
    std::string name;
    IpAddress address;
    std::uint8_t bits = 0; ///< of the 128 that all addresses of its network have in common
    std::uint32_t mtu = 0; ///< bytes
    bool loopback = false;
    bool passing = false; ///< of IPv6, and temporary (RFC 8981), or not to be used any more or yet

    [[nodiscard]] bool same_network(const IpAddress &other) const noexcept
    {
        return !address.none() && address.alike(other, bits);
    }
};

/// One word of an include or exclude list: the name of an interface, which is all its labels' name,
/// too (eth0 that of eth0:1), or a network like 10.1.0.0/16 or fd00:1::/64.
struct Selector {
    std::string word; ///< as it was given
    std::string name; ///< empty: a network
    IpAddress network;
    std::uint8_t bits = 0; ///< of 128
    [[nodiscard]] bool matches(const Interface &interface) const noexcept;
};

/// Words that commas separate, and blanks if somebody likes those. \return false, and the word that
/// is to blame, when the list cannot be understood
[[nodiscard]] bool parse_selectors(std::string_view list, std::vector<Selector> &out,
                                   std::string &bad);

/// The addresses of the interfaces that are up, in the kernel's order, those of IPv4 first. Without
/// those of IPv6 that mean something on one link only (fe80::/10), which every interface has; the
/// others of one interface are sorted, for the kernel has them by age: those that pass are last.
[[nodiscard]] std::vector<Interface> local_interfaces();

/// The words of `list` that match none of `all`, and name none of the other `devices`.
[[nodiscard]] std::vector<std::string> unmatched(const std::vector<Selector> &list,
                                                 const std::vector<Interface> &all,
                                                 const std::vector<std::string> &devices);

/// Those of `all` that a user wants: what `include` matches, or else everything that `exclude` does
/// not match but loopback, which is taken when there is nothing else. An interface's address of
/// IPv6 is taken where it has none of IPv4, and its first only; others where `include` names their
/// network. One that passes is not taken where another of its interface and network is taken,
/// unless `include` has that very address.
[[nodiscard]] std::vector<Interface> choose(const std::vector<Interface> &all,
                                            const std::vector<Selector> &include,
                                            const std::vector<Selector> &exclude);

} // namespace ft::btl

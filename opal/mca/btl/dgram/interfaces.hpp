/// \file
/// The networks of this host, and which of them a user wants.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ft::dgram {

/// An IPv4 address of an interface that is up.
struct Interface {
    std::string name;
    std::uint32_t address = 0; ///< host byte order
    std::uint32_t mask = 0;    ///< host byte order
    std::uint32_t mtu = 0;     ///< bytes
    bool loopback = false;

    [[nodiscard]] bool same_network(std::uint32_t other) const noexcept
    {
        return (address & mask) == (other & mask);
    }
};

/// One word of an include or exclude list: the name of an interface, or a network like
/// 10.1.0.0/16.
struct Selector {
    std::string name; ///< empty: a network
    std::uint32_t network = 0;
    std::uint32_t mask = 0;
    [[nodiscard]] bool matches(const Interface &interface) const noexcept;
};

/// \return false, and the word that is to blame, when the list cannot be understood
[[nodiscard]] bool parse_selectors(std::string_view list, std::vector<Selector> &out,
                                   std::string &bad);

/// The interfaces that are up and have an IPv4 address, in the kernel's order.
[[nodiscard]] std::vector<Interface> local_interfaces();

/// Those of `all` that a user wants: what `include` matches, or else everything that `exclude` does
/// not match but loopback, which is taken when there is nothing else.
[[nodiscard]] std::vector<Interface> choose(const std::vector<Interface> &all,
                                            const std::vector<Selector> &include,
                                            const std::vector<Selector> &exclude);

/// "10.1.2.3"
[[nodiscard]] std::string printed(std::uint32_t address);

} // namespace ft::dgram

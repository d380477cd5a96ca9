/// \file
/// What a BTL does once, when Open MPI asks it for modules and for the way to a peer.
#pragma once
#include "opal/mca/opal_prelude.hpp"

#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "opal/ft/base/wire.hpp"
#include "opal/mca/btl/base/interfaces.hpp"
#include "opal/mca/btl/base/network_stack.hpp"
#include "opal/mca/show_help.hpp"
#include "opal/mca/tell_once.hpp"

namespace ft::btl {

/// A random number that nobody else has, not 0, also not in the bits of `mask`.
[[nodiscard]] std::uint64_t fresh_cookie(std::uint64_t mask = ~std::uint64_t{0}) noexcept;

/// Shows a help text, for errors that all ranks make alike: rank 0 speaks.
template <typename... Arguments>
void complain(const char *file, const char *topic, Arguments... arguments) noexcept
{
    if (OPAL_PROC_MY_NAME.vpid == 0) {
        mca::show_help(file, topic, arguments...);
    }
}

/// Shows a help text, for what is so on one host, perhaps, and for all ranks of it: one of them
/// speaks.
template <typename... Arguments>
void complain_of_host(const char *file, const char *topic, Arguments... arguments) noexcept
{
    char what[128];
    static_cast<void>(std::snprintf(what, sizeof what, "%s-%s", file, topic));
    mca::tell_once(what, [&] { mca::show_help(file, topic, arguments...); });
}

/// Which of `all` the lists of a user choose. \param wanted what words are to be: it goes into the
/// topic bad-parameter of `help_file` \return false after saying what is wrong with a list
[[nodiscard]] bool choose_interfaces(const std::string &include, const std::string &exclude,
                                     const std::vector<Interface> &all, const char *help_file,
                                     const char *wanted, std::vector<Interface> &chosen);
/// Tells, once for each host, which words of a list that is not empty and was understood mean
/// nothing there: by the topic unmatched of `help_file`, which is given to the name of the host,
/// the words, and what there is. A list may be for hosts that have different networks, so the
/// others are used, as btl/tcp does; and like that one nothing is said of what is not there and is
/// not to be used. \param devices names of what is no interface of the kernel's
void tell_unmatched(const std::string &include, const std::vector<Interface> &all,
                    const std::vector<std::string> &devices, const char *help_file);

/// "lo (127.0.0.1), eth0 (10.1.0.5)", "none" for none.
[[nodiscard]] std::string listed(std::span<const Interface> some);

/// To all processes of the job, those to come as well. \return false when PMIx did not take it
[[nodiscard]] bool publish(const mca_base_component_t &component,
                           std::span<const std::byte> blob) noexcept;
/// What a peer published for that component; empty when it does not use it.
[[nodiscard]] std::vector<std::byte> published_by(const mca_base_component_t &component,
                                                  opal_proc_t *process);

/// An interface's address, and a peer's, as they are published.
inline constexpr std::size_t address_bytes = sizeof(IpAddress::bytes);
void write_address(base::WireWriter &writer, const IpAddress &address);
[[nodiscard]] IpAddress read_address(base::WireReader &reader);
/// This process's, asked for once: what others decide by it must hold.
[[nodiscard]] const NetworkStack &own_stack() noexcept;
[[nodiscard]] NetworkStack read_stack(base::WireReader &reader);

/// Whether a peer has this host's interfaces, as the runtime says or what it published.
[[nodiscard]] bool on_this_host(const opal_proc_t *process, const NetworkStack &its) noexcept;

} // namespace ft::btl

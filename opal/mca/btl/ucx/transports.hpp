/// \file
/// What UCX offers on this host, and which of it a user wants. No Open MPI here.
#pragma once
#include <uct/api/uct.h>

#include <string>
#include <vector>

namespace ft::ucx {

/// A device through a transport.
struct Resource {
    uct_component_h component = nullptr;
    std::string domain; ///< UCX's memory domain that it belongs to
    std::string transport;
    std::string device;
    bool shared_memory = false;
};

/// All that lead to other processes by active messages, in UCX's order.
[[nodiscard]] std::vector<Resource> resources();

/// Those of `all` whose transport is in `list`, words separated by commas, in the order of the
/// list. The word auto stands for the best transport for networks and the best one for shared
/// memory that there are; ud, rc and dc for the best of each device that is called so. \param
/// unknown words that name no transport of `all`
[[nodiscard]] std::vector<Resource> choose(const std::vector<Resource> &all,
                                           const std::string &list,
                                           std::vector<std::string> &unknown);

/// Which of `all` carries the messages that connect endpoints of `resource`: one of the same device
/// that needs no such messages itself. \return nullptr when there is none
[[nodiscard]] const Resource *line_for(const std::vector<Resource> &all, const Resource &resource);

/// The transports of `all`, each once, for a message: "tcp (eth0, lo), posix".
[[nodiscard]] std::string listed(const std::vector<Resource> &all);

} // namespace ft::ucx

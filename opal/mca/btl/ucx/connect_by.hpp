/// \file
/// How endpoints are connected. Neither Open MPI nor UCX here.
#pragma once
#include <cstdint>

namespace ft::ucx {

enum class ConnectBy : std::uint8_t {
    automatic,  ///< to interfaces where the transport can
    interfaces, ///< to interfaces, or not at all
    endpoints   ///< one to one where the transport can
};

} // namespace ft::ucx

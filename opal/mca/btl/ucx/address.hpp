/// \file
/// Addresses of UCT's: bytes that only UCX understands. Neither Open MPI nor UCX here.
#pragma once
#include <compare>
#include <cstddef>
#include <vector>

namespace ft::ucx {

using Bytes = std::vector<std::byte>;

/// Where an interface is.
struct Address {
    Bytes device;
    Bytes interface;
    friend auto operator<=>(const Address &, const Address &) = default;
};

} // namespace ft::ucx

#include "opal/mca/btl/dgram/ofi_errors.hpp"

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <algorithm>

namespace ft::dgram {

namespace {

constexpr std::size_t most_receives = 4096;
constexpr std::size_t least_receives = 16;

} // namespace

std::string said(const char *call, long error)
{
    return std::string(call) + ": " + fi_strerror(static_cast<int>(error < 0 ? -error : error));
}

bool lost_by_network(int error) noexcept
{
    switch (error) {
    case FI_ECONNREFUSED:
    case FI_EHOSTUNREACH:
    case FI_EHOSTDOWN:
    case FI_ENETUNREACH:
    case FI_ENETDOWN:
    case FI_EADDRNOTAVAIL:
    case FI_EACCES:
    case FI_EPERM:
        return true;
    default:
        return false;
    }
}

std::size_t receives_for(std::size_t bytes, std::size_t room, std::size_t offered) noexcept
{
    const std::size_t most = std::clamp<std::size_t>(offered, 1, most_receives);
    return std::clamp(bytes / room, std::min(least_receives, most), most);
}

ReceiveFate fate_of_receive(int error) noexcept
{
    switch (error) {
    case FI_ETRUNC:
    case FI_ETOOSMALL:
    case FI_EMSGSIZE:
        return ReceiveFate::truncated;
    case FI_EAGAIN:
    case FI_EINTR:
    case FI_ENOMEM:
    case FI_ENOBUFS:
    case FI_EOVERRUN:
        return ReceiveFate::lost;
    default:
        return lost_by_network(error) ? ReceiveFate::lost : ReceiveFate::broken;
    }
}

} // namespace ft::dgram

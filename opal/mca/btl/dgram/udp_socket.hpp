/// \file
/// A kernel's UDP socket, where one is or leads, and who sends to it.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "opal/mca/btl/base/interfaces.hpp"

namespace ft::dgram {

/// Where a socket is or leads: an address of IP and a port. Published as 16 and 2 bytes.
struct Place {
    static constexpr std::size_t bytes = sizeof(btl::IpAddress::bytes) + 2;
    btl::IpAddress address;
    in_port_t port = 0; ///< network byte order

    [[nodiscard]] int family() const noexcept { return address.is_v4() ? AF_INET : AF_INET6; }
    /// \return the length of what was written to `out`
    socklen_t to(sockaddr_storage &out) const noexcept
    {
        out = sockaddr_storage{};
        if (address.is_v4()) {
            sockaddr_in in{};
            in.sin_family = AF_INET;
            in.sin_port = port;
            std::memcpy(&in.sin_addr, address.bytes.data() + btl::IpAddress::v4_prefix / 8,
                        sizeof in.sin_addr);
            std::memcpy(&out, &in, sizeof in);
            return sizeof in;
        }
        sockaddr_in6 in{};
        in.sin6_family = AF_INET6;
        in.sin6_port = port;
        std::memcpy(&in.sin6_addr, address.bytes.data(), sizeof in.sin6_addr);
        std::memcpy(&out, &in, sizeof in);
        return sizeof in;
    }
};

class Socket {
  public:
    Socket() = default;
    Socket(const Socket &) = delete;
    Socket &operator=(const Socket &) = delete;
    ~Socket() { shut(); }
    void shut() noexcept
    {
        if (fd_ >= 0) {
            close(fd_);
            fd_ = -1;
        }
    }
    [[nodiscard]] bool open(int family) noexcept
    {
        fd_ = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        return fd_ >= 0;
    }
    /// \return -1 while it is not open
    [[nodiscard]] int fd() const noexcept { return fd_; }
    [[nodiscard]] bool bind_to(const Place &place) const noexcept
    {
        sockaddr_storage name{};
        const socklen_t length = place.to(name);
        return bind_to(name, length);
    }
    [[nodiscard]] bool bind_to(const sockaddr_storage &name, socklen_t length) const noexcept
    {
        return bind(fd_, reinterpret_cast<const sockaddr *>(&name), length) == 0;
    }

    [[nodiscard]] bool connect_to(const sockaddr_storage &name, socklen_t length) const noexcept
    {
        return ::connect(fd_, reinterpret_cast<const sockaddr *>(&name), length) == 0;
    }
    void set(int level, int option, int value) const noexcept
    {
        static_cast<void>(setsockopt(fd_, level, option, &value, sizeof value));
    }
    /// As large as asked if the process may, else as large as everybody may. \return what it is
    [[nodiscard]] std::size_t buffer(int forced, int plain, std::uint32_t bytes) const noexcept
    {
        const int wanted = static_cast<int>(std::min<std::uint32_t>(bytes, 1U << 30U));
        if (setsockopt(fd_, SOL_SOCKET, forced, &wanted, sizeof wanted) != 0) {
            set(SOL_SOCKET, plain, wanted);
        }
        int is = 0;
        socklen_t length = sizeof is;
        static_cast<void>(getsockopt(fd_, SOL_SOCKET, plain, &is, &length));
        return static_cast<std::size_t>(is / 2); // the kernel doubles it for its own overhead
    }

  private:
    int fd_ = -1;
};

/// A socket that is looked at for what has come.
struct Inlet {
    Socket socket;
    bool found = false;     ///< the last look found something
    bool streaming = false; ///< more than one message at a time
};

/// Where datagrams come from: learnt from one in seventeen of those that come by themselves, so
/// that peers who take turns are told apart.
class Sender {
  public:
    static constexpr unsigned sample = 17;
    [[nodiscard]] bool asks() const noexcept { return count_ == sample - 1; }
    /// One has come by itself. \return true when it is the same peer again and again
    [[nodiscard]] bool note() noexcept
    {
        if (++count_ < sample) {
            return false;
        }
        count_ = 0;
        const bool same = latest_length_ == length_ && std::memcmp(&latest_, &from_, length_) == 0;
        from_ = latest_;
        length_ = latest_length_;
        same_ = same ? same_ + 1 : 0;
        return same_ >= wanted_;
    }
    /// It was not for long: next time it is to be surer.
    void begin_anew() noexcept
    {
        same_ = 0;
        wanted_ = std::min(wanted_ * 2, 1U << 20U);
    }
    /// To be filled in when it asks.
    [[nodiscard]] sockaddr_storage *latest() noexcept { return &latest_; }
    [[nodiscard]] socklen_t *latest_length() noexcept
    {
        latest_length_ = sizeof latest_;
        return &latest_length_;
    }
    [[nodiscard]] const sockaddr_storage &from() const noexcept { return from_; }
    [[nodiscard]] socklen_t length() const noexcept { return length_; }

  private:
    sockaddr_storage latest_{};
    sockaddr_storage from_{};
    socklen_t latest_length_ = 0;
    socklen_t length_ = 0;
    unsigned count_ = 0;
    unsigned same_ = 0;
    unsigned wanted_ = 8;
};

} // namespace ft::dgram

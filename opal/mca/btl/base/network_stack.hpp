/// \file
/// Which network stack of a kernel a process uses.
#pragma once
#include <array>
#include <cstddef>

namespace ft::btl {

/// The name of a network stack: two processes whose names are the same have the same interfaces and
/// addresses, whatever the runtime knows of where they are (Open MPI does not say of a process that
/// another mpirun started that it is on this host). All zeros: not known.
class NetworkStack {
  public:
    static constexpr std::size_t bytes = 16;

    NetworkStack() = default;
    explicit NetworkStack(const std::array<std::byte, bytes> &name) noexcept : name_(name) {}

    /// That of this process; not known where /proc does not tell.
    [[nodiscard]] static NetworkStack own() noexcept;

    [[nodiscard]] bool same(const NetworkStack &other) const noexcept
    {
        return name_ == other.name_ && name_ != std::array<std::byte, bytes>{};
    }
    [[nodiscard]] const std::array<std::byte, bytes> &name() const noexcept { return name_; }

  private:
    std::array<std::byte, bytes> name_{};
};

} // namespace ft::btl

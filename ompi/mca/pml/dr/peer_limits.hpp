/// \file
/// How large the fragments are that a peer can take, per BTL.
///
/// btl/tcp receives into buffers of its own btl_tcp_max_send_size and does not compare: a fragment
/// from a process in which that is larger runs over their end. So each process publishes what its
/// BTLs can carry (through the modex, before anybody can send to it), and a path carries what both
/// ends can.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ft::dr {

/// Publishes what this process's BTLs can carry. While the PML is initialised; the BTLs must be.
/// Where that fails it says so, and peers send what everybody can take.
void publish_limits() noexcept;

/// What one peer has published. A value.
class PeerLimits {
  public:
    /// What a peer can surely take over any BTL that says nothing of it: btl/tcp's default, which
    /// no other of Open MPI's BTLs needs to be told, bytes.
    static constexpr std::size_t unsaid = std::size_t{128} * 1024;

    /// Of a peer that has published nothing, or nothing that can be read: `unsaid` for every BTL.
    PeerLimits() = default;
    explicit PeerLimits(const opal_process_name_t &peer);

    /// Largest fragment with all headers that the peer takes over that BTL, bytes.
    std::size_t over(std::string_view btl) const noexcept;

  private:
    std::vector<std::pair<std::string, std::size_t>> limits_;
};

} // namespace ft::dr

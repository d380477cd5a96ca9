/// \file
/// What btl/tcp leaves behind in an endpoint whose connection broke.
///
/// btl/tcp of Open MPI 4.1 keeps the fragment that it was writing, although it has called back for
/// it, and the one that it was reading. When the peer connects anew, which needs nothing of this
/// side, it goes on with both: it sends memory that is somebody else's by now, calls back once
/// more, and takes payload for headers, whose tags and sizes lead anywhere. Its headers are not
/// installed, so the layout of its endpoint is repeated here, and believed only when the size that
/// its class states agrees.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

namespace ft::dr {

/// Laid over an endpoint of btl/tcp; never made.
class TcpEndpoint {
  public:
    /// \return nullptr when it is not one of btl/tcp, or of another layout
    static TcpEndpoint *of(const mca_btl_base_module_t *btl,
                           mca_btl_base_endpoint_t *endpoint) noexcept;

    /// Forgets halves of fragments if there is no connection and none is being made. To be called
    /// at each pass of progress: btl/tcp takes some turns of its event loop from a broken
    /// connection to the peer's next one. It leaves these fields alone meanwhile.
    /// \return whether there was one that had been being sent
    bool forget_halves() noexcept;

  private:
    enum class State : int { connecting, connect_ack, closed, failed, connected };

    opal_list_item_t super_;
    void *btl_;
    void *proc_;
    void *address_;
    int sd_;
    int sd_next_;
    char *cache_;
    char *cache_position_;
    std::size_t cache_length_;
    void *send_frag_;
    void *recv_frag_;
    State state_;
    std::uint32_t retries_;
    opal_list_t frags_;
    opal_mutex_t send_lock_;
    opal_mutex_t recv_lock_;
    opal_event_t accept_event_;
    opal_event_t send_event_;
    opal_event_t recv_event_;
    bool network_order_;
};

} // namespace ft::dr

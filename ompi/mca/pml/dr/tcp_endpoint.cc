#include "ompi/mca/pml/dr/tcp_endpoint.hpp"

namespace ft::dr {

TcpEndpoint *TcpEndpoint::of(const mca_btl_base_module_t *btl,
                             mca_btl_base_endpoint_t *endpoint) noexcept
{
    if (std::strcmp(btl->btl_component->btl_version.mca_component_name, "tcp") != 0 ||
        endpoint == nullptr) {
        return nullptr;
    }
    auto *mine = reinterpret_cast<TcpEndpoint *>(endpoint);
    const opal_class_t *its_class = mine->super_.super.obj_class;
    if (its_class == nullptr || its_class->cls_sizeof != sizeof(TcpEndpoint) ||
        std::strcmp(its_class->cls_name, "mca_btl_tcp_endpoint_t") != 0 || mine->btl_ != btl) {
        return nullptr;
    }
    return mine;
}

bool TcpEndpoint::forget_halves() noexcept
{
    if (__atomic_load_n(&state_, __ATOMIC_ACQUIRE) != State::closed ||
        __atomic_load_n(&sd_, __ATOMIC_ACQUIRE) >= 0) {
        return false;
    }
    const bool sending = send_frag_ != nullptr;
    if (sending) {
        // One that met the broken connection when it was to be sent at once waits for the socket
        // that is closed, which would spoil the event of the next socket.
        opal_event_del(&send_event_);
    }
    send_frag_ = nullptr;
    recv_frag_ = nullptr;
    return sending;
}

} // namespace ft::dr

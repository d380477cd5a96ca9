#include "ompi/mca/pml/dr/tcp_endpoint.hpp"

#include <cstring>

#include <netinet/in.h>
#include <netinet/tcp.h>

namespace ft::dr {

namespace {

/// One of btl/tcp's locks, when nobody has it. Without threads it is free always.
class Hold {
  public:
    explicit Hold(opal_mutex_t &lock) noexcept : lock_(lock), held_(OPAL_THREAD_TRYLOCK(&lock) == 0)
    {
    }
    Hold(const Hold &) = delete;
    Hold &operator=(const Hold &) = delete;
    ~Hold()
    {
        if (held_) {
            OPAL_THREAD_UNLOCK(&lock_);
        }
    }
    explicit operator bool() const noexcept { return held_; }

  private:
    opal_mutex_t &lock_;
    bool held_;
};

} // namespace

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

bool TcpEndpoint::same_address(const TcpEndpoint &other) const noexcept
{
    // With which btl/tcp's address begins, of IPv4 padded with zeros.
    return std::memcmp(address_, other.address_, sizeof(in6_addr)) == 0;
}

void TcpEndpoint::leave_failed() noexcept
{
    if (!failing()) {
        return;
    }
    // Where another thread is closing the connection at this moment, it has one of these.
    const Hold sending(send_lock_);
    const Hold receiving(recv_lock_);
    if (sending && receiving && failing()) {
        __atomic_store_n(&state_, State::closed, __ATOMIC_RELEASE);
    }
}

mca_btl_base_descriptor_t *TcpEndpoint::take_half_sent() noexcept
{
    const Hold hold(send_lock_);
    if (!hold || !closed() || send_frag_ == nullptr) {
        return nullptr;
    }
    // One that met the broken connection when it was to be sent at once waits for the socket that
    // is closed, which would spoil the event of the next socket.
    opal_event_del(&send_event_);
    return take(send_frag_);
}

mca_btl_base_descriptor_t *TcpEndpoint::take_half_received() noexcept
{
    const Hold hold(recv_lock_);
    return hold ? take(recv_frag_) : nullptr;
}

bool TcpEndpoint::has_waiting() noexcept
{
    const Hold hold(send_lock_);
    return hold && closed() && opal_list_get_size(&frags_) != 0;
}

mca_btl_base_descriptor_t *
TcpEndpoint::take_waiting(bool (*stays)(const mca_btl_base_descriptor_t &), bool &stayed) noexcept
{
    stayed = false;
    const Hold hold(send_lock_);
    if (!hold || !closed() || opal_list_get_size(&frags_) == 0) {
        return nullptr;
    }
    auto *const first = reinterpret_cast<mca_btl_base_descriptor_t *>(opal_list_get_first(&frags_));
    stayed = stays(*first);
    if (stayed) {
        return nullptr;
    }
    (void)opal_list_remove_first(&frags_);
    return first;
}

void TcpEndpoint::call_off_unanswered() noexcept
{
    const int socket = load(sd_);
    tcp_info info{};
    socklen_t size = sizeof info;
    if (load(state_) == State::connecting &&
        getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
        info.tcpi_state == TCP_SYN_SENT) {
        (void)::shutdown(socket, SHUT_RDWR);
    }
}

void TcpEndpoint::end_connection() noexcept
{
    const int socket = load(sd_);
    if (socket >= 0 && (connected() || connecting())) {
        (void)::shutdown(socket, SHUT_RDWR);
    }
}

void TcpEndpoint::forget_closed_socket() noexcept
{
    // Another thread may have begun to make the next connection: its socket is not to be forgotten.
    const Hold sending(send_lock_);
    const Hold receiving(recv_lock_);
    if (sending && receiving && load(state_) == State::closed) {
        __atomic_store_n(&sd_, -1, __ATOMIC_RELEASE);
    }
}

void TcpEndpoint::keep_alive() noexcept
{
    const int on = 1;
    const int seconds = 2;
    const int tries = 127; // a network that is down for a while is dr's to judge, not the kernel's
    // Without it all goes well, but for a peer that waits in silence at a half of a connection.
    (void)setsockopt(sd_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(sd_, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    (void)setsockopt(sd_, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
    (void)setsockopt(sd_, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
}

} // namespace ft::dr

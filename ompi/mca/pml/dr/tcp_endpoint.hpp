/// \file
/// What btl/tcp does not tell: that a connection is gone, and what it leaves behind in its
/// endpoint.
///
/// btl/tcp of Open MPI 4.1 reports a broken connection only through fragments that are queued; a
/// process that only receives is told nothing. It keeps the fragment that it was writing, although
/// it has called back for it, and the one that it was reading, and goes on with both on the next
/// connection: it sends memory that is somebody else's by now, calls back once more, and takes
/// payload for headers, whose tags and sizes lead anywhere. Its headers are not installed, so the
/// layout of its endpoint is repeated here, and believed only when the size that its class states
/// agrees.
#pragma once
#include "ompi/mca/ompi_prelude.hpp"

namespace ft::dr {

/// Laid over an endpoint of btl/tcp; never made. What is taken out here btl/tcp leaves alone while
/// there is no connection; with threads its locks are tried, and nothing is taken when they are
/// held.
class TcpEndpoint {
  public:
    /// \return nullptr when it is not one of btl/tcp, or of another layout
    static TcpEndpoint *of(const mca_btl_base_module_t *btl,
                           mca_btl_base_endpoint_t *endpoint) noexcept;

    bool connected() const noexcept { return load(state_) == State::connected && load(sd_) >= 0; }
    /// No connection, and none being made.
    bool closed() const noexcept { return load(state_) == State::closed && load(sd_) < 0; }
    /// One is being made, by this side or by the peer.
    bool connecting() const noexcept
    {
        const State state = load(state_);
        return state == State::connecting || state == State::connect_ack;
    }
    /// Ends an attempt of this side that the peer's kernel has not answered: btl/tcp finds that it
    /// failed.
    void call_off_unanswered() noexcept;
    /// Has the kernel end the connection, so that nothing more of what is queued or half written
    /// goes out: btl/tcp finds it broken. Nothing where there is none.
    void end_connection() noexcept;
    /// Whether both lead to the same address of the peer: to btl/tcp there, connections over them
    /// look alike.
    bool same_address(const TcpEndpoint &other) const noexcept;
    /// Closed, and nothing of a connection is left in it.
    bool at_rest() const noexcept
    {
        return closed() && load(send_frag_) == nullptr && load(recv_frag_) == nullptr &&
               load(frags_.opal_list_length) == 0;
    }
    /// It is closing a broken connection, and completes what is queued with errors.
    bool failing() const noexcept { return load(state_) == State::failed && load(sd_) < 0; }
    /// No connection, none being made, and it may be in the state in which it refuses to send.
    bool without_connection() const noexcept
    {
        const State state = load(state_);
        return (state == State::closed || state == State::failed) && load(sd_) < 0;
    }
    /// Whether a descriptor was refused, after btl_send returned an error and nobody called back
    /// for it. If not it waits for the next connection, and the callback is still to come.
    static bool refused(const mca_btl_base_descriptor_t &des) noexcept
    {
        return (load(des.des_flags) & MCA_BTL_DES_SEND_ALWAYS_CALLBACK) == 0;
    }
    /// Outside of btl/tcp's calls: takes an endpoint out of the state that btl/tcp leaves it in
    /// when it accepts a connection that is broken already. It is without a connection then, makes
    /// none itself, and refuses to send.
    void leave_failed() noexcept;
    /// While connected: tells this connection from the one before.
    int socket() const noexcept { return load(sd_); }

    /// Within a callback while it is failing: the descriptor that is called back may be freed.
    void forget_send() noexcept { (void)take(send_frag_); }
    /// When closed, and before anything else is sent: takes out the fragment that was being sent.
    /// btl/tcp will not call back for it any more.
    mca_btl_base_descriptor_t *take_half_sent() noexcept;
    /// When closed, or connected since the last turn of the event loop: takes out the fragment that
    /// was being received, which nobody else will free.
    mca_btl_base_descriptor_t *take_half_received() noexcept;
    /// Closed with fragments that wait for the next connection: an attempt to make one failed.
    bool has_waiting() noexcept;
    /// Takes out the first of these, unless `stays` is true for it: then there is nothing to take,
    /// and `stayed` is set. Taken out it could not be put back: that would have to wait for the
    /// lock, which who closes the connection holds while its callbacks wait for a peer's.
    mca_btl_base_descriptor_t *take_waiting(bool (*stays)(const mca_btl_base_descriptor_t &),
                                            bool &stayed) noexcept;
    /// After an attempt to connect that failed at once: btl/tcp may have left the number of a
    /// socket that it has closed.
    void forget_closed_socket() noexcept;
    /// Makes the kernel ask an idle peer every few seconds whether it knows the connection still: a
    /// peer whose end was reset answers with a reset.
    void keep_alive() noexcept;

  private:
    enum class State : int { connecting, connect_ack, closed, failed, connected };
    template <class T>
    static T load(const T &field) noexcept
    {
        return __atomic_load_n(&field, __ATOMIC_ACQUIRE);
    }
    static mca_btl_base_descriptor_t *take(mca_btl_base_descriptor_t *&fragment) noexcept
    {
        return __atomic_exchange_n(&fragment, nullptr, __ATOMIC_ACQ_REL);
    }

    opal_list_item_t super_;
    void *btl_;
    void *proc_;
    void *address_;
    int sd_;
    int sd_next_;
    char *cache_;
    char *cache_position_;
    std::size_t cache_length_;
    mca_btl_base_descriptor_t *send_frag_;
    mca_btl_base_descriptor_t *recv_frag_;
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
